#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: examples/standby answers every request while its workers fault, finds its table as it was after each
fault, and says in words what is missing or wrong.

usage: standby_example.py PROGRAM SOFTGPU_FOLDER
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOFTGPU = sys.argv[1:3]


class Standby(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpuward-standby-")
        self.addCleanup(self.folder.cleanup)
        self.environment = dict(os.environ, LD_LIBRARY_PATH=SOFTGPU, GPUWARD_SOFT_DIR=self.folder.name,
                                GPUWARD_KERNEL_LOG=os.path.join(self.folder.name, "kmsg"))
        self.environment.pop("CUDA_VISIBLE_DEVICES", None)

    def run_example(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], env=self.environment, text=True, timeout=50,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def test_one_fault_of_each_kind(self):
        done = self.run_example("--seconds", "3", "--state", "8")
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(lines), 5)
        for i in range(3):
            self.assertRegex(lines[i], rf"^second {i + 1}: \d+ answered so far, slowest answer [0-9.]+ ms, \d+ recoveries$")
        self.assertTrue(lines[2].endswith(", 3 recoveries"), lines[2])
        self.assertTrue(lines[3].startswith("3000 requests: 3000 answered, 0 wrong, 0 lost; "), lines[3])
        first, faults, last = re.match(r"checksum of 8 MiB: ([0-9a-f]{16}) at first, the same after (\d+) faults, "
                                       r"([0-9a-f]{16}) at the end$", lines[4]).groups()
        self.assertEqual((first, faults), (last, "3"))

    def test_a_table_that_does_not_fit(self):
        with open(os.path.join(self.folder.name, "settings"), "w", encoding="utf-8") as file:
            file.write("memory_mib=4096\n")
        done = self.run_example("--state", "8192")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("standby: load: ", done.stderr)

    def test_no_gpu(self):
        del self.environment["GPUWARD_SOFT_DIR"]
        done = self.run_example()
        self.assertEqual(done.returncode, 125)
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_usage(self):
        for arguments in (["--seconds", "0"], ["--seconds"], ["--nonsense", "1"], ["--state", "2x"]):
            done = self.run_example(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("usage: standby", done.stderr)


unittest.main(argv=sys.argv[:1])
