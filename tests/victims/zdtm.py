"""Another project's victims (run --zdtm DIR [NAME…]): the tests of CRIU's suite zdtm, which is no part of this one.

DIR is test/zdtm/static (or transition) of a source tree of CRIU (in Debian: apt-get source criu), built with `make -C ../lib; make -k`.  Not part of
CI.  Such a test becomes a daemon, writes its pid to a file, and checks itself at SIGTERM: what it says lies in NAME.out then.

What a test needs and this machine, or a tree in namespaces of its own, does not have shows unfrozen: it is skipped.  zdtm.txt has
those that cannot pass, with the reason.
"""

import os
import re
import signal
import time
from pathlib import Path

import run as runner

FLAVOURS = ["unfrozen", "kill", "twice", "tracked"]
ALL = [*FLAVOURS, "checkpoints"]
SUFFIX = re.compile(r"^(TST_\w+)\s*[:+]?=\s*(.*)$", re.M)
ARGUMENTS = {  # by the lists of the suite's Makefile, and by name
    "TST_FILE": ["--filename={0}.test"],
    "TST_DIR": ["--dirname={0}.test"],
    "TST_DIR_FILE": ["--dirname={0}.dir.test", "--filename={0}.test"],
    "cmdlinenv00": ["--arg1=arg1", "--arg2=arg2", "--arg3=arg3"],
    "env00": ["--envname=ENV_00_TEST"],
    "fifo-rowo-pair": ["--name_master={0}.master.test", "--name_slave={0}.slave.test"],
    "shm-unaligned": ["--shmem_size=5000"],
    "shm-hugetlb": ["--shmem_size=4194304"],
    "umask00": ["--mask=0345"],
}
ORDINARY = ["ZDTM_UID=18943", "ZDTM_GID=18943", "ZDTM_GROUPS=27495 48244"]  # who a test runs as that does not ask for root
START = 'env "$@" && touch ready || touch failed; exec sleep infinity'


class Test:
    def __init__(self, path, lists):
        self.name, self.path = path.name, path
        self.settings, self.flavours, self.timeout = {}, ALL, 25
        kinds = [kind for kind, names in lists if self.name in names and kind in ARGUMENTS] + [self.name]
        self.arguments = [text.format(self.name) for kind in kinds for text in ARGUMENTS.get(kind, [])]

    def flags(self):
        """Of the test's description, an expression of Python."""
        description = self.path.with_name(self.name + ".desc")
        found = re.search(r"'flags'\s*:\s*'([^']*)'", description.read_text()) if description.exists() else None
        return found[1].split() if found else []

    def check_needs(self):
        if "noauto" in self.flags():
            raise runner.Skipped("not meant to be run with all")


class Run(runner.Run):
    def begin(self):
        test = self.victim
        self.dir.chmod(0o777)
        who = [] if "suid" in test.flags() else ORDINARY
        self.deadline = time.monotonic() + test.timeout
        child = self.start("run", "--dir", str(self.dir), "--output", str(self.out), "--", "/bin/sh", "-c", START, "sh", *who,
                           self.reachable(test.path), f"--pidfile={test.name}.pid", f"--outfile={test.name}.out", *test.arguments)
        while not ((self.dir / "ready").exists() and (self.dir / f"{test.name}.pid").exists()):
            if (self.dir / "failed").exists() or child.poll() is not None:
                raise runner.Skipped("does not start: " + self.said())
            self.left()
            time.sleep(0.003)
        time.sleep(0.1)
        return child

    def said(self):
        files = sorted(self.dir.glob(self.victim.name + ".out*"))
        return "".join(f.read_text(errors="replace") for f in files if f.is_file())[-700:] or self.text()[-300:] + self.log()[-300:]

    def daemon(self, child):
        """The host's pid of the test."""
        wanted = int((self.dir / f"{self.victim.name}.pid").read_text())
        for pid in runner.processes(self.root(child)):
            if runner.inside(pid) == wanted:
                return pid
        raise runner.Failed("is gone: " + self.said())

    def go(self, *children, already=0):
        out = self.dir / f"{self.victim.name}.out"
        for child in children:
            pid = self.daemon(child)
            os.kill(pid, signal.SIGTERM)
            while not out.exists() and runner.alive(pid):
                self.left()
                time.sleep(0.005)
            time.sleep(0.02)
            if "PASS" not in self.said() or "FAIL" in self.said():
                raise runner.Failed(self.said())

    def flavour(self, name):
        try:
            super().flavour(name)
        except runner.Failed as e:
            if name == "unfrozen":
                raise runner.Skipped(f"fails unfrozen: {e}") from None
            raise


def find(folder, names):
    makefile = (folder / "Makefile").read_text().replace("\\\n", " ")
    lists = [(kind, words.split()) for kind, words in SUFFIX.findall(makefile)]
    programs = [p for p in sorted(folder.iterdir()) if "." not in p.name and p.is_file() and os.access(p, os.X_OK)]
    return [Test(p, lists) for p in programs if not names or p.name in names]


def main(tool, arguments):
    flavours = arguments.flavours.split(",") if arguments.flavours else FLAVOURS
    if flavours[0] != "unfrozen":
        flavours = ["unfrozen", *flavours]
    suite = runner.Suite(tool, flavours, arguments.keep or bool(arguments.names), arguments.owner)
    suite.make_run = Run
    suite.expected = runner.Expectations(runner.HERE / "zdtm.txt")
    return suite.run(find(Path(arguments.zdtm).resolve(), arguments.names), arguments)
