"""The winner of a fork, and what nobody needs any more."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from cli import Cli
from client import ApiError, Sandbox, wait_for


DAEMON = "own_daemon"


@pytest.fixture(autouse=True)
def nothing_left(api, own_daemon):
    yield
    api.delete("/api/sandboxes", all="true")
    for node in api.get("/api/snapshots")["snapshots"]:
        api.delete(f"/api/snapshots/{node['id']}")
    gc(api)


def gc(api, **params):
    return api.post("/api/gc", params)


def usage(daemon, folder: str = "nodes") -> int:
    path = daemon.home / folder
    return int(subprocess.run(["du", "-sB1", path], stdout=subprocess.PIPE, check=True).stdout.split()[0]) if path.exists() else 0


def nodes_on_disk(daemon) -> set[str]:
    folder = daemon.home / "nodes"
    return set(os.listdir(folder)) if folder.exists() else set()


def alive(api) -> dict[str, str]:
    return {s["id"]: s["state"] for s in api.get("/api/sandboxes")["sandboxes"]}


# -- keep ------------------------------------------------------------------------------------------------------------------

def test_keep_makes_it_persistent_and_no_more(api):
    sb = api.new(policy={"checkpoints": "off"})
    a, b = sb.fork(count=2)
    a.suspend()
    reply = api.post(f"{a.path}/keep", {})
    assert reply["removed"] == [] and reply["sandbox"]["policy"]["persistent"] is True
    assert alive(api) == {sb.id: "running", a.id: "suspended", b.id: "running"}, "what sleeps is not woken"
    assert a.info()["policy"]["persistent"] is True and b.info()["policy"]["persistent"] is False
    api.post(f"{sb.path}/keep", {"drop_siblings": False})
    assert sb.info()["policy"]["persistent"] is True


def test_the_winner_of_a_fork(api):
    sb = api.new(policy={"checkpoints": "off"})
    sb.ok("x = 'before'; open('f', 'w').write('before')")
    a, b, c = sb.fork(count=3)
    (other,) = sb.fork()
    (grandchild,) = b.fork()
    b.ok("x = 'best'")
    b.suspend()
    c.suspend()
    reply = api.post(f"{b.path}/keep", {"drop_siblings": True})
    assert {(r["id"], r["removed"]) for r in reply["removed"]} == {(a.id, True), (c.id, True)}
    assert reply["sandbox"]["id"] == b.id and reply["sandbox"]["state"] == "suspended"
    assert set(alive(api)) == {sb.id, b.id, other.id, grandchild.id}, "source, other forks and its own copies stay"
    assert alive(api)[b.id] == "suspended"
    assert api.post(f"{b.path}/keep", {"drop_siblings": True})["removed"] == []
    gc(api)
    sb.remove()
    gc(api)
    b.resume(require_memory=True)
    assert b.text("x, open('f').read()") == "('best', 'before')", "nothing that it stands on went"


def test_forks_of_one_state_are_not_siblings(api):
    """A fork of what has not run since the last one takes the same node."""
    sb = api.new(policy={"checkpoints": "off"})
    sb.ok("x = 1")
    one, another = sb.fork(count=2), sb.fork(count=2)
    reply = api.post(f"{one[0].path}/keep", {"drop_siblings": True})
    assert [r["id"] for r in reply["removed"]] == [one[1].id]
    assert set(alive(api)) == {sb.id, one[0].id, another[0].id, another[1].id}


def test_who_has_no_siblings(api):
    sb = api.new(policy={"checkpoints": "off"})
    node = sb.snapshot(name="keep-snap")["id"]
    made = [Sandbox(api, api.post("/api/sandboxes", {"from": "keep-snap"})["id"]) for _ in range(2)]
    for one in (sb, made[0]):
        with pytest.raises(ApiError) as caught:
            api.post(f"{one.path}/keep", {"drop_siblings": True})
        assert caught.value.code == "invalid_state" and one.info()["policy"]["persistent"] is False
    assert set(alive(api)) == {sb.id, made[0].id, made[1].id}, "made from a snapshot, not by one fork"
    for ref, body, expected in [("nobody", {}, "sandbox_not_found"), (sb.id, {"drop_siblings": 1}, "bad_request"), (sb.id, {"x": 1}, "bad_request")]:
        with pytest.raises(ApiError) as caught:
            api.post(f"/api/sandboxes/{ref}/keep", body)
        assert caught.value.code == expected
    api.delete(f"/api/snapshots/{node}")


def test_keep_on_the_command_line(cli, api):
    cli.ok("new", "--name", "k-src")
    cli.ok("fork", "k-src", "-n", "3", "--name", "k")
    done = cli.ok("keep", "k-2", "--drop-siblings")
    assert done.out.strip() == cli.json("info", "k-2", "--json")["id"]
    assert "(k-1)" in done.err and "(k-3)" in done.err and "(k-2)" not in done.err
    assert {s.get("name") for s in api.get("/api/sandboxes")["sandboxes"]} == {"k-src", "k-2"}
    assert cli.json("keep", "k-src", "--json")["removed"] == []
    assert cli("keep", "k-src", "--drop-siblings").status == 1


# -- gc --------------------------------------------------------------------------------------------------------------------

def test_bytes_return_to_the_baseline(api, own_daemon):
    gc(api)
    before, folders = usage(own_daemon), nodes_on_disk(own_daemon)
    sb = api.new(policy={"checkpoints": "after_cell"})
    for n in range(4):
        cell = sb.ok(f"data = bytes({n + 1}) * 3_000_000; open('f{n}', 'wb').write(data)")
        wait_for(lambda cell=cell: any(node.get("cell_id") == cell["id"] for node in sb.nodes()["nodes"]))
    sb.snapshot(name="gc-files", kind="filesystem")
    sb.undo(2)
    sb.ok("1")
    sb.suspend()
    sb.resume()
    a, b = sb.fork(count=2)
    a.ok("open('own', 'w').write('x')")
    (c,) = a.fork()
    c.suspend()
    sb.snapshot(name="gc-base")
    made = Sandbox(api, api.post("/api/sandboxes", {"from": "gc-base"})["id"])
    assert usage(own_daemon) > before + 10_000_000
    sb.remove()
    gc(api)
    assert c.resume()["memoryRestored"] is True and made.text("len(data)") == "6000000" and b.text("1") == "1"
    for sandbox in (a, b, c, made):
        sandbox.remove()
    for name in ("gc-files", "gc-base"):
        api.delete(f"/api/snapshots/{name}")
    gc(api)
    wait_for(lambda: nodes_on_disk(own_daemon) == folders and usage(own_daemon) == before)
    assert gc(api, dry_run=True)["items"] == []


def make_garbage(api) -> tuple[Sandbox, str]:
    """A fork whose only copy could not be made, and another state since: nobody needs the fork's node."""
    sb = api.new(name="gc-source", policy={"checkpoints": "off"})
    sb.ok("x = 1; open('f', 'wb').write(b'x' * 500_000)")
    reply = api.post(f"{sb.path}/fork", {"name": "gc-source"})
    assert reply["sandboxes"][0]["error"] is True
    assert gc(api, dry_run=True)["items"] == [], "it is the head"
    sb.ok("x = 2")
    sb.snapshot(name="gc-later")
    return sb, reply["node"]["id"]


