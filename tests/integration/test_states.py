"""Suspend, resume, snapshots, forks, undo: what the API promises of saved states."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import time

import pytest

from client import ApiError, Sandbox, wait_for
from conftest import remove
from test_daemon_death import processes_of


DAEMON = "states_daemon"
POLICY = {"checkpoints": "off"}  # only what a test asks for is saved


@pytest.fixture
def sb(make):
    return make()


def remove_snapshots(api):
    for node in api.get("/api/snapshots")["snapshots"]:
        api.delete(f"/api/snapshots/{node['id']}")


def nodes_on_disk(daemon) -> list[str]:
    folder = daemon.home / "nodes"
    return sorted(os.listdir(folder)) if folder.exists() else []


def damage_memory(daemon, node_id: str) -> None:
    """Turns bits of one byte in each file of the memory image."""
    folder = daemon.home / "nodes" / node_id / "mem"
    for path in folder.iterdir():
        size = path.stat().st_size
        with open(path, "r+b") as file:
            for offset in range(size // 2 % 4096, size, 4096) if size > 8192 else [size // 2]:
                file.seek(offset)
                byte = file.read(1)
                file.seek(offset)
                file.write(bytes([byte[0] ^ 0x55]))


SERVICES = """
import http.client, matplotlib, numpy as np, os, pandas as pd, socket, sqlite3, threading, time
matplotlib.use("agg")
import matplotlib.pyplot as plt
frame = pd.DataFrame({"n": np.arange(1000), "s": np.arange(1000) ** 2})
frame.plot(x="n", y="s"); plt.savefig("plot.png"); plt.close("all")
text, numbers, array = "grüße", {1: [2, 3]}, np.arange(100000) * 0.5
db = sqlite3.connect("data.db", isolation_level=None, check_same_thread=False)
db.execute("pragma journal_mode=wal")
db.execute("create table t (n)")
db.executemany("insert into t values (?)", [(n,) for n in range(100)])
db.execute("begin"); db.execute("insert into t values (-1)")
listener = socket.create_server(("127.0.0.1", 8124))
near = socket.create_connection(("127.0.0.1", 8124)); far = listener.accept()[0]
near.sendall(b"sent before")
opened = open("opened.txt", "w+"); opened.write("unflushed ")
deleted = open("gone.txt", "w+"); deleted.write("still here"); deleted.flush(); os.unlink("gone.txt")
ticks = []
def tick():
    while True:
        ticks.append(time.monotonic()); time.sleep(0.05)
