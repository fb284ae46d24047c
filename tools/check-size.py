#!/usr/bin/env python3
"""Holds the C sources to the sizes of HACKING.md.

    tools/check-size.py [--notes] [FILE…]

Errors: a function over 100 lines, with more than 6 parameters (outputs named ret…, err and userdata are not counted) or
nested deeper than 4; a file over 1000 lines.
Notes (--notes): over the wanted 60 and 600.  What may be larger stands in tools/size-exceptions.txt with a date and a
reason; an exception that is no longer needed is an error too.
"""

import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("src", "tests", "bench", "libexec")
LINES_MAX, LINES_WANTED = 100, 60
FILE_MAX, FILE_WANTED = 1000, 600
PARAMETERS_MAX, NESTING_MAX = 6, 4
# A generated file or a table of system calls reads like data; nothing else is left out.
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
TOKEN = re.compile(r"[A-Za-z_]\w*|[(){};]|\n|\S")
EXCEPTION = re.compile(r"^(\S+)\s+(\d{4}-\d\d-\d\d)\s+(\S.*)$")


def blank(match):
    """Keeps line numbers and token borders: a comment becomes its newlines, a string becomes ""."""
    text = match[0]
    return "\n" * text.count("\n") if text.startswith("/") else '""' + "\n" * text.count("\n")


def drop_directives(text):
    """Preprocessor lines are no code of a function; both branches of an #if are read."""
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m[0].count("\n"), text, flags=re.M)


UNCOUNTED = re.compile(r"^(ret(_\w+)?|err|userdata)$")


def count_parameters(tokens):
    """Of a token list from a function's ( to its matching )."""
    depth, parameters, last = 0, [], None
    for token in tokens:
        if token in ("(", ")"):
            depth += 1 if token == "(" else -1
        if (token == "," and depth == 1) or depth == 0:
            parameters.append(last)
            last = None
        elif re.match(r"[A-Za-z_]", token) and token != "static":
            last = token
    return sum(1 for p in parameters if p and p != "void" and not UNCOUNTED.match(p))


class Function:
    def __init__(self, name, line, parameters):
        self.name, self.line, self.parameters = name, line, parameters
        self.lines = self.nesting = 0


def functions(text):
    """Every function definition: a name, ( … ), then { at the outermost level."""
    text = drop_directives(COMMENT_OR_STRING.sub(blank, text))
    line, brace, paren, current = 1, 0, 0, None
    head, name, start = [], None, 0
    controls = []  # for each open { within a function: is it a block of if, for, while, do, switch, else?
    previous = ""
    for token in TOKEN.findall(text):
        if token == "\n":
            line += 1
            continue
        if current is None and brace == 0:
            if token == "(":
                if paren == 0 and name is None:
                    name, head, start = previous, [], line
                paren += 1
            if paren:
                head.append(token)
            if token == ")":
                paren -= 1
                if paren == 0 and name in ("__attribute__", "TEST", "_Static_assert", "static_assert"):
                    name = name if name == "TEST" else None
            elif token in ";=" and paren == 0:
                name = None
        if token == "{":
            if brace == 0 and current is None and name and previous == ")":
                end = next((i for i in range(len(head)) if head[:i + 1].count("(") == head[:i + 1].count(")")), 0)
                label = head[1] if name.startswith("TEST") else name
                current = Function(label, start, count_parameters(head[:end + 1]))
                controls = []
            elif current:
                controls.append(previous in (")", "else", "do"))
                current.nesting = max(current.nesting, sum(controls))
            brace += 1
        elif token == "}":
            brace -= 1
            if controls and current:
                controls.pop()
            if brace == 0:
                if current:
                    current.lines = line - current.line + 1
                    yield current
                current, name = None, None
        elif brace == 0 and token == ";":
            name = None
        previous = token


def load_exceptions(problems):
    path = os.path.join(ROOT, "tools/size-exceptions.txt")
    found = {}
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = EXCEPTION.match(line.rstrip())
            if match:
                found[match[1]] = False
            else:
                problems.append(f"tools/size-exceptions.txt:{number}: expected PATH[:FUNCTION] YYYY-MM-DD REASON")
    return found


def sources(files):
    if files:
        return [os.path.relpath(os.path.abspath(f), ROOT) for f in files]
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *FOLDERS], cwd=ROOT, check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return sorted(p for p in out.split("\n") if p.endswith((".c", ".h")) and os.path.exists(os.path.join(ROOT, p)))


def check_file(path, text, report):
    lines = text.count("\n")
    report(path, path, lines > FILE_MAX, lines > FILE_WANTED, f"{path}: {lines} lines")
    for f in functions(text):
        where, key = f"{path}:{f.line}: {f.name}", f"{path}:{f.name}"
        report(path, key, f.lines > LINES_MAX, f.lines > LINES_WANTED, f"{where}: {f.lines} lines")
        report(path, key, f.parameters > PARAMETERS_MAX, False, f"{where}: {f.parameters} parameters")
        report(path, key, f.nesting > NESTING_MAX, False, f"{where}: nested {f.nesting} deep")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--notes", action="store_true")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    problems, notes = [], []
    exceptions = load_exceptions(problems)

    def report(_path, key, over, beyond_wanted, text):
        if over and key in exceptions:
            exceptions[key] = True
        elif over:
            problems.append(text)
        elif beyond_wanted:
            notes.append(text)

    paths = sources(args.files)
    for path in paths:
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            check_file(path, f.read(), report)
    if not args.files:
        problems += [f"tools/size-exceptions.txt: {key} is no longer needed" for key, used in exceptions.items() if not used]
    for text in notes if args.notes else []:
        print("note:", text)
    for text in problems:
        print("error:", text)
    print(f"{len(paths)} files, {len(problems)} over the limits, {len(notes)} over what is wanted")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
