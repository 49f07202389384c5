#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: the examples of README.md and of the manual pages compile as they stand, without a warning.

usage: examples.py
"""
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def as_shown(text):
    """An example as a reader of the page sees it: scdoc shows two backslashes as one, and drops a lone one (here: NUL)."""
    return re.sub(r"\\(\\?)", lambda found: found.group(1) or "\0", text)


def as_shown(text):
    """TEXT of a manual page's source as a reader sees it: scdoc takes a backslash away, and two make one."""
    return re.sub(r"\\\\(.)", r"\1", text)


def examples():
    """Yields (where, text) of each example."""
    readme = re.search(r"```c\n(.*?)```", read(os.path.join(ROOT, "README.md")), flags=re.S)
    yield "README.md", readme.group(1) if readme else None
    for path in sorted(glob.glob(os.path.join(ROOT, "man", "*.3.scd"))):
        found = re.search(r"^# EXAMPLE\n.*?```\n(.*?)```", read(path), flags=re.S | re.M)
        yield os.path.basename(path), as_shown(found.group(1)) if found else None


def main():
    faults = 0
    for where, text in examples():
        if not text or "\0" in text:
            print(f"{where}: " + ("a lone backslash in the example: scdoc drops it" if text else "has no example"))
            faults += 1
            continue
        done = subprocess.run(["cc", "-x", "c", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                               "-fsyntax-only", "-I", os.path.join(ROOT, "include"), "-"],
                              input=text, text=True, capture_output=True, check=False)
        print(f"{where}: {'compiles' if done.returncode == 0 else done.stderr}")
        faults += done.returncode != 0
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
