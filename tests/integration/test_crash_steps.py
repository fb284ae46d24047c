"""kill -9 of the daemon, or of the keeper, before each step of what makes and takes up states."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import steps as s
from client import Api, ApiError, Daemon, Sandbox, wait_for
from test_daemon_death import processes_of
from test_power_cut import found, look_around, say, talker

pytestmark = pytest.mark.skipif(s.why_no_steps() is not None, reason=str(s.why_no_steps()))


class Home:
    def __init__(self, folder: Path, lender: Daemon):
        self.steps = s.Steps(folder)
        self.daemon = s.stepped(Daemon(folder / "home"), self.steps)
        self.daemon.start().stop()
        s.lend_image(self.daemon.home, lender)
        self.daemon.start()

    @property
    def api(self) -> Api:
        return self.daemon.api


@pytest.fixture(scope="module")
def home(scratch, states_daemon):
    folder = scratch / "steps"
    folder.mkdir()
    home = Home(folder, states_daemon)
    yield home
    home.api.delete("/api/sandboxes", all="true")
    home.daemon.stop()
    home.steps.close()


def keeper_of(sandbox: Sandbox) -> int | None:
    for pid in processes_of(sandbox.id):
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
            if Path(f"/proc/{pid}/comm").read_text() == "coppice-init\n" and Path(f"/proc/{parent}/comm").read_text() == "coppice-keeper\n":
                return parent
        except OSError:
            pass
    return None


def is_a_step(step: s.Step) -> bool:
    return step.call in ("rename", "renamed", "syncfs", "fdatasync") and "/trash/" not in step.path


def suspend(api: Api, sb: Sandbox) -> None:
    sb.suspend()


def snapshot(api: Api, sb: Sandbox) -> None:
    sb.snapshot(name="kept")


def fork(api: Api, sb: Sandbox) -> None:
    sb.fork()


def goto(api: Api, sb: Sandbox) -> None:
    sb.goto("before")


def resume(api: Api, sb: Sandbox) -> None:
    sb.resume()


def clear(api: Api) -> None:
    api.delete("/api/sandboxes", all="true")
    for node in api.get("/api/snapshots")["snapshots"]:
        api.delete(f"/api/snapshots/{node['id']}")


def beginning(home: Home, operation: Callable) -> Sandbox:
    """A sandbox with the word one, except for goto, which is to bring that back."""
    clear(home.api)
    sb = talker(home.api)
    say(sb, "set one")
    if operation is goto:
        sb.snapshot(name="before")
        say(sb, "set two")
    if operation is resume:
        sb.suspend()
    return sb


def look(home: Home, sb: Sandbox, operation: Callable, victim: str, acknowledged: bool) -> None:
    api = home.api
    look_around(home.daemon)
    words = ["one"] if operation is not goto or acknowledged else ["one", "two"]
    info = api.get(sb.path)
    dying = info["state"] == "ending" or (info["state"] == "running" and not keeper_of(sb))
    if victim == "keeper" and dying:  # the daemon has not been told yet, or is just clearing up
        wait_for(lambda: api.get(sb.path)["state"] == "ended")
        info = api.get(sb.path)
    if info["state"] == "ended":
        assert victim == "keeper" and not (acknowledged and operation is suspend) and info["ended_reason"] == "keeper_died", info
        wait_for(lambda: not processes_of(sb.id))
    else:
        assert say(sb) in words
        assert say(sb, "set three") == "three"
    node = found(api, "/api/snapshots/kept")
    assert node or operation is not snapshot or not acknowledged
    others = [Sandbox(api, i["id"]) for i in api.get("/api/sandboxes")["sandboxes"] if i["id"] != sb.id]
    if node:
        others += [Sandbox(api, c["id"]) for c in api.post("/api/snapshots/kept/sandboxes", {})["sandboxes"]]
    assert all(say(other) == "one" for other in others), "a copy has what it was made from"


@pytest.mark.parametrize("victim", ["daemon", "keeper"])
@pytest.mark.parametrize("operation", [suspend, resume, snapshot, fork, goto], ids=lambda f: f.__name__)
def test_killed_at_every_step(home, operation, victim):
    names: list[str] = []
    sb = beginning(home, operation)
    home.steps.record(lambda: operation(home.api, sb), lambda step: names.append(step.name) if is_a_step(step) else None)
    assert len(names) >= 2, names
    for at, name in enumerate(names):
        sb = beginning(home, operation)
        seen, acknowledged = [], False

        def kill(step: s.Step) -> None:
            if not is_a_step(step):
                return
            seen.append(step)
            if len(seen) != at + 1:
                return
            pid = home.daemon.process.pid if victim == "daemon" else step.pid if step.program == "coppice-keeper" else keeper_of(sb)
            if pid:
                os.kill(pid, signal.SIGKILL)

        def act() -> None:
            nonlocal acknowledged
            try:
                operation(home.api, sb)
                acknowledged = True
            except (ApiError, OSError, http.client.HTTPException):
                pass

        try:
            home.steps.record(act, kill)
            if victim == "daemon":
                home.daemon.kill()
                home.daemon.start()
            look(home, sb, operation, victim, acknowledged)
        except BaseException as error:
            error.add_note(f"the {victim} was killed before step {at + 1}, {name}{', after the answer' if acknowledged else ''}")
            raise
    clear(home.api)
    wait_for(lambda: not os.listdir(home.daemon.home / "nodes") and not os.listdir(home.daemon.home / "sandboxes"), 30)
    assert home.api.post("/api/gc", {"dry_run": True})["items"] == []


# -- the copies of a fork that are prepared while its node is being made ----------------------------------------------------------


def ahead(count: int) -> int:
    """How many copies are prepared."""
    return min(count, 8, os.cpu_count() - 1)


needs_processors = pytest.mark.skipif(os.cpu_count() < 2, reason="nothing is prepared on a host with one processor")


def fork_with(home: Home, count: int, meanwhile: Callable[[Sandbox, list[str]], object], timeout: float = 120) -> tuple[Sandbox, list[str], list[Sandbox] | None]:
    """Forks; `meanwhile` gets the ids of what was prepared just before the node is complete.  The copies, None: the fork failed."""
    clear(home.api)
    sb = talker(home.api)
    say(sb, "set one")
    folder = home.daemon.home / "sandboxes"
    before, prepared = set(os.listdir(folder)), []

    def handler(step: s.Step) -> None:
        if prepared or step.call != "rename" or step.path != "keep":
            return
        prepared.extend(wait_for(lambda: (lambda new: new if len(new) == ahead(count) else None)(sorted(set(os.listdir(folder)) - before))))
        wait_for(lambda: all(processes_of(id) for id in prepared))
        assert [i["id"] for i in home.api.get("/api/sandboxes")["sandboxes"]] == [sb.id], "nobody sees them"
        assert home.api.post("/api/gc", {"dry_run": True})["items"] == []
        meanwhile(sb, prepared)

    children = None

    def act() -> None:
        nonlocal children
        try:
            children = [Sandbox(home.api, c["id"]) for c in home.api.post(f"{sb.path}/fork", {"count": count}, timeout)["sandboxes"]]
        except (ApiError, OSError, http.client.HTTPException):
            pass

    home.steps.record(act, handler)
    assert len(prepared) == ahead(count)
    return sb, prepared, children


def nothing_of(home: Home, ids: list[str]) -> None:
    wait_for(lambda: not set(ids) & set(os.listdir(home.daemon.home / "sandboxes")))
    assert not [pid for id in ids for pid in processes_of(id)]
    wait_for(lambda: not [path for id in ids for path in Path("/sys/fs/cgroup").rglob(id)])


@needs_processors
@pytest.mark.parametrize("count", [1, 10])
def test_what_was_prepared_becomes_the_copies(home, count):
    _, prepared, children = fork_with(home, count, lambda *_: None)
    assert len(children) == count and set(prepared) <= {c.id for c in children}
    assert all(say(c) == "one" for c in children)
    clear(home.api)
    nothing_of(home, prepared)


@needs_processors
def test_what_was_prepared_goes_with_a_freeze_that_fails(home):
    sb, prepared, children = fork_with(home, 3, lambda sb, _: os.kill(keeper_of(sb), signal.SIGKILL))
    assert children is None
    nothing_of(home, prepared)


@needs_processors
def test_what_was_prepared_goes_with_the_daemon(home):
    sb, prepared, children = fork_with(home, 3, lambda *_: home.daemon.process.kill())
    assert children is None
    home.daemon.kill()
    home.daemon.start()
    assert say(sb) == "one"
    nothing_of(home, prepared)


@needs_processors
def test_nothing_is_left_half_when_the_client_goes_away(home):
    gone = threading.Event()

    def until_it_is_gone(*_) -> None:
        assert gone.wait(20)
        time.sleep(0.2)  # the daemon sees it

    timer = threading.Timer(3, gone.set)
    timer.start()
    sb, prepared, children = fork_with(home, 3, until_it_is_gone, timeout=2)
    timer.join()
    assert children is None
    wait_for(lambda: home.api.get(f"{sb.path}/nodes")["nodes"])
    look_around(home.daemon)
    listed = {i["id"] for i in home.api.get("/api/sandboxes")["sandboxes"]}
    assert len(listed) == 4 and set(prepared) <= listed, "the fork was under way and came to its end"
    assert all(say(Sandbox(home.api, id)) == "one" for id in listed)


@needs_processors
def test_a_copy_whose_keeper_died_is_made_anew(home):
    def kill(_: Sandbox, prepared: list[str]) -> None:
        first = [pid for pid in processes_of(prepared[0])]
        parents = {int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) for pid in first}
        (keeper,) = [pid for pid in parents if Path(f"/proc/{pid}/comm").read_text() == "coppice-keeper\n" and pid not in first]
        os.kill(keeper, signal.SIGKILL)
        wait_for(lambda: not processes_of(prepared[0]))

    _, prepared, children = fork_with(home, 2, kill)
    ids = {c.id for c in children}
    assert len(ids) == 2 and prepared[0] not in ids and set(prepared[1:]) <= ids
    assert all(say(c) == "one" for c in children)
    nothing_of(home, prepared[:1])


def test_copies_that_cannot_be_are_told_one_by_one(home):
    clear(home.api)
    sb, taken = talker(home.api), talker(home.api, name="copy-2")
    made = home.api.post(f"{sb.path}/fork", {"count": 3, "name": "copy"})["sandboxes"]
    assert sorted(m.get("code", m.get("name")) for m in made) == ["copy-1", "copy-3", "name_taken"]
    known = {sb.id, taken.id, *(m["id"] for m in made if "id" in m)}
    wait_for(lambda: set(os.listdir(home.daemon.home / "sandboxes")) == known)
