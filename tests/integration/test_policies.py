"""What happens to a sandbox by itself: checkpoints, idle time, ends; and what a fork must not share."""

from __future__ import annotations

import threading
import time

import pytest

from client import ApiError, wait_for


DAEMON = "states_daemon"


def nodes(sandbox):
    return sandbox.api.get(f"{sandbox.path}/nodes")["nodes"]


def saved(sandbox, cell):
    """Waits until the state after this cell is a node."""
    return wait_for(lambda: next((n for n in nodes(sandbox) if n.get("cell_id") == cell["id"]), None), 60)


def redo(sandbox, steps=1):
    return sandbox.api.post(f"{sandbox.path}/redo", {"steps": steps})


def patch(sandbox, **policy):
    return sandbox.api.call("PATCH", sandbox.path, {"policy": policy})["policy"]


# -- the object ------------------------------------------------------------------------------------------------------------


def test_effective_values_are_shown_at_once(make):
    sandbox = make(policy={"idle_seconds": 30, "checkpoints": "off"})
    policy = sandbox.info()["policy"]
    assert policy == {"idle_seconds": 30, "persistent": False, "checkpoints": "off", "on_timeout": "keep",
                      "checkpoint_keep": 50, "checkpoint_bytes": 4 << 30, "retention_days": 14, "replay": "none", "snapshot_keep": 0}
    assert patch(sandbox, persistent=True) == {**policy, "persistent": True}
    assert patch(sandbox, idle_seconds=None)["idle_seconds"] == 600
    assert sandbox.info()["policy"]["persistent"] is True


@pytest.mark.parametrize("policy, field", [
    ({"idle_seconds": -1}, "idle_seconds"), ({"idle_seconds": "1h"}, "idle_seconds"), ({"persistent": 1}, "persistent"),
    ({"checkpoints": "sometimes"}, "checkpoints"), ({"on_timeout": "die"}, "on_timeout"), ({"checkpoint_keep": 0}, "checkpoint_keep"),
    ({"checkpoint_bytes": -1}, "checkpoint_bytes"), ({"retention_days": 0}, "retention_days"),
    ({"retention_days": 1.5}, "retention_days"), ({"snapshot_keep": -1}, "snapshot_keep"), ({"snapshot_keep": "all"}, "snapshot_keep"), ({"idle": 3}, "idle")])
def test_what_it_cannot_be_is_refused_by_name(api, policy, field):
    with pytest.raises(ApiError) as error:
        api.post("/api/sandboxes", {"policy": policy})
    assert error.value.code == "bad_request" and field in error.value.message


# -- checkpoints -----------------------------------------------------------------------------------------------------------


def test_undo_goes_back_cell_by_cell_and_redo_forth(make):
    sandbox = make(policy={"checkpoints": "after_cell"})
    for i in range(4):
        saved(sandbox, sandbox.ok(f"x = {i}; open('f', 'w').write(str(x))"))
    sandbox.undo()
    sandbox.undo()
    redo(sandbox)
    sandbox.undo()
    sandbox.undo()
    redo(sandbox, 2)
    assert sandbox.text("x, open('f').read()") == "(2, '2')"
    with pytest.raises(ApiError) as error:  # the look was a new cell
        redo(sandbox)
    assert error.value.code == "node_not_found"


def test_undo_sent_at_once_keeps_what_it_left_for_redo(make):
    sandbox = make(policy={"checkpoints": "after_cell"})
    saved(sandbox, sandbox.ok("x = 1"))
    sandbox.ok("x = 2")
    sandbox.undo()
    redo(sandbox)
    assert sandbox.text("x") == "2"


def test_a_cell_that_died_names_the_state_before_it(make):
    sandbox = make(policy={"checkpoints": "after_cell"})
    before = saved(sandbox, sandbox.ok("x = 'kept'"))
    cell = sandbox.run("import os; os._exit(3)")
    assert cell["status"] == "died" and cell["checkpoint"] == before["id"]
    sandbox.api.post(f"{sandbox.path}/goto", {"node": cell["checkpoint"]})
    assert sandbox.text("x") == "'kept'"


def test_on_timeout_restore_goes_back_by_itself(make):
    sandbox = make(policy={"checkpoints": "after_cell", "on_timeout": "restore"})
    saved(sandbox, sandbox.ok("x = 'kept'"))
    cell = sandbox.run("x = 'spoilt'\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass", timeout=1)
    assert cell["status"] == "timeout"
    assert sandbox.text("x") == "'kept'"