def test_a_dry_run_tells_and_changes_nothing(api, own_daemon, cli):
    sb, node = make_garbage(api)
    stray = own_daemon.home / "nodes" / "nd_strayfolde"
    stray.mkdir()
    (stray / "file").write_bytes(b"x" * 100_000)
    (stray / "twice").write_bytes(b"x" * 200_000)
    os.link(stray / "twice", stray / "again")
    outside = own_daemon.home / "outside"
    outside.write_bytes(b"x" * 1_000_000)
    os.link(outside, stray / "shared")
    sandbox = own_daemon.home / "sandboxes" / "sb_strayfolde"
    sandbox.mkdir()
    before = nodes_on_disk(own_daemon)
    dry = gc(api, dry_run=True)
    items = {item["path"]: item for item in dry["items"]}
    assert set(items) == {f"nodes/{node}", "nodes/nd_strayfolde", "sandboxes/sb_strayfolde"}
    assert items[f"nodes/{node}"]["kind"] == "node" and items[f"nodes/{node}"]["node_id"] == node
    assert items[f"nodes/{node}"]["sandbox_id"] == sb.id and "fork" in items[f"nodes/{node}"]["reason"]
    assert not any(item["removed"] for item in dry["items"]) and dry["dry_run"] is True and dry["more"] is False
    assert dry["freed_bytes"] == sum(item["bytes"] for item in dry["items"])
    assert 300_000 <= items["nodes/nd_strayfolde"]["bytes"] < 400_000, "links count once, and what something else links to does not"
    assert items[f"nodes/{node}"]["bytes"] > 0
    assert nodes_on_disk(own_daemon) == before and sandbox.exists()
    assert "nd_strayfolde" in cli.ok("gc", "--dry-run").out
    told = cli.json("gc", "--json")
    assert told["freed_bytes"] == dry["freed_bytes"] and all(item["removed"] for item in told["items"])
    # A folder goes once its row's end is on disk.
    wait_for(lambda: nodes_on_disk(own_daemon) == before - {node, "nd_strayfolde"} and not sandbox.exists())
    outside.unlink()
    assert sb.text("x") == "2" and sb.undo() and "0 removed" in cli.ok("gc").err


