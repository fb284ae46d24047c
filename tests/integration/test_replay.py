"""Replay: after a resume without memory, the cells that had made it are run again."""

from __future__ import annotations

import json
import threading

import pytest

from cli import Cli
from client import ApiError, wait_for


DAEMON = "states_daemon"
POLICY = {"checkpoints": "off"}


@pytest.fixture
def new(make):
    return lambda **policy: make(policy=policy)


@pytest.fixture
def lose(states_daemon):
    """Puts it to sleep, and its memory is gone."""

    def do(sb):
        sb.suspend()
        with open(states_daemon.home / "nodes" / sb.info()["node_id"] / "mem/meta.img", "r+b") as file:
            file.seek(64)  # page files are shared with older nodes: only what is its own
            byte = file.read(1)
            file.seek(64)
            file.write(bytes([byte[0] ^ 0x55]))

    return do


def resume(sb, replay=None, **params):
    return sb.resume(cold=True, **({"replay": replay} if replay else {}), **params)


def statuses(back):
    return [(c["cell_id"], c["status"], c.get("same_outcome")) for c in back["replay"]["report"]]


def counts(view):
    return {k: view[k] for k in ("mode", "cells", "ok", "failed", "different", "skipped")}


def test_all_cells_run_again_in_order(new, lose, api):
    sb = new()
    cells = [sb.run(code) for code in ("x = [1]", "x.append(2); print(x)", "x[9]", "import uuid; x.append(3); uuid.uuid4()")]
    silent = sb.run("quiet = 5", silent=True)
    lose(sb)
    back = resume(sb, "all")
    assert back["memoryRestored"] is False and back["resumeReason"] == "restore_failed"
    assert statuses(back) == [(cells[0]["id"], "ok", True), (cells[1]["id"], "ok", True), (cells[2]["id"], "error", True),
                              (cells[3]["id"], "ok", False), (silent["id"], "ok", True)]
    expected = {"mode": "all", "cells": 5, "ok": 4, "failed": 1, "different": 1, "skipped": 0}
    assert counts(back["replay"]) == expected and back["replay"]["complete"] is True
    assert api.get(f"{sb.path}/contexts")["contexts"][0]["state_replayed"]["cells"] == 5
    first = sb.ok("x, quiet")
    assert first["results"][0]["data"]["text/plain"] == "([1, 2, 3], 5)" and first["execution_count"] == 5
    assert "state_lost" not in first and counts(first["state_replayed"]) == expected
    assert first["state_replayed"]["reason"] == "restore_failed" and first["generation"] == 2
    assert first["memory"] == {"kept": False, "generation": 2, "reason": "restore_failed"}
    second = sb.ok("1")
    assert "state_replayed" not in second and second["memory"]["kept"] is True
    listed = api.get(f"{sb.path}/cells", limit=100)["cells"]
    assert [c.get("replay_of") for c in listed] == [None] * 5 + [c["id"] for c in (*cells, silent)] + [None] * 2


def test_only_what_was_pure(new, lose):
    sb = new()
    kept, left = sb.run("a = 1", pure=True), sb.run("b = 2")
    assert kept["pure"] is True and "pure" not in left
    lose(sb)
    back = resume(sb, "pure")
    assert statuses(back) == [(kept["id"], "ok", True), (left["id"], "skipped", None)]
    told = sb.ok("a, 'b' in globals()")
    assert told["results"][0]["data"]["text/plain"] == "(1, False)" and counts(told["state_replayed"])["skipped"] == 1
    other = new()
    other.run("b = 2")
    lose(other)
    assert counts(resume(other, "pure")["replay"]) == {"mode": "pure", "cells": 0, "ok": 0, "failed": 0, "different": 0, "skipped": 1}
    assert other.run("b")["state_lost"]["reason"] == "restore_failed", "nothing was made again"


def test_without_being_asked_nothing_runs(new, lose):
    sb = new()
    sb.ok("x = 1")
    lose(sb)
    assert "replay" not in resume(sb)
    cell = sb.run("x")
    assert cell["error"]["name"] == "NameError" and cell["state_lost"]["reason"] == "restore_failed"
    lasting = new(replay="all")
    lasting.ok("x = 1")
    lasting.suspend()
    back = lasting.resume(replay="all")
    assert back["memoryRestored"] is True and "replay" not in back
    lose(lasting)
    assert "replay" not in resume(lasting, "none"), "the caller knows better than the policy"