def test_before_cell_makes_the_node_first(make):
    sandbox = make(policy={"checkpoints": "before_cell"})
    sandbox.ok("x = 1")
    sandbox.ok("x = 2")
    sandbox.undo()
    assert sandbox.text("x") == "1"


def test_thinned_to_the_newest_and_every_tenth(make):
    sandbox = make(policy={"checkpoints": "after_cell", "checkpoint_keep": 3})
    for i in range(14):
        last = sandbox.ok(f"x = {i}")
        saved(sandbox, last)
    assert len(nodes(sandbox)) == 4
    with pytest.raises(ApiError, match=r"`coppice undo \S+ 4`") as error:  # never further back than was asked for
        sandbox.undo(3)
    assert error.value.code == "node_not_found"
    sandbox.undo(4)
    assert sandbox.text("x") == "9"


def test_cells_sent_at_once_do_not_share_a_checkpoint(make):
    sandbox = make()  # after_cell is what one gets without asking
    for i in range(12):
        sandbox.ok(f"x = {i}")
    for i in reversed(range(11)):
        sandbox.undo()
        assert sandbox.run("print(x)", silent=True)["stdout"] == f"{i}\n"
        sandbox.undo()  # the look


def test_a_time_limit_comes_to_its_end_under_checkpoints(make):
    sandbox = make(policy={"checkpoints": "after_cell", "idle_seconds": 0})
    sandbox.ok("""if 1:
        import select, threading, time
        took = []
        def wait():
            began = time.monotonic()
            got = select.epoll().poll(3)
            took.append((got, time.monotonic() - began))
        threading.Thread(target=wait).start()""")
    images, until = 0, time.monotonic() + 30
    while sandbox.text("len(took)") == "0":  # each of these stops the thread once
        saved(sandbox, sandbox.ok("pass"))
        images += 1
        assert time.monotonic() < until, f"{images} checkpoints, and a wait of 3 s is not over"
    got, seconds = eval(sandbox.text("took[0]"))
    assert got == [] and seconds > 2.99 and images > 1


