"""States on both sides of a merge: a deep stack of layers became one, and every state is still what it was."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from client import Sandbox, wait_for
from conftest import remove

DAEMON = "states_daemon"
ROUNDS = 36
LOOK = "sorted(n for n in os.listdir('/workspace') if n[0] == 'f'), open('/workspace/now').read(), x"


def look(n: int) -> str:
    """What the state of round n shows: each round removes the file of the one before the last."""
    return str(([f"f{i}" for i in sorted({n - 1, n}, key=str) if i >= 0], str(n), n))


@pytest.fixture(scope="module")
def deep(api, states_daemon):
    """A sandbox that slept so often that its stack was merged, and its nodes in order of their rounds."""
    sb = api.new(policy={"checkpoints": "off"})
    sb.ok("import os")
    nodes = []
    for n in range(ROUNDS):
        sb.ok(f"x = {n}; open('/workspace/now', 'w').write(str(x)); open('/workspace/f{n}', 'w').write('')\n"
              f"os.path.exists('/workspace/f{n - 2}') and os.remove('/workspace/f{n - 2}')")
        sb.suspend()
        nodes.append(sb.info()["node_id"])
    wait_for(lambda: any((states_daemon.home / "nodes" / node / "flat").exists() for node in nodes), 120)
    yield sb, nodes
    remove(sb)


def layers_of(daemon, node: str) -> list[str]:
    with closing(sqlite3.connect(f"file:{daemon.home}/coppice.db?mode=ro", uri=True)) as db:
        return json.loads(db.execute("SELECT layers FROM nodes WHERE id = ?", (node,)).fetchone()[0])


@pytest.fixture
def merged(deep, states_daemon) -> int:
    """The round whose node is one layer now."""
    _, nodes = deep
    return wait_for(lambda: next((n for n, node in enumerate(nodes) if layers_of(states_daemon, node) == [f"{node}/flat"]), None), 60)


def branch(api, node: str) -> Sandbox:
    reply = api.post(f"/api/snapshots/{node}/sandboxes", {"policy": {"checkpoints": "off"}})["sandboxes"][0]
    assert "id" in reply, reply
    return Sandbox(api, reply["id"])


@pytest.mark.parametrize("where", [-20, -1, 0, 1, 3])
def test_sandboxes_of_states_below_at_and_above_it(deep, merged, api, where):
    child = branch(api, deep[1][merged + where])
    try:
        assert child.text(LOOK) == look(merged + where)
        child.ok("open('/workspace/f-mine', 'w').write('')")
        child.suspend()
        assert child.text("x, os.path.exists('/workspace/f-mine')") == f"({merged + where}, True)"
    finally:
        child.remove()


@pytest.mark.parametrize("where", [-1, 0, 2])
def test_packs_of_states_below_at_and_above_it(deep, merged, api, states_daemon, where):
    """Below it is a stack of layers, at it one, above it both."""
    data = api.raw("GET", f"/api/snapshots/{deep[1][merged + where]}/pack").body
    reply = api.raw("POST", f"/api/snapshots?name=unpacked-{where + 9}", data, {"Content-Type": "application/zstd"}, timeout=300)
    assert reply.status == 201, reply.body
    node = reply.json()
    try:
        depth = len(layers_of(states_daemon, node["id"]))
        assert depth == 1 if where == 0 else depth > 1
        child = branch(api, node["id"])
        assert child.text(LOOK) == look(merged + where)
        child.remove()
    finally:
        api.delete(f"/api/snapshots/{node['id']}")
    wait_for(lambda: not (states_daemon.home / "nodes" / node["id"]).exists(), 30)


def test_what_differs_across_it(deep, merged, api):
    _, nodes = deep
    reply = api.get("/api/diff", a=nodes[merged - 3], b=nodes[merged + 3])
    low, high = merged - 3, merged + 3
    changes = {c["path"]: c["change"] for c in reply["files"]["changes"]}
    assert {p: c for p, c in changes.items() if p.startswith("/workspace/f")} == {
        **{f"/workspace/f{n}": "removed" for n in (low - 1, low)}, **{f"/workspace/f{n}": "added" for n in (high - 1, high)}}
    assert changes["/workspace/now"] == "changed"
    assert [v["name"] for v in reply["variables"]["changes"]] == ["x"]


def test_ways_back_across_it_and_forth(deep, merged, api):
    """Last: it moves the sandbox itself."""
    sb, nodes = deep
    last = ROUNDS - 1
    steps = last - merged + 5
    assert sb.undo(steps)["memoryRestored"] is True
    assert sb.text(LOOK) == look(last - steps)
    sb.goto(nodes[last])
    assert sb.text(LOOK) == look(last)
    sb.goto(nodes[merged])
    assert sb.text(LOOK) == look(merged)
    sb.undo(3)  # the look, and the cells of two rounds
    api.post(f"{sb.path}/redo", {"steps": 1})
    assert sb.text("x") == str(merged)
    sb.undo(4)  # one look more
    sb.suspend()
    assert sb.text(LOOK) == look(merged - 2)
