"""The power is cut at every step of a commit: what was acknowledged is there, what was not leaves no trace, nothing is half.

A home lies on a disk of its own (steps.py).  Before each step of an operation the disk is copied as it is just then; every copy is then
mounted, a daemon starts on it in another boot of the host, and the test looks.  `early`: the kernel had written the store, but not the
files, before each step; rows without their files are the dangerous case.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import steps as s
from client import ROOT, Api, ApiError, Daemon, Sandbox, wait_for
from test_commands import small_root
from test_packs import pack, unpack

pytestmark = pytest.mark.skipif(s.why_no_disk() is not None, reason=str(s.why_no_disk()))

# Holds a word in memory and in a file, and tells both: they must never part.
TALKER = """cd /workspace && mkfifo ask answer && word=none && echo none > file
while read -r verb new < ask; do
    [ "$verb" = set ] && word=$new && echo "$new" > file
    read -r there < file; echo "$word $there" > answer
done"""


def talker(api: Api, **params) -> Sandbox:
    sandbox = api.new(start_kernel=False, policy={"checkpoints": "off"}, **params)
    sandbox.exec(TALKER, detach=True)
    assert sandbox.exec("until [ -p answer ]; do sleep 0.01; done")["exit_code"] == 0
    return sandbox


def say(sandbox: Sandbox, what: str = "get") -> str:
    """The word; of memory and file alike."""
    reply = sandbox.exec(f"echo {what} > ask && cat answer")
    memory, file = reply["stdout"].split()
    assert memory == file, reply
    return memory


def child_of(api: Api, name: str) -> Sandbox:
    made = api.post(f"/api/snapshots/{name}/sandboxes", {})["sandboxes"]
    assert "id" in made[0], made
    return Sandbox(api, made[0]["id"])


def woken(api: Api, id: str) -> Sandbox:
    """It slept, and has its memory again."""
    copy = Sandbox(api, id)
    assert copy.resume(require_memory=True)["memoryRestored"]
    return copy


def found(api: Api, path: str) -> dict | None:
    try:
        return api.get(path)
    except ApiError as error:
        assert error.code in ("sandbox_not_found", "sandbox_ended", "node_not_found"), error
        return None


def gone(api: Api, sandbox: Sandbox) -> bool:
    info = found(api, sandbox.path)
    return info is None or info["state"] == "ended"


@dataclass
class Cut:
    """What the disk held before a step."""

    file: Path
    step: str
    digest: str
    acknowledged: bool


class Rig:
    def __init__(self, folder: Path, lender: Daemon):
        self.folder, self.disk = folder, s.Disk(folder)
        self.base = folder / "base.img"
        self.disk.format(self.base)
        self.disk.mount(self.base)
        daemon = self.disk.boot().start()
        daemon.stop()
        s.lend_image(self.disk.home, lender)
        self.disk.unmount()
        self.steps = s.Steps(folder)
        self.cuts: list[Cut] = []
        self.early = self.acknowledged = False
        self.serial = 0

    @contextlib.contextmanager
    def living(self) -> Iterator[Api]:
        """A daemon on a fresh disk.  In the end, the power is cut."""
        self.live = self.folder / "live.img"
        self.live.unlink(missing_ok=True)
        s.copy_data(self.base, self.live)
        self.disk.mount(self.live)
        try:
            yield s.stepped(self.disk.boot(), self.steps).start().api
        finally:
            self.steps.release()
            self.disk.power_off()
            self.disk.unmount()

    def cut(self, step: str) -> None:
        if self.early:
            for name in ("coppice.db-wal", "coppice.db"):
                with contextlib.closing(open(self.disk.home / name, "rb")) as file:
                    os.fdatasync(file.fileno())
        self.serial += 1
        file = self.folder / f"cut-{self.serial}.img"
        s.copy_data(self.live, file)
        digest = s.digest(file)
        if self.cuts and self.cuts[-1].digest == digest:
            file.unlink()
            self.cuts[-1].acknowledged |= self.acknowledged
            return
        self.cuts.append(Cut(file, step, digest, self.acknowledged))

    def record(self, operation: Callable[[], object], settled: Callable[[], object] = lambda: True, early: bool = False,
               wanted: Callable[[s.Step], bool] = lambda step: True) -> None:
        self.cuts, self.early, self.acknowledged = [], early, False
        self.cut("the beginning")

        def act():
            operation()
            self.acknowledged = True
            wait_for(settled, 30)

        self.steps.record(act, lambda step: self.cut(step.name) if wanted(step) else None)
        self.cut("the end")

    def replay(self, check: Callable[[Api, bool], object]) -> int:
        """Looks at every cut; how many."""
        assert len(self.cuts) >= 2 and self.cuts[-1].acknowledged
        for cut in self.cuts:
            self.disk.mount(cut.file)
            try:
                daemon = self.disk.boot().start()
                look_around(daemon)
                check(daemon.api, cut.acknowledged)
                daemon.stop()
            except BaseException as error:
                error.add_note(f"the power was cut before: {cut.step}{', after the answer' if cut.acknowledged else ''}")
                raise
            finally:
                self.disk.power_off()
                self.disk.unmount()
            cut.file.unlink()
        return len(self.cuts)

    def close(self) -> None:
        self.steps.close()
        for cut in self.cuts:
            cut.file.unlink(missing_ok=True)


def look_around(daemon: Daemon) -> None:
    """Rows and folders fit, whatever happened."""
    api, home = daemon.api, daemon.home
    wait_for(lambda: all(sb["state"] in ("running", "suspended") for sb in api.get("/api/sandboxes")["sandboxes"]), 30)
    wait_for(lambda: not os.listdir(home / "trash"), 30)
    with contextlib.closing(sqlite3.connect(f"file:{home}/coppice.db?mode=ro", uri=True)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)

        def rows() -> dict[str, str]:
            return dict(db.execute("SELECT id, layers FROM nodes"))

        nodes = home / "nodes"
        wait_for(lambda: set(rows()) == set(os.listdir(nodes) if nodes.exists() else ()), 30)
        for (id,) in db.execute("SELECT id FROM nodes WHERE kind = 'memory'"):
            assert (nodes / id / "keep").stat().st_size >= 8, id
        for id, layers in rows().items():
            for layer in json.loads(layers):
                assert (nodes / (layer if "/" in layer else f"{layer}/layer")).is_dir(), (id, layers)


@pytest.fixture(scope="module")
def rig(scratch, states_daemon):
    folder = scratch / "power"
    folder.mkdir()
    rig = Rig(folder, states_daemon)
    yield rig
    rig.close()


early = pytest.mark.parametrize("early", [False, True], ids=["late", "early"])


@early
def test_suspend(rig, early):
    with rig.living() as api:
        sb = talker(api)
        assert say(sb, "set one") == "one"
        sb.suspend()
        assert say(sb, "set two") == "two"
        rig.record(sb.suspend, early=early)

    def check(api: Api, acknowledged: bool):
        info = api.get(sb.path)
        if info["state"] == "ended":
            assert not acknowledged and info["ended_reason"] == "host_reboot"
            return
        assert info["state"] == "suspended"
        copy = woken(api, sb.id)
        assert say(copy) in (["two"] if acknowledged else ["one", "two"])
        assert say(copy, "set three") == "three"

    rig.replay(check)


@early
@pytest.mark.parametrize("kind", ["memory", "filesystem"])
def test_snapshot(rig, kind, early):
    with rig.living() as api:
        sb = talker(api)
        say(sb, "set one")
        rig.record(lambda: sb.snapshot(name="kept", kind=kind), early=early)

    def check(api: Api, acknowledged: bool):
        assert gone(api, sb), "it ran, and ended with the host"
        node = found(api, "/api/snapshots/kept")
        assert node or not acknowledged
        if node:
            child = child_of(api, "kept")
            assert child.exec("cat file")["stdout"] == "one\n"
            assert kind == "filesystem" or say(child) == "one"

    rig.replay(check)


@early
def test_fork_and_suspend_of_the_copy(rig, early):
    """The fork's node is only written when it is used; what sleeps on it is whole all the same."""
    with rig.living() as api:
        sb = talker(api)
        say(sb, "set one")
        children = []
        # The disk is slow: the fork's node is not there before the copy's own sync brings it along.
        rig.steps.hold = lambda step: step.call == "syncfs" and reason_of(step) == "fork"

        def act():
            children.extend(sb.fork())
            say(children[0], "set two")
            children[0].suspend()

        rig.record(act, early=early)
        rig.steps.hold = lambda step: False

    def check(api: Api, acknowledged: bool):
        assert gone(api, sb)
        info = found(api, children[0].path)
        assert not acknowledged or info and info["state"] == "suspended"
        if info and info["state"] == "suspended":
            assert say(woken(api, info["id"])) == "two"

    before = (rig.folder / "daemon.log").stat().st_size
    rig.replay(check)
    torn = (rig.folder / "daemon.log").read_text()[before:].count("and are given up")
    assert torn or not early, "no cut had a row of the fork without its files: this test shows nothing"


