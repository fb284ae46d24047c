"""Streams of cells, commands and events: NDJSON, SSE, following again, clients that are slow or leave."""

from __future__ import annotations

import json
import socket
import time

import pytest
from client import UnixConnection

NDJSON, SSE = "application/x-ndjson", "text/event-stream"


def open_stream(api, method, path, data=None, accept=NDJSON, headers=None):
    conn = UnixConnection(api.socket_path)
    body = None if data is None else json.dumps(data).encode()
    conn.request(method, path, body=body, headers={"Accept": accept, **(headers or {})})
    return conn, conn.getresponse()


def sse_events(text: str):
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            events.append((int(fields["id"]), json.loads(fields["data"])))
    return events


CODE = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 + 1"


@pytest.mark.parametrize("accept", [NDJSON, SSE])
def test_stream_of_a_cell(api, shared_sandbox, accept):
    conn, reply = open_stream(api, "POST", f"{shared_sandbox.path}/cells", {"code": CODE}, accept)
    assert reply.status == 200 and reply.getheader("Content-Type") == accept
    text = reply.read().decode()
    conn.close()
    if accept == SSE:
        pairs = sse_events(text)
        assert all(seq == event["seq"] for seq, event in pairs)
        events = [event for _, event in pairs]
    else:
        events = [json.loads(line) for line in text.splitlines()]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "start" and events[-1]["type"] == "end"
    assert events[-1]["cell"]["status"] == "ok" and "outputs" not in events[-1]["cell"]
    assert "".join(e["text"] for e in events if e["type"] == "stdout") == "out\n"
    assert "".join(e["text"] for e in events if e["type"] == "stderr") == "err\n"


def test_accept_chooses(api, shared_sandbox):
    for accept, kind in [("*/*", "application/json"), ("application/json, text/event-stream", "application/json"),
                         ("application/json;q=0.1, text/event-stream", SSE), ("text/html", "application/json")]:
        conn, reply = open_stream(api, "POST", f"{shared_sandbox.path}/cells", {"code": "1"}, accept)
        assert reply.getheader("Content-Type") == kind, accept
        reply.read()
        conn.close()


def test_refusals_come_before_the_stream(api, shared_sandbox):
    for path, data in [("/api/sandboxes/nobody/cells", {"code": "1"}), (f"{shared_sandbox.path}/cells", {"code": "1", "context": "nothing"})]:
        conn, reply = open_stream(api, "POST", path, data, SSE)
        assert reply.status == 404 and json.loads(reply.read())["error"] is True
        conn.close()


def test_events_arrive_when_they_happen(api, shared_sandbox):
    shared_sandbox.ok("1")
    conn, reply = open_stream(api, "POST", f"{shared_sandbox.path}/cells",
                              {"code": "import time\nprint('first', flush=True)\ntime.sleep(1.5)\nprint('second')"})
    times = {}
    for line in reply:
        event = json.loads(line)
        times.setdefault((event["type"], event.get("text", "")[:6]), time.monotonic())
    conn.close()
    assert times["stdout", "second"] - times["stdout", "first\n"[:6]] > 0.8


def test_follow_again_from_any_place(api, shared_sandbox):
    first = list(shared_sandbox.stream("for i in range(5): print(i, flush=True)"))
    cell = first[-1]["cell"]["id"]
    path = f"{shared_sandbox.path}/cells/{cell}/stream"
    assert list(api.events("GET", path)) == first
    for after in range(len(first) + 1):
        assert list(api.events("GET", f"{path}?after={after}")) == first[after:]
    conn, reply = open_stream(api, "GET", path, accept=SSE, headers={"Last-Event-ID": "2"})
    assert [event for _, event in sse_events(reply.read().decode())] == first[2:]
    conn.close()


