#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: a user's program builds against the installed copy through pkg-config, as C11 and as
C++17 without a warning, and runs; the manual pages and helper programs are where they belong.

Builds and installs into a temporary prefix, not below a DESTDIR: so the paths that the library was
built with are real ones.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

import examples

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
# What the library and the tool start or load by themselves, and users never name.
HELPERS = [
    "libexec/gpuward/gpuward-keeper",
    "libexec/gpuward/gpuward-probe",
    "libexec/gpuward/gpuward-ward",
    "lib/gpuward/softgpu/libcuda.so.1",
    "lib/gpuward/softgpu/libnvidia-ml.so.1",
]
# The examples that are programs to run, and what they print.
EXAMPLES = {
    "README.md": "42.25",
    "gw_cuda_class.3.scd": "CUDA_ERROR_LAUNCH_FAILED",
    "gw_isolate.3.scd": "2 processes",
    "gw_pool_open.3.scd": "42",
    "gw_version.3.scd": "",
}
faults = []


def run(*command, env=None, quiet=False):
    out = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, text=True, check=False,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if out.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {out.returncode}\n{out.stdout[-3000:]}")
    return "" if quiet else out.stdout.strip()


def expect(what, found):
    print(("ok     " if found else "FAILED ") + what)
    if not found:
        faults.append(what)


def install(folder):
    """Builds and installs below FOLDER, and returns the prefix."""
    prefix, build = os.path.join(folder, "prefix"), os.path.join(folder, "build")
    run("meson", "setup", build, ROOT, "--prefix", prefix, "--libdir", "lib", "-Dtests=disabled",
        "-Dbench=disabled", "-Dwerror=false", "-Doptimization=1", quiet=True)
    run("ninja", "--quiet", "-C", build, quiet=True)
    run("meson", "install", "--no-rebuild", "--quiet", "-C", build, quiet=True)
    return prefix


def check_files(prefix):
    soname = run("readelf", "-d", os.path.join(prefix, "lib", "libgpuward.so"))
    expect("the library's soname is libgpuward.so.0", "[libgpuward.so.0]" in soname)
    expect("the header is installed, alone", os.listdir(os.path.join(prefix, "include")) == ["gpuward.h"])
    libraries = sorted(os.path.basename(path) for path in glob.glob(os.path.join(prefix, "lib", "lib*")))
    expect("no library but libgpuward is on the users' path",
           all(name.startswith("libgpuward.so") for name in libraries))
    for path in HELPERS:
        expect(path, os.access(os.path.join(prefix, path), os.R_OK))


def check_manual(prefix):
    if not shutil.which("scdoc"):
        print("scdoc is not installed: no manual pages to look for")
        return
    for source in glob.glob(os.path.join(ROOT, "man", "*.scd")):
        page = os.path.basename(source)[:-len(".scd")]
        path = os.path.join(prefix, "share", "man", "man" + page[-1], page)
        expect(f"manual page {page}", os.path.exists(path))
        if not page.endswith(".3"):
            continue
        with open(source, encoding="utf-8") as file:
            names = file.read().split("# NAME\n\n")[1].split(" - ")[0]
        for name in (name.strip() for name in names.split(",")):
            if name + ".3" != page:
                expect(f"manual page {name}.3", os.path.exists(os.path.join(os.path.dirname(path), name + ".3")))


def check_program(prefix, folder, language, compiler, standard):
    """Builds the user's program with pkg-config's words alone, and runs it."""
    if not shutil.which(compiler):
        print(f"{compiler} is not installed: the header is not tried as {standard}")
        return
    env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(prefix, "lib", "pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", "gpuward", env=env).split()
    program = os.path.join(folder, "user-" + standard)
    run(compiler, "-x", language, "-std=" + standard, *WARNINGS, os.path.join(HERE, "user.c"), "-o", program,
        *flags)
    env["LD_LIBRARY_PATH"] = os.path.join(prefix, "lib")
    expect(f"a program in {standard} runs", "42" in run(program, env=env))


def check_examples(prefix, folder):
    """Builds and runs the examples of the readme and the manual that are whole programs."""
    env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(prefix, "lib", "pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", "gpuward", env=env).split()
    env["LD_LIBRARY_PATH"] = os.path.join(prefix, "lib")
    for where, text in examples.examples():
        if where not in EXAMPLES:
            continue
        program = os.path.join(folder, "example")
        source = program + ".c"
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        run("cc", "-std=c11", *WARNINGS, source, "-o", program, *flags)
        expect(f"the example of {where} runs", EXAMPLES[where] in run(program, env=env))


def main():
    with tempfile.TemporaryDirectory() as folder:
        prefix = install(folder)
        check_files(prefix)
        check_manual(prefix)
        check_program(prefix, folder, "c", "cc", "c11")
        check_program(prefix, folder, "c++", "c++", "c++17")
        check_examples(prefix, folder)
    return 1 if faults else 0


sys.exit(main())
