#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: each benchmark runs to its end with tiny counts, prints a row for everything that it measures,
and leaves no process behind. No time is judged: that is bench/RESULTS.md's part.

usage: bench.py BENCH_FOLDER SOFTGPU_FOLDER
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

BENCH, SOFTGPU = sys.argv[1:3]
TRANSPORTS = ["futex ping-pong", "gpuward, no spin", "pipe", "unix STREAM", "futex, spins 20 us", "gpuward, default"]
WAYS = ["gpuward, no spin", "gpuward, default", "bare ring", "pipe", "unix SEQPACKET", "unix STREAM"]
KINDS = ["null write", "misaligned write", "shared out of range", "assert", "trap"]


class Bench(unittest.TestCase):
    def run_bench(self, name, *arguments, **environment):
        done = subprocess.run([os.path.join(BENCH, name), *arguments], env=dict(os.environ, **environment),
                              text=True, timeout=50, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def rows(self, text, name):
        """The rows that begin with NAME, as numbers."""
        found = re.findall(rf"^{re.escape(name)}  +([-0-9].*)$", text, re.MULTILINE)
        return [[float(word) for word in re.findall(r"\d+(?:\.\d+)?", row)] for row in found]

    def test_roundtrip(self):
        for place in ("free", "one"):
            text = self.run_bench("roundtrip", "--rounds", "3", "--trips", "2", "--large-trips", "1",
                                  "--place", place)
            for name in TRANSPORTS:
                rows = self.rows(text, name)
                self.assertEqual(len(rows), 3, name)
                for median, least, most, _ in rows:
                    self.assertTrue(0 < least <= median <= most, name)

    def test_pipeline(self):
        text = self.run_bench("pipeline", "--rounds", "2", "--tasks", "300", "--window", "64")
        for name in WAYS:
            (row,) = self.rows(text, name)
            median, least, most = row
            self.assertTrue(0 < least <= median <= most, name)

    def test_idle(self):
        text = self.run_bench("idle", "--ms", "100")
        for name in ("host, in poll() and in a wait", "wards", "workers"):
            self.assertEqual(len(self.rows(text, name)), 1, name)
        for kib, _ in self.rows(text, "private memory of a ward"):
            self.assertGreater(kib, 0)

    def test_cold(self):
        with tempfile.TemporaryDirectory(prefix="gpuward-bench-") as folder:
            text = self.run_bench("cold", "--repeat", "1", LD_LIBRARY_PATH=SOFTGPU, GPUWARD_SOFT_DIR=folder)
        for name in KINDS:
            (row,) = self.rows(text, name)
            self.assertGreater(row[2], 0, name)

    def test_pinned(self):
        with tempfile.TemporaryDirectory(prefix="gpuward-bench-") as folder:
            text = self.run_bench("pinned", "--rounds", "2", "--mib", "1", "--starts", "1",
                                  LD_LIBRARY_PATH=SOFTGPU, GPUWARD_SOFT_DIR=folder)
        self.assertIn("input yes, output yes", text)
        for name, tables in (("without the flag", 2), ("GW_POOL_PINNED", 2), ("cuMemAllocHost", 1)):
            rows = self.rows(text, name)
            self.assertEqual(len(rows), tables, name)
            for first, least, most, second, second_least, second_most in rows:
                self.assertTrue(0 < least <= first <= most, name)
                self.assertTrue(0 < second_least <= second <= second_most, name)

    def failover(self, *arguments):
        """Runs sections of the benchmark; returns the rows of each section by name, and what it printed."""
        with tempfile.TemporaryDirectory(prefix="gpuward-bench-") as folder:
            table, values, soft = (os.path.join(folder, name) for name in ("table", "json", "soft"))
            os.mkdir(soft)
            text = self.run_bench("failover", "--table", table, "--json", values, *arguments, LD_LIBRARY_PATH=SOFTGPU,
                                  GPUWARD_SOFT_DIR=soft, GPUWARD_KERNEL_LOG=os.path.join(soft, "kmsg"))
            with open(table, encoding="utf-8") as file:
                self.assertEqual(file.read(), text)
            with open(values, encoding="utf-8") as file:
                sections = json.load(file)["sections"]
        return [{row["name"]: row for row in section["rows"]} for section in sections]

    def test_failover(self):
        faults, state, queue, steady = self.failover("--repeat", "1", "--state-unit-mib", "1", "--pieces", "20",
                                                     "--queue", "2000", "--trips", "50")
        self.assertEqual(len(faults), 5 * 7 + 2)
        for name, row in faults.items():
            self.assertEqual(row["n"], 1, name)
            self.assertGreater(row["columns"]["its first kernel done"]["median"], 0, name)
        self.assertEqual(len(state), 5)
        for name, row in state.items():
            if name != "none":
                self.assertEqual(row["note"], "every word intact", name)
        self.assertEqual(list(queue), ["10 tasks queued", "1000 tasks queued", "2000 tasks queued"])
        self.assertEqual(len(steady), 2)

    def test_failover_sources(self):
        (sources,) = self.failover("--only", "sources", "--repeat", "1")
        self.assertIn("first: kernel log 1", sources["kernel log: trap"]["note"])
        self.assertIn("first: error log 1", sources["error log: trap"]["note"])
        self.assertIn("first: result 1", sources["result only: trap"]["note"])

    def test_failover_soak(self):
        (soak,) = self.failover("--only", "soak", "--faults", "40")
        self.assertTrue(soak["verdict"]["note"].startswith("passed: 40 faults, "), soak["verdict"]["note"])
        self.assertTrue(soak["verdict"]["note"].endswith(": 0 lost, 0 twice, 0 states unlike the model"))

    def test_failover_bad_input(self):
        for arguments in (["--only", "nonsense"], ["--only", "faults,"], ["--repeat", "0"], ["--faults", "0"],
                          ["--budget", "0"], ["--pieces", "20000"]):
            done = subprocess.run([os.path.join(BENCH, "failover"), *arguments], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=10, check=False)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(arguments[0], done.stderr)

    def test_scan(self):
        done = subprocess.run([os.path.join(BENCH, "scan"), "--processes", "60", "--descriptors", "4", "--holders", "20",
                               "--churners", "1", "--rounds", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=50, check=False)
        if done.returncode == 77:
            self.skipTest(done.stdout.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("scan", "scan, one thread", "scan, without details", "scan, without mappings"):
            (row,) = self.rows(done.stdout, name)
            median, least, most, missed, false = row[:5]
            self.assertTrue(0 < least <= median <= most, name)
            self.assertEqual((missed, false), (0, 0), name)

    def test_proc_crowd(self):
        with subprocess.Popen([os.path.join(BENCH, "proc_crowd"), "--device", "/dev/full", "--processes", "20",
                               "--descriptors", "3", "--holders", "7"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as crowd:
            text = ""
            while not text.endswith("]}\n"):
                text += crowd.stdout.readline()
            truth = json.loads(text)
            self.assertEqual(truth["processes"], 20)
            self.assertEqual(len(truth["holders"]), 7)
            pids = [holder["pid"] for holder in truth["holders"]]
            for holder in truth["holders"]:
                self.assertTrue(os.path.exists(f"/proc/{holder['pid']}"), holder)
                if holder["kind"] == "fd":
                    self.assertEqual(os.readlink(f"/proc/{holder['pid']}/fd/{holder['fd']}"), "/dev/full")
            crowd.stdin.close()
            self.assertEqual(crowd.wait(timeout=20), 0)
        self.assertFalse([pid for pid in pids if os.path.exists(f"/proc/{pid}")])

    def test_usage(self):
        for name in ("roundtrip", "pipeline", "idle", "cold", "pinned", "failover", "scan", "proc_crowd"):
            for arguments in (["--nonsense", "1"], ["--rounds"], ["--rounds", "x"], ["--repeat", "-1"]):
                done = subprocess.run([os.path.join(BENCH, name), *arguments], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, timeout=10, check=False)
                self.assertEqual(done.returncode, 2)
                self.assertIn("usage: ", done.stderr)


unittest.main(argv=sys.argv[:1])
