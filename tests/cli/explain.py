#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: gpuward explain says why memory stays: a client that works is normal; the children of a dead one are told as
one cause with a command that names them and not the dead; a pid that does not exist is explained; a driver that hangs
is told; wrong options get one line.

usage: explain.py GPUWARD PS_HOLDER
"""
import ctypes
import os
import signal
import subprocess
import sys

import helper

HOLDER = sys.argv[2]


class Explain(helper.CommandLine):
    def setUp(self):
        super().setUp()
        self.folder_of_machine = self.machine("devices=2")
        self.environment.update(LD_LIBRARY_PATH=os.environ["LD_LIBRARY_PATH"])
        self.holders = []
        # Orphans come here, so that their end can be waited for.
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)

    def tearDown(self):
        for holder in self.holders:
            holder.stdin.close()
            holder.wait(timeout=30)
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        super().tearDown()

    def hold(self, children):
        holder = subprocess.Popen([HOLDER, "64", str(children)],  # pylint: disable=R1732
                                  env=self.environment, text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, start_new_session=True)
        self.holders.append(holder)
        pids = [int(word) for word in holder.stdout.readline().split()]
        holder.stdout.close()
        return holder, pids[1:]

    def settings(self, *lines):
        path = os.path.join(self.folder_of_machine, "settings")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.rename(path + ".new", path)

    def explain(self, *arguments, status=0):
        done = self.run_it("explain", *arguments)
        self.assertEqual((done.returncode, done.stderr), (status, ""))
        return done.stdout

    def test_a_client_that_works_is_normal(self):
        holder, _ = self.hold(0)
        text = self.explain()
        normal = text[text.index("normal, and nothing to do:"):]
        self.assertRegex(normal, rf"(?m)^  {holder.pid} \S+: in use by a live process \(C01 live-owner, certain\), \S+ MiB$")
        self.assertNotIn("kill", text)
        self.assertIn("GPU 1: 0 B used", text)
        self.assertNotIn("GPU 1: 0 B used", self.explain("--gpu", "0"))
        one = self.explain(str(holder.pid))
        self.assertRegex(one, rf"(?m)^process {holder.pid}, \S+: it sleeps, and a signal wakes it up")
        self.assertIn("SIGTERM: ends it; waiting to be delivered: none\n", one)
        self.assertIn("C01 live-owner", one)
        self.assertNotIn("GPU 0:", one)

    def test_a_dead_creator_is_told_once(self):
        holder, children = self.hold(3)
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=30)
        for arguments in [], [str(children[1])], [str(holder.pid)]:
            text = self.explain(*arguments)
            self.assertEqual(text.count("(C02 inherited, certain)"), 1, text)
            self.assertIn(f"    creator: {holder.pid} (NVML's list of processes)\n", text)
            self.assertIn(f"  to do: kill -TERM {' '.join(str(pid) for pid in sorted(children))}; ", text)
            self.assertNotRegex(text, rf"kill.* {holder.pid}\b")
            self.assertNotIn("C38", text)
        self.assertIn(f"process {holder.pid}: there is none", self.explain(str(holder.pid)))

    def test_a_driver_that_hangs(self):
        holder, _ = self.hold(0)
        self.settings("devices=2", "nvml_hang=1")
        text = self.explain(status=4)
        self.assertIn("(C37 nvml-hung, certain)", text)
        self.assertIn("amounts are not known: driver does not answer", text)
        self.assertIn(f"{holder.pid} ", text)
        self.settings("devices=2")

    def test_wrong_options(self):
        for words, says in ((["0"], "not the number of a process: '0'"), (["x"], "not the number of a process: 'x'"),
                            (["1", "2"], "one PID is enough; unexpected '2'"), (["--gpu"], "no value after '--gpu'"),
                            (["--gpu", "-1"], "--gpu: not the number of a GPU: '-1'"), (["--all"], "unknown option '--all'"),
                            (["1", "--gpu", "0"], "a PID needs no '--gpu'"),
                            (["--gpu", "7"], "--gpu: NVML names no such GPU: '7'")):
            done = self.run_it("explain", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertEqual(done.stderr, f"gpuward explain: {says}; see gpuward explain --help\n")
        self.assertTrue(self.run_it("explain", "--help").stdout.startswith("usage: gpuward explain"))


helper.main()
