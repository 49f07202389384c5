#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: examples/first_fault reports its fault, starts a fresh process and succeeds, alone and for
several devices and processes at once, and says in words what is missing where there is no GPU.

usage: first_fault.py PROGRAM SOFTGPU_FOLDER
"""
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOFTGPU = sys.argv[1:3]
FAULT = "CUDA error 700 CUDA_ERROR_ILLEGAL_ADDRESS"
OK = "attempt 2: ok, sum = 1571328"


class FirstFault(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpuward-first-fault-")
        self.addCleanup(self.folder.cleanup)
        self.environment = dict(os.environ, LD_LIBRARY_PATH=SOFTGPU, GPUWARD_SOFT_DIR=self.folder.name)
        self.environment.pop("CUDA_VISIBLE_DEVICES", None)

    def run_example(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], env=self.environment, text=True, timeout=50,
                              stdout=subprocess.PIPE, check=False)

    def devices(self, count):
        with open(os.path.join(self.folder.name, "settings"), "w", encoding="utf-8") as file:
            file.write(f"devices={count}\n")

    def test_one(self):
        done = self.run_example()
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 0)
        self.assertTrue(lines[0].startswith("attempt 1: " + FAULT))
        self.assertEqual(lines[1:], ["starting a fresh process", OK])

    def test_two_devices_with_three_processes_each(self):
        self.devices(2)
        done = self.run_example("--devices", "2", "--processes", "3")
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 0)
        for device in range(2):
            for process in range(3):
                label = f"device {device}, process {process}: "
                mine = [line[len(label):] for line in lines if line.startswith(label)]
                self.assertEqual(len(mine), 3)
                self.assertTrue(mine[0].startswith("attempt 1: " + FAULT))
                self.assertEqual(mine[2], OK)
        self.assertEqual(len(lines), 18)

    def test_a_device_that_is_not_there(self):
        done = self.run_example("--devices", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("device 1, process 0: CUDA error 101 CUDA_ERROR_INVALID_DEVICE", done.stdout)
        self.assertIn("device 0, process 0: " + OK, done.stdout)

    def test_no_gpu(self):
        del self.environment["GPUWARD_SOFT_DIR"]
        done = self.run_example()
        self.assertEqual(done.returncode, 1)
        self.assertIn("CUDA error 100 CUDA_ERROR_NO_DEVICE", done.stdout)

    def test_usage(self):
        for arguments in (["--devices", "0"], ["--devices"], ["--nonsense", "1"], ["--processes", "2x"]):
            done = self.run_example(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stdout, "")


unittest.main(argv=sys.argv[:1])
