"""Rows on saved states: fork.*, golden.*, resume.*, suspend.*, checkpoint.*, scale.*.  A part of bench/run.py.

Baselines: fork(2) of the very kernel that is forked, measured by a cell in it.  It copies no files, makes no sandbox and gives no
kernel that one could talk to, so the ratio says how much more the whole thing costs.
"""

import os
import re
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OFF = {"checkpoints": "off", "idle_seconds": 0}
USUAL = {"idle_seconds": 0}  # a checkpoint after each cell
REST = 0.5  # s: a checkpoint is made, and the next copy is thawed ahead
UNREADY = 0.08  # s: the last cell has its checkpoint, and no other copy is thawed yet
MEASURE_FORK = """
import os, time
def fork_ms():
    begin = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    spent = time.perf_counter() - begin
    os.waitpid(pid, 0)
    return spent * 1e3
"""


def timed(what, *args, **kwargs):
    begin = time.perf_counter()
    value = what(*args, **kwargs)
    return value, (time.perf_counter() - begin) * 1e3


def read_all(files):
    for file in files:
        with open(file, "rb", buffering=0) as f:
            while f.read(1 << 20):
                pass


def drop_from_cache(files):
    for file in files:
        with open(file, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class States:
    """Mixed into Bench."""

    def warm_session(self, megabytes, policy=None):
        sb = self.api.new(memory="3G", policy=policy or OFF)
        sb.ok("import numpy as np, pandas as pd; import matplotlib.pyplot as plt", timeout=120)
        sb.ok(f"block = np.ones({megabytes} * 131072)\nx = 41" + MEASURE_FORK, timeout=60)
        return sb

    def fork_baseline(self, sb):
        return float(sb.text("fork_ms()"))

    def fork(self):
        """Of a session at rest, whose last cell has its checkpoint; and of one whose state has to be saved first."""
        for megabytes, goal in ((100, 25), (1024, 30)):
            self.fork_one(megabytes, USUAL, "to_cell", "unready", f"p50 <= {goal}")
        self.fork_one(100, OFF, "unsaved")
        self.fork_many()

    def fork_to_cell(self, sb):
        """The child, and how long it took until its first answer."""
        begin = time.perf_counter()
        child = self.forks(sb, 1)[0]
        assert child.text("x") == "41"
        return child, (time.perf_counter() - begin) * 1e3

    def fork_one(self, megabytes, policy, name, unready=None, goal=None):
        """unready: the row of another fork so soon after the first that nothing is kept ready for it, as for a session's first one."""
        sb = self.forked_session(megabytes, policy)
        rows = {name: [], unready: []} if unready else {name: []}
        base = []
        for _ in range(self.rounds(15)):
            time.sleep(REST)
            children = []
            for times in rows.values():
                child, spent = self.fork_to_cell(sb)
                times.append(spent)
                children.append(child)
                time.sleep(UNREADY)
            for child in children:
                child.remove()
            base.append(self.fork_baseline(sb))
        for row, times in rows.items():
            self.row(f"fork.{row}_{megabytes}m", "ms", times, "fork() of the same kernel", base, goal if row == name else None)
        sb.remove()

    def forked_session(self, megabytes, policy):
        sb = self.warm_session(megabytes, policy)
        sb.api.post(f"{sb.path}/snapshots", {}, timeout=120)  # the first node is a full one
        self.fork_baseline(sb)
        return sb

    def fork_many(self):
        """Until all have answered, who are asked at once, as branches are that work side by side; four of them are kept ready then."""
        sb = self.forked_session(1024, USUAL)
        ready, unready, extra = [], [], []
        with ThreadPoolExecutor(8) as asking:
            for child in self.eight_forks(sb, asking)[1]:
                child.remove()
            for _ in range(self.rounds(9)):
                self.fork_baseline(sb)
                time.sleep(REST)
                children = {}
                for times in (ready, unready):
                    spent, forked = self.eight_forks(sb, asking)
                    times.append(spent)
                    children |= {child.id: child for child in forked}
                    time.sleep(UNREADY)
                extra += [private_mib(id) for id in children]
                for child in children.values():
                    child.remove()
        self.row("fork.8_of_1024m", "ms", ready, None, None, "p50 <= 150")
        self.row("fork.8_unready_of_1024m", "ms", unready)
        self.row("fork.extra_memory_each", "MiB", extra, None, None, "p50 <= 8")
        sb.remove()

    def eight_forks(self, sb, asking):
        begin = time.perf_counter()
        children = self.forks(sb, 8)
        assert list(asking.map(lambda child: child.text("x"), children)) == ["41"] * 8
        return (time.perf_counter() - begin) * 1e3, children

    def golden(self):
        """From the request for a sandbox to its first answer with pandas loaded; cold ones import it in that cell."""
        warm = "/api/images/code-interpreter/warm"
        self.api.post(warm, {}, timeout=300)
        try:
            times, cold = [], []
            for _ in range(self.rounds(30)):
                for values, golden in ((times, True), (cold, False)):
                    begin = time.perf_counter()
                    sb = self.api.new(policy=OFF, golden=golden)
                    assert sb.text("import numpy, pandas, matplotlib.pyplot; 6 * 7") == "42"
                    values.append((time.perf_counter() - begin) * 1e3)
                    sb.remove()
            self.row("golden.to_first_cell", "ms", times, "the same after a cold start", cold, "p50 <= 30")
        finally:
            self.api.delete(warm)

    def resume(self):
        for megabytes in (100, 1024):
            sb = self.warm_session(megabytes)
            suspends, wakes = [], []
            for _ in range(self.rounds(15)):
                sb.ok("block[:655360] = 2.0")  # 5 MB dirty
                suspends.append(timed(sb.api.post, f"{sb.path}/suspend", timeout=120)[1])
                text, spent = timed(sb.text, "x")
                assert text == "41"
                wakes.append(spent)
            if megabytes == 100:
                self.row("suspend.100m_5m_dirty", "ms", suspends, None, None, "p50 <= 40")
                self.row("resume.100m_to_cell", "ms", wakes, None, None, "p50 <= 30")
            else:
                self.row("suspend.1024m_5m_dirty", "ms", suspends)
                self.row("resume.1024m_to_cell", "ms", wakes)
            sb.remove()
        self.resume_cold()

    def resume_cold(self):
        """As after the host has started: nothing of the saved state is in memory."""
        sb = self.warm_session(100)
        wakes, reads = [], []
        for _ in range(self.rounds(15)):
            sb.ok("block[:655360] = 2.0")
            sb.api.post(f"{sb.path}/suspend", timeout=120)
            node = sb.api.get(f"{sb.path}/nodes")["nodes"][-1]["id"]
            files = [p for p in (self.work / "home/nodes" / node).rglob("*") if p.is_file()]
            drop_from_cache(files)
            reads.append(timed(read_all, files)[1])
            drop_from_cache(files)
            text, spent = timed(sb.text, "x")
            assert text == "41"
            wakes.append(spent)
        self.row("resume.100m_cold_to_cell", "ms", wakes, "reading its node from the disk", reads, "ratio <= 1.3")
        sb.remove()

    def checkpoint(self):
        off, on = self.warm_session(0), self.warm_session(0, {"checkpoints": "after_cell", "idle_seconds": 0})
        plain, sent_at_once, spaced = [], [], []
        on.ok("x")
        time.sleep(1)
        for _ in range(self.rounds(30)):
            plain.append(timed(off.ok, "x += 1")[1])
            on.ok("x += 1")
            sent_at_once.append(timed(on.ok, "x += 1")[1])
            time.sleep(0.3)
            spaced.append(timed(on.ok, "x += 1")[1])
            time.sleep(0.3)
        usual = statistics.median(plain)
        self.row("checkpoint.next_cell_waits", "ms", [t - usual for t in sent_at_once], None, None, "p50 <= 15")
        self.row("checkpoint.cell_later", "ms", spaced, "the same without checkpoints", plain)
        pauses = [n["pause_ms"] for n in on.api.get(f"{on.path}/nodes")["nodes"][2:]]
        self.row("checkpoint.pause", "ms", pauses)
        off.remove()
        on.remove()

    def scale(self):
        """1,000 suspended and 50 live sandboxes: what they cost the others, against the same before they were there."""
        asleep, live = self.rounds(1000), 50
        source = self.warm_session(0)
        source.api.post(f"{source.path}/snapshots", {}, timeout=120)
        crowd, one = self.asleep(source, 40), self.forks(source, 1)[0]
        few_lists, few_wakes, few_cells = self.scale_times(crowd, one)
        while len(crowd) < asleep:
            crowd += self.asleep(source, 20)
        for _ in range(live // 10):
            self.forks(source, 10)
        time.sleep(5)  # the kernel takes down the namespaces of a thousand that have just gone to sleep
        begin = self.cpu()
        time.sleep(10)
        self.row("scale.daemon_cpu", "ms/10s", [self.cpu() - begin], None, None, "p50 <= 50", 0)
        lists, wakes, cells = self.scale_times(crowd, one)
        self.row("scale.list_all", "ms", lists, "listing forty", few_lists)
        self.row("scale.wake_to_cell", "ms", wakes, "the same without the others", few_wakes, "ratio <= 1.3")
        self.row("scale.cell", "ms", cells, "the same without the others", few_cells, "ratio <= 1.3")
        self.row("scale.idle_suspends_late", "ms", [self.idle_late(source) for _ in range(self.rounds(6))], None, None, "p50 <= 1000", 0)
        self.row("scale.daemon_memory", "KiB", [self.daemon.rss() / 1024], digits=0)
        self.api.delete("/api/sandboxes", all="true")

    def asleep(self, source, count):
        """Forks, of which a wake takes a little longer than of what was never thawed before."""
        forks = self.forks(source, count)
        for sb in forks:
            sb.api.post(f"{sb.path}/suspend", timeout=120)
        return forks

    def scale_times(self, sleepers, awake):
        """Listings, wakes to the first cell (each sleeps again; nearly all for the first time), cells of one that is awake; ms each."""
        lists = [timed(self.api.get, "/api/sandboxes")[1] for _ in range(20)]
        cells = [timed(awake.ok, "x")[1] for _ in range(100)]
        wakes = []
        for i in range(30):
            sb = sleepers[i * 37 % len(sleepers)]
            sb.api.post(f"{sb.path}/suspend", timeout=120)
            wakes.append(timed(sb.text, "x")[1])
            sb.api.post(f"{sb.path}/suspend", timeout=120)
        return lists, wakes, cells

    def forks(self, source, count):
        reply = source.api.post(f"{source.path}/fork", {"count": count, "policy": OFF}, timeout=300)
        return [self.sandbox_of(c) for c in reply["sandboxes"]]

    def idle_late(self, source):
        """How much later than asked for an idle sandbox is asleep."""
        sb = self.forks(source, 1)[0]
        sb.api.call("PATCH", sb.path, {"policy": {"idle_seconds": 1}})
        begin = time.perf_counter()
        while sb.api.get(sb.path)["state"] != "suspended":
            assert time.perf_counter() - begin < 30
            time.sleep(0.01)
        return (time.perf_counter() - begin) * 1e3 - 1000

    def sandbox_of(self, reply):
        from client import Sandbox
        assert "id" in reply and not reply.get("error"), reply
        return Sandbox(self.api, reply["id"])


def private_mib(sandbox_id):
    """Pages that no other process shares, of all processes of a sandbox."""
    total = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and sandbox_id in (entry / "cgroup").read_text():
                rollup = (entry / "smaps_rollup").read_text()
                total += sum(int(n) for n in re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+)", rollup, re.M))
        except OSError:
            continue
    return total / 1024