threading.Thread(target=tick, daemon=True).start()
(os.getpid(), time.monotonic())
"""

CHECKS = """
assert text == "grüße" and numbers == {1: [2, 3]} and array.sum() == 2499975000.0, "variables"
assert frame.s.sum() == 332833500 and os.path.getsize("plot.png") > 1000
frame.plot(x="n", y="s"); plt.savefig("again.png"); plt.close("all")
assert far.recv(100) == b"sent before"; far.sendall(b"answered after"); assert near.recv(100) == b"answered after"
assert db.execute("select count(*), min(n) from t").fetchone() == (101, -1)
db.execute("commit")
assert sqlite3.connect("data.db").execute("pragma integrity_check").fetchone() == ("ok",)
opened.write("flushed"); opened.flush(); assert open("opened.txt").read() == "unflushed flushed"
deleted.seek(0); assert deleted.read() == "still here"
n = len(ticks); time.sleep(0.3); assert len(ticks) > n, "threads go on"
assert all(b - a < 30 for a, b in zip(ticks, ticks[1:])), "the monotonic clock goes on where it was"
(os.getpid(), time.monotonic())
"""


def test_the_same_sandbox_after_suspend_and_resume(api, states_daemon):
    sb = api.new(name="same", labels={"k": "v"})
    served = sb.exec("cd /workspace && echo served > page && exec python3 -m http.server 8123 --bind 127.0.0.1", detach=True)
    counter = sb.exec("i=0; while true; do i=$((i+1)); echo tick $i; sleep 0.1; done", detach=True)
    before = sb.ok(SERVICES, timeout=60)
    pid = before["results"][0]["data"]["text/plain"].split(",")[0]
    sb.api.post(f"{sb.path}/contexts", {"name": "second"})
    sb.ok("here = 'second'", context="second")
    info = sb.info()

    asleep = sb.suspend()
    assert asleep["state"] == "suspended" and asleep["id"] == sb.id and asleep["name"] == "same"
    wait_for(lambda: not processes_of(sb.id))
    listed = next(s for s in api.get("/api/sandboxes")["sandboxes"] if s["id"] == sb.id)
    assert listed["state"] == "suspended"
    assert [s["id"] for s in api.get("/api/sandboxes", state="suspended")["sandboxes"]] == [sb.id]
    assert sb.info()["state"] == "suspended"
    assert api.get(f"{sb.path}/cells")["cells"], "reading leaves it asleep"
    assert sb.info()["state"] == "suspended"

    back = sb.resume()
    assert back["memoryRestored"] is True and "resumeReason" not in back and back["resume_ms"] > 0
    for key in ("id", "name", "labels", "limits", "created_at", "generation"):
        assert back[key] == info[key], key
    contexts = {c["id"]: c for c in wait_for(lambda: sb.info()["contexts"])}
    for old in info["contexts"]:
        new = contexts[old["id"]]
        assert (new["kernel_pid"], new["generation"], new["name"]) == (old["kernel_pid"], old["generation"], old["name"])
    after = sb.ok(CHECKS, timeout=60)
    assert after["results"][0]["data"]["text/plain"].split(",")[0] == pid
    assert after["execution_count"] == before["execution_count"] + 1
    assert after["memory"]["kept"] is True and "state_lost" not in after
    assert sb.text("here", context="second") == "'second'"
    page = sb.exec("curl -sS http://127.0.0.1:8123/page")
    assert page["stdout"] == "served\n", page
    assert api.get(f"{sb.path}/commands/{served['pid']}")["status"] == "running"

    def lines():
        return api.get(f"{sb.path}/commands/{counter['pid']}")["stdout"].splitlines()

    seen = lines()
    assert seen == [f"tick {n + 1}" for n in range(len(seen))], "no line is lost and none stands twice"
    wait_for(lambda: len(lines()) > len(seen) + 3)
    sb.remove()


def test_transitions_are_invisible(sb, api):
    """Situations 8 and 11: cells that are sent while it goes to sleep and wakes answer; reads never say 404."""
    sb.ok("done = []")
    stop, faults, answers = threading.Event(), [], []

    def read():
        while not stop.is_set():
            for path in (sb.path, f"{sb.path}/cells", f"{sb.path}/nodes"):
                try:
                    api.get(path)
                except Exception as error:
                    faults.append((path, error))
            time.sleep(0.005)

    def send(n):
        try:
            time.sleep(n * 0.05)
            answers.append(sb.run(f"done.append({n}); {n}"))
        except Exception as error:
            faults.append((n, error))

    reader = threading.Thread(target=read)
    senders = [threading.Thread(target=send, args=[n]) for n in range(20)]
    for thread in [reader, *senders]:
        thread.start()
    for _ in range(4):
        assert sb.suspend()["state"] in ("suspended", "resuming", "running")
        assert sb.resume()["memoryRestored"] is True
    for thread in senders:
        thread.join()
    stop.set()
    reader.join()
    assert not faults, faults
    assert [a["status"] for a in answers] == ["ok"] * 20
    assert sb.text("sorted(done) == list(range(20))") == "True"
    counts = sorted(a["execution_count"] for a in answers)
    assert counts == list(range(counts[0], counts[0] + 20))


def test_what_runs_is_awaited(sb, api):
    cell = api.post(f"{sb.path}/cells", {"code": "import time; time.sleep(1); y = 5", "detach": True})
    assert sb.suspend()["state"] == "suspended"
    assert api.get(f"{sb.path}/cells/{cell['id']}")["status"] == "ok"
    assert sb.suspend()["state"] == "suspended", "twice is no fault"
    assert sb.text("y") == "5"
    assert sb.resume()["memoryRestored"] is True, "nor is waking what is awake"


@pytest.mark.parametrize("call", ["cell", "exec", "read", "write", "context"])
def test_a_request_that_needs_it_wakes_it(shared, api, call):
    """Situation 9."""
    shared.suspend()
    if call == "cell":
        assert shared.text("x") == "41"
    elif call == "exec":
        assert shared.exec("echo awake")["stdout"] == "awake\n"
    elif call == "read":
        assert shared.read("/workspace/file") == b"content"
    elif call == "write":
        shared.write("/workspace/other", b"1")
    else:
        id = api.post(f"{shared.path}/contexts")["id"]
        api.delete(f"{shared.path}/contexts/{id}")
    assert shared.info()["state"] == "running"


@pytest.fixture(scope="module")
def shared(api):
    sandbox = api.new()
    sandbox.ok("x = 41; open('/workspace/file', 'w').write('content')")
    yield sandbox
    remove(sandbox)


# -- when memory cannot be had back ------------------------------------------------------------------------------------


def test_a_cold_boot_says_so(states_daemon, sb):
    sb.ok("x = 1; open('/workspace/kept', 'w').write('files are here')")
    sb.suspend()
    damage_memory(states_daemon, sb.info()["node_id"])

    with pytest.raises(ApiError) as refused:
        sb.resume(require_memory=True)
    assert refused.value.code == "image_damaged" and "its state is kept" in refused.value.message
    assert sb.info()["state"] == "suspended"

    back = sb.resume(cold=True)
    assert back["state"] == "running" and back["memoryRestored"] is False
    assert back["resumeReason"] == "restore_failed" and back["resumeMessage"]
    cell = sb.run("open('/workspace/kept').read(), 'x' in globals()")
    assert cell["results"][0]["data"]["text/plain"] == "('files are here', False)"
    assert cell["state_lost"]["reason"] == "restore_failed" and cell["memory"]["kept"] is False
    assert cell["execution_count"] == 1
    again = sb.ok("1")
    assert "state_lost" not in again and again["memory"]["kept"] is True
    sb.suspend()
    assert sb.resume()["memoryRestored"] is True, "the new state is whole"


def test_memory_of_another_version_of_coppice(states_daemon, sb):
    """After an upgrade: a cold boot that names the formats, and what comes after it is whole although its parent cannot be read."""
    sb.ok("x = 1; open('/workspace/kept', 'w').write('files are here')")
    sb.suspend()
    with open(states_daemon.home / "nodes" / sb.info()["node_id"] / "mem/meta.img", "r+b") as file:
        file.seek(8)
        file.write((1).to_bytes(4, "little"))
    with pytest.raises(ApiError) as refused:
        sb.resume(require_memory=True)
    assert refused.value.code == "image_mismatch" and re.search(r"format 1, this engine reads [2-9]", refused.value.message)
    back = sb.resume(cold=True)
    assert (back["memoryRestored"], back["resumeReason"]) == (False, "restore_failed") and "format 1" in back["resumeMessage"]
    assert sb.text("open('/workspace/kept').read()") == "'files are here'"
    sb.ok("x = 2")
    node = sb.snapshot()
    sb.suspend()
    assert sb.resume()["memoryRestored"] is True and sb.text("x") == "2"
    sb.ok("x = 3")
    assert sb.goto(node["id"])["memoryRestored"] is True and sb.text("x") == "2"


# -- snapshots -----------------------------------------------------------------------------------------------------------


def test_snapshots_are_named_listed_and_removed(sb, api):
    sb.ok("x = 1")
    node = sb.snapshot(name="first")
    assert (node["name"], node["kind"], node["reason"], node["sandbox_id"]) == ("first", "memory", "snapshot", sb.id)
    assert sb.info()["state"] == "running" and sb.text("x") == "1"
    with pytest.raises(ApiError) as taken:
        sb.snapshot(name="first")
    assert taken.value.code == "name_taken"
    assert api.get("/api/snapshots/first") == node
    second = sb.snapshot(name="second")
    assert [n["id"] for n in api.get("/api/snapshots")["snapshots"]] == [node["id"], second["id"]]
    tree = sb.nodes()
    assert tree["head"] == second["id"] and second["parent_id"] == node["id"]
    api.delete("/api/snapshots/first")
    assert [n["id"] for n in api.get("/api/snapshots")["snapshots"]] == [second["id"]]
    api.delete(f"/api/snapshots/{second['id']}")
    with pytest.raises(ApiError) as gone:
        api.get("/api/snapshots/first")
    assert gone.value.code == "node_not_found" and gone.value.status == 404


def test_a_snapshot_of_files_has_no_memory(sb, api):
    sb.ok("x = 1; open('/workspace/data', 'w').write('42')")
    node = sb.snapshot(kind="filesystem", name="files-only")
    assert node["kind"] == "files" and node["memory_bytes"] == 0
    assert sb.text("x") == "1"
    copy = api.new(**{"from": "files-only"})
    assert copy.read("/workspace/data") == b"42"
    assert copy.text("'x' in globals()") == "False"
    sb.ok("open('/workspace/data', 'w').write('changed'); x = 2")
    back = sb.goto("files-only")
    assert back["memoryRestored"] is False and back["resumeReason"] == "no_memory_snapshot"
    cell = sb.run("open('/workspace/data').read()")
    assert cell["results"][0]["data"]["text/plain"] == "'42'" and cell["state_lost"]["reason"] == "no_memory_snapshot"
    copy.remove()
    api.delete("/api/snapshots/files-only")


def test_snapshots_outlive_their_source(api):
    source = api.new(policy={"checkpoints": "off"})
    source.ok("x = list(range(1000)); open('/workspace/f', 'w').write('of the source')")
    node = source.snapshot(name="outlives")
    source.ok("x = None; open('/workspace/f', 'w').write('later')")
    source.remove()
    reply = api.post("/api/snapshots/outlives/sandboxes", {"count": 2, "name": "heir", "labels": {"a": "b"}})
    assert reply["node"]["id"] == node["id"]
    for i, child in enumerate(sorted(reply["sandboxes"], key=lambda c: c["name"])):
        copy = Sandbox(api, child["id"])
        info = copy.info()
        assert info["name"] == f"heir-{i + 1}" and info["labels"] == {"a": "b"} and info["node_id"] == node["id"]
        assert copy.text("sum(x), open('/workspace/f').read()") == "(499500, 'of the source')"
        copy.remove()
    api.delete("/api/snapshots/outlives")


@pytest.mark.parametrize("body", [{"from": "nd_0000000000"}, {"from": "no-such"}, {"from": "x", "image": "code-interpreter"}])
def test_creation_from_nothing_is_refused(api, body):
    with pytest.raises(ApiError) as error:
        api.post("/api/sandboxes", body)
    assert error.value.code == ("bad_request" if "image" in body else "node_not_found")


# -- forks ---------------------------------------------------------------------------------------------------------------


def test_forks_share_nothing_after_writes(sb, api):
    sb.ok("x = {'who': 'source'}; open('/workspace/who', 'w').write('source'); open('/workspace/old', 'w').write('old')")
    children = sb.fork(count=3, name="stem", labels={"fork": "yes"})
    assert len({c.id for c in children} | {sb.id}) == 4
    assert sorted(c.info()["name"] for c in children) == ["stem-1", "stem-2", "stem-3"]
    for i, child in enumerate(children):
        assert child.text("x['who'], open('/workspace/who').read()") == "('source', 'source')"
        child.ok(f"x['who'] = {i}; open('/workspace/who', 'w').write('{i}')")
        child.ok("import os; os.remove('/workspace/old')")
    for i, child in enumerate(children):
        assert child.text("x['who'], open('/workspace/who').read(), os.path.exists('/workspace/old')") == f"({i}, '{i}', False)"
    assert sb.text("x['who'], open('/workspace/who').read(), open('/workspace/old').read()") == "('source', 'source', 'old')"
    sb.ok("x['who'] = 'changed'")
    assert children[0].text("x['who']") == "0"
    grandchild = children[1].fork()[0]
    assert grandchild.text("x['who']") == "1"
    for child in [grandchild, *children]:
        child.remove()
    assert sb.text("x['who']") == "'changed'"


def test_a_fork_has_the_commands_of_its_source(sb, api):
    """Their processes run in it: so they are listed, followed and killed there, by the same ids, and nothing of that touches the source's."""
    status = lambda box, command: api.get(f"{box.path}/commands/{command['id']}")["status"]  # noqa: E731
    ticking = sb.exec("echo begun; while sleep 0.1; do echo tick; done", detach=True, env={"TOKEN": "secret"})
    over = sb.exec("true")
    wait_for(lambda: "tick" in api.get(f"{sb.path}/commands/{ticking['id']}")["stdout"])
    node = sb.snapshot(name="ticks")
    child = sb.fork()[0]
    (row,) = api.get(f"{child.path}/commands")["commands"]
    assert (row["id"], row["pid"], row["status"], row["detached"]) == (ticking["id"], ticking["pid"], "running", True)
    assert row["command"].startswith("echo begun") and row["sandbox_id"] == child.id
    assert over["id"] != row["id"], "what has ended is the source's"
    wait_for(lambda: "tick" in api.get(f"{child.path}/commands/{ticking['id']}")["stdout"])
    assert "begun" not in api.get(f"{child.path}/commands/{ticking['id']}")["stdout"], "the log begins with the fork"
    grandchild = child.fork()[0]
    api.post(f"{child.path}/commands/{ticking['id']}/kill", {"signal": "KILL"})
    wait_for(lambda: status(child, ticking) == "killed")
    assert (status(sb, ticking), status(grandchild, ticking)) == ("running", "running")
    assert api.get(f"{child.path}/commands/{ticking['id']}")["log"]["complete"] is False
    sb.remove()
    heir = Sandbox(api, api.post("/api/snapshots/ticks/sandboxes", {})["sandboxes"][0]["id"])
    assert status(heir, ticking) == "running"
    heir.suspend()
    assert heir.text("1 + 1") == "2" and status(heir, ticking) == "running"
    heir.ok("x = 1")
    heir.goto(node["id"])
    assert status(heir, ticking) == "running"
    api.post(f"{heir.path}/commands/{ticking['pid']}/kill", {"signal": "TERM"})
    wait_for(lambda: status(heir, ticking) == "killed")
    for box in (child, grandchild, heir):
        box.remove()
    api.delete("/api/snapshots/ticks")