def test_what_is_measured_is_what_the_disk_gets_back(api, own_daemon):
    make_garbage(api)
    before = usage(own_daemon)
    freed = gc(api)["freed_bytes"]
    assert freed > 0
    wait_for(lambda: before - usage(own_daemon) == freed)


def test_what_may_be_gone_back_to_stays(api, own_daemon):
    sb = api.new(policy={"checkpoints": "off"})
    sb.ok("x = 1")
    first = sb.snapshot()["id"]
    sb.ok("x = 2")
    sb.undo()
    sb.ok("x = 3")
    sb.suspend()
    sb.resume()
    branch = sb.snapshot()["id"]
    sb.goto(first)
    before = nodes_on_disk(own_daemon)
    assert gc(api)["items"] == [] and nodes_on_disk(own_daemon) == before
    sb.goto(branch)
    assert sb.text("x") == "3"


def test_what_a_snapshot_stands_on_stays(api, own_daemon):
    sb = api.new(policy={"checkpoints": "off"})
    sb.ok("open('below', 'w').write('here')")
    sb.suspend()
    sb.resume()
    sb.ok("open('above', 'w').write('too')")
    sb.snapshot(name="gc-above")
    sb.remove()
    assert gc(api, dry_run=True)["items"] == [] and gc(api)["items"] == []
    assert len(nodes_on_disk(own_daemon)) == 2
    made = Sandbox(api, api.post("/api/sandboxes", {"from": "gc-above"})["id"])
    assert made.text("open('below').read() + open('above').read()") == "'heretoo'"


def test_while_states_are_being_made(api):
    """What is being written has no row yet, and is nobody's garbage."""
    sb = api.new(policy={"checkpoints": "off"})
    sb.ok("blob = bytes(range(256)) * 40_000")
    stop, faults = threading.Event(), []

    def collect():
        while not stop.is_set():
            faults.extend(gc(api)["items"])

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        for n in range(6):
            sb.ok(f"n = {n}")
            sb.snapshot()
        for child in sb.fork(count=2):
            assert child.text("n") == "5"
        sb.suspend()
        sb.resume()
        sb.undo()
    finally:
        stop.set()
        thread.join()
    assert sb.text("n") == "4" and faults == []


def test_two_at_once(api, own_daemon):
    """The second is refused, or comes when the first is through; neither breaks."""
    make_garbage(api)
    answers = []

    def collect():
        try:
            answers.append(gc(api)["freed_bytes"])
        except ApiError as error:
            answers.append(error.code)

    threads = [threading.Thread(target=collect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answer == "in_use" or answer >= 0 for answer in answers) and any(type(a) is int and a > 0 for a in answers)
    wait_for(lambda: gc(api)["items"] == [])
