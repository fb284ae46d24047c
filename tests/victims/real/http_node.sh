# node with an HTTP server (http_node.js); io_uring is off in libuv, as it is in a sandbox.
# victim: needs=node
# victim: timeout=40
UV_USE_IO_URING=0 exec node --expose-gc "$(dirname "$0")/http_node.js"
