#!/usr/bin/env python3
"""Runs the victims: see README.md for the protocol, the settings and the flavours."""

import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OWNER, NESTED = "owner", "nested"
FLAVOURS = ["unfrozen", "kill", "run-on", "fork", "twice", "tracked", "checkpoints", OWNER]
RUNS_ON = ["run-on", "tracked", "checkpoints"]  # a source runs on
EXTRA = ["copy", "no-user", NESTED, "eight", "chain", "exact"]
PLAIN = ["kill", "copy", "eight"]  # thawed as a keeper does it; in the others little memory is mapped, too
LIKE = {"copy": "kill", "no-user": "kill", "eight": "fork", "chain": "twice", "exact": "twice"}  # who opts out of that has no other
MOST_AGAIN = 8  # when more failed, it is not the machine
# Without options every victim goes through the first ones, and through all of FLAVOURS what stands for many: the broad ones
# (those in no folder) and these.
BRIEF = ["unfrozen", "kill", "tracked"]
SAMPLE = ["fd/epoll", "fd/pipes", "fd/shared_offset", "mem/allocator", "mem/cow_family", "mem/patched_pieces",
          "mem/runs_with_gaps", "proc/sessions", "proc/zombies", "sig/pending_thread", "sig/posix_timers",
          "sock/tcp_transfer", "sock/unix_rights", "sys/reads", "time/timens", "tty/pty_pair"]
# What an owner does in another way than root, or not at all.
SAMPLE_OWNER = ["fd/inotify", "mem/deleted_mapped", "mem/hidden", "mem/shared_anon", "mem/sysv_shm", "proc/credentials",
                "proc/seccomp", "refuse/aio"]
# What a process without a user namespace may do alone, or keeps from an engine without CAP_SYS_RESOURCE.
SAMPLE_NO_USER = ["proc/credentials", "proc/schedule"]
SOURCES = (".c", ".go", ".py", ".sh")
LIBRARIES = {"database.py"}  # of victims in the same folder
NOT_VICTIMS = {"run.py", "endurance.py", "zdtm.py"} | LIBRARIES
CFLAGS = "-std=gnu17 -O1 -g -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-parameter".split()


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def processes(root):
    """The pids of a tree, parents first."""
    found = [int(root)]
    for pid in found:
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += [int(p) for p in (task / "children").read_text().split()]
        except OSError:
            pass  # it has ended meanwhile
    return found