def test_undone_cells_are_left_out(new, lose, api):
    sb = new(checkpoints="after_cell")
    ids = []
    for code in ("x = ['a']", "x += 'b'", "x += 'c'", "x += 'd'"):
        ids.append(sb.ok(code)["id"])
        wait_for(lambda: any(n.get("cell_id") == ids[-1] for n in sb.nodes()["nodes"]))
    sb.undo(2)
    ids.append(sb.ok("x += 'e'")["id"])
    assert sb.text("''.join(x)") == "'abe'"
    looked = api.get(f"{sb.path}/cells", limit=100)["cells"][-1]["id"]
    lose(sb)
    back = resume(sb, "all")
    assert [c["cell_id"] for c in back["replay"]["report"]] == [ids[0], ids[1], ids[4], looked]
    assert sb.text("''.join(x)") == "'abe'"
    lose(sb)
    again = resume(sb, "all")
    assert len(again["replay"]["report"]) == 5 and sb.text("''.join(x)") == "'abe'", "replays are history by now"


def test_replays_are_no_cells_to_undo(new, lose):
    sb = new()
    sb.ok("x = 1")
    node = sb.snapshot()
    sb.ok("x = 2")
    lose(sb)
    resume(sb, "all")
    assert sb.nodes()["nodes"][-1]["reason"] == "suspend"
    back = sb.undo()
    assert back["memoryRestored"] is True and back["node_id"] == node["id"]
    assert sb.text("x") == "1"


