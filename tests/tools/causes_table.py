#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: docs/causes.md has a row for each cause, by the names that the program has, and its tests exist.

usage: causes_table.py SOURCE_FOLDER
"""
import os
import re
import sys


def read(*path):
    with open(os.path.join(sys.argv[1], *path), encoding="utf-8") as source:
        return source.read()


def main():
    names = re.findall(r'= \{"(C\d\d)",\s*"([a-z0-9-]+)"', read("src", "holders", "cause.c"))
    rows = re.findall(r"^\| (C\d\d) \| ([a-z0-9-]+) \|.*\| `(\w+)` \| (?:yes|no)\b", read("docs", "causes.md"), re.M)
    tests = set()
    for folder, name in (("unit", "causes_holders.c"), ("unit", "causes_gpus.c"), ("os", "causes.c"),
                         ("os", "causes_soft.c")):
        tests.update(re.findall(r"(?:TEST|EMULATED|NUMBERS)\((\w+)\),", read("tests", folder, name)))
    assert [name for name, _ in names] == [f"C{i:02}" for i in range(1, 41)], names
    assert [row[:2] for row in rows] == names, set(names) ^ {row[:2] for row in rows}
    missing = [row for row in rows if row[2] not in tests]
    assert not missing, f"no such tests: {missing}"


if __name__ == "__main__":
    main()
