# The network namespace itself: loopback is up with its addresses, an added address and the host name are kept.
ip address add 10.99.0.1/32 dev lo || { echo "SKIP: no ip"; exit 77; }
hostname frozen-host
echo READY
while [ ! -e go ]; do sleep 0.01; done
ip address show dev lo | grep -q 10.99.0.1 || { echo "FAIL: the address is gone"; exit 1; }
[ "$(hostname)" = frozen-host ] || { echo "FAIL: the host name is $(hostname)"; exit 1; }
echo PASS
