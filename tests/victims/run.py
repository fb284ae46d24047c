#!/usr/bin/env python3
"""Runs the victims: see README.md for the protocol and the flavours."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FLAVOURS = ["unfrozen", "kill", "run-on", "fork", "twice", "tracked"]


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


class Victim:
    def __init__(self, path, build):
        self.path = path
        self.name = path.stem
        text = path.read_text()[:4000]
        self.settings = dict(re.findall(r"victim:\s*(\w+)=(.*?)\s*(?:\*/)?$", text, re.M))
        self.flavours = self.settings.get("flavours", ",".join(FLAVOURS)).split(",")
        self.timeout = float(self.settings.get("timeout", 20))
        self.build = build

    def command(self):
        if self.path.suffix == ".py":
            return ["/usr/bin/python3", str(self.path)]
        if self.path.suffix == ".sh":
            return ["/bin/bash", str(self.path)]
        out = self.build / "tests" / "victims" / self.name
        if not out.exists() or out.stat().st_mtime < max(self.path.stat().st_mtime, (HERE / "victim.h").stat().st_mtime):
            out.parent.mkdir(parents=True, exist_ok=True)
            libs = self.settings.get("libs", "").split()
            subprocess.run(["cc", "-std=gnu17", "-O1", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-I", str(HERE), "-o",
                            str(out), str(self.path), "-lpthread", *libs], check=True)
        return [str(out)]


class Run:
    """One flavour of one victim in a scratch folder."""

    def __init__(self, victim, tool):
        self.victim = victim
        self.tool = str(tool)
        self.dir = Path(tempfile.mkdtemp(prefix=f"victim-{victim.name}-"))
        self.out = self.dir / "out"
        self.deadline = time.monotonic() + victim.timeout
        self.children = []
        self.images = 0

    def left(self):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Failed("time is over; output: " + self.text()[-300:])
        return left

    def text(self):
        return self.out.read_text(errors="replace") if self.out.exists() else ""

    def start(self, *arguments):
        pidfile = self.dir / f"pid{len(self.children)}"
        log = open(self.dir / "log", "ab")
        child = subprocess.Popen([self.tool, arguments[0], "--pidfile", str(pidfile), *arguments[1:]], stdin=subprocess.DEVNULL,
                                 stdout=log, stderr=log, cwd="/")
        child.pidfile = pidfile
        self.children.append(child)
        return child

    def begin(self):
        child = self.start("run", "--dir", str(self.dir), "--output", str(self.out), "--", *self.victim.command())
        while "READY" not in self.text():
            if child.poll() is not None:
                if child.returncode == 77 or "SKIP" in self.text():
                    raise Skipped(self.text().strip())
                raise Failed(f"ended with {child.returncode} before READY: {self.text()[-300:]}")
            self.left()
            time.sleep(0.005)
        time.sleep(0.05)
        return child

    def root(self, child):
        while not child.pidfile.exists():
            if child.poll() is not None:
                raise Failed("no pid: " + (self.dir / "log").read_text(errors="replace")[-500:])
            self.left()
            time.sleep(0.002)
        return child.pidfile.read_text().strip()

    def freeze(self, child, kill=True, parent=None):
        image = self.dir / f"image{self.images}"
        self.images += 1
        command = [self.tool, "freeze", "--root", self.root(child), "--image", str(image)]
        if kill:
            command.append("--kill")
        if parent:
            command += ["--parent", str(parent)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=self.left())
        if done.returncode != 0:
            raise Failed("freeze: " + done.stderr.strip())
        if kill:
            child.wait(timeout=self.left())
        done = subprocess.run([self.tool, "verify", "--image", str(image)], capture_output=True, text=True, timeout=self.left())
        if done.returncode != 0:
            raise Failed("verify: " + done.stderr.strip())
        return image

    def thaw(self, image):
        child = self.start("thaw", "--image", str(image))
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
                raise Failed(f"status {code}: {self.text()[-400:]}")
        if self.text().count("PASS") != len(children) + already:
            raise Failed(f"{self.text().count('PASS')} of {len(children) + already} passed: {self.text()[-300:]}")

    def flavour(self, name):
        child = self.begin()
        refuse = self.victim.settings.get("refuse")
        if name == "unfrozen":
            return self.go(child)
        if refuse:
            try:
                self.freeze(child)
            except Failed as e:
                if refuse not in str(e):
                    raise
                return self.go(child)
            raise Failed("was frozen, but should have been refused")
        if name == "kill":
            self.go(self.thaw(self.freeze(child)))
        elif name == "run-on":
            image = self.freeze(child, kill=False)
            self.go(child)
            (self.dir / "go").unlink()
            copy = self.thaw(image)
            self.go(copy, already=1)
        elif name == "fork":
            image = self.freeze(child)
            self.go(self.thaw(image), self.thaw(image))
        elif name == "twice":
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

    def end(self, keep):
        for child in self.children:
            if child.poll() is None:
                if child.pidfile.exists():
                    try:
                        os.kill(int(child.pidfile.read_text()), signal.SIGKILL)
                    except (ProcessLookupError, ValueError):
                        pass
                child.kill()
                child.wait()
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)


def run_victim(victim, flavours, tool, count):
    for flavour in flavours:
        if flavour not in victim.flavours and flavour != "unfrozen":
            continue
        if victim.settings.get("refuse") and flavour not in ("unfrozen", "kill"):
            continue
        needs = victim.settings.get("needs")
        run = Run(victim, tool)
        begin = time.monotonic()
        try:
            if needs and not Path(needs).exists():
                raise Skipped(f"needs {needs}")
            run.flavour(flavour)
            verdict, why = "passed", ""
        except Skipped as e:
            verdict, why = ("failed" if os.environ.get("MUST_WORK") == "1" else "skipped"), str(e)
        except (Failed, subprocess.SubprocessError, OSError) as e:
            verdict, why = "failed", f"{e} [{run.dir}]"
        run.end(keep=verdict == "failed")
        count[verdict] += 1
        print(f"{verdict:8} {victim.name}/{flavour} {time.monotonic() - begin:.1f}s {why}".rstrip(), flush=True)
        if flavour == "unfrozen" and verdict != "passed":
            break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.environ.get("COPPICE_BUILD", "build-freezer"))
    parser.add_argument("--flavours", default=",".join(FLAVOURS))
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    build = (ROOT / arguments.build).resolve()
    tool = build / "src" / "freezer" / "coppice-freeze"
    paths = sorted(p for p in HERE.iterdir() if p.suffix in (".c", ".py", ".sh") and p.name != "run.py")
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for path in paths:
        if arguments.names and path.stem not in arguments.names:
            continue
        run_victim(Victim(path, build), arguments.flavours.split(","), tool, count)
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