def rested(box, api) -> str:
    """The node that a fork of a sandbox at rest takes again and again."""
    node = api.post(f"{box.path}/fork", {}, timeout=120)
    for _ in range(50):
        for made in node["sandboxes"]:
            Sandbox(api, made["id"]).remove()
        again = api.post(f"{box.path}/fork", {}, timeout=120)
        if again["node"]["id"] == node["node"]["id"]:
            Sandbox(api, again["sandboxes"][0]["id"]).remove()
            return again["node"]["id"]
        node = again
    raise AssertionError("it never rests")


@pytest.mark.parametrize(
    "change",
    ["cell", "file", "command", "service", "thread", "policy", "nothing"],
)
def test_a_fork_of_what_has_not_run_takes_the_head(sb, api, change):
    """And whatever has happened, inside or in what the daemon knows, makes a node anew."""
    sb.ok("x = 1; import threading, time; print('printed')")
    before = rested(sb, api)
    assert sb.nodes()["head"] == before
    if change == "cell":
        sb.ok("x = 2")
    elif change == "file":
        sb.write("/workspace/f", b"new")
    elif change == "command":
        sb.exec("true")
    elif change == "service":
        sb.exec("while sleep 0.2; do date +%N > /workspace/now; done", detach=True)
    elif change == "thread":
        sb.ok("def work():\n    while True:\n        time.sleep(0.1)\nthreading.Thread(target=work, daemon=True).start()")
        rounds = {api.post(f"{sb.path}/fork", {}, timeout=120)["node"]["id"] for _ in range(3) if not time.sleep(0.3)}
        assert len(rounds) == 3, "it runs all the time"
        return
    elif change == "policy":
        api.call("PATCH", sb.path, {"policy": {"idle_seconds": 777}})
    reply = api.post(f"{sb.path}/fork", {}, timeout=120)
    child = Sandbox(api, reply["sandboxes"][0]["id"])
    assert (reply["node"]["id"] == before) == (change == "nothing"), reply["node"]
    assert child.text("x") == ("2" if change == "cell" else "1")
    if change == "file":
        assert child.text("open('/workspace/f').read()") == "'new'"
    # A fork of a fork, and a way back to the node that served both.
    assert child.fork()[0].text("x") == child.text("x")
    sb.ok("x = 99")
    sb.goto(before)
    assert sb.text("x") == "1"


