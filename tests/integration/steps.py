"""The steps of a commit, one by one: daemon and keeper stop before each (tests/power/steps.c), and a test looks or kills.

Disk is a filesystem of its own in a file.  What a power cut leaves is what was written to that file: the page cache above it is lost, the
journal is replayed by the next mount.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from client import BUILD, Daemon, wait_for

POWER = BUILD / "tests" / "power"


@dataclass
class Step:
    program: str
    pid: int
    call: str  # fsync, fdatasync, syncfs, rename: it is about to happen; renamed: it has happened
    path: str

    @property
    def name(self) -> str:
        """Without what is random in it."""
        parts = self.path.split("/")
        last = parts[-1] or parts[-2]
        if last.endswith(".tmp"):
            last = last.split(".")[0] + ".tmp"
        elif last.startswith(("nd_", "sb_", "im_")):
            last = last[:2] + last[13:]
        elif "trash" in parts:
            last = "trash"
        return f"{self.program} {self.call} {last}"


class Steps:
    """Serves one step at a time, so nothing of Coppice's orders writes while a handler looks.  hold: steps that are kept waiting."""

    def __init__(self, folder: Path):
        self.path = folder / "steps.sock"
        self.handler: Callable[[Step], None] | None = None
        self.hold: Callable[[Step], bool] = lambda step: False
        self.held: list[socket.socket] = []
        self.error: BaseException | None = None
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            line = conn.makefile("r", errors="replace").readline().rstrip("\n").split(" ", 3)
            if len(line) == 4:
                step = Step(line[0], int(line[1]), line[2], line[3])
                if self.hold(step):
                    self.held.append(conn)
                    continue
                try:
                    if self.handler:
                        self.handler(step)
                except BaseException as error:  # for the test's own thread
                    self.error = self.error or error
            conn.close()

    def release(self) -> None:
        for conn in self.held:
            conn.close()
        self.held.clear()

    def record(self, action: Callable[[], object], handler: Callable[[Step], None]) -> None:
        """Does something, and calls handler before each step of it."""
        self.handler = handler
        try:
            action()
        finally:
            self.handler = None
        if self.error:
            raise self.error

    def close(self) -> None:
        self.listener.close()
        self.release()
        self.path.unlink(missing_ok=True)


def stepped(daemon: Daemon, steps: Steps) -> Daemon:
    """A daemon whose steps, and whose keepers', are told."""
    if not (POWER / "coppice-init").exists():  # a keeper finds it beside itself
        (POWER / "coppice-init").symlink_to(BUILD / "bin" / "coppice-init")
    daemon.env |= {"LD_PRELOAD": str(POWER / "libsteps.so"), "COPPICE_STEPS": str(steps.path),
                   "COPPICE_KEEPER": str(POWER / "coppice-keeper")}
    return daemon


def extents(fd: int) -> Iterator[tuple[int, int]]:
    """Where data lies between the holes."""
    size, end = os.fstat(fd).st_size, 0
    while end < size:
        try:
            begin = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(fd, begin, os.SEEK_HOLE)
        yield begin, end


def copy_data(source: Path, target: Path) -> None:
    """With its holes."""
    with open(source, "rb", 0) as a, open(target, "xb", 0) as b:
        b.truncate(os.fstat(a.fileno()).st_size)
        for at, end in extents(a.fileno()):
            while at < end:
                at += os.copy_file_range(a.fileno(), b.fileno(), end - at, at, at)


def digest(path: Path) -> str:
    """Of what is not zero in it."""
    total = hashlib.blake2b()
    with open(path, "rb", 0) as file:
        for at, end in extents(file.fileno()):
            while at < end:
                block = os.pread(file.fileno(), min(1 << 16, end - at), at)
                if block.strip(b"\0"):
                    total.update(at.to_bytes(8, "little") + block)
                at += len(block)
    return total.hexdigest()


