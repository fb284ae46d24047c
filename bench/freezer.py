#!/usr/bin/env python3
"""Benchmarks of the freezer: what issue 3 promises, each as a ratio to plain fork() of the same process, or to the same work
done plainly, in the same run.  Rows go to stdout and to build/bench/results.jsonl."""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peers import print_ratios

ROOT = Path(__file__).resolve().parent.parent

WORKLOAD = r"""
import ctypes, os, sys, time
import numpy as np, pandas as pd
libc = ctypes.CDLL(None)
size = int(sys.argv[1])
data = np.ones(size * 131072)
frame = pd.DataFrame({"x": range(1000)})
def forks(n):
    times = []
    for _ in range(n):
        begin = time.perf_counter()
        pid = libc.syscall(57)
        if pid == 0:
            libc._exit(0)
        times.append((time.perf_counter() - begin) * 1e6)
        libc.waitpid(pid, None, 0)
    return times
def loop_numpy():
    begin = time.perf_counter()
    for _ in range(40):
        (data[:2000000] * 1.5).sum()
    return time.perf_counter() - begin
def loop_python():
    begin = time.perf_counter()
    x = 0
    for i in range(600000):
        x += i * 3 % 7
    return time.perf_counter() - begin
def loops():
    loop_numpy(); loop_python()
    return [min(loop_numpy() for _ in range(30)), min(loop_python() for _ in range(30))]
print("FORK", *forks(30))
print("LOOPS", *loops())
print("READY", flush=True)
while not os.path.exists("go"):
    time.sleep(0.001)
begin = time.perf_counter()
if os.path.exists("loops"):
    print("LOOPS", *loops(), flush=True)
"""


def percentile(values, p):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * p))]


class Results:
    def __init__(self, path):
        self.path = path
        self.bad = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = []

    def row(self, name, unit, values, baseline, base_values, goal, ratio=None):
        p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
        base = percentile(base_values, 0.5) if base_values else None
        if ratio is None:
            ratio = p50 / base if base else None
        measured = ratio if goal and goal[0] == "ratio" else p50
        ok = not goal or measured <= goal[1]
        self.bad += not ok
        row = {"name": name, "unit": unit, "n": len(values), "p50": round(p50, 3), "p99": round(p99, 3), "baseline": baseline,
               "baseline_p50": round(base, 3) if base is not None else None, "ratio": round(ratio, 3) if ratio is not None else None,
               "goal": f"{goal[0]} <= {goal[1]}" if goal else "-", "ok": ok}
        self.rows.append(row)
        print(f"{'ok  ' if ok else 'MISS'} {name:38} p50 {p50:10.2f} {unit:4} p99 {p99:10.2f}  {baseline} {base or 0:10.2f}  "
              f"ratio {ratio or 0:6.3f}  goal {row['goal']}", flush=True)

    def write(self):
        with open(self.path, "a") as f:
            for row in self.rows:
                f.write(json.dumps(row) + "\n")