def test_fork_counts_are_checked(sb, api):
    for count in (0, 101, -1, 1.5):
        with pytest.raises(ApiError) as error:
            api.post(f"{sb.path}/fork", {"count": count})
        assert error.value.code == "bad_request"


def test_a_sandbox_that_sleeps_often_stands_on_few_layers(sb, states_daemon):
    """Each sleep is a layer; an overlay takes some hundreds.  Deep stacks are merged, and nothing that shows changes."""
    for i in range(40):
        sb.ok(f"open('now', 'w').write('{i}'); open('n{i}', 'w').write('{i}')\n"
              f"import os; os.path.exists('n{i - 2}') and os.remove('n{i - 2}')")
        sb.suspend()
    deep = states_daemon.home / "nodes"
    wait_for(lambda: [node for node in nodes_on_disk(states_daemon) if (deep / node / "flat").exists()], 30)
    sb.ok("y = 1")
    sb.suspend()
    sb.ok("y = 2")
    with sqlite3.connect(f"file:{states_daemon.home}/coppice.db?mode=ro", uri=True) as db:
        (layers,) = db.execute("SELECT layers FROM sandboxes WHERE id = ?", (sb.id,)).fetchone()
    assert len(json.loads(layers)) < 20 and "/flat" in layers
    sb.resume(cold=True)
    assert sb.text("sorted(n for n in __import__('os').listdir() if n[0] == 'n'), open('now').read()") == "(['n38', 'n39', 'now'], '39')"


