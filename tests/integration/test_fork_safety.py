"""What a copy must not share with its source, and what must go on in it (design: "Fork safety"); random numbers, names and
environments are in test_policies.py and test_states_situations.py."""

from __future__ import annotations

import json
import time

from client import Sandbox, wait_for

DAEMON = "states_daemon"
POLICY = {"checkpoints": "off"}

WIPE = """
import ctypes, mmap
page = mmap.mmap(-1, 2 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
MADV_WIPEONFORK = 18
libc = ctypes.CDLL(None, use_errno=True)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
assert libc.madvise(ctypes.c_void_p(at), mmap.PAGESIZE, MADV_WIPEONFORK) == 0, ctypes.get_errno()
page[0:6] = b'secret'
page[mmap.PAGESIZE:mmap.PAGESIZE + 6] = b'common'
"""
PAGES = "bytes(page[0:6]), bytes(page[mmap.PAGESIZE:mmap.PAGESIZE + 6])"


WATCH = b"""
import time
path = '/run/coppice/generation'
seen = open(path).read()
open('/tmp/watching', 'w').close()
while True:
    now = open(path).read()
    if now != seen and now.rstrip().endswith('}'):
        open('/tmp/told', 'w').write(now)
        seen = now
    time.sleep(0.05)
"""


def told(sb):
    """What the program that watches has seen last."""
    text = sb.exec("cat /tmp/told 2>/dev/null")["stdout"]
    return json.loads(text) if text.endswith("}") or text.endswith("}\n") else None


def test_memory_that_is_wiped_on_fork(make):
    """That is where libraries keep the state of their generators: zeros after every thaw, and the source of a fork keeps it."""
    sb = make()
    sb.ok(WIPE)
    (child,) = sb.fork()
    try:
        assert child.text(PAGES) == r"(b'\x00\x00\x00\x00\x00\x00', b'common')"
        assert sb.text(PAGES) == "(b'secret', b'common')"
    finally:
        child.remove()
    sb.suspend()
    assert sb.text(PAGES) == r"(b'\x00\x00\x00\x00\x00\x00', b'common')"


def test_programs_can_watch_for_it(make):
    """A program that waits for changes of the generation file wakes up in a copy, and after each thaw."""
    sb = make()
    sb.write("/tmp/watch.py", WATCH)
    sb.exec("python3 /tmp/watch.py", detach=True)
    wait_for(lambda: sb.exec("cat /tmp/watching")["exit_code"] == 0)
    first = json.loads(sb.read("/run/coppice/generation"))
    sb.suspend()
    again = wait_for(lambda: told(sb))
    assert again["sandbox_id"] == first["sandbox_id"] == sb.id and again != first
    (child,) = sb.fork()
    try:
        other = wait_for(lambda: (seen := told(child)) != again and seen)
        assert other["sandbox_id"] == child.id != sb.id
        assert told(sb) == again, "nothing has changed for the source"
    finally:
        child.remove()


def test_clocks(make):
    """The wall clock of a copy is right in its first cell, its monotonic clock goes on from where the state was saved."""
    sb = make()
    sb.ok("import time; wall, mono = time.time(), time.monotonic()")
    node = sb.snapshot()
    time.sleep(3)
    asked = time.time()
    reply = sb.api.post(f"/api/snapshots/{node['id']}/sandboxes", {})["sandboxes"][0]
    child = Sandbox(sb.api, reply["id"])
    try:
        now, passed = eval(child.text("time.time(), time.monotonic() - mono"))
        assert asked - 0.5 < now < time.time() + 0.5
        assert 0 <= passed < 60
    finally:
        child.remove()
        sb.api.delete(f"/api/snapshots/{node['id']}")


def test_connections_within_go_on_in_each(make):
    """With what was on its way: both ends are in the state."""
    sb = make()
    sb.ok("import socket; server = socket.create_server(('127.0.0.1', 0)); a = socket.create_connection(server.getsockname());"
          "b, _ = server.accept(); a.sendall(b'on its way')")
    (child,) = sb.fork()
    try:
        for sandbox, word in ((sb, b"source"), (child, b"copy")):
            assert sandbox.text("b.recv(100)") == "b'on its way'"
            sandbox.ok(f"b.sendall({word!r})")
            assert sandbox.text("a.recv(100)") == repr(word)
    finally:
        child.remove()
