"""Sandboxes that are kept ready for the next fork, snapshot's copy or golden state (engine/spare.c)."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Callable

from client import Sandbox, wait_for
from test_daemon_death import processes_of
from test_golden import IMAGE, evaluate, is_golden, log_of

DRAW = "random.random(), numpy.random.rand(), numpy.random.randn(), __import__('os').urandom(8).hex()"


def hidden(daemon) -> set[str]:
    return set(os.listdir(daemon.home / "sandboxes")) - {s["id"] for s in daemon.api.get("/api/sandboxes")["sandboxes"]}


def kernels(id: str) -> list[int]:
    return [p for p in processes_of(id) if "coppice_kernel" in command_line(p)]


def thawed(daemon, but: str | None = None) -> str:
    """The one that is thawed and that nobody has."""
    return wait_for(lambda: next((id for id in hidden(daemon) - {but} if stand_still(kernels(id))), None))


def stand_still(pids: list[int], seconds: float = 0.5) -> bool:
    """For longer than it takes to replace what is outdated (SPARE_AFTER)."""
    before = list(map(switches, pids))
    time.sleep(seconds)
    return 0 not in before and bool(pids) and before == list(map(switches, pids))


def await_ready(daemon, branches: int) -> set[str]:
    """So many that are thawed, and an empty one."""

    def ready():
        spares = hidden(daemon)
        pids = [pid for id in spares for pid in kernels(id)]
        return spares if len(spares) == branches + 1 and len(pids) == branches and stand_still(pids, 0.1) else None

    return wait_for(ready)


def await_end(daemon, id: str) -> None:
    wait_for(lambda: id not in os.listdir(daemon.home / "sandboxes") and not processes_of(id))


def is_called(box: Sandbox, name: str) -> bool:
    """By itself, by its files, and by who looks it up."""
    code = "import socket; socket.gethostname(), open('/etc/hostname').read(), socket.gethostbyname(%r)"
    return box.text(code % name) == str((name, name + "\n", "127.0.1.1"))


def newest(box: Sandbox) -> str:
    return box.nodes()["nodes"][-1]["id"]


def fork_ready(box: Sandbox, ready: Callable[[], set[str]], **params) -> list[Sandbox]:
    """Copies that are those kept ready.  Once more when the session has run since its newest node (a timer of its kernel): it is another
    state then."""
    for _ in range(4):
        spares, before = ready(), newest(box)
        copies = box.fork(**params)
        ids = {c.id for c in copies}
        if newest(box) == before:
            assert spares <= ids or ids <= spares, (spares, ids)
            return copies
        for copy in copies:
            copy.remove()
    raise AssertionError("the session runs all the time")


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def switches(pid: int) -> int:
    """How often its threads have begun to wait."""
    files = Path(f"/proc/{pid}/task").glob("*/status")
    return sum(int(n) for file in files for n in re.findall(r"ctxt_switches:\s+(\d+)", file.read_text()))


def test_forks_take_what_is_kept_ready(sparing_daemon):
    """An empty one and one that is thawed: nobody sees them, nothing takes them for garbage, and they take any name."""
    api = sparing_daemon.api
    box = api.new(policy={"checkpoints": "off"})
    box.ok("x = 1; import socket")
    for count, branches in ((2, 1), (3, 2), (6, 3)):
        box.fork()[0].remove()
        spares = await_ready(sparing_daemon, branches)
        kept = itertools.chain([branches], itertools.repeat(min(count, 4)))  # how many there are, then after each try
        assert not any(s in str(api.post("/api/gc", {"dry_run": True})["items"]) for s in spares)
        copies = fork_ready(box, lambda: await_ready(sparing_daemon, next(kept)), count=count, name="named")  # noqa: B023
        assert sorted(c.info()["name"] for c in copies) == [f"named-{i}" for i in range(1, count + 1)]
        for copy in copies:
            assert copy.text("x") == "1" and is_called(copy, copy.info()["name"])
            copy.ok("open('/workspace/own', 'w').write('x')")
            copy.remove()
        assert box.text("x") == "1"
    spares = await_ready(sparing_daemon, 4)  # however many are asked for
    unnamed = box.fork()[0]
    assert unnamed.id in spares and is_called(unnamed, unnamed.id.replace("_", "-"))
    sparing_daemon.stop()
    sparing_daemon.start()
    assert box.text("x") == "1"
    wait_for(lambda: not hidden(sparing_daemon))


def test_the_next_branch_is_thawed_ahead(sparing_daemon):
    """It is what the session is, however that goes on, with random numbers of its own."""
    api = sparing_daemon.api
    box = api.new()
    box.ok("import random, numpy, socket; numpy.random.randn(); x = 1")
    children = box.fork()
    children += fork_ready(box, lambda: {thawed(sparing_daemon)}, name="named")
    assert is_called(children[-1], "named")
    children += fork_ready(box, lambda: {thawed(sparing_daemon)}, labels={"l": "1"})
    ahead = children[-1].id
    assert children[-1].info()["labels"] == {"l": "1"}
    cell = children[-1].ok("x += 1; x, socket.gethostname()")
    assert cell["results"][0]["data"]["text/plain"] == f"(2, {ahead.replace('_', '-')!r})"
    assert (cell["execution_count"], cell["generation"], cell["memory"]["kept"]) == (2, 1, True)
    assert json.loads(children[-1].read("/run/coppice/generation"))["sandbox_id"] == ahead
    children[-1].suspend()
    assert children[-1].text("x") == "2"

    # After each cell it is another one; and a fork does not wait for it, nor gets what was before.
    for x in (10, 20):
        ahead = thawed(sparing_daemon)
        box.ok(f"x = {x}; open('/workspace/x', 'w').write('{x}')")
        thawed(sparing_daemon, but=ahead)
        await_end(sparing_daemon, ahead)
        children += fork_ready(box, lambda: {thawed(sparing_daemon)})
        assert children[-1].text("x, open('/workspace/x').read()") == f"({x}, '{x}')"
        box.ok("x += 1")
        children += box.fork()
        assert children[-1].text("x") == str(x + 1)
    drawn = [evaluate(child, DRAW) for child in [box, *children]]
    assert all(len(set(values)) == len(drawn) for values in zip(*drawn)), drawn


def test_as_many_branches_are_ahead_as_were_asked_for(sparing_daemon):
    """All follow the session, and none has run."""
    box = sparing_daemon.api.new()
    box.ok("import random; x = 0")
    children = box.fork(count=3)
    older = {id for id in await_ready(sparing_daemon, 3) if kernels(id)}
    for x in (1, 2):
        box.ok(f"x = {x}")
        ready = lambda: wait_for(lambda: (s := await_ready(sparing_daemon, 3)) if not any(map(kernels, older)) else None)  # noqa: B023, E731
        branches = fork_ready(box, ready, count=3)
        assert [branch.text("x") for branch in branches] == [str(x)] * 3
        children += branches
        older = {id for id in await_ready(sparing_daemon, 3) if kernels(id)}
    assert len({child.text("random.random()") for child in [box, *children]}) == 1 + len(children)


def test_a_branch_that_is_thawed_ahead_goes_with_what_it_is_of(sparing_daemon):
    api = sparing_daemon.api
    box = api.new()
    box.ok("import random; x = 1")

    # A snapshot stays as it is, whatever becomes of the session.
    snapshot = box.snapshot(name="kept")["id"]
    branch = lambda: Sandbox(api, api.post(f"/api/snapshots/{snapshot}/sandboxes", {})["sandboxes"][0]["id"])  # noqa: E731
    copies = [branch()]
    ahead = thawed(sparing_daemon)
    box.ok("x = 2")
    copies.append(branch())
    assert copies[-1].id == ahead and copies[-1].text("x") == "1"
    assert copies[0].text("random.random()") != copies[1].text("random.random()")
    ahead = thawed(sparing_daemon)
    api.delete(f"/api/snapshots/{snapshot}")
    for sandbox in (box, *copies):
        sandbox.remove()
    await_end(sparing_daemon, ahead)

    # What sleeps has nothing that runs.
    box = api.new()
    box.ok("x = 1")
    child = box.fork()[0]
    ahead = thawed(sparing_daemon)
    box.suspend()
    await_end(sparing_daemon, ahead)
    assert box.text("x") == child.text("x") == "1"


TICKING = """
import socket, random, threading, time, numpy
def tick():
    while True:
        time.sleep(0.01)