def inside(pid):
    """Its pid in the tree's own namespace; None when it has ended."""
    try:
        return int(re.search(r"^NSpid:.*\s(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.M)[1])
    except OSError:
        return None


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def pages(pid):
    """Address to content of each page of private memory that a thaw must bring back as it was and that is not zero."""
    content, flags, area = {}, {}, None
    if not os.path.exists(f"/proc/{pid}/exe"):
        return content  # a zombie
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"([0-9a-f]+)-([0-9a-f]+) ..(.)p .* ?(.*)$", line)
        if head:
            area = (int(head[1], 16), int(head[2], 16)) if "[v" not in line else None
        elif re.match(r"[0-9a-f]+-", line):
            area = None
        elif line.startswith("VmFlags:") and area:
            flags[area] = line.split()[1:]
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for (start, end), names in flags.items():
            if {"wf", "dp", "pf", "io"} & set(names) or end - start > 1 << 30:
                continue
            for at in range(start, end, 1 << 20):
                try:
                    memory.seek(at)
                    block = memory.read(min(end - at, 1 << 20))
                except (OSError, ValueError):
                    continue
                if block.count(0) != len(block):
                    for i in range(0, len(block), 4096):
                        if block[i : i + 4096] != ZERO:
                            content[at + i] = block[i : i + 4096]
    return content


ZERO = bytes(4096)


def differ(a, b):
    """Pages differ by more than what the kernel keeps up to date in a thread's rseq area."""
    if a == b:
        return False
    where = [i for i in range(len(a)) if a[i] != b[i]]
    return where[0] // 32 != where[-1] // 32


class Victim:
    def __init__(self, path, build, cc="cc"):
        self.path = path
        self.name = str(path.relative_to(HERE).with_suffix("")) if path.is_relative_to(HERE) else path.stem
        text = path.read_text()[:4000]
        self.settings = dict(re.findall(r"victim:\s*(\w+)=(.*?)\s*(?:\*/)?$", text, re.M))
        self.flavours = self.settings.get("flavours", ",".join(FLAVOURS)).split(",")
        self.timeout = float(self.settings.get("timeout", 20))
        self.build = build
        self.cc = cc

    def compile(self, out):
        newest = max(p.stat().st_mtime for p in (self.path, *HERE.glob("*.h")))
        if out.exists() and out.stat().st_mtime >= newest:
            return
        out.parent.mkdir(parents=True, exist_ok=True)
        fresh = out.with_name(out.name + ".new")
        if self.path.suffix == ".go":
            command = ["go", "build", "-o", str(fresh), str(self.path)]
        else:
            command = [self.cc, *CFLAGS, *self.settings.get("cflags", "").split(), "-I", str(HERE), "-o", str(fresh),
                       str(self.path), "-lpthread", *self.settings.get("libs", "").split()]
        env = dict(os.environ, CGO_ENABLED="0", GO111MODULE="off")
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode != 0:
            raise Failed("does not compile: " + done.stderr[-2000:])
        fresh.rename(out)

    def command(self):
        if self.path.suffix == ".py":
            return ["/usr/bin/python3", str(self.path)]
        if self.path.suffix == ".sh":
            return ["/bin/bash", str(self.path)]
        out = self.build / "tests" / "victims" / (self.name + (".bin" if self.cc == "cc" else f".{self.cc}"))
        self.compile(out)
        return [str(out)]

    def check_needs(self):
        for need in self.settings.get("needs", "").split(",") + (["go"] if self.path.suffix == ".go" else []):
            if need and not (Path(need).exists() if "/" in need else shutil.which(need)):
                raise Skipped(f"needs {need}")


class Expectations:
    """expected.txt: what is known not to work yet, with the reason.  Its head tells the form of the lines."""

    def __init__(self, path):
        self.rows = {}  # (name, flavour): (a text that the failure must hold or None when it always fails, reason)
        for line in path.read_text().splitlines() if path.exists() else []:
            if line.strip() and not line.startswith("#"):
                name, flavours, reason = line.split(None, 2)
                sometimes = re.match(r'sometimes "(.+?)" (.+)', reason)
                for flavour in flavours.split(","):
                    self.rows[name, flavour] = (sometimes[1], sometimes[2]) if sometimes else (None, reason)

    def row(self, name, flavour):
        """(text or None, reason or None)"""
        return self.rows.get((name, flavour)) or (flavour != "unfrozen" and self.rows.get((name, "*"))) or (None, None)


class Owner:
    """The mere owner of a user namespace: an ordinary uid without any right outside, root of the namespace inside.  The namespace
    has as many ids as those of root's trees, by a map that only root may write; what uses it runs as the owner."""

    def __init__(self, uid):
        if os.geteuid() != 0:
            raise Skipped("only root can become another")
        self.who = {"user": uid, "group": uid, "extra_groups": []}
        self.holder = subprocess.Popen(["/usr/bin/unshare", "--user", "/bin/sleep", "infinity"], stdin=subprocess.DEVNULL, cwd="/",
                                       **self.who)
        self.namespace = f"/proc/{self.holder.pid}/ns/user"
        try:
            self.map(uid)
        except BaseException:
            self.end()
            raise

    def map(self, uid):
        deadline = time.monotonic() + 20
        while os.readlink(self.namespace) == os.readlink("/proc/self/ns/user"):
            if self.holder.poll() is not None or time.monotonic() > deadline:
                raise Failed("no user namespace for the owner")
            time.sleep(0.002)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{self.holder.pid}/{name}").write_text(f"0 {uid} 65536\n")

    def end(self):
        self.holder.kill()
        self.holder.wait()


class Run:
    """One flavour of one victim in a scratch folder."""

    def __init__(self, victim, tool, user=True, owner=None, nested=False):
        self.victim = victim
        self.owner = Owner(owner) if owner else None
        self.dir = Path(tempfile.mkdtemp(prefix=f"victim-{victim.name.replace('/', '-')}-"))
        self.dir.chmod(0o755)
        self.who = self.owner.who if self.owner else {}
        if self.owner:
            os.chown(self.dir, owner, owner)
            self.bin = self.dir / ".bin"
            self.bin.mkdir()
            self.bin.chmod(0o755)
        self.out = self.dir / "out"
        self.deadline = time.monotonic() + victim.timeout
        self.children = []
        self.images = 0
        self.mapped = False
        self.tool = [self.reachable(tool)]
        if nested:
            self.tool = ["/usr/bin/nsenter", f"--user={self.owner.namespace}", "--setuid=0", "--setgid=0", *self.tool]
            self.who = {}
        self.user = [] if user or nested else ["--no-user"]
        if self.owner and not nested:
            self.user = ["--user", self.owner.namespace]

    def reachable(self, path):
        """The owner need not be able to get at the build folder, and gets copies: of a program and of what is called as it is."""
        path = Path(path)
        if not self.owner:
            return str(path)
        for file in {path, *path.parent.glob(path.stem + ".*"), *(path.parent / name for name in LIBRARIES)}:
            if file.is_file():
                os.chmod(shutil.copy(file, self.bin), 0o755)
        return str(self.bin / path.name)

    def left(self):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Failed("time is over; output: " + self.text()[-300:])
        return left

    def text(self):
        return self.out.read_text(errors="replace") if self.out.exists() else ""

    def verdict(self):
        """The lines that say what failed, or the end of the output."""
        lines = re.findall(r"^FAIL.*|^\w*(?:Error|Exception): .*", self.text(), re.M)
        return " | ".join(dict.fromkeys(lines)) or (self.text() + self.log())[-300:]

    def log(self):
        return (self.dir / "log").read_text(errors="replace")

    def start(self, *arguments):
        pidfile = self.dir / f"pid{len(self.children)}"
        with open(self.dir / "log", "ab") as log:
            # A tree does not get the scheduling of who thaws it.
            batch = ["/usr/bin/chrt", "--batch", "0"] if arguments[0] == "thaw" and not self.owner else []
            child = subprocess.Popen([*batch, *self.tool, arguments[0], *self.user, "--pidfile", str(pidfile), *arguments[1:]],
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **self.who)
        child.pidfile = pidfile
        self.children.append(child)
        return child

    def begin(self):
        *interpreter, program = self.victim.command()
        command = [*interpreter, self.reachable(program)]
        self.deadline = time.monotonic() + self.victim.timeout
        child = self.start("run", "--dir", str(self.dir), "--output", str(self.out), "--", *command)
        while "READY" not in self.text():
            if child.poll() is not None:
                if child.returncode == 77 or "SKIP" in self.text():
                    raise Skipped(self.text().strip())
                raise Failed(f"ended with {child.returncode} before READY: {self.text()[-300:]}{self.log()[-300:]}")
            self.left()
            time.sleep(0.003)
        time.sleep(0.03)
        return child

    def root(self, child):
        while not child.pidfile.exists():
            if child.poll() is not None:
                raise Failed("no pid: " + self.log()[-500:])
            self.left()
            time.sleep(0.002)
        return child.pidfile.read_text().strip()

    def tool_run(self, *command):
        try:
            done = subprocess.run([*self.tool, *command], capture_output=True, text=True, timeout=self.left(), **self.who)
        except subprocess.TimeoutExpired:
            raise Failed(f"{command[0]} hangs") from None
        if done.returncode != 0:
            raise Failed(f"{command[0]}: {done.stderr.strip() or 'status ' + str(done.returncode)}")

    def freeze(self, child, kill=True, parent=None, verify=True):
        image = self.dir / f"image{self.images}"
        self.images += 1
        command = ["freeze", "--root", self.root(child), "--image", str(image), "--waits", str(self.dir / "waits")]
        if kill:
            command.append("--kill")
        if parent:
            command += ["--parent", str(parent)]
        if self.victim.settings.get("mounts") == "own":
            command.append("--own-mounts")
        before = child.poll()
        self.tool_run(*command)
        if kill and before is None:
            child.wait(timeout=self.left())
        if verify:
            self.tool_run("verify", "--image", str(image))
        return image

    def thaw(self, image, *options):
        options += ("--map",) if self.mapped else ()
        child = self.start("thaw", "--image", str(image), "--waits", str(self.dir / "waits"), *options)
        self.root(child)
        return child

    def go(self, *children, already=0):
        (self.dir / "go").touch()
        for child in children:
            try:
                code = child.wait(timeout=self.left())
            except subprocess.TimeoutExpired:
                raise Failed("does not end; output: " + self.text()[-300:]) from None
            if code != 0:
                raise Failed(f"status {code}: {self.verdict()}")
        if self.text().count("PASS") != len(children) + already:
            raise Failed(f"{self.text().count('PASS')} of {len(children) + already} passed: {self.text()[-300:]}")

    def refused_once(self, child, text, kill):
        try:
            self.freeze(child, kill=kill)
        except Failed as e:
            if text not in str(e) or "not_freezable" not in str(e):
                raise Failed(f"refused, but not as a {text!r}: {e}") from None
        else:
            raise Failed(f"was frozen{'' if kill else ' and runs on'}, but should have been refused")

    def refused(self, child, text):
        """Frozen is refused by name, the tree runs on and passes."""
        for kill in (True, False)[: int(self.victim.settings.get("refusals", 2))]:
            self.refused_once(child, text, kill)
        self.go(child)

    def refused_running(self, child, text):
        """Refused by name when it is to run on, but not when it is to end."""
        self.refused_once(child, text, kill=False)
        self.go(self.thaw(self.freeze(child)))

    def flavour(self, name):
        self.mapped = name not in PLAIN
        child = self.begin()
        rights = name not in (OWNER, NESTED)
        refuse = self.victim.settings.get("refuse" if rights else "owner_refuse", self.victim.settings.get("refuse"))
        if name == "unfrozen":
            self.go(child)
        elif refuse:
            self.refused(child, refuse)
        elif name in RUNS_ON and "refuse_running" in self.victim.settings:
            self.refused_running(child, self.victim.settings["refuse_running"])
        elif name in ("kill", "no-user"):
            self.go(self.thaw(self.freeze(child)))
        elif name == "copy":
            self.go(self.thaw(self.freeze(child), "--copy"))
        elif name == "run-on":
            image = self.freeze(child, kill=False)
            self.go(child)
            (self.dir / "go").unlink()
            self.go(self.thaw(image), already=1)
        elif name in ("fork", "eight"):
            image = self.freeze(child)
            # The first into namespaces that were there before, as the keeper has them.
            first = self.thaw(image, *["--prepared"] if self.victim.settings.get("prepared") != "no" else [])
            self.go(first, *[self.thaw(image) for _ in range(1 if name == "fork" else 7)])
        elif not rights and "owner_again" in self.victim.settings:
            self.refused(self.thaw(self.freeze(child)), self.victim.settings["owner_again"])
        elif not rights and "twice" not in self.victim.flavours:
            self.go(self.thaw(self.freeze(child)))
        elif name == "twice" or not rights:
            first = self.freeze(child)
            child = self.thaw(first)
            time.sleep(0.05)
            second = self.freeze(child, parent=first)
            shutil.rmtree(first)
            self.go(self.thaw(second))
        elif name == "tracked":
            first = self.freeze(child, kill=False)
            time.sleep(0.02)
            second = self.freeze(child, parent=first)
            self.go(self.thaw(second))
        elif name == "checkpoints":
            self.tool_run("track", "--root", self.root(child), "--image", str(self.dir / "t"), "--count", "6", "--interval",
                          "20", "--kill")
            child.wait(timeout=self.left())
            self.tool_run("verify", "--image", str(self.dir / "t/5"))
            self.go(self.thaw(self.dir / "t/5"))
        elif name == "chain":
            self.chain(child, 10)
        elif name == "exact":
            self.exact(child)
        else:
            raise Failed(f"no flavour {name}")

    def exact(self, child):
        """Twice, the second time with all processes stopped: their memory is compared page by page."""
        first = self.freeze(child)
        child = self.thaw(first)
        time.sleep(0.1)
        before = processes(self.root(child))
        tasks = {pid: Path(f"/proc/{pid}/task").glob("*/stat") for pid in before}  # of which the first may have ended
        ran = {inside(pid) for pid, stats in tasks.items() if any(not re.search(r"\) [TZ] ", s.read_text()) for s in stats)}
        for pid in before[1:]:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.05)
        old = {inside(p): pages(p) for p in before}
        child = self.thaw(self.freeze(child, parent=first))
        time.sleep(0.05)
        after = processes(self.root(child))
        if len(after) != len(before):
            raise Failed(f"{len(after)} processes after the thaw, {len(before)} before")
        new = {inside(p): pages(p) for p in after}
        for pid in after[1:]:
            if inside(pid) in ran:
                os.kill(pid, signal.SIGCONT)
        for pid, a in old.items():
            b = new.get(pid, {})
            bad = [p for p in a.keys() | b.keys() if differ(a.get(p, ZERO), b.get(p, ZERO))]
            if bad:
                raise Failed(f"{len(bad)} of {len(a)} pages of process {pid} are others, the first at {min(bad):#x}")
        self.go(child)

    def chain(self, child, rounds, verify=True):
        parent = None
        for _ in range(rounds):
            image = self.freeze(child, parent=parent, verify=verify)
            child = self.thaw(image)
            parent = image
        self.go(child)

    def end(self, keep):
        for child in self.children:
            if child.poll() is None:
                # Not reaped yet, so the pid that it wrote is still its child's.
                if child.pidfile.exists():
                    try:
                        os.kill(int(child.pidfile.read_text()), signal.SIGKILL)
                    except (ProcessLookupError, ValueError):
                        pass
                child.kill()
                child.wait()
        if self.owner:
            self.owner.end()
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)