# -- undo, goto ------------------------------------------------------------------------------------------------------------


def test_a_copy_goes_back_to_before_it_was_made_as_long_as_its_source_is_there(make, api):
    source = make()
    for n in range(3):
        source.ok(f"x = {n}")
        rested(source, api)
    first, second = source.fork(), source.fork()
    first[0].undo()
    assert first[0].text("x") == "1"
    source.remove()
    wait_for(lambda: source.id not in [s["id"] for s in api.get("/api/sandboxes")["sandboxes"]])
    second[0].ok("x = 7")
    second[0].undo()
    assert second[0].text("x") == "2", "its own cells"
    with pytest.raises(ApiError) as error:
        second[0].undo(2)
    assert error.value.code == "node_not_found" and f"went with sandbox {source.id}, which has ended" in str(error.value)
    for copy in (first[0], second[0]):
        remove(copy)


def test_undo_and_goto_restore_files_and_memory(sb):
    sb.ok("import os; x = 1; os.makedirs('/workspace/d'); open('/workspace/d/a', 'w').write('a1'); open('/workspace/b', 'w').write('b1')")
    one = sb.snapshot()
    sb.ok("x = 2; open('/workspace/d/a', 'w').write('a2'); os.remove('/workspace/b'); open('/workspace/new', 'w').write('new')")
    two = sb.snapshot()
    assert two["parent_id"] == one["id"]
    sb.ok("x = 3; import shutil; shutil.rmtree('/workspace/d')")
    state = "x, {n: open(os.path.join(d, n)).read() for d, _, names in os.walk('/workspace') for n in sorted(names)}"

    assert sb.undo()["memoryRestored"] is True
    assert sb.text(state) == "(2, {'new': 'new', 'a': 'a2'})"
    assert sb.nodes()["head"] == two["id"]
    assert sb.goto(one["id"])["memoryRestored"] is True
    assert sb.text(state) == "(1, {'b': 'b1', 'a': 'a1'})"
    assert sb.goto(two["id"])["memoryRestored"] is True, "forward again"
    assert sb.text(state) == "(2, {'new': 'new', 'a': 'a2'})"
    with pytest.raises(ApiError) as error:
        sb.goto("nd_0000000000")
    assert error.value.code == "node_not_found"
    assert sb.text("x") == "2", "a refused goto changes nothing"