def reason_of(step: s.Step) -> str | None:
    try:
        return json.loads((Path(step.path) / "node.json").read_text())["reason"]
    except OSError:
        return None


@early
def test_goto(rig, early):
    """To a state that is only written, and on from there."""
    with rig.living() as api:
        sb = talker(api)
        say(sb, "set one")
        sb.suspend()
        say(sb, "set two")
        rig.steps.hold = lambda step: step.call == "syncfs" and reason_of(step) == "fork"
        sb.fork()[0].remove()
        node = next(n["id"] for n in sb.nodes()["nodes"] if n["reason"] == "fork")
        say(sb, "set three")

        def act():
            sb.goto(node)
            assert say(sb, "set four") == "four"
            sb.suspend()

        rig.record(act, early=early)
        rig.steps.hold = lambda step: False

    def check(api: Api, acknowledged: bool):
        info = api.get(sb.path)
        if info["state"] == "ended":
            assert not acknowledged and info["ended_reason"] == "host_reboot"
            return
        copy = woken(api, sb.id)
        assert say(copy) in (["four"] if acknowledged else ["one", "four"])
        if acknowledged:  # written before the suspend, and synced by it
            copy.goto(node)
            assert say(copy) == "two"

    rig.replay(check)


def test_checkpoints_and_undo(rig):
    """Of a kernel.  Fewer cuts: where a node comes into being, and where one is taken up again."""
    cell = "x = {0}; _ = open('/workspace/file', 'w').write('{0}')"
    with rig.living() as api:
        sb = api.new()
        sb.ok(cell.format(1))
        sb.suspend()
        sb.ok(cell.format(2))
        rig.steps.hold = lambda step: step.call == "syncfs" and reason_of(step) == "checkpoint"

        def act():
            sb.ok(cell.format(3))
            sb.undo()
            sb.ok(cell.format(4))
            sb.suspend()

        rig.record(act, early=True, wanted=lambda step: step.call == "renamed" and step.path.endswith(("keep", "generation")))
        rig.steps.hold = lambda step: False

    def check(api: Api, acknowledged: bool):
        info = api.get(sb.path)
        if info["state"] == "ended":
            assert not acknowledged and info["ended_reason"] == "host_reboot"
            return
        copy = woken(api, sb.id)
        state = copy.text("x, open('/workspace/file').read()")
        assert state in (["(4, '4')"] if acknowledged else ["(1, '1')", "(4, '4')"])
        if acknowledged:
            copy.undo(2)
            assert copy.text("x, open('/workspace/file').read()") == "(2, '2')"

    rig.replay(check)


