#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: gpuward ps shows who holds a GPU: a client, what a dead one left and who holds that, one that merely has
the device open; amounts add up to the byte; a driver that hangs or is missing takes away amounts and nothing else; what
cannot be seen is said; no name of a process reaches the terminal as it is.

usage: ps.py GPUWARD PS_HOLDER
"""
import ctypes
import json
import os
import signal
import subprocess
import sys
import unittest

import helper

HOLDER = sys.argv[2]
MIB = 1 << 20


class Ps(helper.CommandLine):
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
        self.reap_orphans()
        super().tearDown()

    def reap_orphans(self):
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def hold(self, mib, children, *words, **environment):
        """Starts a holder. Returns the process, and the pids of its children."""
        holder = subprocess.Popen([HOLDER, str(mib), str(children), *words],  # pylint: disable=R1732
                                  env={**self.environment, **environment}, text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, start_new_session=True)
        self.holders.append(holder)
        pids = [int(word) for word in holder.stdout.readline().split()]
        holder.stdout.close()
        self.assertEqual(pids[0], holder.pid)
        return holder, pids[1:]

    def settings(self, *lines):
        path = os.path.join(self.folder_of_machine, "settings")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.rename(path + ".new", path)

    def ps(self, *arguments, status=0, **options):
        done = self.run_it("ps", "--json", *arguments, **options)
        if "no jansson" in done.stderr:
            self.skipTest("this build has no jansson")
        self.assertEqual((done.returncode, done.stderr), (status, ""))
        return json.loads(done.stdout)

    def text(self, *arguments, status=0):
        done = self.run_it("ps", *arguments)
        self.assertEqual((done.returncode, done.stderr), (status, ""))
        return done.stdout

    def pids(self, *arguments, **options):
        return [row["pid"] for row in self.ps(*arguments, **options)["rows"]]

    def adds_up(self, view):
        for gpu in view["gpus"]:
            self.assertEqual(gpu["used_bytes"], gpu["attributed_bytes"] + gpu["unattributed_bytes"])
            self.assertEqual(gpu["total_bytes"], gpu["used_bytes"] + gpu["reserved_bytes"] + gpu["free_bytes"])
            self.assertEqual(gpu["attributed_bytes"], sum(row["bytes"] or 0 for row in view["rows"]
                                                          if row["gpu"] == gpu["index"]))

    def test_nobody(self):
        text = self.text()
        self.assertTrue(text.startswith("no holder\n"), text)
        self.assertIn("\nGPU 1, ", text)
        self.assertRegex(text, r"\n  (\d+) B used = 0 B by processes \+ \1 B reserved by the driver \+ 0 B unattributed\n")
        view = self.ps()
        self.assertEqual((view["schema"], view["emulated"], view["rows"]), (1, True, []))
        self.adds_up(view)

    def test_a_client(self):
        holder, _ = self.hold(64, 0)
        view = self.ps()
        self.adds_up(view)
        row, = view["rows"]
        self.assertEqual((row["pid"], row["gpu"], row["owner"], row["uid"], row["ppid"]),
                         (holder.pid, 0, "holder", os.getuid(), os.getpid()))
        self.assertGreaterEqual(row["bytes"], 64 * MIB)
        devices = {reference["device"] for reference in row["references"]}
        self.assertLessEqual({"nvidiactl", "nvidia-uvm", "nvidia0"}, devices)
        self.assertIn("ps-holder 64 0", row["command"])
        self.assertEqual((row["cause"], [cause["id"] for cause in row["causes"]]), ("live-owner", ["C01"]))
        text = self.text()
        self.assertRegex(text, rf"(?m)^0 +{holder.pid} +live-owner .*MiB .*sleeping.* \S*ps-holder 64 0$")
        self.assertRegex(text, rf"(?m)^  \d+ B used = {row['bytes']} B by processes \+")

    def test_what_a_dead_creator_left_stands_once(self):
        holder, children = self.hold(64, 3)
        before, = [row for row in self.ps()["rows"] if row["pid"] == holder.pid]
        self.assertEqual({row["group"] for row in self.ps()["rows"]}, {before["group"]})
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        view = self.ps()
        self.adds_up(view)
        self.assertEqual([row["pid"] for row in view["rows"]], sorted(children))
        self.assertEqual([row["creator_pid"] for row in view["rows"]], [holder.pid] * 3)
        self.assertEqual([row["owner"] for row in view["rows"]], ["shared"] * 3)
        self.assertEqual([row["bytes"] for row in view["rows"]], [before["bytes"], None, None])
        text = self.text()
        self.assertRegex(text, rf"(?m)^pid {holder.pid} is dead; its .* MiB on GPU 0 are held by 3 processes with its "
                               rf"open files: {', '.join(map(str, sorted(children)))} \(they are of its process group or session\)$")
        self.assertEqual(text.count("shared"), 2)
        self.assertEqual({row["cause"] for row in view["rows"]}, {"inherited"})
        for name in ["inherited", "C02"]:
            self.assertEqual(self.pids("--cause", name), sorted(children))
        self.assertEqual(self.pids("--cause", "live-owner"), [])
        # The number that nvidia-smi shows leads to those who hold it.
        self.assertEqual(self.pids("--pid", str(holder.pid)), sorted(children))
        tree = self.text("--tree")
        self.assertRegex(tree, rf"(?m)^{holder.pid}  .* MiB on GPU 0  \(dead: it made the open files")
        self.assertRegex(tree, rf"(?m)^\|- {min(children)}  .*\(parent {os.getpid()} python3?[^)]*\)$")
        self.assertRegex(tree, rf"(?m)^`- {max(children)}  ")

    def test_a_tree_has_children_below_their_parent(self):
        holder, children = self.hold(1, 2)
        tree = self.text("--tree")
        self.assertRegex(tree, rf"(?m)^{holder.pid}  .*MiB .*\(parent {os.getpid()} ")
        self.assertRegex(tree, rf"(?m)^\|- {min(children)}  -  ")
        self.assertRegex(tree, rf"(?m)^`- {max(children)}  -  ")
        rows = {row["pid"]: (row["bytes"] is None, row["shared"], row["creator_pid"]) for row in self.ps()["rows"]}
        self.assertEqual(rows, {holder.pid: (False, False, holder.pid),
                                **{child: (True, True, holder.pid) for child in children}})
        self.assertEqual(self.pids("--unattributed"), [])

    def test_two_clients_share_nothing(self):
        one, _ = self.hold(1, 0)
        two, _ = self.hold(2, 0)
        groups = {row["pid"]: row["group"] for row in self.ps()["rows"]}
        self.assertNotEqual(groups[one.pid], groups[two.pid])
        self.assertEqual(self.pids("--sort", "memory"), [two.pid, one.pid])
        self.assertEqual(self.pids("--sort", "-memory"), [one.pid, two.pid])
        self.assertEqual(self.pids("--sort", "-pid"), sorted([one.pid, two.pid], reverse=True))
        for key in ["gpu", "user", "age", "command"]:
            self.assertEqual(sorted(self.pids("--sort", key)), sorted([one.pid, two.pid]))

    def test_filters(self):
        holder, _ = self.hold(1, 0, SLURM_JOB_ID="4711")
        other, _ = self.hold(1, 0)
        device = os.path.join(self.folder_of_machine, "dev", "nvidia1")
        with open(device, "rb"):
            self.assertEqual(self.pids("--unattributed"), [os.getpid()])
            self.assertEqual(self.pids("--gpu", "nvidia1"), sorted([os.getpid(), holder.pid, other.pid]))
            self.assertEqual(self.pids("--gpu", "0"), sorted([holder.pid, other.pid]))
            self.assertEqual(self.pids("--job", "4711"), [holder.pid])
            self.assertEqual(self.pids("--job", "471"), [])
            self.assertEqual(self.pids("--container", "0123"), [])
            self.assertEqual(self.pids("--user", "root" if os.getuid() == 0 else str(os.getuid()), "--pid",
                                       str(other.pid)), [other.pid])
            self.assertEqual(self.pids("--user", "12345"), [])
            uuid = self.ps()["gpus"][0]["uuid"]
            self.assertEqual(self.pids("--gpu", uuid), sorted([holder.pid, other.pid]))
            self.assertRegex(self.text("--unattributed"), rf"(?m)^1 +{os.getpid()} +\S+ +- ")
        self.assertIn("slurm 4711 (by environment)", self.text("--job", "4711"))
        self.assertNotIn("\nGPU 1", self.text("--gpu", "0"))

    def test_no_escape_sequence_reaches_the_terminal(self):
        holder, _ = self.hold(1, 0, "\033[31mred", "two\nlines", "\u202ereversed", SLURM_JOB_ID="\033]0;x\a")
        done = subprocess.run([helper.PROGRAM, "ps"], env=self.environment, capture_output=True, check=True)
        self.assertNotIn(b"\033", done.stdout)
        self.assertIn(b"?[31mred two?lines", done.stdout)
        for arguments in [("--tree",), ("--json",), ("--sort", "command")]:
            done = subprocess.run([helper.PROGRAM, "ps", *arguments], env=self.environment, capture_output=True,
                                  check=True)
            self.assertFalse(set(done.stdout) & {0x1b, 0x07, 0x9b}, arguments)
        self.assertEqual(self.ps()["rows"][0]["pid"], holder.pid)

    def test_a_driver_that_hangs_takes_away_amounts_alone(self):
        holder, _ = self.hold(64, 0)
        self.settings("devices=2", "nvml_hang=1")
        view = self.ps("--deadline", "4", status=4)
        self.assertEqual(view["nvml"]["answer"], "hung")
        row, = view["rows"]
        self.assertEqual((row["pid"], row["gpu"], row["bytes"]), (holder.pid, None, None))
        text = self.text("--deadline", "4", "--gpu", "0", status=4)
        self.assertRegex(text, rf"(?m)^nvidia0-1 +{holder.pid} +live-owner\? +- ")
        self.assertRegex(text, r"(?m)^amounts of memory are not known: driver does not answer \(")
        self.settings("devices=2")

    def test_without_nvml_the_kernels_side_is_shown(self):
        holder, _ = self.hold(64, 0)
        del self.environment["LD_LIBRARY_PATH"]
        self.assertEqual(self.pids(), [holder.pid])
        self.assertIn("amounts of memory are not known: libnvidia-ml.so.1 is not on this machine", self.text())

    def test_a_lost_gpu_is_said(self):
        self.settings("devices=2", "lost=1")
        text = self.text()
        self.assertRegex(text, r"(?m)^GPU 1: - of - used\n  .*NVML_ERROR_GPU_IS_LOST")
        self.assertIsNone(self.ps()["gpus"][1]["used_bytes"])

    def test_without_privilege_it_says_what_it_cannot_see(self):
        if os.getuid() != 0:
            self.skipTest("needs root to become somebody else")
        holder, _ = self.hold(64, 0)
        os.chmod(self.folder, 0o777)
        for folder, folders, files in os.walk(self.folder_of_machine):
            for name in [".", *folders, *files]:
                os.chmod(os.path.join(folder, name), 0o777)
        view = self.ps(user=65534, group=65534, extra_groups=[])
        row, = view["rows"]
        self.assertEqual((row["pid"], row["owner"], row["state"], row["uid"]), (holder.pid, "unseen", "sleeping", 0))
        self.assertGreater(row["bytes"], 64 * MIB)
        self.adds_up(view)
        self.assertGreater(view["unseen"]["denied"], 0)
        self.assertIn("run with CAP_SYS_PTRACE", view["unseen"]["text"])
        text = self.run_it("ps", user=65534, group=65534, extra_groups=[]).stdout
        self.assertRegex(text, rf"(?m)^0 +{holder.pid} .* root +- .*sleeping +\[ps-holder\] \(could not be looked at\)$")

    def test_watch(self):
        with subprocess.Popen([helper.PROGRAM, "ps", "--json", "--watch=1"], env=self.environment, text=True,
                              stdout=subprocess.PIPE) as watch:
            line = watch.stdout.readline()
            self.assertEqual(json.loads(line)["rows"], [])
            holder, _ = self.hold(1, 0)
            while not json.loads(line)["rows"]:
                line = watch.stdout.readline()
            self.assertEqual([row["pid"] for row in json.loads(line)["rows"]], [holder.pid])
            watch.stdout.close()
            watch.wait(timeout=30)

    def test_bad_input_is_one_line(self):
        for arguments, word in [(["--pid", "0"], "'0'"), (["--pid", "x"], "'x'"), (["--pid", "99999999"], "99999999"),
                                (["--user", "no-such-user"], "no-such-user"), (["--sort", "size"], "'size'"),
                                (["--watch=0"], "'0'"), (["--watch", "2", "3"], "'3'"), (["--deadline", "1e3"], "1e3"),
                                (["--gpu", ""], "no GPU"), (["--gpu", "7"], "'7'"), (["--gpu", "GPU-x"], "GPU-x"),
                                (["--cause", "C41"], "C41"), (["--cause", ""], "--cause"), (["--job", ""], "no job"), (["--container", ""], "no container"), (["--pid"], "--pid"),
                                (["--frob"], "--frob"), (["--json=1"], "--json=1"), (["4711"], "4711"),
                                (["--json", "--tree"], "--tree")]:
            self.one_line(self.run_it("ps", *arguments), 2, word)


helper.main()