numpy.random.randn()
threading.Thread(target=tick, daemon=True).start()
n = 41
"""


def test_the_next_golden_sandbox_is_thawed_ahead(sparing_daemon):
    """Nobody sees it, nothing runs in it, the next sandbox like the last one is it, and it goes with whoever could want it."""
    api = sparing_daemon.api
    api.post(f"{IMAGE}/warm", {"code": TICKING}, timeout=300)
    first = api.new()
    drawn = [evaluate(first, DRAW)]
    ahead = thawed(sparing_daemon)
    assert ahead not in str(api.post("/api/gc", {"dry_run": True})["items"])
    named = api.new(name="named")
    assert named.id == ahead and is_golden(named) and is_called(named, "named")
    named.remove()
    ahead = thawed(sparing_daemon)
    for params in ({"memory": 1 << 30}, {"golden": False}):
        other = api.new(**params)
        assert other.id not in hidden(sparing_daemon) and other.id != ahead
        other.remove()
        if "memory" in params:  # the last one was of another kind: so is the next
            await_end(sparing_daemon, ahead)
            api.new().remove()
            ahead = thawed(sparing_daemon)
    second = api.new(env={"OWN": "1"}, labels={"l": "1"}, ttl_seconds=3600)
    assert second.id == ahead and is_golden(second)
    cell = second.ok("n += 1; socket.gethostname(), n, __import__('os').environ['OWN']")
    assert cell["results"][0]["data"]["text/plain"] == f"({second.id.replace('_', '-')!r}, 42, '1')"
    assert (cell["execution_count"], cell["generation"], cell["memory"]["kept"]) == (1, 1, True)
    drawn.append(evaluate(second, DRAW))
    assert all(len(set(values)) == 2 for values in zip(*drawn)), drawn
    assert json.loads(second.read("/run/coppice/generation"))["sandbox_id"] == second.id
    assert log_of(second)["sandbox.started"]["golden_node"] == second.info()["origin"]["node_id"]
    second.suspend()
    assert second.text("n") == "42"

    # When its init ends, it ends; the next sandbox is made the long way.
    ahead = thawed(sparing_daemon)
    time.sleep(0.5)
    before = switches(kernels(ahead)[0])
    time.sleep(0.2)
    assert switches(kernels(ahead)[0]) == before
    (init,) = [p for p in processes_of(ahead) if "coppice-init" in command_line(p)]
    os.kill(init, signal.SIGKILL)
    await_end(sparing_daemon, ahead)
    third = api.new()
    assert is_golden(third) and third.text("n") == "41"

    # That a kernel has ended in it is told when it goes on.
    ahead = thawed(sparing_daemon)
    os.kill(kernels(ahead)[0], signal.SIGKILL)
    fourth = api.new()
    cell = fourth.ok("'n' in globals()")
    assert fourth.id == ahead and cell["memory"] == {"kept": False, "generation": 2, "reason": "died"}
    assert cell["results"][0]["data"]["text/plain"] == "False"

    # The daemon dies, then stops; the golden state goes.
    for end in (sparing_daemon.kill, sparing_daemon.stop, None):
        api.new().remove()
        ahead = thawed(sparing_daemon)
        if end:
            end()
            sparing_daemon.start()
        else:
            api.delete(f"{IMAGE}/warm")
        await_end(sparing_daemon, ahead)
        assert first.text("n") == "41"