def test_commands_of_a_state_run_again_with_it(sb, api):
    """And are known again: one that had been killed meanwhile, one that the way back ended."""
    status = lambda command: api.get(f"{sb.path}/commands/{command['id']}")["status"]  # noqa: E731
    sb.ok("x = 1")
    killed, ended = (sb.exec("while sleep 0.1; do echo tick; done", detach=True) for _ in range(2))
    node = sb.snapshot()
    later = sb.exec("sleep 1000", detach=True)
    api.post(f"{sb.path}/commands/{killed['id']}/kill", {"signal": "KILL"})
    wait_for(lambda: status(killed) == "killed")
    sb.ok("x = 2")
    assert sb.goto(node["id"])["memoryRestored"] is True
    assert (status(killed), status(ended), status(later)) == ("running", "running", "killed")
    for command in (killed, ended):
        before = api.get(f"{sb.path}/commands/{command['id']}")["stdout_bytes"]
        wait_for(lambda: api.get(f"{sb.path}/commands/{command['id']}")["stdout_bytes"] > before)
        api.post(f"{sb.path}/commands/{command['id']}/kill", {"signal": "KILL"})
        wait_for(lambda: status(command) == "killed")
    assert sb.text("x") == "1"


def test_travel_right_after_travel(sb):
    """Nothing has to be awaited in between."""
    sb.ok("x = 1")
    node = sb.snapshot()["id"]
    for n in range(5):
        sb.goto(node)
        sb.goto(node)
        sb.suspend()
        sb.goto(node)
        sb.snapshot()
    assert sb.text("x") == "1"


