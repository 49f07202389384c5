#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: each checker of tools/ accepts what is right and finds a fault that is planted for it."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

HEADER = "#define GW_PUBLIC __attribute__((visibility(\"default\")))\n/* GW_PUBLIC int gw_commented(void); */\nGW_PUBLIC int gw_one(int a);\nGW_PUBLIC int *gw_two(void);\n"
MAP = "N {\nglobal:\n\tgw_one;\n\tgw_two;\nlocal:\n\t*;\n};\n"
PAGE = "gw_one(3)\n\n# NAME\n\ngw_one, gw_two - do it\n\n# SYNOPSIS\n"
SOURCE = '#include "gpuward.h"\nint gw_one(int a) { return a; }\nint *gw_two(void) { return 0; }\n'


def run(tool, *arguments, env=None):
    done = subprocess.run([os.path.join(ROOT, "tools", tool), *arguments], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=env, check=False)
    return done.returncode, done.stdout + done.stderr


class Case(unittest.TestCase):
    def setUp(self):
        # The cleanup removes the folder also when the test fails.
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


class Layers(Case):
    def check(self, name, include, fault):
        for known in ("common/fd.h", "gpu/cuda.h", "gpu/nvml.h", "gpu/faults.h", "gpu/dl.h", "probe/client.h",
                      "ward/loop.h", "lib/pool.h", "worker/serve.h"):
            self.write(known, "")
        self.write(name, f"int x;\n{include}\n")
        status, out = run("check-layers", self.root)
        self.assertEqual(status, 1 if fault else 0, out)
        if fault:
            self.assertIn(f"src/{name}:2:", out)

    def test_ward_must_not_know_cuda(self):
        self.check("ward/slot.c", '#include "gpu/cuda.h"', True)

    def test_library_must_not_know_nvml(self):
        self.check("lib/pool.c", '#  include "gpu/nvml.h"', True)

    def test_worker_must_not_know_nvml(self):
        self.check("worker/serve.c", '#include "gpu/nvml.h"', True)

    def test_common_must_not_know_what_is_above(self):
        self.check("common/ring.c", '#include "gpu/faults.h"', True)

    def test_only_the_drills_workers_in_the_cli_know_cuda(self):
        self.check("cli/drill_worker.c", '#include "gpu/cuda.h"', False)
        self.check("cli/drill.c", '#include "gpu/cuda.h"', True)

    def test_nobody_includes_the_vendors_header(self):
        self.check("worker/serve.c", "#include <cuda.h>", True)

    def test_a_folder_without_a_rule_is_a_fault(self):
        self.write("other/a.c", "int x;\n")
        self.assertEqual(run("check-layers", self.root)[0], 1)

    def test_what_is_allowed_is_accepted(self):
        self.check("ward/slot.c", '#include "common/fd.h"', False)
        self.check("ward/slot.c", '#include "gpu/faults.h"', False)
        self.check("ward/slot.c", '#include "probe/client.h"', False)
        self.check("lib/isolate.c", '#include "gpu/dl.h"', False)
        self.check("worker/serve.c", '#include "gpu/cuda.h"', False)


class Exports(Case):
    def setUp(self):
        super().setUp()
        self.parts = {"include/gpuward.h": HEADER, "src/lib/libgpuward.map": MAP, "man/gw_one.3.scd": PAGE,
                      "x.c": SOURCE}

    def check(self):
        for path, text in self.parts.items():
            self.write(path, text)
        library = os.path.join(self.root, "libgpuward.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-I", os.path.join(self.root, "include"), "-o", library,
                        os.path.join(self.root, "x.c")], check=True)
        return run("check-exports", self.root, self.root)

    def test_four_lists_that_agree(self):
        status, out = self.check()
        self.assertEqual(status, 0, out)
        self.assertIn("2 functions, 0 faults", out)

    def test_a_function_without_a_page(self):
        self.parts["man/gw_one.3.scd"] = PAGE.replace(", gw_two", "")
        status, out = self.check()
        self.assertEqual(status, 1)
        self.assertIn("gw_two: declared in include/gpuward.h, missing in the manual", out)

    def test_a_function_that_the_map_hides(self):
        self.parts["src/lib/libgpuward.map"] = MAP.replace("\tgw_two;\n", "")
        self.assertEqual(self.check()[0], 1)

    def test_an_internal_symbol_that_leaks(self):
        self.parts["x.c"] = SOURCE + "int ring_push(void) { return 0; }\n"
        status, out = self.check()
        self.assertEqual(status, 1)
        self.assertIn("ring_push: in the library, not declared", out)

    def test_a_declared_function_that_does_not_exist(self):
        self.parts["include/gpuward.h"] = HEADER + "GW_PUBLIC void gw_three(void);\n"
        status, out = self.check()
        self.assertEqual(status, 1)
        self.assertIn("gw_three: declared in include/gpuward.h, missing in the library", out)


