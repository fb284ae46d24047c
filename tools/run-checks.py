#!/usr/bin/env python3
"""Runs the test suites and adds up what they count.

    tools/run-checks.py [--build DIR] [--set NAME[,NAME]] [--only SUITE[,SUITE]] [--list] [--verbose]

Suites come from tools/suites.json; any other executable tests/*/run is a suite of its own.  Kinds:

    counted   prints a closing line "N passed, N failed, N skipped" (or pytest's); without one, or with
              nothing counted, the suite has failed
    status    one check: passed with exit status 0, else failed
    programs  every program of a glob is run, each with its own closing line

A suite gets BUILD and COPPICE_BUILD (absolute) and BIN (= BUILD/bin) in its environment and /dev/null as standard
input; one with "image" also COPPICE_TEST_IMAGE, the image that tools/test-image.sh prints, and COPPICE_KERNEL_ROOTFS, its root.
Its output goes to BUILD/check/SUITE.log and is shown when it failed.

Tests with real processes on a loaded machine can fail for reasons that are not the change's.  So what fails is run once more by
itself: when it passes then, it counts as passed and is named as unsteady, in the end and in BUILD/check/unsteady.txt, with the log of
its failure kept beside; --steady counts it as failed.  What failed is named again at the end.  The very last line is the sum, and the
exit status is 1 when anything failed.
"""