@early
def test_removal_of_what_sleeps(rig, early):
    with rig.living() as api:
        sb = talker(api)
        say(sb, "set one")
        sb.snapshot(name="below")
        say(sb, "set two")
        sb.suspend()
        rig.record(sb.remove, lambda: not (rig.disk.home / "sandboxes" / sb.id).exists(), early)

    def check(api: Api, acknowledged: bool):
        info = found(api, sb.path)
        assert not acknowledged or info is None or info["state"] == "ended"
        if info and info["state"] != "ended":
            assert say(woken(api, sb.id)) == "two"
        assert say(child_of(api, "below")) == "one", "it has a name"

    rig.replay(check)


@early
def test_removal_of_a_snapshot(rig, early):
    with rig.living() as api:
        sb = talker(api)
        say(sb, "set one")
        sb.snapshot(name="kept")
        sb.remove()
        rig.record(lambda: api.delete("/api/snapshots/kept"), lambda: not os.listdir(rig.disk.home / "nodes"), early)

    def check(api: Api, acknowledged: bool):
        node = found(api, "/api/snapshots/kept")
        assert not (acknowledged and node)
        if node:
            assert say(child_of(api, "kept")) == "one"

    rig.replay(check)


IMAGE = "/api/images/code-interpreter"


@early
@pytest.mark.parametrize(["before", "after"], [(None, 2), (1, 2), (1, None)], ids=["first", "replaced", "removed"])
def test_golden_state(rig, before, after, early):
    def warm(x: int):
        api.post(f"{IMAGE}/warm", {"code": f"x = {x}"})

    with rig.living() as api:
        if before:
            warm(before)
        rig.record(lambda: warm(after) if after else api.delete(f"{IMAGE}/warm"), early=early)

    def check(api: Api, acknowledged: bool):
        golden = api.get(IMAGE)["golden"]
        x = golden and int(golden["code"].removeprefix("x = "))
        assert x in ([after] if acknowledged else [before, after])
        nodes = rig.disk.home / "nodes"
        wait_for(lambda: (os.listdir(nodes) if nodes.exists() else []) == ([golden["node_id"]] if golden else []))
        assert api.get("/api/sandboxes")["sandboxes"] == [], "the one that it was made in ended with the host"
        sandbox = api.new()
        assert sandbox.ok("print(globals().get('x'))")["stdout"] == f"{x}\n"
        assert sandbox.info().get("origin", {}).get("golden", False) is bool(golden)

    rig.replay(check)