def test_a_cell_goes_on_without_its_reader(api, sandbox):
    sandbox.ok("1")
    conn, reply = open_stream(api, "POST", f"{sandbox.path}/cells", {"code": "import time\nfor i in range(10):\n  print(i, flush=True); time.sleep(0.2)"})
    start = json.loads(reply.readline())
    conn.close()
    events = list(api.events("GET", f"{sandbox.path}/cells/{start['cell_id']}/stream"))
    assert events[-1]["cell"]["status"] == "ok"
    assert "".join(e["text"] for e in events if e["type"] == "stdout") == "".join(f"{i}\n" for i in range(10))


def test_a_stream_may_interrupt_when_its_reader_leaves(api, sandbox):
    sandbox.ok("1")
    conn, reply = open_stream(api, "POST", f"{sandbox.path}/cells",
                              {"code": "import time\nprint(1, flush=True)\ntime.sleep(60)", "timeout": 90, "on_disconnect": "interrupt"})
    start = json.loads(reply.readline())
    conn.close()
    cell = list(api.events("GET", f"{sandbox.path}/cells/{start['cell_id']}/stream"))[-1]["cell"]
    assert cell["status"] == "interrupted"


def test_a_reader_that_stands_still(api, daemon, sandbox):
    """60 MB for a client that does not read: the daemon neither waits nor grows, and the client gets all that was recorded."""
    sandbox.ok("1")
    before = daemon.rss()
    conn, reply = open_stream(api, "POST", f"{sandbox.path}/cells", {"code": "for i in range(300000): print('x' * 100)", "timeout": 60})
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    assert sandbox.run("'next'", timeout=60)["status"] == "ok"
    assert daemon.rss() - before < 24 << 20
    lines = reply.read().decode().splitlines()
    conn.close()
    end = json.loads(lines[-1])
    assert end["type"] == "end" and end["cell"]["status"] == "ok"
    assert end["seq"] == len(lines)


def test_stream_of_a_command(api, shared_sandbox):
    events = list(api.events("POST", f"{shared_sandbox.path}/exec", {"command": "echo a; echo b >&2; exit 3"}, accept=SSE))
    assert events[0]["type"] == "start" and events[-1]["command"]["exit_code"] == 3
    assert {e["type"]: e["text"] for e in events[1:-1]} == {"stdout": "a\n", "stderr": "b\n"}
    again = list(api.events("GET", f"{shared_sandbox.path}/commands/{events[-1]['command']['id']}/stream"))
    assert [e["type"] for e in again] == [e["type"] for e in events]


def test_events_of_the_daemon(api):
    last = [json.loads(line) for line in api.raw("GET", "/api/events").body.splitlines()][-1]["id"]
    sb = api.new(start_kernel=False)
    sb.remove()
    events = [json.loads(line) for line in api.raw("GET", f"/api/events?after={last}").body.splitlines()]
    mine = [e["type"] for e in events if e.get("sandbox_id") == sb.id]
    assert mine[0] == "sandbox.created" and mine[-1] == "sandbox.ended"


def test_events_can_be_followed(api):
    last = [json.loads(line) for line in api.raw("GET", "/api/events").body.splitlines()][-1]["id"]
    conn, reply = open_stream(api, "GET", f"/api/events?follow=true&after={last}")
    sb = api.new(start_kernel=False)
    sb.remove()
    for line in reply:
        event = json.loads(line)
        if event.get("sandbox_id") == sb.id and event["type"] == "sandbox.ended":
            break
    conn.close()


def test_log_of_a_sandbox(api, sandbox):
    sandbox.ok("'logged'")
    sandbox.exec("echo logged")
    entries = [json.loads(line) for line in api.raw("GET", f"{sandbox.path}/logs").body.splitlines()]
    assert {"cell", "sandbox.started"} <= {e["type"] for e in entries}
    middle = entries[len(entries) // 2]
    rest = [json.loads(line) for line in api.raw("GET", f"{sandbox.path}/logs?after={entries[-1]['seq']}").body.splitlines()]
    assert len(rest) <= 1 and middle["seq"] < entries[-1]["seq"]
