#!/usr/bin/env python3
"""Writes a file as a C array: embed.py INPUT OUTPUT.c NAME HEADER, where HEADER declares NAME and NAME_len."""

import sys


def main():
    source, target, name, header = sys.argv[1:5]
    with open(source, "rb") as f:
        data = f.read()
    rows = [", ".join(str(b) for b in data[i : i + 32]) for i in range(0, len(data), 32)]
    with open(target, "w") as f:
        f.write(f'#include "{header}"\n\n')
        f.write(f"const char {name}[] = {{\n        " + ",\n        ".join(rows) + ",\n        0};\n")
        f.write(f"const size_t {name}_len = {len(data)};\n")


main()
