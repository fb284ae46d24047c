#!/usr/bin/env python3
"""Holds the includes to the layers of ARCHITECTURE.md.

A file of src/ includes headers of its own folder and of lower layers, never those of a sibling.  Every quoted include
exists.  A header says #pragma once, opens with a comment, and has a source of the same name, or is shared by several
sources of its folder, or stands in HEADER_ONLY with a reason.
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAYERS = {
    "base": 0,
    "freezer": 1, "sandbox": 1, "jupyter": 1, "store": 1,
    "keeper": 2, "init": 2, "compare": 2, "engine": 2,
    "server": 3, "cli": 3, "pack": 3,
    "daemon": 4,  # puts engine and server together
}
# Beyond the layers: the command line is a client of the HTTP API and of nothing else.
ONLY = {"cli": {"cli", "base"}, "freezer": {"freezer", "base"}}
HEADER_ONLY = {
    "src/base/cleanup.h": "macros and inline functions",
    "src/base/pack.h": "the contract between daemon and coppice-pack: constants",
    "src/sandbox/wire.h": "the protocol between daemon, keeper and init: constants",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def c_files():
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def check_include(path, included, problems):
    own = path.split("/")[1]
    beside = os.path.join(os.path.dirname(path), included)
    if "/" not in included or included.startswith("."):
        if not os.path.exists(os.path.join(ROOT, beside)):
            problems.append(f'{path}: "{included}" is not in its folder')
        return
    target = included.split("/")[0]
    if target not in LAYERS:
        if not os.path.exists(os.path.join(ROOT, beside)):
            problems.append(f'{path}: "{included}" is in no folder of src/')
    elif not os.path.exists(os.path.join(ROOT, "src", included)):
        problems.append(f'{path}: src/{included} does not exist')
    elif target != own and LAYERS[target] >= LAYERS[own]:
        problems.append(f"{path}: {own} (layer {LAYERS[own]}) must not include {included} (layer {LAYERS[target]})")
    elif own in ONLY and target not in ONLY[own]:
        problems.append(f"{path}: {own} must not include {included}")
    if included.endswith(".c"):
        problems.append(f'{path}: includes a source file, "{included}"')


def shared(path):
    """True when at least two sources beside it include the header."""
    folder, name = os.path.split(os.path.join(ROOT, path))
    users = 0
    for other in os.listdir(folder):
        if other.endswith(".c"):
            with open(os.path.join(folder, other), encoding="utf-8") as f:
                users += any(i in (name, f"{os.path.basename(folder)}/{name}") for i in INCLUDE.findall(f.read()))
    return users >= 2


def check_header(path, text, problems):
    if "#pragma once" not in text:
        problems.append(f"{path}: no #pragma once")
    if not text.lstrip().startswith("/*"):
        problems.append(f"{path}: does not open with a comment that says what it is for")
    has_source = any(os.path.exists(os.path.join(ROOT, path[:-2] + end)) for end in (".c", ".S"))
    if not has_source and path not in HEADER_ONLY and not shared(path):
        problems.append(f"{path}: no source of the same name, and not shared by several in its folder")


def main():
    problems, count = [], 0
    for path in c_files():
        folder = path.split("/")[1]
        if folder not in LAYERS:
            problems.append(f"{path}: src/{folder} has no layer in tools/check-layers.py")
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            text = f.read()
        count += 1
        for included in INCLUDE.findall(text):
            check_include(path, included, problems)
        if path.endswith(".h"):
            check_header(path, text, problems)
    for text in problems:
        print("error:", text)
    print(f"{count} files, {len(problems)} problems")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
