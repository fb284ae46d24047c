#!/usr/bin/env python3
"""Measures what SPECIFICATION.md promises, against baselines taken in the same run.

    bench/run.py [--build DIR] [--only PREFIX] [--quick]

Prints a table and writes BUILD/bench/results.jsonl, one object a row: name, unit, n, p50, p99, baseline, baseline_p50,
ratio, goal, ok.  A goal is "ratio <= 1.3" or "p50 <= 100"; ok is null for a row without one.  Rounds of the thing and of
its baseline alternate, so that load of the machine falls on both.  Exit status 1 when a goal was missed.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
sys.path.insert(0, str(ROOT / "bench"))

from peers import print_ratios  # noqa: E402
from states import OFF, States  # noqa: E402

KERNEL_STOCK = "exec python3 -m ipykernel_launcher -f /run/coppice/stock/c.json"
SCRIPT = """
import sys
from jupyter_client import BlockingKernelClient
c = BlockingKernelClient(connection_file=sys.argv[1])
c.load_connection_file()
c.ip = sys.argv[2]
c.start_channels()
c.wait_for_ready(timeout=30)
assert c.execute_interactive("1+1", timeout=30, output_hook=lambda m: None)["content"]["status"] == "ok"
"""


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))]


def timed(what):
    begin = time.perf_counter()
    what()
    return (time.perf_counter() - begin) * 1e3


class Bench(States):
    def __init__(self, build, quick):
        self.build, self.quick, self.rows = build, quick, []
        self.out = build / "bench" / "results.jsonl"
        self.out.parent.mkdir(exist_ok=True)
        self.out.write_text("")
        self.image = Path(subprocess.run([ROOT / "tools/test-image.sh"], check=True, stdout=subprocess.PIPE,
                                         text=True).stdout.split("\n")[-2])
        self.work = Path(tempfile.mkdtemp(prefix="coppice-bench-", dir="/var/tmp"))

    def start(self):
        from client import Daemon
        self.daemon = Daemon(self.work / "home")
        self.daemon.spare = True
        self.daemon.start()
        self.api = self.daemon.api
        self.api.checker = None
        self.api.post("/api/images/import", {"source": str(self.image), "name": "code-interpreter"}, timeout=300)

    def end(self):
        self.api.delete("/api/sandboxes", all="true")
        self.daemon.stop()
        shutil.rmtree(self.work, ignore_errors=True)

    def row(self, name, unit, values, baseline=None, baseline_values=None, goal=None, digits=2):
        row = {"name": name, "unit": unit, "n": len(values), "p50": round(statistics.median(values), digits),
               "p99": round(percentile(values, 99), digits), "baseline": baseline, "baseline_p50": None, "ratio": None,
               "goal": goal, "ok": None}
        if baseline_values:
            row["baseline_p50"] = round(statistics.median(baseline_values), digits)
            row["ratio"] = round(statistics.median(values) / statistics.median(baseline_values), 4)
        if goal:
            what, op, limit = goal.split()
            row["ok"] = row[what] <= float(limit) if op == "<=" else row[what] >= float(limit)
        self.rows.append(row)
        with open(self.out, "a", encoding="utf-8") as f:
            f.write(json.dumps(row) + "\n")
        mark = {None: "", True: "ok", False: "MISSED"}[row["ok"]]
        print(f"{name:26} {unit:8} {row['n']:5} {row['p50']:10} {row['p99']:10}  {baseline or '-':34}"
              f" {row['baseline_p50'] if row['baseline_p50'] is not None else '-':>10}"
              f" {row['ratio'] if row['ratio'] is not None else '-':>8}  {goal or '-':14} {mark}", flush=True)

    def rounds(self, many):
        return max(2, many // 3) if self.quick else many

    # -- pieces ------------------------------------------------------------------------------------------------------

    def kernel_folder(self, sb, name="k*"):
        """The host's path of the folder with a kernel's connection file and sockets."""
        return next((self.work / "home/sandboxes" / sb.id / "run/ipc").glob(f"{name}/c.json")).parent

    def bare(self, folder, n, prints=0):
        """p50 of 1+1 in ms and lines per second of a bare client on the kernel of this folder."""
        out = subprocess.run([self.build / "bench/cell-bare", "-n", str(n), "-p", str(prints), "--connection",
                              "c.json", "--base", str(folder / "k")], cwd=folder, check=True, stdout=subprocess.PIPE,
                             text=True, timeout=300).stdout
        rows = {r["name"]: r for r in map(json.loads, out.splitlines())}
        return rows.get("bare.one_plus_one", {}).get("p50"), rows.get("bare.print_10k", {}).get("lines_per_second")

    def cells(self, sb, n):
        """Times of n cells through HTTP on one connection; from a client in C, as the bare one is."""
        out = subprocess.run([self.build / "bench/cell-http", self.daemon.socket, sb.id, str(n)], check=True,
                             stdout=subprocess.PIPE, text=True, timeout=300).stdout
        return json.loads(out)["ms"]

    # -- rows --------------------------------------------------------------------------------------------------------

    def cell(self):
        sb = self.api.new(policy=OFF)
        sb.ok("1")
        folder = self.kernel_folder(sb)
        self.cells(sb, 20)
        http, bare, n = [], [], 100
        for _ in range(self.rounds(9)):
            http += self.cells(sb, n)
            bare.append(self.bare(folder, n)[0])
        self.row("cell.http", "ms", http, "bare client, same kernel", bare, "ratio <= 1.3", 3)
        sb.exec("mkdir /run/coppice/stock; umask 077; cat > /run/coppice/stock/c.json",
                stdin=json.dumps({"transport": "ipc", "ip": "/run/coppice/stock/k", "shell_port": 1, "iopub_port": 2,
                                  "stdin_port": 3, "control_port": 4, "hb_port": 5, "key": "bench-key",
                                  "signature_scheme": "hmac-sha256", "kernel_name": "python3"}))
        sb.exec(KERNEL_STOCK, detach=True, timeout=0)
        time.sleep(3)
        stock, http = [], []
        for _ in range(self.rounds(6)):
            stock.append(self.bare(self.kernel_folder(sb, "stock"), n)[0])
            http += self.cells(sb, n)
        self.row("cell.http_against_stock", "ms", http, "bare client, stock kernelspec line", stock, "ratio <= 0.7", 3)
        script = self.work / "script.py"
        script.write_text(SCRIPT)
        slow = [timed(lambda: subprocess.run(["/usr/bin/python3", script, folder / "c.json", folder / "k"], check=True))
                for _ in range(self.rounds(5))]
        fast = self.cells(sb, 100)
        self.row("cell.http_against_script", "ms", fast, "jupyter_client script per cell", slow, "ratio <= 0.02", 3)
        sb.remove()

    def stream(self):
        sb = self.api.new(policy=OFF)
        sb.ok("1")
        folder = self.kernel_folder(sb)
        ours, bare = [], []
        for _ in range(self.rounds(9)):
            begin = time.perf_counter()
            events = sb.api.events("POST", f"{sb.path}/cells", {"code": "for i in range(10000): print(i)"})
            lines = sum(e.get("text", "").count("\n") for e in events if e.get("type") == "stdout")
            assert lines == 10000, lines
            ours.append(lines / (time.perf_counter() - begin))
            bare.append(self.bare(folder, 0, 1)[1])
        self.row("stream.print_10000", "lines/s", ours, "bare client, same kernel", bare, "ratio >= 0.8", 0)
        sb.remove()

    def sandbox(self):
        rootfs = self.image / "rootfs"
        bwrap = ["bwrap", "--unshare-all", "--ro-bind", str(rootfs), "/", "--dev", "/dev", "--proc", "/proc", "true"]
        new, new_exec, bare, keep = [], [], [], []
        for _ in range(self.rounds(30)):
            begin = time.perf_counter()
            sb = self.api.new(start_kernel=False)
            new.append((time.perf_counter() - begin) * 1e3)
            assert sb.exec(["true"])["exit_code"] == 0
            new_exec.append((time.perf_counter() - begin) * 1e3)
            bare.append(timed(lambda: subprocess.run(bwrap, check=True, stdout=subprocess.DEVNULL)))
            keep.append(timed(sb.remove))
        self.row("sandbox.new", "ms", new, "bwrap --unshare-all … true", bare, "ratio <= 3")
        self.row("sandbox.new_and_exec", "ms", new_exec, "bwrap --unshare-all … true", bare)
        self.row("sandbox.rm", "ms", keep)
        env = dict(os.environ, COPPICE_HOME=str(self.work / "home"))
        cli = [timed(lambda: subprocess.run([self.build / "bin/coppice", "new", "--no-kernel"], check=True, env=env,
                                            stdout=subprocess.DEVNULL)) for _ in range(self.rounds(20))]
        self.row("sandbox.cli_new", "ms", cli, None, None, "p50 <= 100")
        self.api.delete("/api/sandboxes", all="true")
        first, start = [], []
        for _ in range(self.rounds(9)):
            begin = time.perf_counter()
            sb = self.api.new()
            sb.ok("1")
            first.append((time.perf_counter() - begin) * 1e3)
            sb.remove()
            start.append(self.bare_start(rootfs))
        self.row("sandbox.new_to_first_cell", "ms", first, "bare start of ipykernel, same image", start, "ratio <= 1.2")

    def bare_start(self, rootfs):
        home = tempfile.mkdtemp(prefix="coppice-bench-home-")
        argv = ["bwrap", "--ro-bind", str(rootfs), "/", "--dev", "/dev", "--proc", "/proc", "--bind", "/tmp", "/tmp",
                "--setenv", "HOME", home, "--die-with-parent", "python3", "-m", "ipykernel_launcher", "-f",
                "{connection_file}"]
        out = subprocess.run([self.build / "bench/cell-bare", "-n", "0", "-p", "0", "--", *argv], check=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60).stdout
        shutil.rmtree(home, ignore_errors=True)
        return json.loads(out.splitlines()[0])["p50"]

    def idle(self):
        count = 20
        before = self.daemon.rss()
        known = set(our_processes(self.daemon.home))
        sandboxes = [self.api.new(start_kernel=False) for _ in range(count)]
        time.sleep(1)
        processes = set(our_processes(self.daemon.home)) - known
        pss, rss = [memory_kib(p, "Pss") for p in processes], [memory_kib(p, "Rss") for p in processes]
        share = max(0, self.daemon.rss() - before) / 1024
        assert len(processes) == 2 * count, f"{len(processes)} processes of keepers and inits for {count} sandboxes"
        self.row("idle.sandbox_resident", "KiB", [(sum(rss) + share) / count], None, None, "p50 <= 4096", 0)
        self.row("idle.sandbox_proportional", "KiB", [(sum(pss) + share) / count], digits=0)
        sandboxes += [self.api.new(start_kernel=False) for _ in range(100 - count)]
        time.sleep(3)
        used = []
        for _ in range(self.rounds(3)):
            begin = cpu_ms(self.daemon.process.pid)
            time.sleep(10)
            used.append(cpu_ms(self.daemon.process.pid) - begin)
        self.row("idle.daemon_cpu_100", "ms/10s", used, None, None, "p50 <= 10", 0)
        self.row("idle.daemon_memory_100", "KiB", [self.daemon.rss() / 1024], digits=0)
        self.row("sandbox.rm_all_100", "ms", [timed(lambda: self.api.delete("/api/sandboxes", all="true"))])


    def cpu(self):
        return cpu_ms(self.daemon.process.pid)


def our_processes(home):
    """Pids of the keepers of this home, and of the init below each."""
    parents, keepers = {}, set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path(f"/proc/{entry}/stat").read_text()
            name, rest = re.match(r"\d+ \((.*)\) . (\d+)", stat, re.S).groups()
            parents[int(entry)] = (name, int(rest))
            if name.startswith("coppice-keeper") and any(
                    os.readlink(f"/proc/{entry}/fd/{fd}").startswith(f"{home}/") for fd in os.listdir(f"/proc/{entry}/fd")):
                keepers.add(int(entry))
        except (OSError, AttributeError):
            continue
    below = set(keepers)
    for _ in range(3):
        below |= {p for p, (name, parent) in parents.items() if parent in below and name.startswith("coppice-")}
    return below


def memory_kib(pid, kind):
    """Rss counts shared pages fully, Pss by how many share them."""
    try:
        return int(re.search(rf"^{kind}:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1])
    except OSError:
        return 0


def cpu_ms(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    build = Path(args.build).resolve()
    os.environ["COPPICE_BUILD"] = str(build)
    bench = Bench(build, args.quick)
    print(f"{'name':26} {'unit':8} {'n':>5} {'p50':>10} {'p99':>10}  {'baseline':34} {'its p50':>10} {'ratio':>8}  goal")
    bench.start()
    try:
        for group in ("cell", "stream", "sandbox", "fork", "golden", "resume", "checkpoint", "idle", "scale"):
            if group.startswith(args.only):
                getattr(bench, group)()
    finally:
        bench.end()
    missed = [r["name"] for r in bench.rows if r["ok"] is False]
    print_ratios(bench.rows)
    print(f"{len(bench.rows)} rows in {os.path.relpath(bench.out, ROOT)}" + (f"; missed: {', '.join(missed)}" if missed else ""))
    return 1 if missed or not bench.rows else 0


if __name__ == "__main__":
    sys.exit(main())
