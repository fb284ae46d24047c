# redis-server with 20,000 keys, expiry, a blocked client, a subscriber, a transaction half queued; a background save after.
# victim: needs=redis-server
# victim: timeout=60
# victim: flavours=unfrozen,kill,run-on,twice,tracked
import os
import socket
import subprocess
import time

server = subprocess.Popen(["redis-server", "--port", "6399", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "."],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Client:
    def __init__(self):
        for _ in range(500):
            try:
                self.socket = socket.create_connection(("127.0.0.1", 6399), 20)
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(parts))

    def reply(self):
        line = self.file.readline().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        return int(rest) if kind == b":" else line

    def __call__(self, *words):
        self.send(*words)
        return self.reply()


main, blocked, subscriber, multi = Client(), Client(), Client(), Client()
for i in range(0, 20000, 500):
    assert main("mset", *[x for k in range(i, i + 500) for x in (f"key{k}", f"value{k}" * 3)]) == b"+OK"
assert main("set", "long", "x", "ex", 1000) == b"+OK"
blocked.send("blpop", "queue", 0)
subscriber("subscribe", "news")
assert multi("multi") == b"+OK" and multi("incr", "n") == b"+QUEUED"
main.send("echo", "in flight")
time.sleep(0.1)
print("READY", flush=True)
while not os.path.exists("go"):
    time.sleep(0.002)
assert main.reply() == b"in flight"
assert main("get", "key19999") == b"value19999" * 3 and main("dbsize") == 20001
assert 900 < main("ttl", "long") <= 1000
assert main("rpush", "queue", "job") == 1 and blocked.reply() == [b"queue", b"job"]
assert main("publish", "news", "hello") == 1 and subscriber.reply() == [b"message", b"news", b"hello"]
assert multi("incr", "n") == b"+QUEUED" and multi("exec") == [1, 2]
assert main("bgsave").startswith(b"+Background")
for _ in range(1000):
    if main("lastsave") and b"rdb_bgsave_in_progress:0" in main("info", "persistence"):
        break
    time.sleep(0.02)
assert b"rdb_last_bgsave_status:ok" in main("info", "persistence")
assert Client()("ping") == b"+PONG"
server.kill()
print("PASS", flush=True)
