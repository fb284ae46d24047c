"""Drives coppice-kernel-drive: one kernel, spoken to by the C client alone, without a sandbox."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class KernelError(Exception):
    """The driver or the kernel did something no test expects."""


@dataclass
class Cell:
    """What came of one execution."""

    id: str = ""
    outputs: list = field(default_factory=list)
    late: list = field(default_factory=list)
    inputs: list = field(default_factory=list)
    done: dict | None = None

    @property
    def status(self) -> str:
        return self.done["status"] if self.done else "running"

    def text(self, name: str = "stdout") -> str:
        return "".join(o["text"] for o in self.outputs if o["kind"] == "stream" and o["name"] == name)

    def length(self, name: str = "stdout") -> int:
        return sum(o["len"] for o in self.outputs if o["kind"] == "stream" and o["name"] == name)

    def of_kind(self, kind: str) -> list:
        return [o for o in self.outputs if o["kind"] == kind]

    @property
    def result(self) -> dict | None:
        results = self.of_kind("result")
        return results[-1]["data"] if results else None

    @property
    def error(self) -> dict | None:
        errors = self.of_kind("error")
        return errors[-1] if errors else None


def find_drive() -> str | None:
    """The driver program: COPPICE_KERNEL_DRIVE, that of the tree under test, or the newest one of any build folder."""
    given = os.environ.get("COPPICE_KERNEL_DRIVE")
    if given:
        return given
    build = Path(os.environ.get("BUILD") or ROOT / "build", "src/jupyter/coppice-kernel-drive")
    if build.exists():
        return str(build)
    found = sorted(ROOT.glob("build*/src/jupyter/coppice-kernel-drive"), key=lambda p: p.stat().st_mtime)
    return str(found[-1]) if found else None


class Kernel:
    """One kernel process behind one driver process."""

    def __init__(self, drive: str, *, stock=False, image=None, cut=None, cwd=None, env=None, limits=None):
        self.dir = tempfile.mkdtemp(prefix="cop-k-")
        self.cwd = cwd or tempfile.mkdtemp(prefix="cop-cwd-")
        self.image = image
        self.dir_inside = "/run/k" if image else self.dir  # as the kernel sees it
        os.chmod(self.dir, 0o777)
        self.exit = None
        self.ready = None
        self.stray = []
        self.stats_reply = None
        self.errors = []
        self._cells = {}
        self._events = queue.Queue()
        argv = [drive, "--dir", self.dir]
        prefix = []
        # With PYTEST_CURRENT_TEST set, ipykernel does not capture descriptors.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        if cut:
            argv += ["--cut", str(cut)]
        if stock:
            argv += ["--stock"]
        if image:
            argv += ["--inside", self.dir_inside]
            prefix = image.prefix(self.dir)
            environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/home/user", "LANG": "C.UTF-8"}
        elif not stock:
            argv += ["--module-dir", str(ROOT / "images/code-interpreter")]
            environment["HOME"] = self.cwd
        if limits:
            prefix = ["/usr/bin/prlimit", *limits, *prefix]
        environment.update(env or {})
        environment["IPYTHONDIR"] = "/tmp/ipython" if image else f"{self.dir}/ipython"
        self.process = subprocess.Popen(
            [*argv, "--", *prefix],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.cwd,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._events.put(json.loads(line))
        self._events.put(None)

    def wait_ready(self, timeout=60):
        self.until(lambda: self.ready, timeout)
        return self

    def waits_with_a_limit(self):
        """Threads of the kernel that sleep in poll, epoll_wait or futex until some time, or do not sleep, as (name, call)."""
        found, below = [], [self.process.pid]
        for pid in below:
            for task in Path(f"/proc/{pid}/task").iterdir():
                below += [int(child) for child in (task / "children").read_text().split()]
                call = (task / "syscall").read_text().split()
                limit = {"7": 3, "232": 4, "281": 4, "202": 4}.get(call[0])
                none = "0x0" if call[0] == "202" else "0xffffffff"
                if pid != self.process.pid and (call[0] == "running" or (limit and not call[limit].startswith(none))):
                    found.append(((task / "comm").read_text().strip(), " ".join(call)))
        return found

    def until(self, condition, timeout):
        """Handles events until condition() holds; returns what it gave, or raises."""
        deadline = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            left = deadline - time.monotonic()
            try:
                event = self._events.get(timeout=max(left, 0.001))
            except queue.Empty:
                if left <= 0:
                    raise KernelError(f"nothing within {timeout} s; log:\n{self.log()}") from None
                continue
            if event is None:
                raise KernelError("the driver ended")
            self._handle(event)

    def settle(self, seconds):
        """Handles whatever comes within this time."""
        end = time.monotonic() + seconds
        try:
            self.until(lambda: time.monotonic() > end, seconds + 0.05)
        except KernelError:
            pass

    def _handle(self, event):
        kind = event["event"]
        if kind == "ready":
            self.ready = event
        elif kind == "failed":
            raise KernelError(f"{event['message']}; log:\n{self.log()}")
        elif kind == "exit":
            self.exit = event
        elif kind == "stats":
            self.stats_reply = event
        elif kind == "error":
            self.errors.append(event)
        elif kind == "output" and event["late"]:
            cell = self._cells.get(event["id"])
            (cell.late if cell else self.stray).append(event)
        elif kind in ("output", "input_request", "done"):
            cell = self._cells.get(event["id"]) or self._current
            cell.id = event["id"]
            self._cells[cell.id] = cell
            if kind == "output":
                cell.outputs.append(event)
            elif kind == "input_request":
                cell.inputs.append(event)
            else:
                cell.done = event

    def send(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def start(self, code, **options) -> Cell:
        self._current = Cell()
        self.send(op="execute", code=code, **options)
        return self._current

    def reopen(self, greeting=None, idle=False, met=False) -> Cell:
        """Another client takes the kernel over; the cell is what came of the greeting."""
        self._current, self.ready = Cell(), None
        self.send(op="reopen", idle=idle, met=met, **({"greeting": greeting} if greeting else {}))
        return self._current

    def finish(self, cell, timeout=30) -> Cell:
        self.until(lambda: cell.done or self.errors, timeout)
        if self.errors:
            raise KernelError(self.errors[0]["message"])
        return cell

    def run(self, code, timeout=30, **options) -> Cell:
        return self.finish(self.start(code, **options), timeout)

    def interrupt(self, group=True):
        self.send(op="signal", number=signal.SIGINT, group=group)

    def ladder(self, cell, seconds=5):
        """The first stages of the engine's ladder: SIGINT to the group, a poke 150 ms later, once a second."""
        for _ in range(seconds):
            self.interrupt()
            self.settle(0.15)
            self.send(op="poke")
            end = time.monotonic() + 0.85
            while time.monotonic() < end and not cell.done:
                self.settle(0.05)
            if cell.done:
                return True
        return False

    def kill(self):
        self.send(op="signal", number=signal.SIGKILL, group=True)
        self.until(lambda: self.exit, 10)

    def stats(self):
        self.stats_reply = None
        self.send(op="stats")
        return self.until(lambda: self.stats_reply, 10)

    def log(self):
        try:
            return Path(self.dir, "log").read_text(errors="replace")
        except OSError:
            return ""

    def close(self):
        try:
            self.send(op="quit")
        except (BrokenPipeError, ValueError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
        if self.cwd.startswith(tempfile.gettempdir() + "/cop-cwd-"):
            shutil.rmtree(self.cwd, ignore_errors=True)


class Image:
    """A root file system to run kernels in, under a throw-away overlay."""

    MOUNT = """
set -e
root=$1 work=$2 run=$3; shift 3
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/merged"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" "$work/merged"
mkdir -p "$work/merged/run/k"
mount --bind "$run" "$work/merged/run/k"
mount -t proc proc "$work/merged/proc"
mount --rbind /dev "$work/merged/dev"
if [ -n "$COPPICE_MODULE" ]; then
    mkdir -p "$work/merged/usr/lib/python3/dist-packages/coppice_kernel"
    mount --bind "$COPPICE_MODULE" "$work/merged/usr/lib/python3/dist-packages/coppice_kernel"
fi
cwd=/workspace
[ -d "$work/merged/workspace" ] || cwd=/tmp
exec chroot --userspec=1000:1000 "$work/merged" /usr/bin/env --chdir="$cwd" -u COPPICE_MODULE "$@"
"""

    def __init__(self, root):
        self.root = str(root)
        self.work = tempfile.mkdtemp(prefix="cop-image-")

    def prefix(self, run_dir):
        module = ROOT / "images/code-interpreter/coppice_kernel"
        return [
            "/usr/bin/env",
            f"COPPICE_MODULE={module}",
            "/usr/bin/unshare",
            "--mount",
            "--propagation=private",
            "/bin/sh",
            "-c",
            self.MOUNT,
            "sh",
            self.root,
            self.work,
            run_dir,
        ]

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)