class InstallDeps(Case):
    """With commands of its own in place of the system's: nothing is really installed."""

    def check(self, wanted, absent, uid=0, apt_status=0):
        """Runs it where the packages ABSENT are missing, and commands too. Returns status, words, apt calls."""
        folder = os.path.join(self.root, "bin")
        calls = os.path.join(self.root, "calls")
        for name in ("bash", "sh", "env", "mktemp", "rm", "tail"):
            os.makedirs(folder, exist_ok=True)
            os.symlink(shutil.which(name), os.path.join(folder, name))
        programs = {
            "dpkg-query": f'case " {absent} " in *" $4 "*) exit 1 ;; esac; echo -n installed',
            "apt-get": f'echo "$*" >>{calls}; exit {apt_status}',
            "apt-cache": 'test "$2" != scdoc',
            "pkg-config": "exit 1",
            "id": f"echo {uid}",
        }
        for name, text in programs.items():
            os.chmod(self.write("bin/" + name, f"#!/bin/sh\n{text}\n"), 0o755)
        done = run("install-deps", wanted, env={"PATH": folder})
        lines = []
        if os.path.exists(calls):
            with open(calls, encoding="utf-8") as file:
                lines = file.read().splitlines()
        return *done, lines

    def test_nothing_is_missing_and_nothing_is_called(self):
        self.assertEqual(self.check("test", ""), (0, "", []))

    def test_only_what_is_missing_is_installed(self):
        status, out, calls = self.check("build", "meson libjansson-dev valgrind")
        self.assertEqual(status, 0, out)
        self.assertEqual(calls, ["-q update", "-q install -y --no-install-recommends meson libjansson-dev"])
        self.assertIn("meson: build system", out)

    def test_what_the_archive_lacks_stops_nothing_else(self):
        status, out, calls = self.check("test", "strace scdoc")
        self.assertEqual(status, 1, out)
        self.assertEqual(calls[1:], ["-q install -y --no-install-recommends strace"])
        self.assertIn("scdoc is not in this system's archive", out)

    def test_without_root_it_prints_the_one_command(self):
        status, out, calls = self.check("build", "meson", uid=1000)
        self.assertEqual((status, calls), (2, []))
        self.assertIn("apt-get update && apt-get install -y --no-install-recommends meson\n", out)

    def test_without_a_network_it_goes_on_if_it_can(self):
        self.assertEqual(self.check("build", "libjansson-dev", apt_status=100)[0], 1)

    def test_without_a_network_it_stops_if_it_cannot(self):
        self.assertEqual(self.check("build", "ninja-build", apt_status=100)[0], 2)