class Suite:
    def __init__(self, tool, flavours, keep, owner):
        self.tool = tool
        self.flavours = flavours
        self.owner = owner  # uid
        self.keep = keep
        self.make_run = Run
        self.expected = Expectations(HERE / "expected.txt")
        self.count = {"passed": 0, "failed": 0, "skipped": 0}
        self.lock = threading.Lock()
        self.rows = {}
        self.kinds = {}  # of what was skipped
        self.again = []  # (victim, flavour, why) that failed the first time

    def note(self, kind):
        with self.lock:
            self.kinds[kind] = self.kinds.get(kind, 0) + 1

    def judge(self, victim, flavour):
        """(verdict, why) of one flavour."""
        text, known = self.expected.row(victim.name, flavour)
        kind = "could not run here"
        try:
            victim.check_needs()
            run = self.make_run(victim, self.tool, user=flavour != "no-user",
                                owner=self.owner if flavour in (OWNER, NESTED) else None, nested=flavour == NESTED)
        except Skipped as e:
            self.note(kind)
            return "skipped", str(e)
        except (Failed, OSError) as e:
            return "failed", str(e)
        try:
            run.flavour(flavour)
            verdict, why = "passed", ""
            if known and not text:
                why = f"(known not to: {known}; take its line out of expected.txt)"
        except Skipped as e:
            verdict, why = "skipped", str(e)
        except (Failed, subprocess.SubprocessError, OSError) as e:
            verdict, why = "failed", f"{e} [{run.dir}]"
            if known and (text or "") in str(e):
                kind = "failed as it sometimes does" if text else "failed as expected"
                verdict, why = "skipped", f"{'sometimes' if text else 'known'}: {known} — {e}"
        if verdict == "skipped":
            self.note(kind)
        run.end(keep=verdict == "failed" and self.keep)
        return verdict, why

    def victim(self, victim):
        some = FLAVOURS if "/" not in victim.name or victim.name in SAMPLE else BRIEF
        if victim.name in SAMPLE_OWNER:
            some = [*some, OWNER]
        if victim.name in SAMPLE_NO_USER:
            some = [*some, "no-user"]
        for flavour in self.flavours or some:
            if LIKE.get(flavour, flavour) not in victim.flavours and flavour not in ("unfrozen", OWNER, NESTED):
                continue
            if victim.settings.get("refuse") and flavour not in ("unfrozen", "kill", OWNER, NESTED):
                continue
            begin = time.monotonic()
            verdict, why = self.judge(victim, flavour)
            if verdict == "skipped" and os.environ.get("MUST_WORK") == "1":
                verdict = "failed"
            with self.lock:
                self.count[verdict] += 1
                self.rows[victim.name, flavour] = verdict
                if verdict == "failed":
                    self.again.append((victim, flavour, why))
                line = f"{verdict:8} {victim.name}/{flavour} {time.monotonic() - begin:.1f}s {why}"
                print(" ".join(line.split("\n")).rstrip(), flush=True)
            if (flavour == "unfrozen" and verdict != "passed") or "hangs" in why:
                break


    def second_try(self):
        """What failed runs once more, with nothing beside it.  Passing then it counts as passed, but is named: see tools/run-checks.py."""
        if len(self.again) > MOST_AGAIN:
            return
        for victim, flavour, why in self.again:
            if self.judge(victim, flavour)[0] == "passed":
                self.count["failed"] -= 1
                self.count["passed"] += 1
                self.rows[victim.name, flavour] = "unsteady"
                print(f"unsteady: {victim.name}/{flavour} {why}", flush=True)

    def run(self, victims, arguments):
        """The exit status."""
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for job in [pool.submit(self.victim, v) for v in victims]:
                job.result()
        self.second_try()
        if arguments.table:
            write_table(arguments.table, self.rows)
        if self.count["skipped"]:
            print("skipped: " + ", ".join(f"{n} {kind}" for kind, n in sorted(self.kinds.items())))
        print(f"{self.count['passed']} passed, {self.count['failed']} failed, {self.count['skipped']} skipped")
        return 1 if self.count["failed"] else 0


