# ThreadingHTTPServer and its clients: requests under way (their threads sleep), keep-alive connections, new ones after.
# victim: timeout=40
import http.client
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

gate = threading.Event()
body = bytes(range(256)) * 2000


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/slow":
            gate.wait()
        answer = self.path.encode() + b" " + body
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()


def get(connection, path):
    connection.request("GET", path)
    return connection.getresponse().read() == path.encode() + b" " + body


def new():
    return http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=15)


results = []
slow = [threading.Thread(target=lambda: results.append(get(new(), "/slow"))) for _ in range(4)]
for t in slow:
    t.start()
kept = [new() for _ in range(3)]
assert all(get(c, "/first") for c in kept)
while threading.active_count() < 12:
    time.sleep(0.01)
print("READY", flush=True)
while not os.path.exists("go"):
    time.sleep(0.002)
assert all(get(c, "/second") for c in kept)
gate.set()
for t in slow:
    t.join(15)
assert results == [True] * 4, results
assert get(new(), "/third")
print("PASS", flush=True)