def test_a_session_of_many_kinds_under_checkpoints(make):
    """Latency and pauses are printed: run with -s."""
    sandbox = make(policy={"checkpoints": "after_cell", "idle_seconds": 0})
    kinds = ["import numpy as np, pandas as pd; df = pd.DataFrame({'a': np.arange(1000)}); df.a.sum()",
             "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()",
             "import threading, time; t = threading.Thread(target=time.sleep, args=(0.3,)); t.start()",
             "import subprocess; p = subprocess.Popen(['sleep', '2'])",
             "subprocess.run(['sh', '-c', 'echo hi > /tmp/hi; cat /tmp/hi'], capture_output=True).stdout",
             "open('big', 'wb').write(b'x' * 3_000_000)", "n = globals().get('n', 0) + 1"]
    sandbox.exec("while true; do date >> /tmp/ticks; sleep 0.2; done", detach=True)
    times = []
    for i in range(49):
        begin = time.monotonic()
        sandbox.ok(kinds[i % len(kinds)])
        times.append(time.monotonic() - begin)
    wait_for(lambda: nodes(sandbox) and nodes(sandbox)[-1], 30)
    assert sandbox.text("n") == "7"
    pauses = sorted(n["pause_ms"] for n in nodes(sandbox))
    print("\ncheckpoints", len(pauses), "median pause ms", pauses[len(pauses) // 2], "worst", pauses[-1])


# -- idle ------------------------------------------------------------------------------------------------------------------


def asleep(sandbox):
    return sandbox.info()["state"] == "suspended"


def test_idle_is_suspended_and_wakes_with_memory(make):
    sandbox = make(policy={"idle_seconds": 2, "checkpoints": "off"})
    sandbox.ok("x = 41")
    assert "idle_at" in sandbox.info()
    for _ in range(8):  # looking does not keep it awake
        time.sleep(0.5)
        sandbox.info()
    wait_for(lambda: asleep(sandbox), 20)
    info = sandbox.info()
    assert "retained_until" in info and "last_activity_at" in info
    assert sandbox.text("x + 1") == "42"


def test_a_running_cell_and_an_attached_command_keep_it_awake(make):
    sandbox = make(policy={"idle_seconds": 1, "checkpoints": "off"})
    sandbox.ok("import time; time.sleep(4)")
    assert sandbox.exec("sleep 4; echo done")["stdout"] == "done\n"
    wait_for(lambda: asleep(sandbox), 20)


def test_requests_in_the_instant_of_the_decision_win(make):
    """Situations 12, 80, 84."""
    sandbox = make(policy={"idle_seconds": 0.3, "checkpoints": "off"})
    for i in range(12):
        assert sandbox.text(str(i)) == str(i)
        time.sleep(0.27 + i * 0.006)


def test_ttl_ends_what_sleeps_unless_it_is_persistent(make):
    mortal = make(ttl_seconds=4, policy={"idle_seconds": 0.5, "checkpoints": "off"})
    lasting = make(ttl_seconds=4, policy={"idle_seconds": 0.5, "checkpoints": "off", "persistent": True})
    lasting.ok("x = 1")
    wait_for(lambda: mortal.info()["state"] == "ended", 30)
    assert mortal.info()["ended_reason"] == "ttl"
    wait_for(lambda: asleep(lasting), 20)
    assert lasting.text("x") == "1"


# -- forks -----------------------------------------------------------------------------------------------------------------


def test_forks_are_others_than_their_source(make, api):
    sandbox = make(env={"TOKEN": "secret"}, policy={"idle_seconds": 99, "persistent": True}, memory="1G")
    sandbox.ok("import random, socket, os, numpy as np; random.seed(1); np.random.seed(1); import uuid")
    reply = api.post(f"{sandbox.path}/fork", {"count": 2, "labels": {"search": "tot"}})
    from client import Sandbox
    children = [Sandbox(api, s["id"]) for s in reply["sandboxes"]]
    try:
        seen = [sandbox.text("(random.random(), float(np.random.rand()), os.urandom(8), socket.gethostname())")]
        for child in children:
            seen.append(child.text("(random.random(), float(np.random.rand()), os.urandom(8), socket.gethostname())"))
            info = child.info()
            assert info["labels"] == {"search": "tot"} and info["env"] == {}
            assert info["origin"]["sandbox_id"] == sandbox.id and info["origin"]["node_id"] == reply["node"]["id"]
            assert info["policy"]["idle_seconds"] == 99 and info["policy"]["persistent"] is False
            assert info["limits"]["memory_bytes"] == 1 << 30
            assert child.exec("echo $TOKEN")["stdout"] == "\n"
            assert child.id in child.exec("cat /run/coppice/generation")["stdout"]
        for values in zip(*[eval(s) for s in seen]):
            assert len(set(values)) == 3, values
    finally:
        for child in children:
            child.remove()


def test_a_fork_may_inherit_and_keep_its_numbers(make, api):
    sandbox = make(env={"TOKEN": "secret"})
    sandbox.ok("import random; random.seed(1)")
    from client import Sandbox
    reply = api.post(f"{sandbox.path}/fork", {"env": "inherit", "reseed": False})
    child = Sandbox(api, reply["sandboxes"][0]["id"])
    try:
        assert child.exec("echo $TOKEN")["stdout"] == "secret\n"
        assert child.text("random.random()") == sandbox.text("random.random()")
    finally:
        child.remove()


# -- one after the other ---------------------------------------------------------------------------------------------------


def test_snapshots_at_the_same_time_are_all_made(make, api):
    sandbox = make(policy={"checkpoints": "after_cell"})
    results = []

    def snap():
        results.append(api.post(f"{sandbox.path}/snapshots", {}))

    sandbox.ok("x = 1")
    threads = [threading.Thread(target=snap) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({node["id"] for node in results}) == 4


def test_removed_while_a_node_is_made_answers_everybody(make, api):
    sandbox = make(policy={"checkpoints": "off"})
    sandbox.ok("x = bytes(100_000_000)")
    errors = []

    def ask(call):
        try:
            api.post(f"{sandbox.path}/{call}", {})
        except ApiError as error:
            errors.append(error.code)

    threads = [threading.Thread(target=ask, args=(call,)) for call in ("snapshots", "fork", "suspend")]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    sandbox.remove()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert set(errors) <= {"sandbox_ended", "sandbox_not_found", "unavailable"}


def test_a_fork_while_a_cell_runs_leaves_the_cell_to_the_source(make, api):
    from client import Sandbox
    sandbox = make(policy={"checkpoints": "off"})
    sandbox.ok("import time")
    cell = api.post(f"{sandbox.path}/cells", {"code": "time.sleep(2); y = 1", "detach": True})
    time.sleep(0.3)
    reply = api.post(f"{sandbox.path}/fork", {})
    child = Sandbox(api, reply["sandboxes"][0]["id"])
    try:
        assert child.text("y") == "1"  # it goes on there too
        wait_for(lambda: api.get(f"{sandbox.path}/cells/{cell['id']}")["status"] == "ok", 20)
    finally:
        child.remove()
