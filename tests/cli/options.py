#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: options and commands of gpuward: help, mistakes in one line, and --soft for any program.

usage: options.py GPUWARD
"""
import os
import signal
import subprocess
import time
import unittest

import helper


class Options(helper.CommandLine):
    def test_help(self):
        for arguments in (["--help"], ["-h"], ["--soft", "--help"]):
            done = self.run_it(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("drill", done.stdout)
            self.assertNotIn("drill-holder", done.stdout)

    def test_help_of_the_drill(self):
        for arguments in (["drill", "--help"], ["--soft", "drill", "--help"]):
            done = self.run_it(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for word in ("--device", "--kinds", "--repeat", "--memory", "--json", "misaligned", "--all", "--levels",
                         "hot-1", "--state", "--svg"):
                self.assertIn(word, done.stdout)

    def test_version(self):
        done = self.run_it("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^gpuward \d+\.\d+\.\d+\n$")

    def test_what_cannot_be_written_is_no_success(self):
        for arguments in (["--version"], ["--help"], ["drill", "--help"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([helper.PROGRAM, *arguments], env=self.environment, text=True, check=False,
                                      stdout=full, stderr=subprocess.PIPE)
            self.assertEqual((done.returncode, done.stderr), (1, "gpuward: cannot print: No space left on device\n"))

    @unittest.skipIf(os.geteuid() != 0, "needs root, to unmount")
    def test_no_proc_is_told(self):
        # A sanitizer's runtime wants /proc for itself.
        self.environment["ASAN_OPTIONS"] = "detect_leaks=0"
        script = f"umount -l /proc && exec {os.path.abspath(helper.PROGRAM)} --soft drill crash"
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], env=self.environment, text=True, check=False,
                              capture_output=True)
        if done.returncode != 1 or "gpuward" not in done.stderr:
            self.skipTest(f"cannot unmount: {done.stderr}")
        done.stderr = "".join(line for line in done.stderr.splitlines(True) if not line.startswith("=="))
        self.one_line(done, 1, "/proc is not mounted")

    def test_nothing_to_do(self):
        done = self.run_it()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage: gpuward", done.stderr)

    def test_mistakes(self):
        for arguments, word in (
                (["nonsense"], "'nonsense'"),
                (["--nonsense"], "'--nonsense'"),
                (["--soft", "nonsense"], "'nonsense'"),
                (["--soft", "--"], "no program"),
                (["--", "true"], "--soft"),
                (["drill", "nonsense"], "'nonsense'"),
                (["drill", "crash", "release"], "'release'"),
                (["drill", "crash", "--nonsense"], "'--nonsense'"),
                (["drill", "crash", "--kinds", "null,wrong"], "'null,wrong'"),
                (["drill", "crash", "--kinds", ""], "--kinds"),
                (["drill", "crash", "--kinds"], "--kinds"),
                (["drill", "crash", "--all", "--kinds", "null"], "--kinds names some kinds"),
                (["drill", "crash", "--all=yes"], "--all"),
                (["drill", "crash", "--levels", "warm"], "'warm'"),
                (["drill", "crash", "--levels", "hot,,cold"], "--levels"),
                (["drill", "crash", "--state", "-1"], "--state"),
                (["drill", "crash", "--state", "1.5"], "--state"),
                (["drill", "crash", "--svg", ""], "--svg"),
                (["drill", "crash", "--svg"], "--svg"),
                (["drill", "crash", "--memory", "64"], "not with '--memory'"),
                (["drill", "release", "--kinds", "null"], "not with '--kinds'"),
                (["drill", "release", "--all"], "not with '--all'"),
                (["drill", "release", "--levels", "hot"], "not with '--levels'"),
                (["drill", "release", "--state", "4"], "not with '--state'"),
                (["drill", "release", "--svg", "/tmp/x.svg"], "not with '--svg'"),
                (["drill", "crash", "--svg", "/no/such/folder/x.svg"], "/no/such/folder/x.svg"),
                (["drill", "crash", "--svg", "/"], "'/'"),
                (["drill", "crash", "--repeat", "0"], "--repeat"),
                (["drill", "crash", "--repeat", "101"], "--repeat"),
                (["drill", "crash", "--repeat", "2x"], "--repeat"),
                (["drill", "crash", "--device", "-1"], "--device"),
                (["drill", "release", "--memory", "1"], "--memory"),
                (["drill", "release", "--memory", "99999999999999999999"], "--memory")):
            with self.subTest(arguments=arguments):
                self.one_line(self.run_it(*arguments), 2, word)

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "this machine has a GPU")
    def test_no_gpu(self):
        self.one_line(self.run_it("drill", "crash"), 1, "driver")


class Soft(helper.CommandLine):
    def soft(self, *arguments, **options):
        done = self.run_it("--soft", "--", *arguments, **options)
        self.assertIn("emulated GPU", done.stderr)
        return done

    def test_exit_codes_are_passed_on(self):
        for code in (0, 1, 7, 255):
            self.assertEqual(self.soft("sh", "-c", f"exit {code}").returncode, code)

    def test_a_signal_is_128_and_its_number(self):
        self.assertEqual(self.soft("sh", "-c", "kill -KILL $$").returncode, 128 + 9)

    def test_a_program_that_cannot_be_run(self):
        self.assertEqual(self.soft("gpuward-no-such-program").returncode, 127)
        self.assertEqual(self.soft("/etc/passwd").returncode, 126)

    def test_children_are_on_the_emulated_gpu(self):
        done = self.soft("sh", "-c", "sh -c 'echo $GPUWARD_SOFT_DIR; echo $LD_LIBRARY_PATH'")
        folder, path = done.stdout.splitlines()
        self.assertTrue(folder.startswith(self.runtime))
        self.assertTrue(os.path.exists(os.path.join(path.split(":")[0], "libcuda.so.1")))

    def test_a_machine_of_the_users_own_stays(self):
        folder = self.machine("devices=2")
        self.assertEqual(self.soft("sh", "-c", "echo $GPUWARD_SOFT_DIR").stdout.strip(), folder)
        self.assertEqual(os.listdir(folder), ["settings"])

    def test_faults_are_looked_for_in_the_machines_own_log(self):
        show = ("sh", "-c", "echo $GPUWARD_KERNEL_LOG")
        folder = self.machine("devices=2")
        self.assertEqual(self.soft(*show).stdout.strip(), os.path.join(folder, "kmsg"))
        self.environment["GPUWARD_KERNEL_LOG"] = "/by/hand"
        self.assertEqual(self.soft(*show).stdout.strip(), "/by/hand")

    def test_one_inside_another_uses_the_same_machine(self):
        done = self.soft("sh", "-c", f"echo $GPUWARD_SOFT_DIR; {helper.PROGRAM} --version")
        self.assertEqual(len(done.stdout.splitlines()), 2)
        self.environment["GPUWARD_SOFT"] = "1"
        done = self.run_it("--", "sh", "-c", "ls -A $GPUWARD_SOFT_DIR")
        self.assertEqual((done.returncode, done.stdout), (0, "settings\n"))

    def test_descriptors_of_the_shell_are_kept(self):
        read, write = os.pipe()
        done = self.soft("sh", "-c", f"echo there >&{write}", pass_fds=[write])
        os.close(write)
        with os.fdopen(read) as pipe:
            self.assertEqual((done.returncode, pipe.read()), (0, "there\n"))

    def test_a_parent_that_ignores_sigchld(self):
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGCHLD, before)
        process = subprocess.run(["sh", "-c", f"{helper.PROGRAM} --soft -- sh -c 'exit 5'; echo $?"],
                                 env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(process.stdout, "5\n")

    def test_signals_reach_the_program_and_the_machine_goes(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with subprocess.Popen([helper.PROGRAM, "--soft", "--", "sh", "-c", "echo up; exec sleep 60"],
                                  env=self.environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL) as process:
                self.assertEqual(process.stdout.readline(), "up\n")
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=20), 128 + number)

    def await_nothing_left(self):
        """Nobody waits for what follows a SIGKILL, so it can still be on its way."""
        deadline = time.monotonic() + 20
        while os.listdir(self.runtime) or helper.processes_with(self.runtime):
            self.assertLess(time.monotonic(), deadline,
                            (os.listdir(self.runtime), helper.processes_with(self.runtime)))
            time.sleep(0.01)

    def test_a_kill_leaves_no_folder(self):
        for kill in (os.kill, os.killpg):
            with subprocess.Popen([helper.PROGRAM, "--soft", "--", "sh", "-c", "echo up; exec sleep 60"],
                                  env=self.environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, start_new_session=True) as process:
                self.assertEqual(process.stdout.readline(), "up\n")
                self.assertEqual(len(os.listdir(self.runtime)), 1)
                kill(process.pid, signal.SIGKILL)
                # The pipe is not held by what tidies up.
                self.assertEqual(process.stdout.read(), "")
                self.assertEqual(process.wait(timeout=20), -signal.SIGKILL)
            self.await_nothing_left()

    def test_what_the_program_leaves_behind_is_waited_for(self):
        # The orphan needs the machine until it has ended; its word tells that the machine was there.
        done = self.soft("sh", "-c", "(sleep 0.3; test -d $GPUWARD_SOFT_DIR && echo there) &")
        self.assertEqual((done.returncode, done.stdout), (0, "there\n"))

    def test_a_small_limit_of_file_sizes_is_told_and_leaves_nothing(self):
        small = os.path.join(self.folder, "limited")
        os.mkdir(small)
        self.environment["XDG_RUNTIME_DIR"] = small
        done = subprocess.run(["sh", "-c", 'ulimit -f 0; exec "$0" --soft -- true', helper.PROGRAM],
                              env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(os.listdir(small), [])

    @unittest.skipIf(os.geteuid() != 0, "needs root, for a file system of its own")
    def test_a_file_system_without_room(self):
        small = os.path.join(self.folder, "small")
        os.mkdir(small)
        self.environment["XDG_RUNTIME_DIR"] = small
        script = ('mount -t tmpfs -o nr_inodes=2 none "$1" && { "$2" --soft -- true; echo $?; ls -A "$1"; }')
        done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", small, helper.PROGRAM],
                              env=self.environment, capture_output=True, text=True, check=False)
        if "unshare failed" in done.stderr or "mount:" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.stdout, "1\n")
        self.assertIn("No space left on device", done.stderr)


helper.main()
