#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: gpuward state shows what keepers hold, removes it when nobody uses it, and says in one line why not;
a host that is killed finds its state again; nobody but its user comes near it; what is in the way of a keeper (a
stale socket, a folder that others may enter, another starter) is told or dealt with.

usage: state.py GPUWARD STATE_HOST KEEPER
"""
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

import helper

HOST = sys.argv[2]
KEEPER = sys.argv[3]


class State(helper.CommandLine):
    def setUp(self):
        super().setUp()
        self.hosts = []
        machine = self.machine("delays=zero")
        self.place = os.path.join(machine, "gpuward")
        self.environment.update(LD_LIBRARY_PATH=os.environ["LD_LIBRARY_PATH"], GPUWARD_SOFT_DIR=machine)

    def tearDown(self):
        for host in list(self.hosts):
            self.close(host)
        if os.path.isdir(self.place):
            for name in self.names():
                self.assertEqual(self.run_it("state", "rm", "--", name).returncode, 0)
            self.wait_for(lambda: os.listdir(self.place) == [], "a keeper that holds nothing stays")
            os.rmdir(self.place)
        self.wait_for(lambda: helper.processes_with(self.runtime) == [], "processes stay")
        super().tearDown()

    def wait_for(self, condition, what):
        deadline = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.005)

    def names(self):
        return [name[:-len(".state")] for name in os.listdir(self.place) if name.endswith(".state")]

    def start(self, name, wait=True, **options):
        process = subprocess.Popen([HOST, name], env=self.environment, text=True,  # pylint: disable=R1732
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.hosts.append(process)
        return (process, self.words(process)) if wait else process

    def words(self, process):
        line = process.stdout.readline()
        self.assertRegex(line, r"^\d+ \d+$")
        return [int(word) for word in line.split()]

    def close(self, process):
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()
        if process in self.hosts:
            self.hosts.remove(process)

    def ls(self, *arguments):
        done = self.run_it("state", "ls", "--json", *arguments)
        if "no jansson" in done.stderr:
            self.skipTest("this build has no jansson")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)["states"]

    def refused(self, name, *words):
        done = subprocess.run([HOST, name], env=self.environment, text=True, capture_output=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual(done.returncode, 1)
        for word in words:
            self.assertIn(word, done.stdout)

    def test_ls_rm_and_keep(self):
        done = self.run_it("state", "ls")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "no state is kept\n", ""))
        host, (ward, _) = self.start("service")
        state, = self.ls()
        self.assertEqual((state["name"], state["ward_pid"], state["bytes"], state["unused_kept_ns"]),
                         ("service", ward, 8 << 20, None))
        weights, cache = state["pieces"]
        self.assertEqual((weights["name"], weights["kind"], weights["held_bytes"], weights["epoch"]),
                         ("weights", "sealed", 4 << 20, None))
        self.assertEqual((cache["name"], cache["kind"], cache["held_bytes"], cache["epoch"], cache["status"]),
                         ("cache", "mutable", 4 << 20, 1, "ready"))
        self.assertTrue(weights["device"].startswith("GPU-"))
        self.assertGreater(cache["writer_pid"], 0)
        self.one_line(self.run_it("state", "rm", "service"), 1, f"ward pid {ward}")
        self.assertEqual(self.run_it("state", "keep", "service", "--for", "2h").returncode, 0)
        self.close(host)
        state, = self.ls("service")
        self.assertEqual((state["ward_pid"], state["unused_kept_ns"]), (None, 7200 * 10**9))
        self.assertLessEqual(state["left_ns"], 7200 * 10**9)
        text = self.run_it("state", "ls").stdout
        self.assertRegex(text, r"(?m)^service +2 +8 MiB +nobody +\S+ \S+ +1 h 59 min +\d+$")
        self.assertRegex(text, r"(?m)^service +cache +mutable +4 MiB +1 +- +\S+ \S+ +GPU-\S+$")
        self.one_line(self.run_it("state", "rm", "service", "nothing"), 1, "no piece 'nothing'")
        self.assertEqual(self.run_it("state", "rm", "service", "cache").returncode, 0)
        self.assertEqual([piece["name"] for piece in self.ls()[0]["pieces"]], ["weights"])
        self.assertEqual(self.run_it("state", "rm", "service").returncode, 0)
        self.wait_for(lambda: not os.listdir(self.place), "the keeper stays")
        self.one_line(self.run_it("state", "ls", "service"), 1, "no state is kept as 'service'")

    def test_a_host_that_is_killed_finds_its_state_again(self):
        for epoch in range(4):
            host, (ward, found) = self.start("service")
            self.assertEqual(found, epoch)
            victims = [host.pid] if epoch % 2 else [ward, host.pid]
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            self.close(host)

    def test_odd_names_are_names_and_nothing_else(self):
        for name in (".", "..", "...", "-rf", "--json", "--version", "$(id)", "`id`", "*", "~", "%s%n", "a.lock", "a.state",
                     "'", '"', "\\", ";", "x" * 63):
            with self.subTest(name=name):
                self.close(self.start(name)[0])
                self.assertEqual(self.names(), [name])
                state, = self.ls("--", name)
                self.assertEqual((state["name"], len(state["pieces"])), (name, 2))
                self.assertIn(f"\n{name} ", self.run_it("state", "ls").stdout)
                self.assertEqual(self.run_it("state", "keep", "--for", "1h", "--", name).returncode, 0)
                done = self.run_it("state", "rm", "--", name)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
                self.wait_for(lambda: not os.listdir(self.place), "the keeper stays")

    def test_each_emulated_machine_has_its_own_state(self):
        first = self.environment["GPUWARD_SOFT_DIR"]
        second = os.path.join(self.folder, "second")
        os.mkdir(second)
        for machine, expected in ((first, 0), (second, 0), (first, 1), (second, 1)):
            self.environment["GPUWARD_SOFT_DIR"] = machine
            host, (_, epoch) = self.start("service")
            self.assertEqual(epoch, expected)
            self.close(host)
        self.assertEqual(self.run_it("state", "rm", "service").returncode, 0)
        self.assertEqual(self.ls(), [])
        self.wait_for(lambda: os.listdir(os.path.join(second, "gpuward")) == [], "the second machine's keeper stays")
        self.environment["GPUWARD_SOFT_DIR"] = first
        self.assertEqual([state["name"] for state in self.ls()], ["service"])

    def on_machine(self):
        done = self.run_it("--soft", "--", HOST, "service", stdin=subprocess.DEVNULL)
        self.assertRegex(done.stdout, r"^\d+ \d+\n$")
        return int(done.stdout.split()[1]), done.stderr

    def test_state_of_a_machine_that_ends_goes_with_it(self):
        del self.environment["GPUWARD_SOFT_DIR"]
        for _ in range(2):
            epoch, words = self.on_machine()
            self.assertEqual(epoch, 0)
            self.assertEqual(words.count("has ended with the emulated machine"), 1)
            self.assertEqual(helper.processes_with(self.runtime), [])
            self.assertEqual(os.listdir(self.runtime), [])

    def test_state_of_a_machine_that_stays_is_kept(self):
        for expected in range(2):
            epoch, words = self.on_machine()
            self.assertEqual(epoch, expected)
            self.assertNotIn("has ended", words)

    def test_a_machine_with_a_relative_name(self):
        self.environment["GPUWARD_SOFT_DIR"] = os.path.relpath(self.environment["GPUWARD_SOFT_DIR"])
        self.close(self.start("service")[0])
        self.assertEqual(self.names(), ["service"])

    def keeper(self, name):
        """A keeper as a ward starts it, and the ward's end of its socket."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            process = subprocess.Popen(  # pylint: disable=R1732
                [KEEPER, name], env=self.environment, preexec_fn=lambda: os.dup2(its.fileno(), 3), pass_fds=[3])
        return process, ours

    def test_without_an_emulated_machine_keepers_are_in_the_runtime_folder(self):
        del self.environment["GPUWARD_SOFT_DIR"]
        place = os.path.join(self.runtime, "gpuward")
        process, ours = self.keeper("service")
        self.wait_for(lambda: os.path.exists(os.path.join(place, "service.state")), "there is no socket")
        self.assertEqual([state["name"] for state in self.ls()], ["service"])
        ours.close()
        self.assertEqual(process.wait(timeout=30), 0)
        self.assertEqual(os.listdir(place), [])
        os.rmdir(place)

    def test_two_starters_at_once(self):
        hosts = [self.start("service", wait=False) for _ in range(4)]
        lines = [host.stdout.readline() for host in hosts]
        self.assertEqual(len([line for line in lines if not line.startswith("failed")]), 1, lines)
        for line in lines:
            self.assertTrue(not line.startswith("failed") or "ward pid" in line, line)

    def test_a_socket_that_nobody_listens_to(self):
        os.mkdir(self.place, 0o700)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stale:
            stale.bind(os.path.join(self.place, "service.state"))
        self.assertEqual(self.ls(), [])
        self.start("service")
        mode = os.stat(os.path.join(self.place, "service.state")).st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(self.place).st_mode), 0o700)

    def test_a_folder_that_others_may_enter(self):
        os.mkdir(self.place)
        os.chmod(self.place, 0o750)
        self.refused("service", "others may enter", "chmod 700")
        self.one_line(self.run_it("state", "ls"), 1, "others may enter")
        os.chmod(self.place, 0o700)

    def test_a_folder_that_is_a_link(self):
        target = os.path.join(self.folder, "elsewhere")
        os.mkdir(target, 0o700)
        os.symlink(target, self.place)
        self.refused("service", "cannot open")
        os.unlink(self.place)

    def visit_as(self, user, path):
        """1: USER cannot connect; 2: it can, and sees the end at once; 3: anything else."""
        child = os.fork()
        if child == 0:
            code = 3
            try:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visitor:
                    visitor.settimeout(20)
                    code = 1
                    visitor.connect(path)
                    code = 3
                    code = 2 if visitor.recv(10) == b"" else 3
            except PermissionError:
                pass
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    @unittest.skipIf(os.geteuid() != 0, "needs root, to be somebody else")
    def test_state_of_another_user(self):
        self.start("service")
        os.chmod(self.folder, 0o755)
        os.chmod(self.runtime, 0o755)
        someone = {"user": 65534, "group": 65534, "extra_groups": []}
        done = self.run_it("state", "ls", **someone)
        self.one_line(done, 1, "belongs to user 0", "user 65534")
        path = os.path.join(self.place, "service.state")
        self.assertEqual(self.visit_as(65534, path), 1)
        # Even where the folder and the socket let it in, the keeper does not listen to it.
        os.chmod(self.place, 0o755)
        os.chmod(path, 0o666)
        self.assertEqual(self.visit_as(65534, path), 2)
        os.chmod(self.place, 0o700)

    def test_a_keeper_that_is_stopped_is_told(self):
        host, _ = self.start("service")
        self.close(host)
        keeper = self.ls()[0]["keeper_pid"]
        os.kill(keeper, signal.SIGSTOP)
        state, = self.ls()
        os.kill(keeper, signal.SIGCONT)
        self.assertIn(f"pid {keeper}, does not answer", state["problem"])

    def test_a_keeper_that_is_told_to_end(self):
        host, _ = self.start("service")
        self.close(host)
        os.kill(self.ls()[0]["keeper_pid"], signal.SIGTERM)
        self.wait_for(lambda: not os.listdir(self.place), "it leaves files")

    def test_strangers_that_break_the_rules_change_nothing(self):
        host, _ = self.start("service")
        path = os.path.join(self.place, "service.state")
        for message in (b"", b"x", b"\0" * 100, b"keep" + b"\0" * 60, os.urandom(4000)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                stranger.connect(path)
                stranger.settimeout(20)
                if message:
                    stranger.send(message)
                    self.assertEqual(stranger.recv(10), b"")
        self.assertEqual(len(self.ls()[0]["pieces"]), 2)
        self.close(host)
        _, (_, epoch) = self.start("service")
        self.assertEqual(epoch, 1)

    def test_mistakes(self):
        for arguments, word in (([], "'state'"), (["nonsense"], "'nonsense'"), (["--nonsense"], "'--nonsense'"),
                                (["ls", "a", "b"], "'b'"), (["ls", "a/b"], "'a/b'"), (["rm"], "'rm'"),
                                (["rm", "a", "b", "c"], "'c'"), (["rm", "a", ""], "''"), (["rm", "x" * 64], "xxx'"),
                                (["rm", "a", "--json"], "'rm'"), (["ls", "--for", "1s"], "'ls'"),
                                (["keep", "a"], "--for"), (["keep", "a", "--for"], "'--for'"),
                                (["keep", "a", "--for", "10"], "'10'"), (["keep", "a", "--for", "-1s"], "'-1s'"),
                                (["keep", "a", "--for", "1w"], "'1w'"),
                                (["keep", "a", "--for", "99999999999999999999s"], "99999s'")):
            with self.subTest(arguments=arguments):
                self.one_line(self.run_it("state", *arguments), 2, word)

    def test_help(self):
        done = self.run_it("state", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--for", done.stdout)


helper.main()