import argparse
import concurrent.futures
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLAIN = re.compile(r"^(?:\S+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$")
PYTEST = re.compile(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s")
# How suites name what failed: pytest's summary, TAP, the victims' lines, the head of a unit program's log, what ran unsteadily.
FAILURE = re.compile(r"^(?:(?:FAILED|ERROR) (tests/\S+)|not ok \d+ -? ?(\S+)|failed +(\S+/\S+)|--- (\S+)\.log$)")
UNSTEADY = re.compile(r"^unsteady: (\S+)")
MOST_AGAIN = 8  # when more failed, it is not the machine
SETS = {
    "all": ["static", "unit", "system", "fuzz", "other"],
    "sanitizers": ["unit", "fuzz"],
    "quick": ["static", "unit"],
}
DEFAULT_LIMIT = 600


class Result:
    def __init__(self, passed=0, failed=0, skipped=0, note=""):
        self.passed, self.failed, self.skipped, self.note = passed, failed, skipped, note
        self.names, self.unsteady = [], []  # of what failed in the end, of what passed at the second try

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.names += other.names
        self.unsteady += other.unsteady
        if other.note:
            self.note = f"{self.note}; {other.note}" if self.note else other.note


def load_suites(build):
    with open(os.path.join(ROOT, "tools/suites.json"), encoding="utf-8") as f:
        suites = json.load(f)
    known = {word for s in suites for word in s.get("command", [])}
    for path in sorted(glob.glob(os.path.join(ROOT, "tests/*/run"))):
        name = os.path.relpath(path, ROOT)
        if name not in known and os.access(path, os.X_OK):
            suites.append({"name": name.split("/")[1], "set": "other", "kind": "counted", "command": [name]})
    # Debian's own, which has the modules of tools/deps.sh; another one in PATH need not.
    python = os.environ.get("PYTHON") or ("/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable)
    for suite in suites:
        suite["command"] = [w.format(build=build, python=python) for w in suite.get("command", [])]
        if "programs" in suite:
            suite["programs"] = suite["programs"].format(build=build)
    return suites


def environment(build, with_image):
    env = dict(os.environ, BUILD=build, COPPICE_BUILD=build, BIN=os.path.join(build, "bin"), PYTHONDONTWRITEBYTECODE="1")
    if with_image:
        done = subprocess.run([os.path.join(ROOT, "tools/test-image.sh")], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        if done.returncode == 0:
            env["COPPICE_TEST_IMAGE"] = done.stdout.split("\n")[-2]
            env["COPPICE_KERNEL_ROOTFS"] = os.path.join(env["COPPICE_TEST_IMAGE"], "rootfs")
    return env


def run_command(command, log, limit, env):
    """The exit status, or None when the limit came first.  The whole process group ends with it."""
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               start_new_session=True)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def read_counts(path):
    """The last closing line of a log as a Result, or None."""
    found = None
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            line = line.rstrip("\n")
            plain = PLAIN.match(line)
            pytest = None if plain else PYTEST.match(line)
            if plain:
                found = Result(int(plain[1]), int(plain[2]), int(plain[3] or 0))
            elif pytest:
                words = {w.rstrip("s") if w == "errors" else w: int(n)
                         for n, w in re.findall(r"(\d+) ([a-z]+)", pytest[1])}
                found = Result(words.get("passed", 0) + words.get("xfailed", 0),
                               words.get("failed", 0) + words.get("error", 0) + words.get("xpassed", 0),
                               words.get("skipped", 0))
    return found


def run_counted(command, log_path, limit, env):
    with open(log_path, "wb") as log:
        try:
            status = run_command(command, log, limit, env)
        except OSError as e:
            return Result(failed=1, note=f"{command[0]}: {e.strerror}")
    name = os.path.basename(command[0])
    result = read_counts(log_path)
    if status is None:
        result = result or Result()
        result.add(Result(failed=1, note=f"{name}: not done within {limit} s"))
    elif result is None:
        result = Result(failed=1, note=f"{name}: no closing count (status {status})")
    elif result.passed + result.failed + result.skipped == 0:
        result.add(Result(failed=1, note=f"{name}: no test was run"))
    elif status != 0 and result.failed == 0:
        result.add(Result(failed=1, note=f"{name}: status {status} although nothing was counted as failed"))
    return result


def names_in(path, pattern):
    with open(path, encoding="utf-8", errors="replace") as f:
        found = [next(filter(None, m.groups())) for m in map(pattern.match, f) if m]
    return list(dict.fromkeys(found))


def once_more(suite, result, log_path, limit, env):
    """Runs the failed tests of pytest again, one after the other; other suites do that by themselves or not at all."""
    result.unsteady = names_in(log_path, UNSTEADY)
    result.names = [n for n in names_in(log_path, FAILURE) if n not in result.unsteady] if result.failed else []
    command = suite["command"]
    if "pytest" not in command or not result.names or len(result.names) > MOST_AGAIN or result.failed != len(result.names):
        return
    for name in list(result.names):
        path = f"{log_path[:-4]}.again.log"
        words = [w for w in command if not w.startswith("tests/")] + [name]
        again = run_counted(words, path, limit, env)
        if again.failed == 0 and again.passed == 1:
            result.passed, result.failed = result.passed + 1, result.failed - 1
            result.names.remove(name)
            result.unsteady.append(name)
        os.unlink(path)


def run_programs(suite, log_path, env):
    programs = [p for p in sorted(glob.glob(suite["programs"])) if os.path.isfile(p) and os.access(p, os.X_OK)]
    if not programs:
        return Result(failed=1, note=f"no program matches {os.path.relpath(suite['programs'], ROOT)}")
    total = Result()
    limit = suite.get("limit", DEFAULT_LIMIT)
    with concurrent.futures.ThreadPoolExecutor(suite.get("parallel", 1)) as pool:
        logs = [f"{log_path[:-4]}.{os.path.basename(p)}.log" for p in programs]
        results = pool.map(lambda job: run_counted([job[0]], job[1], limit, env), zip(programs, logs))
        results = list(results)
    for program, path, result in zip(programs, logs, results):
        if result.failed:
            with open(log_path, "ab") as out, open(path, "rb") as one:
                out.write(f"--- {os.path.basename(path)}\n".encode() + one.read())
            again = run_counted([program], path, limit, env)
            name = os.path.basename(program)
            if again.failed == 0:
                again.unsteady = [name]
                result = again
            else:
                result.names = [name]
        total.add(result)
        os.unlink(path)
    return total


def run_suite(suite, log_path, build):
    open(log_path, "wb").close()
    env = environment(build, suite.get("image", False))
    if suite["kind"] == "programs":
        return run_programs(suite, log_path, env)
    limit = suite.get("limit", DEFAULT_LIMIT)
    if suite["kind"] == "counted":
        result = run_counted(suite["command"], log_path, limit, env)
        once_more(suite, result, log_path, limit, env)
        return result
    with open(log_path, "wb") as log:
        status = run_command(suite["command"], log, limit, env)
    if status == 0:
        return Result(passed=1)
    return Result(failed=1, note=f"not done within {limit} s" if status is None else f"status {status}")


def show_log(path, lines=80):
    with open(path, encoding="utf-8", errors="replace") as f:
        text = f.read().splitlines()
    if len(text) > lines:
        print(f"    | … {len(text) - lines} lines before this in {os.path.relpath(path, ROOT)}")
    for line in text[-lines:]:
        print(f"    | {line}")


def tell(total, folder):
    """What failed, what was unsteady; the latter also in a file."""
    with open(os.path.join(folder, "unsteady.txt"), "w", encoding="utf-8") as f:
        for name in total.unsteady:
            print(f"  unsteady: {name} (failed, then passed by itself)")
            f.write(name + "\n")
    for name in total.names:
        print(f"  failed: {name}")


def choose(suites, args):
    if args.only:
        names = args.only.split(",")
        unknown = set(names) - {s["name"] for s in suites}
        if unknown:
            sys.exit(f"run-checks: no suite named {', '.join(sorted(unknown))}; --list shows them")
        return [s for s in suites if s["name"] in names]
    sets = [x for name in args.set.split(",") for x in SETS.get(name, [name])]
    return [s for s in suites if s["set"] in sets]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--set", default="all")
    parser.add_argument("--only")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--steady", action="store_true", help="what passes only at the second try has failed")
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    suites = choose(load_suites(build), args)
    if args.list:
        for suite in suites:
            print(f"{suite['set']:8} {suite['name']}")
        return 0
    os.makedirs(os.path.join(build, "check"), exist_ok=True)
    total = Result()
    for suite in suites:
        missing = [p for p in suite.get("requires", []) if not os.path.exists(os.path.join(ROOT, p))]
        if missing:
            print(f"  {suite['name']:14} not there yet ({', '.join(missing)})", flush=True)
            continue
        log_path = os.path.join(build, "check", suite["name"] + ".log")
        begin = time.monotonic()
        result = run_suite(suite, log_path, build)
        print(f"  {suite['name']:14} {'FAILED' if result.failed else 'ok':6} {result.passed:5} passed"
              f" {result.failed:4} failed {result.skipped:4} skipped {time.monotonic() - begin:8.1f} s"
              f"{'  ' + result.note if result.note else ''}", flush=True)
        if result.failed or result.unsteady or args.verbose:
            show_log(log_path)
        if result.failed and not result.names:
            result.names = [suite["name"]]
        total.add(result)
    if total.passed + total.failed + total.skipped == 0:
        total.failed = 1
    tell(total, os.path.join(build, "check"))
    if args.steady:
        total.passed, total.failed = total.passed - len(total.unsteady), total.failed + len(total.unsteady)
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