def test_requests_that_come_meanwhile_wait(new, lose):
    sb = new(replay="all")
    sb.ok("import time; x = 0")
    for n in range(4):
        sb.ok(f"time.sleep(0.2); x += {n + 1}")
    lose(sb)
    seen = []
    senders = [threading.Thread(target=lambda: seen.append(sb.run("x"))) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert [c["results"][0]["data"]["text/plain"] for c in seen] == ["10"] * 4
    assert sum("state_replayed" in c for c in seen) == 1 and not any("state_lost" in c for c in seen)


def test_what_was_taken_is_told_and_the_rest_runs(new, lose, api):
    """The variables of a take are those of another state: running its cell again could only fail."""
    source, sb = new(), new()
    source.ok("gift = 'from elsewhere'")
    cells = [sb.ok("x = 1")]
    api.post(f"{sb.path}/take", {"from": source.id, "variables": ["gift"]})
    taken = api.get(f"{sb.path}/cells", limit=100)["cells"][-1]
    cells += [sb.ok("y = x + 1"), sb.ok("gift")]
    assert sb.text("gift, y") == "('from elsewhere', 2)"
    lose(sb)
    report = resume(sb, "all")["replay"]["report"]
    assert [c["status"] for c in report] == ["ok", "skipped", "ok", "error", "error"]
    assert report[1]["cell_id"] == taken["id"] and report[1]["why"] == "taken: cannot be replayed"
    assert sb.text("x, y, 'gift' in globals()") == "(1, 2, False)"
    api.post(f"{sb.path}/take", {"from": source.id, "variables": ["gift"]})
    assert sb.text("gift") == "'from elsewhere'"


def test_wait_is_for_the_kernels(new, lose, api):
    """Without it the answer comes when the sandbox runs: its new kernels are on their way, and may not even come."""
    sb = new()
    sb.ok("x = 1")
    api.post(f"{sb.path}/contexts", {"name": "second"})
    lose(sb)
    back = resume(sb, wait=True)
    assert back["memoryRestored"] is False
    assert [c["state"] for c in back["contexts"]] == ["idle", "idle"]
    assert [c["generation"] for c in back["contexts"]] == [2, 2]
    sb.suspend()
    back = sb.resume(wait=True)
    assert [c["state"] for c in back["contexts"]] == ["idle", "idle"] and back["memoryRestored"] is True
    assert [c["state"] for c in sb.resume(wait=True)["contexts"]] == ["idle", "idle"], "one that is awake"
    sb.exec("chmod 0 $(which python3)", user="root")
    lose(sb)
    back = resume(sb, wait=True, memory="1G")
    assert [c["state"] for c in back["contexts"]] == ["dead", "dead"], "and it is no endless wait"


def test_services_start_again(new, lose, api):
    """Those that were marked, in what was asked for; others are lost, and neither is done when memory came back."""
    sb = new()
    service = sb.exec("echo $WORD $PWD >> /workspace/starts; exec sleep 1000", detach=True, restart=True, cwd="/tmp", env={"WORD": "up"})
    other = sb.exec(["sleep", "1000"], detach=True)
    done = sb.exec(["true"], detach=True, restart=True)
    wait_for(lambda: api.get(f"{sb.path}/commands/{done['id']}")["status"] == "exited")
    wait_for(lambda: sb.exec("cat /workspace/starts")["stdout"] == "up /tmp\n")
    sb.suspend()
    sb.resume()
    assert api.get(f"{sb.path}/commands/{service['id']}")["status"] == "running"
    for round in (2, 3):
        lose(sb)
        resume(sb)
        assert wait_for(lambda: sb.exec("cat /workspace/starts")["stdout"] == "up /tmp\n" * round)
    commands = {c["id"]: c for c in api.get(f"{sb.path}/commands")["commands"]}
    assert commands[service["id"]]["status"] == commands[other["id"]]["status"] == "lost"
    again = [c for c in commands.values() if c.get("restart_of") == service["id"]]
    assert len(again) == 1 and again[0]["status"] == "lost" and again[0]["restart"] is True
    third = [c for c in commands.values() if c.get("restart_of") == again[0]["id"]]
    assert len(third) == 1 and third[0]["running"] is True and third[0]["cwd"] == "/tmp"
    assert len([c for c in commands.values() if c["running"]]) == 1
    events = [e for e in map(json.loads, api.raw("GET", "/api/events").body.splitlines()) if e["type"] == "command.restarted" and e["sandbox_id"] == sb.id]
    assert [e["command_id"] for e in events] == [again[0]["id"], third[0]["id"]]


@pytest.mark.parametrize("params", [{"restart": True}, {"restart": True, "detach": True, "stdin": "x"}])
def test_what_cannot_be_a_service(new, params):
    with pytest.raises(ApiError) as error:
        new().exec("true", **params)
    assert error.value.code == "bad_request"


def test_contexts_each_have_their_own(new, lose, api):
    sb = new()
    api.post(f"{sb.path}/contexts", {"name": "second"})
    for n in range(3):
        sb.ok(f"here = {n}")
        sb.ok(f"there = {n} * 10", context="second")
    sb.ok("open('/workspace/n', 'a').write('x')", context="second")
    lose(sb)
    back = resume(sb, "all")
    assert len(back["replay"]["report"]) == 7 and back["replay"]["failed"] == 0
    assert sb.text("here") == "2"
    told = sb.ok("there", context="second")
    assert told["results"][0]["data"]["text/plain"] == "20" and told["state_replayed"]["cells"] == 4
    assert sb.read("/workspace/n") == b"xx", "files are those of the node: what the cell does is done again"


def test_a_kernel_that_dies_ends_it(new, lose):
    sb = new()
    sb.ok("import os, signal; os.path.exists('/workspace/deadly') and os.kill(os.getpid(), signal.SIGKILL)")
    sb.ok("open('/workspace/deadly', 'w').close(); x = 1")
    lose(sb)
    back = resume(sb, "all")
    assert [c["status"] for c in back["replay"]["report"]] == ["died", "skipped"]
    cell = sb.run("x")
    assert cell["state_lost"]["reason"] == "died" and cell["error"]["name"] == "NameError" and cell["generation"] == 3


def test_cells_that_came_to_no_end_are_not_run(new, lose):
    sb = new()
    sb.ok("import time")
    endless = sb.run("time.sleep(60)", timeout=0.5)
    asked = sb.stream("value = input('? ')", stdin="open")
    for event in asked:
        if event["type"] == "input_request":
            sb.api.post(f"{sb.path}/cells/{cell_id}/input", {"value": "v"})
        elif event["type"] == "start":
            cell_id = event["cell_id"]
    assert endless["status"] == "timeout" and sb.text("value") == "'v'"
    lose(sb)
    report = resume(sb, "all")["replay"]["report"]
    assert [c["status"] for c in report] == ["ok", "skipped", "error", "error"], "and nobody answers questions"


def test_the_death_before_is_not_replayed(new, lose):
    sb = new()
    sb.ok("x = 'before'")
    sb.run("import os; os._exit(3)")
    after = sb.ok("y = 'after'")
    lose(sb)
    back = resume(sb, "all")
    assert [c["cell_id"] for c in back["replay"]["report"]] == [after["id"]]
    assert sb.text("y, 'x' in globals()") == "('after', False)"


def test_a_fork_replays_what_its_source_ran(new, lose):
    sb = new()
    sb.ok("x = 41")
    fork = sb.fork()[0]
    fork.ok("x += 1")
    lose(fork)
    back = resume(fork, "all")
    assert back["replay"]["cells"] == 2 and back["replay"]["complete"] is True and fork.text("x") == "42"
    orphan = sb.fork()[0]
    orphan.ok("y = 1")
    sb.remove()
    wait_for(lambda: not sb.api.get("/api/sandboxes", all="true", name="none")["sandboxes"])
    lose(orphan)
    back = resume(orphan, "all")
    assert back["replay"]["cells"] >= 1 and orphan.text("y") == "1"
    for child in (fork, orphan):
        child.remove()


def test_progress_is_told(new, lose, api):
    sb = new()
    ids = [sb.ok(f"x = {n}")["id"] for n in range(3)]
    lose(sb)
    events = [e for e in api.events("POST", f"{sb.path}/resume", {"replay": "all"})]
    assert [e["replayed"]["cell_id"] for e in events if e["type"] == "progress"] == ids
    assert [e["message"] for e in events if e["type"] == "progress"] == ["cell 1 of 3", "cell 2 of 3", "cell 3 of 3"]
    end = events[-1]
    assert end["type"] == "end" and end["sandbox"]["replay"]["ok"] == 3
    logged = [json.loads(line) for line in api.raw("GET", f"{sb.path}/logs").body.splitlines()]
    assert [e["ok"] for e in logged if e["type"] == "sandbox.replayed"] == [3]
    events = [e for e in api.events("POST", f"{sb.path}/resume", {})]
    assert [e["type"] for e in events] == ["start", "end"]


def test_the_daemon_dies_in_the_middle(new, lose, states_daemon):
    sb = new()
    sb.ok("x = 1")
    slow = sb.ok("import time, os; time.sleep(2 if os.path.exists('/workspace/slow') else 0); y = 2")
    sb.ok("open('/workspace/slow', 'w').close(); z = 3")
    lose(sb)
    with pytest.raises(Exception):
        def kill():
            wait_for(lambda: any(c.get("replay_of") == slow["id"] and c["status"] == "running" for c in sb.api.get(f"{sb.path}/cells")["cells"]))
            states_daemon.kill()
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            resume(sb, "all")
        finally:
            killer.join()
    states_daemon.start()
    told = sb.ok("[n for n in 'xyz' if n in globals()]")
    assert told["results"][0]["data"]["text/plain"] == "['x', 'y']" and told["state_lost"]["reason"] == "restore_failed"


def test_it_can_be_removed_in_the_middle(new, lose, api):
    sb = new()
    sb.ok("import time, os; time.sleep(60 if os.path.exists('/workspace/slow') else 0)")
    sb.ok("open('/workspace/slow', 'w').close()")
    lose(sb)
    faults = []

    def wake():
        try:
            resume(sb, "all")
        except ApiError as error:
            faults.append(error.code)

    waker = threading.Thread(target=wake)
    waker.start()
    wait_for(lambda: any(c["status"] == "running" for c in api.get(f"{sb.path}/cells")["cells"]))
    with pytest.raises(ApiError) as busy:
        sb.undo()
    assert busy.value.code in ("invalid_state", "node_not_found")
    sb.remove()
    waker.join()
    assert faults == ["sandbox_ended"]


SOFT = "__import__('resource').getrlimit(__import__('resource').RLIMIT_DATA)[0] >> 20"


def test_other_limits_at_resume_keep_the_memory(new, api):
    sb = new()
    sb.ok("x = 41")
    sb.suspend()
    back = sb.resume(memory="3G", cpus=1.5)
    assert back["memoryRestored"] is True and back["limits"]["memory_bytes"] == 3 << 30 and back["limits"]["cpus"] == 1.5
    assert sb.text("x") == "41" and sb.text(SOFT) == str(3072 + 256)
    assert sb.ok("big = bytearray(2600 << 20); len(big) >> 20")["results"][0]["data"]["text/plain"] == "2600"
    again = sb.resume(cpus=0.5)
    assert again["limits"]["cpus"] == 0.5, "awake, they are changed all the same"
    sb.suspend()
    for body in ({"memory": "1K"}, {"cpus": "many"}, {"replay": "some"}, {"wait": "yes"}):
        with pytest.raises(ApiError) as caught:
            api.post(f"{sb.path}/resume", body)
        assert caught.value.code == "bad_request", body
    assert sb.info()["state"] == "suspended" and sb.info()["limits"]["memory_bytes"] == 3 << 30


def test_the_verbs(states_daemon, lose, api):
    cli = Cli(states_daemon.home)
    cli.ok("new", "--name", "replay-cli", "--replay", "pure")
    assert cli.json("info", "replay-cli", "--json")["policy"]["replay"] == "pure"
    cli.ok("run", "replay-cli", "x = 1", "--pure")
    cli.ok("run", "replay-cli", "y = 2")
    from client import Sandbox
    sb = Sandbox(api, "replay-cli")
    lose(sb)
    woken = cli.ok("resume", "replay-cli", "--replay", "all", "--memory", "1G")
    assert "cell 2 of 2" in woken.err and "cells run again: 2, of which 0 failed" in woken.err
    shown = cli.ok("run", "replay-cli", "x + y")
    assert shown.out == "3\n" and "state replayed: " in shown.err
    lose(sb)
    assert cli("run", "replay-cli", "y").status == 1
    assert cli.ok("run", "replay-cli", "x").out == "1\n"
    assert cli("resume", "replay-cli", "--replay", "some").status == 1
    cli.ok("rm", "replay-cli")