def write_table(path, rows):
    """Victims by flavours; what did not pass in bold."""
    flavours = list(dict.fromkeys(f for _, f in rows))
    order = [f for f in (*FLAVOURS, *EXTRA) if f in flavours]
    lines = ["| victim | " + " | ".join(order) + " |", "|---" * (len(order) + 1) + "|"]
    for name in sorted({n for n, _ in rows}):
        cells = [rows.get((name, f), "") for f in order]
        lines.append(f"| {name} | " + " | ".join(c if c in ("", "passed") else f"**{c}**" for c in cells) + " |")
    Path(path).write_text("\n".join(lines) + "\n")


def find(build, names, cc):
    paths = [p for p in HERE.rglob("*") if p.suffix in SOURCES and p.name not in NOT_VICTIMS and "__pycache__" not in p.parts]
    # The slow ones first, so that none is left alone at the end.
    victims = sorted((Victim(p, build, cc) for p in paths), key=lambda v: (-v.timeout, v.name))
    if not names:
        return victims
    named = [v for v in victims if {v.name, v.name.split("/")[-1], v.name.split("/")[0]} & set(names)]
    missing = [n for n in names if not any(n in (v.name, v.name.split("/")[-1], v.name.split("/")[0]) for v in named)]
    if missing:
        sys.exit(f"run.py: no victim named {', '.join(missing)}")
    return named


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.environ.get("BUILD") or os.environ.get("COPPICE_BUILD") or "build-freezer")
    parser.add_argument("--flavours", help=f"of {', '.join(FLAVOURS + EXTRA)}; without it {', '.join(BRIEF)} of all victims and the first "
                        f"{len(FLAVOURS)} of a sample or of those that are named")
    parser.add_argument("--full", action="store_true", help=f"{', '.join(FLAVOURS)} of all victims")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--keep", action="store_true", help="keep the scratch folders of failed ones")
    parser.add_argument("--table", help="write the results as a table of Markdown to this file")
    parser.add_argument("--owner", type=int, metavar="UID", default=100000,
                        help=f"who the flavours {OWNER} and {NESTED} run as; their ids are the 65536 from there on (default: %(default)s)")
    parser.add_argument("--endurance", action="store_true")
    parser.add_argument("--zdtm", metavar="DIR", help="the static tests of CRIU's suite instead (zdtm.py)")
    parser.add_argument("names", nargs="*", help="victims or folders of them")
    arguments = parser.parse_args()
    build = (ROOT / arguments.build).resolve()
    tool = build / "src" / "freezer" / "coppice-freeze"
    if not tool.exists():
        print(f"{tool.relative_to(ROOT) if tool.is_relative_to(ROOT) else tool} is not built")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    sys.modules["run"] = sys.modules["__main__"]  # for these two
    if arguments.endurance:
        import endurance
        return endurance.main(build, tool, arguments)
    if arguments.zdtm:
        import zdtm
        return zdtm.main(tool, arguments)
    flavours = arguments.flavours.split(",") if arguments.flavours else FLAVOURS if arguments.full or arguments.names else None
    suite = Suite(tool, flavours, arguments.keep or bool(arguments.names), arguments.owner)
    return suite.run(find(build, arguments.names, arguments.cc), arguments)


if __name__ == "__main__":
    sys.exit(main())
