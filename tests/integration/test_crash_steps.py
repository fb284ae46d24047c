"""kill -9 of the daemon, or of the keeper, before each step of what makes and takes up states."""

from __future__ import annotations

import http.client
import os
import signal
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
