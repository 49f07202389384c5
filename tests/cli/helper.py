# SPDX-License-Identifier: MIT
"""What the tests of the command line share: a place of their own for everything that it may leave behind."""
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
LEFT_OUT = ["GPUWARD_SOFT", "GPUWARD_SOFT_DIR", "GPUWARD_SOFT_INSIDE", "GPUWARD_KERNEL_LOG",
            "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS", "LD_LIBRARY_PATH", "NO_COLOR"]


def processes_with(text):
    """Pids of the processes whose environment contains TEXT, zombies left out."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if text.encode() in file.read():
                    found.append(int(entry))
        except OSError:
            continue
    return found


class CommandLine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpuward-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.runtime = os.path.join(self.folder, "runtime")
        os.mkdir(self.runtime)
        self.environment = {k: v for k, v in os.environ.items() if k not in LEFT_OUT}
        self.environment.update(XDG_RUNTIME_DIR=self.runtime, TMPDIR=self.runtime, LC_ALL="C")

    def tearDown(self):
        self.assertEqual(os.listdir(self.runtime), [], "the command line left files behind")
        self.assertEqual(processes_with(self.runtime), [], "the command line left processes behind")

    def run_it(self, *arguments, **options):
        return subprocess.run([PROGRAM, *arguments], env=self.environment, text=True, timeout=100,
                              capture_output=True, check=False, **options)

    def one_line(self, done, status, *words):
        """It failed with STATUS, and said why in one line with these words."""
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def machine(self, *settings):
        """An emulated machine of the test's own."""
        folder = os.path.join(self.folder, "machine")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "settings"), "w", encoding="utf-8") as file:
            file.write("\n".join(settings) + "\n")
        self.environment["GPUWARD_SOFT_DIR"] = folder
        return folder


def main():
    unittest.main(argv=sys.argv[:1])
