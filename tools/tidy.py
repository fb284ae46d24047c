#!/usr/bin/env python3
"""Runs clang-tidy over the sources of a build tree, two at a time.

    tools/tidy.py BUILD [FILE…]

Checks and exclusions are in .clang-tidy.  Prints a closing line like every other suite.
"""

import concurrent.futures
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = os.path.abspath(sys.argv[1])
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        known = sorted({os.path.realpath(os.path.join(c["directory"], c["file"])) for c in json.load(f)})
    known = [p for p in known if p.startswith(ROOT + "/src/") and not p.endswith(".S")]  # assembly is not parsed as C
    wanted = [os.path.abspath(p) for p in sys.argv[2:]] or known
    wanted = [p for p in wanted if os.path.exists(p)]

    def tidy(path):
        done = subprocess.run(["clang-tidy", "--quiet", "-p", build, path], cwd=ROOT, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        return path, done.returncode, done.stdout

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, status, text in pool.map(tidy, wanted):
            if status != 0:
                failed += 1
                print(f"--- {os.path.relpath(path, ROOT)}\n{text}", flush=True)
    failed += not wanted
    print(f"{len(wanted) - failed if wanted else 0} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
