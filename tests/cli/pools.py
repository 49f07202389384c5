#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: gpuward pools shows a pool as its page has it, also with its ward or its host stopped, says what it
cannot read, and believes no process that only calls itself a ward.

usage: pools.py GPUWARD POOLS_HOST
"""
import json
import os
import signal
import subprocess
import sys
import unittest

import helper

HOST = sys.argv[2]


class Pools(helper.CommandLine):
    def setUp(self):
        super().setUp()
        self.hosts = []
        self.stopped = []

    def tearDown(self):
        for pid in self.stopped:
            os.kill(pid, signal.SIGCONT)
        for host in self.hosts:
            host.stdin.close()
            self.assertEqual(host.wait(timeout=20), 0)
            host.stdout.close()
        super().tearDown()

    def start(self, *arguments):
        """A host of pools_host.c, and the pid of the ward."""
        process = subprocess.Popen([HOST, *arguments], env=self.environment, text=True,  # pylint: disable=R1732
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.hosts.append(process)
        return process, int(process.stdout.readline())

    def stop(self, pid):
        os.kill(pid, signal.SIGSTOP)
        self.stopped.append(pid)

    def pools(self):
        done = self.run_it("pools", "--json")
        if "no jansson" in done.stderr:
            self.skipTest("this build has no jansson")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)["pools"]

    def pool(self, ward):
        found = [pool for pool in self.pools() if pool["ward_pid"] == ward]
        self.assertEqual(len(found), 1)
        return found[0]

    def text(self, *arguments):
        done = self.run_it("pools", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.isprintable() or "\x1b" not in done.stdout)
        return done.stdout

    def check(self, pool, host):
        self.assertEqual((pool["host_pid"], pool["program"], pool["uid"]),
                         (host.pid, os.path.basename(HOST)[:15], os.geteuid()))
        self.assertIsNone(pool["problem"])
        self.assertEqual(pool["workers"], {"wanted": 2, "ready": 2, "starting": 0, "failed": 0})
        self.assertEqual(pool["tasks"], {"pending": 0, "done": 3, "attempts_failed": 1, "poisoned": 0,
                                         "input_bytes": 1024, "output_bytes": 0})
        self.assertEqual((pool["devices"], pool["recoveries"], pool["state_name"]), ([], 1, None))
        self.assertEqual(pool["state"], {"pieces": 0, "bytes": 0, "kept": False})
        recovery = pool["last_recoveries"][0]
        self.assertTrue(recovery["complete"])
        self.assertGreater(recovery["fence_to_ready_ns"], 0)
        self.assertGreaterEqual(recovery["sign_to_ready_ns"], recovery["fence_to_ready_ns"])
        self.assertEqual(sum(pool["noticed_by"].values()), 1)
        self.assertEqual(pool["noticed_by"][recovery["exit"]["noticed_by"]], 1)
        self.assertEqual((pool["last_exit"]["end"], pool["last_exit"]["value"]), ("signal", 9))

    def test_a_pool(self):
        host, ward = self.start("pool")
        self.check(self.pool(ward), host)
        text = self.text()
        self.assertRegex(text, rf"(?m)^ *{ward} +{host.pid} +\S+ +- +2/2 +- +1 +\S+ ms +0 +3 +-$")
        self.assertIn(f"ward {ward}, user {os.geteuid()}:\n  first sign to ready:", text)
        self.assertIn("its death 1", text)
        self.assertIn("1 KiB of input", text)

    def test_a_stopped_ward_and_a_stopped_host(self):
        host, ward = self.start("pool")
        self.stop(ward)
        self.check(self.pool(ward), host)
        self.assertTrue(self.pool(ward)["stopped"])
        self.assertIn(f"ward {ward}, user {os.geteuid()}, stopped:", self.text())
        self.stop(host.pid)
        self.check(self.pool(ward), host)

    def test_a_pool_that_was_closed_is_not_shown(self):
        host, ward = self.start("pool")
        host.stdin.close()
        host.wait(timeout=20)
        self.assertNotIn(ward, [pool["ward_pid"] for pool in self.pools()])

    def test_pages_that_are_wrong(self):
        for how, words in (("short", "layout"), ("magic", "no page of a pool"),
                           ("layout", "another layout"), ("counts", "out of range"),
                           ("unsealed", "not sealed")):
            with self.subTest(how=how):
                process, ward = self.start("fake", how)
                pool = self.pool(ward)
                self.assertIn(words, pool["problem"])
                self.assertNotIn("tasks", pool)
                self.assertIn(f"ward {ward}, user {os.geteuid()}: {pool['problem']}\n", self.text())
                self.assertEqual(process.poll(), None)

    def test_a_host_that_died_while_it_wrote(self):
        _, ward = self.start("fake", "torn")
        pool = self.pool(ward)
        self.assertEqual((pool["problem"], pool["last_exit"]), (None, None))

    def test_a_page_that_never_holds_still(self):
        _, ward = self.start("fake", "moving")
        self.assertIn(self.pool(ward)["problem"], (None, "its report does not hold still: try again"))

    def test_text_and_numbers_of_a_stranger(self):
        _, ward = self.start("fake", "text")
        pool = self.pool(ward)
        self.assertIsNone(pool["problem"])
        self.assertEqual(pool["last_exit"]["text"], "?" * 159)
        self.assertEqual(pool["state_name"], "?" * 63)
        self.assertEqual((pool["last_exit"]["end"], pool["last_exit"]["noticed_by"]), ("unknown", "unknown"))
        self.assertIsNone(pool["recoveries"])
        self.assertEqual(pool["last_recoveries"], [])
        self.assertNotIn("\x1b", self.text())

    @unittest.skipIf(os.geteuid() != 0, "needs root, to be somebody else")
    def test_pools_of_others_are_counted(self):
        _, ward = self.start("pool")
        done = subprocess.run([helper.PROGRAM, "pools"], user=65534, group=65534, extra_groups=[], check=False,
                              env=self.environment, text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotIn(str(ward), done.stdout)
        self.assertRegex(done.stdout, r"(?m)^\d+ pools? of other users cannot be looked at$")

    def test_watch_goes_on_until_nobody_reads(self):
        _, ward = self.start("pool")
        self.pools()
        with subprocess.Popen([helper.PROGRAM, "pools", "--watch", "--json"], env=self.environment, text=True,
                              stdout=subprocess.PIPE) as process:
            for _ in range(2):
                pools = json.loads(process.stdout.readline())["pools"]
                self.assertIn(ward, [pool["ward_pid"] for pool in pools])
            process.stdout.close()
            self.assertIn(process.wait(timeout=20), (0, -signal.SIGPIPE))

    def test_mistakes(self):
        for arguments, word in ((["nonsense"], "'nonsense'"), (["--nonsense"], "'--nonsense'"),
                                (["--watch=0"], "'0'"), (["--watch=1x"], "'1x'"), (["--watch="], "''"),
                                (["--watch=3601"], "'3601'"), (["--json=1"], "'--json=1'")):
            with self.subTest(arguments=arguments):
                self.one_line(self.run_it("pools", *arguments), 2, word)

    def test_help(self):
        done = self.run_it("pools", "--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--watch", done.stdout)


helper.main()