def run(*argv: object) -> str:
    return subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def why_no_steps() -> str | None:
    """Why steps cannot be told here; None = they can."""
    if not (POWER / "libsteps.so").exists() or not (POWER / "coppice-keeper").exists():
        return "this build has no programs that tell their steps"
    return None


def why_no_disk() -> str | None:
    """Why a file cannot be mounted here; None = it can."""
    if reason := why_no_steps():
        return reason
    if os.geteuid() != 0:
        return "only root mounts a file"
    for program in ("losetup", "mkfs.ext4"):
        if not shutil.which(program):
            return f"there is no {program}"
    found = subprocess.run(["losetup", "--find"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return None if found.returncode == 0 else f"there is no loop device: {found.stdout.strip()}"


def lend_image(home: Path, lender: Daemon) -> None:
    """The other daemon's image, where it lies: only the row comes here.  No daemon runs in home, but one has run."""
    with contextlib.closing(sqlite3.connect(home / "coppice.db")) as db, db:
        db.execute("ATTACH ? AS lender", (str(lender.home / "coppice.db"),))
        db.execute("INSERT INTO images SELECT * FROM lender.images WHERE name = 'code-interpreter'")
        db.execute("UPDATE images SET golden_node = '', golden = NULL")


class Disk:
    """Mounts files, one at a time, at one place."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.place = folder / "disk"
        self.home = self.place / "home"
        self.device: str | None = None
        self.boots = 0
        self.place.mkdir()

    def format(self, file: Path) -> None:
        with open(file, "xb") as f:
            f.truncate(768 << 20)
        run("mkfs.ext4", "-q", "-F", "-J", "size=16", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", file)

    def mount(self, file: Path) -> None:
        self.device = run("losetup", "--find", "--show", file).strip()
        # The kernel writes back nothing by itself while a test runs.
        run("mount", "-t", "ext4", "-o", "commit=900,noatime", self.device, self.place)

    def unmount(self) -> None:
        if not self.device:
            return
        wait_for(lambda: subprocess.run(["umount", str(self.place)], stderr=subprocess.DEVNULL).returncode == 0
                 or not os.path.ismount(self.place), 30)
        run("losetup", "--detach", self.device)
        self.device = None

    def boot(self, *args: str) -> Daemon:
        """A daemon on what is mounted, in a boot of the host of its own.  Not started."""
        self.boots += 1
        boot_id = self.folder / f"boot-{self.boots}"
        boot_id.write_text(f"00000000-0000-4000-8000-{self.boots:012}\n")
        daemon = Daemon(self.home, "--log-level", "info", *args)
        daemon.log = self.folder / "daemon.log"
        daemon.env = {"COPPICE_TEST_DISK": str(self.folder), "COPPICE_BOOT_ID": str(boot_id),
                      "LD_PRELOAD": str(POWER / "libsteps.so")}
        return daemon

    def power_off(self) -> None:
        """Everything that runs on the disk ends in an instant, and its cgroups, which only the kernel has, are gone."""
        sandboxes = self.home / "sandboxes"
        marks = [b"COPPICE_TEST_DISK=" + os.fsencode(self.folder)]
        marks += [os.fsencode(name) for name in (os.listdir(sandboxes) if sandboxes.exists() else [])]
        while pids := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if belongs(pid, marks)]:
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
        for parent in (*Path("/sys/fs/cgroup").glob("*/coppice"), Path("/sys/fs/cgroup/coppice")):
            for folder in (folder for top in parent.glob("sb_*") for folder, _, _ in os.walk(top, topdown=False)):
                with contextlib.suppress(OSError):  # of another daemon's sandbox; a zombie is still to be reaped
                    os.rmdir(folder)


def belongs(pid: int, marks: list[bytes]) -> bool:
    """By what it inherited from the daemon, or by its cgroup, which is named like the sandbox."""
    try:
        folder = Path(f"/proc/{pid}")
        if (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX":
            return False
        text = (folder / "environ").read_bytes() + (folder / "cgroup").read_bytes()
    except OSError:
        return False
    return pid != os.getpid() and any(mark in text for mark in marks)