class Check(Case):
    """The command itself, with a table of steps of this test's own."""

    def check(self, *steps, env=None, arguments=()):
        with open(os.path.join(ROOT, "check"), encoding="utf-8") as file:
            text = file.read()
        table = "".join(f"{name} | y | does it | tools/{name}\n" for name, _ in steps)
        text = re.sub(r"^steps='\n.*?^'\n", lambda _: f"steps='\n{table}'\n", text, flags=re.S | re.M)
        os.chmod(self.write("check", text), 0o755)
        for name, script in (("install-deps", "exit 0"), *steps):
            os.chmod(self.write("tools/" + name, f"#!/bin/sh\n{script}\n"), 0o755)
        # No HOME, no terminal: as in continuous integration.
        done = subprocess.run([os.path.join(self.root, "check"), *arguments], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], **(env or {})},
                              check=False)
        return done.returncode, done.stdout.splitlines()[-1] if done.stdout else ""

    def test_counts_are_summed(self):
        self.assertEqual(self.check(("one", "exit 0"), ("many", "echo 40 0 2 >$CHECK_COUNTS"), ("skip", "exit 77")),
                         (0, "41 passed, 0 failed, 3 skipped"))

    def test_a_failure_fails_all(self):
        self.assertEqual(self.check(("good", "exit 0"), ("bad", "exit 3"), ("later", "exit 0")),
                         (1, "2 passed, 1 failed, 0 skipped"))

    def test_a_step_that_counts_nothing_failed_and_fails_is_a_failure(self):
        self.assertEqual(self.check(("many", "echo 5 0 0 >$CHECK_COUNTS; exit 1")),
                         (1, "5 passed, 1 failed, 0 skipped"))

    def test_a_missing_step_is_a_failure(self):
        self.assertEqual(self.check(("gone", "rm -f $0; exec $0")), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_strict_run_takes_no_skip(self):
        self.assertEqual(self.check(("skip", "exit 77"), env={"GPUWARD_TEST_STRICT": "1"}),
                         (1, "0 passed, 1 failed, 0 skipped"))

    def test_one_step_can_be_run(self):
        self.assertEqual(self.check(("one", "exit 0"), ("two", "exit 1"), arguments=["one"]),
                         (0, "1 passed, 0 failed, 0 skipped"))
        self.assertEqual(self.check(("one", "exit 0"), arguments=["three"])[0], 2)


class Sizes(Case):
    def check(self, lines, more=0, short=0):
        """One function of LINES lines, MORE empty lines, and SHORT functions beside it."""
        self.write("src/a/b.c", "int f(int a,\n      int b)\n{\n" + "\ta++;\n" * lines + "}\n" + "\n" * more)
        self.write("src/a/c.c", "int g(void)\n{\n\treturn 0;\n}\n" * short)
        return run("sizes", "--root", self.root)

    def test_a_function_of_80_lines_is_accepted(self):
        status, out = self.check(80, short=20)
        self.assertEqual(status, 0, out)
        self.assertIn("80 f (src/a/b.c:3)", out)

    def test_a_function_of_81_lines_is_not(self):
        status, out = self.check(81, short=20)
        self.assertEqual(status, 1)
        self.assertIn("src/a/b.c:3: f has 81 lines", out)

    def test_many_long_functions_are_over_the_budget(self):
        status, out = self.check(16)
        self.assertEqual(status, 1)
        self.assertIn("median 16, over 15", out)

    def test_a_file_of_601_lines_is_not(self):
        status, out = self.check(10, 601 - 14)
        self.assertEqual(status, 1)
        self.assertIn("src/a/b.c: 601 lines", out)


class Counts(Case):
    def count(self, status, *results):
        record = self.write("log.json", "".join('{"result": "%s"}\n' % result for result in results))
        counts = os.path.join(self.root, "counts")
        status = run("count-tests", str(status), record, env={**os.environ, "CHECK_COUNTS": counts})[0]
        text = ""
        if os.path.exists(counts):
            with open(counts, encoding="utf-8") as file:
                text = file.read()
        return status, text

    def test_each_result_is_counted(self):
        self.assertEqual(self.count(1, "OK", "OK", "FAIL", "TIMEOUT", "SKIP", "EXPECTEDFAIL"),
                         (1, "3 2 1\n"))

    def test_a_failure_is_not_hidden_by_the_status(self):
        self.assertEqual(self.count(0, "OK", "ERROR")[0], 1)

    def test_no_test_is_no_success(self):
        self.assertEqual(self.count(0), (77, ""))


class Check(unittest.TestCase):
    def check(self, *arguments):
        return run("../check", *arguments)

    def test_a_slip_beside_a_good_name_is_an_error(self):
        status, out = self.check("layers", "nosuch")
        self.assertEqual(status, 2)
        self.assertIn("no such step: nosuch", out)
        self.assertNotIn("== layers", out)

    def test_a_mode_is_no_name(self):
        for mode in ("all", "list", "layers sizes", "*"):
            self.assertEqual(self.check(mode)[0], 2, mode)

    def test_every_step_is_listed(self):
        status, out = self.check("--list")
        self.assertEqual(status, 0)
        for name in ("format", "quick", "fuzz"):
            self.assertRegex(out, f"(?m)^{name} ")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
