#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: the comparison of conformance runs fails on a difference that nobody explained, on a fact that
one side does not state, on an explanation without a use or a reason, and on a case that hangs.

usage: run_test.py
"""
import os
import subprocess
import sys
import tempfile
import unittest

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run")


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpuward-conformance-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.explained = self.write("explained.txt", "")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_with(self, soft, real=None):
        """Runs the comparison with a program that prints SOFT, against a recorded REAL or nothing."""
        facts = self.write("facts", soft)
        program = self.write("program", f"#!/bin/sh\ncat {facts}\n")
        os.chmod(program, 0o755)
        command = [sys.executable, RUN, "--program", program, "--explained", self.explained]
        command += ["--alone"] if real is None else ["--compare", self.write("real", real)]
        return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=30, check=False)

    def test_the_same(self):
        done = self.run_with("a.x = 1\na.y = no\n", "# a comment\na.y = no\na.x = 1\n")
        self.assertEqual(done.returncode, 0)
        self.assertIn("2 facts, 0 differences explained, 0 not", done.stdout)

    def test_a_difference(self):
        done = self.run_with("a.x = 1\n", "a.x = 2\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("a.x: softgpu 1, ", done.stdout)
        self.assertIn("NOT EXPLAINED", done.stdout)

    def test_a_missing_fact(self):
        for soft, real in (("a.x = 1\n", "a.x = 1\na.y = 1\n"), ("a.x = 1\na.y = 1\n", "a.x = 1\n")):
            done = self.run_with(soft, real)
            self.assertEqual(done.returncode, 1)
            self.assertIn("(not stated)", done.stdout)

    def test_an_explained_difference(self):
        self.write("explained.txt", "a.*: because\n")
        done = self.run_with("a.x = 1\n", "a.x = 2\n")
        self.assertEqual(done.returncode, 0)
        self.assertIn("a.x: softgpu 1, ", done.stdout)
        self.assertIn("because", done.stdout)

    def test_an_explanation_without_use(self):
        self.write("explained.txt", "b.*: because\n")
        done = self.run_with("a.x = 1\n", "a.x = 1\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("b.* explains nothing", done.stdout)

    def test_an_explanation_without_reason(self):
        self.write("explained.txt", "a.*:\n")
        self.assertEqual(self.run_with("a.x = 1\n", "a.x = 2\n").returncode, 1)

    def test_garbage(self):
        for text in ("a.x = 1\na.x = 1\n", " = 0\n", "nonsense\n"):
            self.assertEqual(self.run_with(text, "a.x = 1\n").returncode, 1)

    def test_a_case_that_hangs(self):
        many = "".join(f"a.x{i} = 0\n" for i in range(2000))
        self.assertEqual(self.run_with(many).returncode, 0)
        self.assertEqual(self.run_with(many + "a.ended = deadline\n").returncode, 1)
        self.assertEqual(self.run_with("a.x = 0\n").returncode, 1)


unittest.main(argv=sys.argv[:1])