# -- kill -9 of the daemon --------------------------------------------------------------------------------------------------


def test_the_daemon_dies_while_it_sleeps(states_daemon, sb):
    sb.ok("x = 'kept'")
    sb.suspend()
    states_daemon.kill()
    states_daemon.start()
    assert sb.info()["state"] == "suspended"
    assert sb.resume(require_memory=True)["memoryRestored"] is True
    assert sb.text("x") == "'kept'"


@pytest.mark.parametrize("what", ["suspend", "resume", "snapshot"])
def test_the_daemon_dies_in_the_middle(states_daemon, sb, what):
    """What was acknowledged is there, and the sandbox comes out running or asleep with all it had."""
    sb.ok("rounds = 0; data = bytes(range(256)) * 40000")
    for n, delay in enumerate((0.002, 0.01, 0.03, 0.08, 0.2)):
        sb.ok(f"rounds = {n}; open('/workspace/round', 'w').write('{n}')")
        if what == "resume":
            sb.suspend()

        def call():
            try:
                getattr(sb, what)()
            except Exception:
                pass

        thread = threading.Thread(target=call)
        thread.start()
        time.sleep(delay)
        states_daemon.kill()
        thread.join()
        states_daemon.start()
        info = sb.info()
        assert info["state"] in ("running", "suspended", "suspending", "resuming", "starting"), (delay, info)
        cell = sb.run("rounds, open('/workspace/round').read(), data == bytes(range(256)) * 40000")
        assert cell["status"] == "ok" and cell["results"][0]["data"]["text/plain"] == f"({n}, '{n}', True)", (delay, cell)


# -- removal, and what is left ----------------------------------------------------------------------------------------------


def test_suspended_sandboxes_are_removed(states_daemon, api):
    one, two = api.new(name="sleeper"), api.new()
    for sandbox in (one, two):
        sandbox.ok("x = 1")
        sandbox.suspend()
    ended = one.remove()
    assert ended["state"] == "ended" and ended["ended_reason"] == "removed"
    with pytest.raises(ApiError) as error:
        one.resume()
    assert error.value.code == "sandbox_ended"
    api.new(name="sleeper").remove()
    removed = api.delete("/api/sandboxes", all="true")
    assert two.id in removed["removed"] and not removed["failed"]


def test_nodes_are_freed(states_daemon, api):
    remove_snapshots(api)
    api.delete("/api/sandboxes", all="true")
    wait_for(lambda: nodes_on_disk(states_daemon) == [])
    sb = api.new(policy={"checkpoints": "off"})
    sb.ok("x = 1")
    sb.snapshot(name="base")
    child = sb.fork()[0]
    child.suspend()
    sb.suspend()
    assert nodes_on_disk(states_daemon)
    sb.remove()
    assert child.text("x") == "1", "what it stands on is still there"
    child.remove()
    wait_for(lambda: len(nodes_on_disk(states_daemon)) == 1)
    api.delete("/api/snapshots/base")
    wait_for(lambda: nodes_on_disk(states_daemon) == [])
    wait_for(lambda: not list((states_daemon.home / "sandboxes").iterdir()))
    states_daemon.kill()
    states_daemon.start()
    assert nodes_on_disk(states_daemon) == []