class Tree:
    """One tree made, frozen and thawed by coppice-freeze in a scratch folder."""

    def __init__(self, tool):
        self.tool = str(tool)
        self.dir = Path(tempfile.mkdtemp(prefix="bench-freezer-"))
        self.children = []

    def path(self, name):
        return self.dir / name

    def text(self, name="out"):
        return self.path(name).read_text() if self.path(name).exists() else ""

    def spawn(self, verb, *arguments, stdout=None):
        name = f"{verb}{len(self.children)}"
        log = open(self.path(name), "wb")
        child = subprocess.Popen([self.tool, verb, "--pidfile", str(self.path(name + ".pid")), *map(str, arguments)], stdin=subprocess.DEVNULL,
                                 stdout=stdout or log, stderr=log, text=True, cwd="/")
        child.log, child.pidfile = name, self.path(name + ".pid")
        self.children.append(child)
        return child

    def run(self, *command):
        child = self.spawn("run", "--dir", self.dir, "--output", self.path("out"), "--", *command)
        return child

    def await_text(self, what, child, name="out", seconds=120, step=0.002):
        end = time.monotonic() + seconds
        while what not in self.text(name):
            if child.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{what} did not come: {self.text(name)[-500:]} {self.text(child.log)[-300:]}")
            time.sleep(step)

    def root(self, child):
        end = time.monotonic() + 60
        while not child.pidfile.exists():
            if child.poll() is not None or time.monotonic() > end:
                raise RuntimeError("not started: " + self.text(child.log))
            time.sleep(0.0005)
        return child.pidfile.read_text().strip()

    def call(self, *arguments):
        done = subprocess.run([self.tool, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return [{k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", line)} for line in done.stdout.splitlines() if line.startswith("frozen")]

    def thaw(self, image, *options):
        child = self.spawn("thaw", "--image", image, *options, stdout=subprocess.PIPE)
        line = child.stdout.readline()  # not by looking again and again: the thaw has work for each processor
        if not line:
            raise RuntimeError(f"no thaw: {self.text(child.log)[-300:]}")
        return child, {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", line)}

    def kill(self, child):
        if child.poll() is None:
            try:
                os.kill(int(self.root(child)), signal.SIGKILL)
            except (ProcessLookupError, RuntimeError):
                pass
            child.wait()

    def done(self):
        for child in self.children:
            self.kill(child)
        shutil.rmtree(self.dir, ignore_errors=True)


def floats(text, word):
    return [[float(x) for x in line.split()[1:]] for line in text.splitlines() if line.startswith(word)]


def plain_write(folder, size):
    """Writing and syncing the same number of bytes, from memory, the plain way."""
    block = os.urandom(1 << 20)
    path = folder / "plain"
    begin = time.perf_counter()
    with open(path, "wb", buffering=0) as f:
        for _ in range(max(1, size >> 20)):
            f.write(block)
        os.fdatasync(f.fileno())
    took = time.perf_counter() - begin
    path.unlink()
    return took * 1e6


def pss(pid):
    total = 0
    for child in [pid, *subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()]:
        for line in open(f"/proc/{child}/smaps_rollup"):
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total


def bench_python(results, tool, n, size, goal):
    tree = Tree(tool)
    tree.path("work.py").write_text(WORKLOAD)
    # 4 KiB pages, as memory that grew in small steps has: numpy's huge pages would make fork() cheap.
    child = tree.run("/usr/bin/env", "NUMPY_MADVISE_HUGEPAGE=0", "/usr/bin/python3", tree.path("work.py"), str(size))
    tree.await_text("READY", child)
    time.sleep(0.3)
    fork = floats(tree.text(), "FORK")[0]
    full, plain = [], []
    for i in range(5):
        stats = tree.call("freeze", "--root", tree.root(child), "--image", tree.path(f"full{i}"), "--sync")[0]
        full.append(stats["total_us"])
        plain.append(plain_write(tree.dir, stats["bytes"]))
        shutil.rmtree(tree.path(f"full{i}"))
    results.row(f"freeze.full.{size}mb", "us", full, "write", plain, ("ratio", 1.3))
    tree.call("freeze", "--root", tree.root(child), "--image", tree.path("image"), "--kill")
    child.wait()
    thaws = {"--prepared": [], None: []}
    for _ in range(n):
        for option, times in thaws.items():
            copy, stats = tree.thaw(tree.path("image"), *[option] if option else [])
            times.append(stats["total_us"])
            tree.kill(copy)
    # fork() makes no namespaces either, and the keeper has them before there is anything to thaw.
    results.row(f"thaw.first_instruction.{size}mb", "us", thaws["--prepared"], "fork", fork, ("ratio", goal))
    results.row(f"thaw.with_namespaces.{size}mb", "us", thaws[None], "fork", fork, None)
    if size >= 1000:
        copies = [tree.thaw(tree.path("image"))[0] for _ in range(20)]
        time.sleep(0.5)
        each = [pss(int(tree.root(c))) / 1024 for c in copies]
        results.row("thaw.memory_of_each_of_20", "MiB", each, "none", [], ("value", 6))
        for copy in copies:
            tree.kill(copy)
    else:
        tree.path("loops").touch()
        copy, _ = tree.thaw(tree.path("image"))
        tree.path("go").touch()
        copy.wait()
        before, after = floats(tree.text(), "LOOPS")
        for i, what in enumerate(("numpy", "python")):
            results.row(f"steady.{what}", "s", [after[i]], "before", [before[i]], ("ratio", 1.02))
    tree.done()


def cell(client, code, timeout=60):
    reply = client.execute_interactive(code, timeout=timeout, output_hook=lambda message: None)
    assert reply["content"]["status"] == "ok", reply["content"]


def connect(tree):
    from jupyter_client import BlockingKernelClient

    client = BlockingKernelClient(connection_file=str(tree.path("kernel.json")))
    client.load_connection_file()
    client.start_channels(hb=False)
    return client


def fresh_cell(tree, begin):
    """Of a client that has just come: from `begin` to the answer.  It does not wait until the kernel says that it is ready, as
    jupyter_client's wait_for_ready does, which then listens for 200 ms whether there is more."""
    client = connect(tree)
    reply = client.execute("y = x + 1", reply=True, timeout=30)
    end = time.perf_counter()
    assert reply["content"]["status"] == "ok", reply["content"]
    client.stop_channels()
    return (end - begin) * 1e3


def start_kernel(tool, setup):
    tree = Tree(tool)
    tree.path("kernel.json").write_text(json.dumps({
        "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5, "ip": str(tree.path("k")), "key": "secret",
        "transport": "ipc", "signature_scheme": "hmac-sha256", "kernel_name": "python3"}))
    child = tree.run("/usr/bin/env", f"IPYTHONDIR={tree.dir}", "/usr/bin/python3", "-m", "ipykernel_launcher", "-f", str(tree.path("kernel.json")),
                     "--HistoryManager.enabled=False")
    end = time.monotonic() + 60
    while not tree.path("k-5").exists() and time.monotonic() < end:
        time.sleep(0.01)
    client = connect(tree)
    client.wait_for_ready(timeout=60)
    cell(client, "import numpy as np, pandas as pd, matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt; x = 1")
    cell(client, setup)
    return tree, child, client


def bench_kernel(results, tool, n, megabytes):
    setup = f"data = np.ones({megabytes} * 131072)" if megabytes else "df = pd.DataFrame({'a': range(1000)}); df.describe()"
    tree, child, client = start_kernel(tool, setup)
    live = []
    for _ in range(30):
        begin = time.perf_counter()
        cell(client, "y = x + 1")
        live.append((time.perf_counter() - begin) * 1e3)
    client.stop_channels()
    live_fresh = [fresh_cell(tree, time.perf_counter()) for _ in range(10)]
    if not megabytes:
        track = tree.call("track", "--root", tree.root(child), "--image", tree.path("t"), "--count", n, "--interval", 30)
        results.row("freeze.incremental_pause.ipykernel", "ms", [s["pause_us"] / 1e3 for s in track[1:]], "none", [], ("value", 8))
        shutil.rmtree(tree.path("t"))
        client = connect(tree)
        client.wait_for_ready(timeout=30)
        cell(client, "big = np.ones(200 * 131072)")
        runner = subprocess.Popen([tree.tool, "track", "--root", tree.root(child), "--image", str(tree.path("t")), "--count", "12", "--interval",
                                   "1500"], stdout=subprocess.PIPE, text=True)
        for _ in range(10):
            runner.stdout.readline()
            cell(client, "big += 1")
        lines = runner.communicate()[0].splitlines()
        client.stop_channels()
        pauses = [int(re.search(r"pause_us=(\d+)", line)[1]) / 1e3 for line in lines if "pages=5" in line or "pages=6" in line]
        shutil.rmtree(tree.path("t"))
        if pauses:
            results.row("freeze.incremental_pause.200mb_dirty", "ms", pauses, "none", [], ("value", 15))
    tree.call("freeze", "--root", tree.root(child), "--image", tree.path("image"), "--kill")
    child.wait()
    name = f"{megabytes}mb" if megabytes else "small"
    over, firsts = first_cells(results, tree, tree.path("image"), n, live_fresh, name)
    tree.done()
    return over, firsts


def bench_checkpointed(results, tool, n):
    """What a session has whose cells are followed by checkpoints: images of what was written since the one before, which know the
    pages that a cell writes to."""
    tree, child, client = start_kernel(tool, "df = pd.DataFrame({'a': range(1000)}); df.describe()")
    client.stop_channels()
    live_fresh = [fresh_cell(tree, time.perf_counter()) for _ in range(10)]
    runner = subprocess.Popen([tree.tool, "track", "--root", tree.root(child), "--image", str(tree.path("t")), "--count", "6", "--interval", "500"],
                              stdout=subprocess.PIPE, text=True)
    for _ in range(6):
        assert runner.stdout.readline().startswith("frozen:")
        fresh_cell(tree, 0)
    assert runner.wait() == 0
    tree.kill(child)
    first_cells(results, tree, tree.path("t/5"), n, live_fresh, "checkpointed")
    tree.done()


def first_cells(results, tree, image, n, live_fresh, name):
    firsts, thaws = [], []
    for _ in range(n):
        copy, stats = tree.thaw(image, "--prepared")  # as a keeper has them before there is anything to thaw
        firsts.append(fresh_cell(tree, stats["began_us"] / 1e6))  # both are CLOCK_MONOTONIC
        thaws.append(stats["total_us"] / 1e3)
        tree.kill(copy)
    over = [f - percentile(live_fresh, 0.5) for f in firsts]
    results.row(f"thaw.first_cell_over_live.{name}", "ms", over, "live", live_fresh, ("value", 10))
    results.row(f"thaw.ipykernel.{name}", "ms", thaws, "none", [], ("value", 10))
    return over, firsts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build-freezer")
    parser.add_argument("--results", default=str(ROOT / "build" / "bench" / "results.jsonl"))
    parser.add_argument("-n", type=int, default=30)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    tool = (ROOT / arguments.build / "src" / "freezer" / "coppice-freeze").resolve()
    results = Results(Path(arguments.results))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    for name, job in {
        "200": lambda: bench_python(results, tool, arguments.n, 200, 1.0),
        "1024": lambda: bench_python(results, tool, arguments.n, 1024, 0.25),
        "kernel": lambda: kernels(results, tool, arguments.n),
    }.items():
        if not arguments.only or arguments.only == name:
            job()
    results.write()
    print_ratios(results.rows)
    goals = [r for r in results.rows if r["goal"] != "-"]
    print(f"{sum(r['ok'] for r in goals)} of {len(goals)} goals met")
    return 1 if results.bad else 0


def kernels(results, tool, n):
    small, small_total = bench_kernel(results, tool, n, 0)
    large, large_total = bench_kernel(results, tool, n, 1024)
    bench_checkpointed(results, tool, n)
    results.row("thaw.first_cell.1024mb_to_small", "ms", large_total, "small", small_total, ("ratio", 1.2))


if __name__ == "__main__":
    sys.exit(main())
