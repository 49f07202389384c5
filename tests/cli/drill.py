#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: gpuward drill on the emulated GPU: every kind recovers, the JSON is as documented, nothing is left
behind by an interrupt, and a driver that hangs, a device that is not there and one that may not be used are told
in one line.

usage: drill.py GPUWARD
"""
import json
import os
import pty
import re
import signal
import subprocess
import time
import unittest
import xml.etree.ElementTree as tree

import helper

CODES = {"null": 700, "oob": 700, "misaligned": 716, "assert": 710, "trap": 719, "shared": 715, "stack": 700}
WAYS = ["sigkill", "sigterm", "exit", "fault", "exported", "forked"]
GHOSTS = ["exported", "forked"]
LEVELS = {"by-hand": None, "cold": "cold", "primed": "primed", "hot": "hot", "hot-1": "hot"}
XID_TELLS_NOT = ("assert", "trap")
SVG = "{http://www.w3.org/2000/svg}"


class Drill(helper.CommandLine):
    def drill(self, *arguments):
        return self.run_it("--soft", "drill", *arguments)

    def report(self, *arguments):
        done = self.drill(*arguments, "--json")
        if "no jansson" in done.stderr:
            self.skipTest("this build has no jansson")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def test_text(self):
        self.machine("delays=zero")
        done = self.drill("all", "--all", "--memory", "64", "--state", "4")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("emulated", done.stdout.splitlines()[0])
        self.assertIn("without the delays", done.stdout)
        self.assertNotRegex(done.stdout, r"\b(NO|CHANGED|WRONG)\b")
        for kind, code in CODES.items():
            self.assertIn(f"({kind}, CUDA {code})", done.stdout)
            self.assertIn(f"says 0, the next call {code}.", done.stdout)
        for level in ("by hand", "cold", "primed", "hot", "hot, 1 connection"):
            self.assertEqual(len(re.findall(rf"(?m)^{level} .* yes$", done.stdout)), len(CODES), level)
            self.assertEqual(len(re.findall(rf"(?m)^  {level} +[#.\-nx]*G  [\d.]+ ms$", done.stdout)), len(CODES), level)
        for shade in ("# not noticed yet", "- recovering", ". the same without gpuward"):
            self.assertIn(shade, done.stdout)
        self.assertIn("4 MiB of state", done.stdout)
        self.assertIn("Device memory in use: 0 MiB before, 0 MiB after", done.stdout)
        self.assertNotIn("Note:", done.stdout)
        self.assertTrue(done.stdout.isascii())

    def test_nothing_named_is_both_with_few_kinds(self):
        self.machine("delays=zero")
        done = self.drill("--state", "0", "--memory", "64")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(re.findall(r"(?m)^Fault: .*\((\w+), CUDA", done.stdout), ["null", "trap"])
        self.assertIn("Releases", done.stdout)
        self.assertNotIn("STATE", done.stdout)

    def test_utf8(self):
        self.machine("delays=zero")
        self.environment["LC_ALL"] = "C.UTF-8"
        self.assertIn("\u2591", self.drill("crash", "--kinds", "null", "--levels", "cold").stdout)

    def test_delays_of_a_real_one(self):
        done = self.drill("crash", "--kinds", "assert", "--levels", "cold,hot")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("with delays as measured on an H200, but for the end of a process", done.stdout)

    def check_numbers(self, row, *keys):
        for key in keys:
            self.assertIsInstance(row[key], int, key)
            self.assertGreaterEqual(row[key], 0, key)

    def check_level(self, row, kind, state_bytes):
        self.assertEqual(set(row), {
            "level", "standby", "state_bytes", "ok", "cuda", "noticed_by", "noticed_ns", "fenced_ns", "ready_ns",
            "next_good_ns", "gone_ns", "bystander_stall_ns", "state_checked_ns", "state_intact"})
        self.assertIs(row["ok"], True)
        self.assertEqual((row["standby"], row["state_bytes"]), (LEVELS[row["level"]], state_bytes))
        self.check_numbers(row, "noticed_ns", "next_good_ns", "gone_ns", "bystander_stall_ns")
        self.assertLessEqual(row["noticed_ns"], row["next_good_ns"])
        if row["level"] == "by-hand":
            self.assertEqual((row["fenced_ns"], row["ready_ns"], row["cuda"]), (None, None, CODES[kind]))
            self.assertLessEqual(row["gone_ns"], row["next_good_ns"])
        else:
            self.check_numbers(row, "fenced_ns", "ready_ns")
            self.assertLessEqual(row["noticed_ns"], row["fenced_ns"])
            self.assertLessEqual(row["fenced_ns"], row["ready_ns"])
            self.assertLessEqual(row["ready_ns"], row["next_good_ns"])
            self.check_cuda(row, kind)
        if state_bytes:
            self.assertIs(row["state_intact"], True)
            self.assertGreaterEqual(row["state_checked_ns"], row["next_good_ns"])
        else:
            self.assertEqual((row["state_intact"], row["state_checked_ns"]), (None, None))

    def check_cuda(self, row, kind):
        """What the kernel log says of a trap and of a failed assert is the same."""
        if row["cuda"] is None:
            self.assertEqual(row["noticed_by"], "kernel_log")
            self.assertIn(kind, XID_TELLS_NOT)
        else:
            self.assertEqual(row["cuda"], CODES[kind])

    def check_crash(self, row, state_bytes):
        self.assertEqual(set(row), {
            "kind", "text", "ok", "expected_cuda", "cuda", "noticed_by", "noticed_ns", "gone_ns", "memory_back_ns",
            "next_good_ns", "by_hand_ns", "reset_result", "after_reset_result", "levels"})
        code = CODES[row["kind"]]
        self.assertIs(row["ok"], True)
        self.assertEqual([row["expected_cuda"], row["after_reset_result"]], [code] * 2)
        self.check_cuda(row, row["kind"])
        self.assertEqual(row["reset_result"], 0)
        self.assertIn(row["noticed_by"], ("result", "error_log", "kernel_log"))
        self.check_numbers(row, "noticed_ns", "gone_ns", "memory_back_ns", "next_good_ns", "by_hand_ns")
        self.assertLessEqual(row["noticed_ns"], row["gone_ns"])
        self.assertLess(row["noticed_ns"], row["next_good_ns"])
        expected = [(level, state) for level in LEVELS for state in (0, state_bytes)]
        self.assertEqual([(each["level"], each["state_bytes"]) for each in row["levels"]], expected)
        for each in row["levels"]:
            self.check_level(each, row["kind"], each["state_bytes"])
        cold = row["levels"][2]
        for key in ("noticed_by", "noticed_ns", "gone_ns", "next_good_ns", "cuda"):
            self.assertEqual(row[key], cold[key])

    def check_release(self, row, memory_bytes):
        self.assertEqual(set(row), {"ended_by", "ok", "bytes", "gone_ns", "memory_back_ns", "kept_bytes", "nvml_pid"})
        self.assertIs(row["ok"], True)
        self.assertEqual(row["bytes"], memory_bytes)
        self.check_numbers(row, "gone_ns", "memory_back_ns")
        if row["ended_by"] in GHOSTS:
            self.assertGreaterEqual(row["kept_bytes"], memory_bytes)
        else:
            self.assertIsNone(row["kept_bytes"])
        if row["ended_by"] == "forked":
            self.assertIsInstance(row["nvml_pid"], int)
        else:
            self.assertIsNone(row["nvml_pid"])

    def test_json(self):
        self.machine("delays=zero")
        report = self.report("all", "--all", "--memory", "64", "--repeat", "2", "--state", "3")
        self.assertEqual(set(report), {
            "schema", "emulated", "gpu", "repeat", "crash", "release", "used_before_bytes", "used_after_bytes", "notes"})
        self.assertEqual(report["notes"], [])
        self.assertEqual([report["schema"], report["repeat"]], [1, 2])
        self.assertIs(report["emulated"], True)
        self.assertEqual(set(report["gpu"]), {"device", "name", "uuid", "driver"})
        self.assertEqual([row["kind"] for row in report["crash"]], list(CODES))
        self.assertEqual([row["ended_by"] for row in report["release"]], WAYS)
        for row in report["crash"]:
            self.check_crash(row, 4 << 20)
        for row in report["release"]:
            self.check_release(row, 64 << 20)
        self.assertEqual(report["used_before_bytes"], report["used_after_bytes"])

    def test_second_device_and_chosen_kinds(self):
        self.machine("devices=2", "delays=zero")
        report = self.report("crash", "--device", "1", "--kinds", "trap,null")
        self.assertEqual(report["gpu"]["device"], 1)
        self.assertEqual([row["kind"] for row in report["crash"]], ["null", "trap"])
        self.assertEqual(report["release"], [])

    def test_a_number_past_the_share_is_no_device(self):
        self.environment["CUDA_VISIBLE_DEVICES"] = "0"
        done = self.run_it("--soft", "drill", "release", "--device", "1")
        self.one_line(done, 1, "no CUDA device", "CUDA_VISIBLE_DEVICES")

    def test_a_device_that_a_scheduler_chose(self):
        self.machine("devices=3", "delays=zero")
        second = self.report("crash", "--device", "1", "--kinds", "null", "--state", "2")["gpu"]["uuid"]
        for visible in ("2,1", f"2,{second}", f"0,{second[:12]}"):
            self.environment["CUDA_VISIBLE_DEVICES"] = visible
            report = self.report("crash", "--device", "1", "--kinds", "null", "--state", "2")
            self.check_crash(report["crash"][0], 2 << 20)
            self.assertEqual(report["gpu"]["uuid"], second)
        self.assertEqual(self.drill("crash", "--device", "2").returncode, 1)

    def test_chosen_levels(self):
        self.machine("delays=zero")
        row = self.report("crash", "--kinds", "trap", "--levels", "hot-1,primed", "--state", "0")["crash"][0]
        self.assertEqual([(each["level"], each["state_bytes"]) for each in row["levels"]], [("primed", 0), ("hot-1", 0)])
        for key in ("cuda", "noticed_ns", "gone_ns", "memory_back_ns", "next_good_ns", "by_hand_ns", "reset_result",
                    "after_reset_result"):
            self.assertIsNone(row[key], key)
        self.assertIs(row["ok"], True)

    def test_a_hot_standby_that_does_not_fit_stays_primed(self):
        # The worker fits, and a second context does not: so there is no bystander either.
        self.machine("delays=zero", "memory_mib=1600")
        report = self.report("crash", "--kinds", "trap", "--levels", "hot", "--state", "2")
        self.assertEqual([row["standby"] for row in report["crash"][0]["levels"]], ["primed"] * 2)
        self.assertIs(report["crash"][0]["ok"], True)
        self.assertRegex(report["notes"][0], r"^hot: the standby stayed primed.*no room.*\(\d+ MiB are free\)")
        done = self.drill("crash", "--kinds", "trap", "--levels", "hot", "--state", "2")
        self.assertRegex(done.stdout, r"(?m)^hot: stayed primed .* yes$")
        self.assertRegex(done.stdout, r"(?m)^Note: hot: the standby stayed primed")
        self.assertEqual(done.returncode, 0)

    def test_a_bystander_that_does_not_fit_is_left_out(self):
        self.machine("delays=zero", "memory_mib=1300")
        report = self.report("crash", "--kinds", "trap", "--levels", "cold", "--state", "0")
        self.assertIsNone(report["crash"][0]["levels"][0]["bystander_stall_ns"])
        self.assertIn("no bystander", report["notes"][0])

    def test_more_state_than_there_is(self):
        self.machine("delays=zero", "memory_mib=4096")
        done = self.drill("crash", "--kinds", "trap", "--levels", "cold", "--state", "8192")
        self.one_line(done, 1, "8192 MiB", "--state")

    def test_a_kernel_log_that_may_not_be_read_is_noted(self):
        self.machine("delays=zero")
        self.environment["GPUWARD_KERNEL_LOG"] = os.path.join(self.folder, "none", "kmsg")
        report = self.report("crash", "--kinds", "null", "--levels", "cold", "--state", "0")
        self.assertRegex(report["notes"][0], "kernel log.*cannot be read: No such file")
        self.assertNotEqual(report["crash"][0]["noticed_by"], "kernel_log")

    def test_no_such_device(self):
        self.one_line(self.drill("crash", "--device", "7"), 1, "device 7 does not exist")

    def test_more_memory_than_there_is(self):
        self.machine("memory_mib=4096")
        self.one_line(self.drill("release", "--memory", "8192"), 1, "8192 MiB")

    def test_a_driver_that_hangs(self):
        self.machine("nvml_hang=1")
        self.one_line(self.drill("crash"), 4, "driver does not answer (5 s)")

    def test_a_cuda_that_hangs(self):
        self.machine("cuda_hang=1")
        running = [subprocess.Popen([helper.PROGRAM, "--soft", "drill", what], env=self.environment, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for what in ("crash", "release")]
        for process in running:
            out, err = process.communicate(timeout=60)
            self.one_line(subprocess.CompletedProcess([], process.returncode, out, err), 4, "CUDA does not answer")

    @unittest.skipIf(os.geteuid() != 0, "needs root, to be somebody else")
    def test_no_permission(self):
        folder = self.machine("delays=zero")
        self.assertEqual(self.drill("crash", "--kinds", "null").returncode, 0)
        os.chmod(self.folder, 0o755)
        os.chmod(folder, 0o755)
        for file in os.listdir(os.path.join(folder, "dev")):
            os.chmod(os.path.join(folder, "dev", file), 0o600)
        done = self.run_it("--soft", "drill", "crash", user=65534, group=65534, extra_groups=[])
        self.one_line(done, 1, "permission")

    def test_results_that_cannot_be_written(self):
        self.machine("delays=zero")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([helper.PROGRAM, "--soft", "drill", "crash", "--kinds", "null"], check=False,
                                  env=self.environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left on device", done.stderr)


class Picture(helper.CommandLine):
    def draw(self, *arguments):
        self.machine("delays=measured")
        path = os.path.join(self.folder, "drill.svg")
        done = self.run_it("--soft", "drill", "crash", "--kinds", "trap", "--svg", path, *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.printed = done.stdout
        return tree.parse(path).getroot()

    def texts(self, chart, name):
        return [text.text for text in chart.iter(SVG + "text") if name in text.get("class").split()]

    def test_the_hot_ones_have_an_axis_of_their_own(self):
        charts = self.draw("--state", "4").findall(SVG + "svg")
        self.assertEqual(len(charts), 2)
        tops = [int(chart.get("y")) for chart in charts]
        self.assertEqual(tops, [0, int(charts[0].get("height"))])
        rows = [[level, f"{level}, with state", "   bystander"]
                for level in ("by hand", "cold", "primed", "hot", "hot, 1 connection")]
        self.assertEqual(self.texts(charts[0], "label"), sum(rows, []))
        self.assertEqual(self.texts(charts[1], "label"), sum(rows[3:], []))
        for chart in charts:
            self.assertEqual(self.texts(chart, "heading"), ["trap instruction (CUDA 719)"])
            self.assertIn("emulated", self.texts(chart, "subtitle")[0])
        self.assertLess(float(self.texts(charts[1], "tick")[-1]), float(self.texts(charts[0], "tick")[-1]))

    def test_one_level_is_one_picture(self):
        picture = self.draw("--levels", "hot", "--state", "0")
        self.assertEqual(picture.findall(SVG + "svg"), [])
        self.assertEqual(self.texts(picture, "label"), ["hot", "   bystander"])

    def test_rows_tell_of_the_next_good_kernel_and_of_the_stall(self):
        picture = self.draw("--levels", "hot", "--state", "4", "--json")
        rows = json.loads(self.printed)["crash"][0]["levels"]
        expected = [rows[0]["next_good_ns"], rows[1]["next_good_ns"], rows[0]["bystander_stall_ns"]]
        values = self.texts(picture, "value")
        self.assertEqual(len(values), len(expected))
        for value, ns in zip(values, expected):
            number, unit = value.split(", gone ")[0].split()
            self.assertEqual(unit, "ms")
            # Three digits that count.
            self.assertAlmostEqual(float(number), ns / 1e6, delta=max(0.001, ns / 1e6 / 150))

    def test_what_cannot_be_written_is_said_before_the_drill(self):
        self.machine("cuda_hang=1")
        done = self.run_it("--soft", "drill", "crash", "--svg", os.path.join(self.folder, "none", "drill.svg"))
        self.one_line(done, 2, "none/drill.svg")

    def test_what_cannot_be_written_after_all(self):
        self.machine("delays=zero")
        done = self.run_it("--soft", "drill", "crash", "--kinds", "null", "--levels", "cold", "--svg", "/dev/full")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^gpuward drill: .*'/dev/full'.*\n$")
        self.assertIn("Fault:", done.stdout)


class Interrupted(helper.CommandLine):
    """tearDown() of the class above looks for what is left; the times are those of a real GPU."""

    def await_worker(self):
        """Waits until the drill has a worker that has the driver loaded."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for pid in helper.processes_with(self.runtime):
                try:
                    with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                        if file.read() == "gpuward-worker\n":
                            return
                except OSError:
                    continue
            time.sleep(0.02)
        self.fail("the drill has no worker after 20 s")

    def check_maps(self, supervisor):
        """Neither the command line nor the ward has a driver in its memory."""
        with open(f"/proc/{supervisor}/task/{supervisor}/children", encoding="utf-8") as file:
            drill = int(file.read().split()[0])
        with open(f"/proc/{drill}/maps", encoding="utf-8") as file:
            maps = file.read()
        self.assertIn("gpuward", maps)
        self.assertNotIn("libcuda", maps)
        self.assertNotIn("libnvidia-ml", maps)

    def test_by_a_signal_to_the_command(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([helper.PROGRAM, "--soft", "drill", "all", "--repeat", "50"], env=self.environment,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                self.await_worker()
                self.check_maps(process.pid)
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=20), 128 + number)
            self.assertEqual(helper.processes_with(self.runtime), [])

    def test_by_a_kill(self):
        with subprocess.Popen([helper.PROGRAM, "--soft", "drill", "all", "--repeat", "50"], env=self.environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            self.await_worker()
            process.kill()
            self.assertEqual(process.wait(timeout=20), -signal.SIGKILL)
        deadline = time.monotonic() + 20
        while (os.listdir(self.runtime) or helper.processes_with(self.runtime)) and time.monotonic() < deadline:
            time.sleep(0.01)
        # tearDown() looks for what is left now.

    def test_progress_is_for_terminals(self):
        self.machine("delays=zero")
        master, terminal = pty.openpty()
        with subprocess.Popen([helper.PROGRAM, "--soft", "drill", "crash", "--kinds", "null", "--levels", "hot,by-hand"],
                              env=self.environment, stdout=subprocess.PIPE, stderr=terminal, text=True) as process:
            os.close(terminal)
            said = b""
            while True:
                try:
                    said += os.read(master, 65536)
                except OSError:  # the last writer is gone
                    break
            out = process.stdout.read()
            self.assertEqual(process.wait(timeout=20), 0)
        os.close(master)
        for word in (b"hot: starting", b"hot: write to address 0, with state, run 1 of 1", b"by hand: write to address 0"):
            self.assertIn(word, said)
        # It is wiped at the end, and no part of the results.
        self.assertTrue(said.endswith(b"\r\033[K"), said[-80:])
        self.assertNotIn("run 1 of 1", out)
        self.assertNotIn("\033", out)

    def test_by_ctrl_c(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(helper.PROGRAM, [helper.PROGRAM, "--soft", "drill", "all", "--repeat", "50"], self.environment)
        self.await_worker()
        os.write(terminal, b"\x03")
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(status), 128 + signal.SIGINT)


helper.main()