@early
@pytest.mark.parametrize("before", [None, "one"], ids=["first", "replaced"])
def test_import(rig, tmp_path, before, early):
    """Also of an image that takes the name of another, which goes."""
    def take(word: str):
        root = small_root(tmp_path / word)
        (root / "word").write_text(f"{word}\n" * 100_000)
        api.post("/api/images/import", {"source": str(root), "name": "small"})

    with rig.living() as api:
        if before:
            take(before)
        rig.record(lambda: take("two"), lambda: not os.listdir(rig.disk.home / "trash"), early)

    def check(api: Api, acknowledged: bool):
        images = {image["name"]: image["id"] for image in api.get("/api/images")["images"]}
        there = [images["small"]] if "small" in images else []
        assert images.keys() - {"small"} == {"code-interpreter"}
        wait_for(lambda: os.listdir(rig.disk.home / "images") == there)
        assert there or not (before or acknowledged)
        if there:
            s.run(ROOT / "libexec/coppice-image", "describe", rig.disk.home / "images" / there[0], "--verify")
            sandbox = api.new(image="small", start_kernel=False)
            word = sandbox.exec("read -r word < /word; echo $word")["stdout"].strip()
            assert word in (["two"] if acknowledged else [before, "two"])

    rig.replay(check)


def test_tokens(rig):
    """One that was revoked stays revoked; one that was given out is good."""
    with rig.living() as api:
        old = api.post("/api/tokens", {"name": "old"})
        rig.record(lambda: [api.delete(f"/api/tokens/{old['id']}"), api.post("/api/tokens", {"name": "new"})])

    def check(api: Api, acknowledged: bool):
        names = {token["name"] for token in api.get("/api/tokens")["tokens"]}
        assert names == {"new"} if acknowledged else names in ({"old"}, set(), {"new"}), names

    rig.replay(check)


def test_merging_of_a_deep_stack(rig):
    deep = 32  # flatten.c
    with rig.living() as api:
        sb = talker(api)
        for n in range(deep - 1):
            assert sb.exec(f"echo {n} > layer-{n}; rm -f layer-{n - 1}")["exit_code"] == 0
            sb.suspend()
        say(sb, "set two")

        def merged() -> bool:
            head = sb.nodes()["head"]
            nodes = rig.disk.home / "nodes"
            return (nodes / head / "flat").exists() and not (nodes / head / "flat.partial").exists() and len(os.listdir(nodes)) == deep

        rig.record(sb.suspend, merged, early=True, wanted=lambda step: "/flat" in step.path or "/trash/" in step.path)

    def check(api: Api, acknowledged: bool):
        info = api.get(sb.path)
        if info["state"] == "ended":
            assert not acknowledged
            return
        copy = woken(api, sb.id)
        assert say(copy) == "two" or not acknowledged
        assert copy.exec("ls")["stdout"].split() == ["answer", "ask", "file", f"layer-{deep - 2}"]

    rig.replay(check)


@early
def test_unpack(rig, early):
    with rig.living() as api:
        sb = talker(api)
        say(sb, "set one")
        sb.suspend()
        say(sb, "set two")
        node = sb.snapshot(name="packed")
        data = pack(api, "packed")
        api.delete("/api/snapshots/packed")
        sb.remove()
        wait_for(lambda: not os.listdir(rig.disk.home / "nodes"))
        rig.record(lambda: unpack(api, data), early=early)
        assert len(json.loads(layers_of(rig, "packed"))) > 1 and node["kind"] == "memory"

    def check(api: Api, acknowledged: bool):
        node = found(api, "/api/snapshots/packed")
        assert node or not acknowledged
        if node:
            assert say(child_of(api, "packed")) == "two"

    rig.replay(check)


def layers_of(rig: Rig, name: str) -> str:
    with contextlib.closing(sqlite3.connect(f"file:{rig.disk.home}/coppice.db?mode=ro", uri=True)) as db:
        return db.execute("SELECT layers FROM nodes WHERE name = ?", (name,)).fetchone()[0]
