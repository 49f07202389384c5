#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: ARCHITECTURE.md shows the table of a worker's life as the ward has it.

usage: ward_table.py WARD ARCHITECTURE
"""
import subprocess
import sys

ward, architecture = sys.argv[1:]
table = subprocess.run([ward, "--print-table"], capture_output=True, check=True, text=True).stdout
rows = table.splitlines()
assert len(rows) > 20, "the ward prints no table"
with open(architecture, encoding="utf-8") as page:
    text = page.read()
if table not in text:
    missing = [row for row in rows if row not in text]
    print("ARCHITECTURE.md lacks the table that gpuward-ward --print-table prints.")
    print("Rows that it has otherwise:", *missing, sep="\n")
    sys.exit(1)
print(f"ward table: {len(rows) - 1} rows agree")
