#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Description: pictures of timelines are well-formed, show what they are given to scale, keep everything inside and no
text on another one, can be read on light and dark pages, and are written whole or not at all.

usage: svg.py SVG_CASES
"""
import os
import re
import resource
import stat
import subprocess
import sys
import tempfile
import unicodedata
import unittest
import xml.etree.ElementTree as tree

PROGRAM = os.path.abspath(sys.argv[1])
SPACE = "{http://www.w3.org/2000/svg}"
CASES = ["typical", "empty", "unknown", "tiny", "huge", "zero", "long", "hostile"]
RANDOM = 60
LETTER, TITLE_LETTER = 7.6, 10.6


def run(*arguments, **more):
    return subprocess.run([PROGRAM, *arguments], text=True, timeout=30, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, **more)


def letters(text):
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


class Box:
    def __init__(self, left, top, right, bottom, what):
        self.left, self.top, self.right, self.bottom, self.what = left, top, right, bottom, what

    def meets(self, other):
        return (self.left < other.right and other.left < self.right and
                self.top < other.bottom and other.top < self.bottom)


class Picture:
    """What is in the file PATH, as boxes and numbers."""

    def __init__(self, path):
        self.root = tree.parse(path).getroot()
        self.texts = [element for element in self.root.iter(SPACE + "text")]
        self.ticks = sorted((float(element.text), float(element.get("x"))) for element in self.of("text", "tick"))

    def of(self, tag, name):
        return [element for element in self.root.iter(SPACE + tag) if name in element.get("class", "").split()]

    def text_box(self, element):
        size = TITLE_LETTER if "title" in element.get("class").split() else LETTER
        width, x, y = letters(element.text or "") * size, float(element.get("x")), float(element.get("y"))
        left = x - width / 2 if element.get("text-anchor") == "middle" else x
        return Box(left, y - 10, left + width, y + 3, element.text)

    def bar_box(self, element):
        x, y = float(element.get("x")), float(element.get("y"))
        return Box(x, y, x + float(element.get("width")), y + float(element.get("height")), element[0].text)

    def mark_box(self, element):
        x, y = re.match(r"translate\((\S+) (\S+)\)", element.get("transform")).groups()
        return Box(float(x) - 5, float(y) - 5, float(x) + 5, float(y) + 5, "mark")

    def place(self, ms):
        """Where the axis has MS."""
        (first, left), (last, right) = self.ticks[0], self.ticks[-1]
        return left + (ms - first) / (last - first) * (right - left)


def known_times(text):
    """The times of a hint "name: 1.5 ms to 7 ms", as (value, half of the last digit)."""
    found = re.findall(r"(\d+)(?:\.(\d+))? ms", text.rsplit(": ", 1)[1])
    return [(float(f"{whole}.{part or 0}"), 0.5 * 10 ** -len(part)) for whole, part in found]


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


class Svg(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpuward-svg-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(self.folder, "picture.svg")

    def draw(self, case):
        done = run("save", case, self.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""), case)
        return Picture(self.path)

    def one_line(self, done, *words):
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"^svg-cases: [^\n]+\n$")
        for word in words:
            self.assertIn(word, done.stderr)

    # ---- the picture ----

    def test_everything_is_inside(self):
        for case in CASES + [str(seed) for seed in range(RANDOM)]:
            picture = self.draw(case)
            width, height = float(picture.root.get("width")), float(picture.root.get("height"))
            self.assertEqual(picture.root.get("viewBox"), f"0 0 {width:g} {height:g}")
            boxes = [picture.bar_box(bar) for bar in picture.of("rect", "bar")]
            boxes += [picture.mark_box(mark) for mark in picture.of("path", "mark")]
            boxes += [picture.text_box(text) for text in picture.texts]
            for box in boxes:
                self.assertTrue(0 <= box.left <= box.right <= width and 0 <= box.top <= box.bottom <= height,
                                (case, box.what, vars(box)))

    def test_texts_are_apart(self):
        for case in CASES + [str(seed) for seed in range(RANDOM)]:
            picture = self.draw(case)
            texts = [picture.text_box(text) for text in picture.texts]
            shapes = [picture.bar_box(bar) for bar in picture.of("rect", "bar")]
            shapes += [picture.mark_box(mark) for mark in picture.of("path", "mark")]
            for i, text in enumerate(texts):
                for other in texts[i + 1:] + shapes:
                    self.assertFalse(text.meets(other), (case, text.what, other.what))

    def test_bars_are_to_scale(self):
        checked = 0
        for case in ["typical", "unknown"] + [str(seed) for seed in range(RANDOM)]:
            picture = self.draw(case)
            if len(picture.ticks) < 2:
                continue
            for bar in picture.of("rect", "bar"):
                box, times = picture.bar_box(bar), known_times(bar[0].text)
                for edge, (ms, error) in zip((box.left, box.right), times):
                    slack = 1.05 + abs(picture.place(error) - picture.place(0))
                    self.assertLessEqual(abs(edge - picture.place(ms)), slack, (case, bar[0].text))
                    checked += 1
        self.assertGreater(checked, 100)

    def test_typical(self):
        picture = self.draw("typical")
        words = [text.text for text in picture.texts]
        for word in ("What a fault costs", "NVIDIA H200, driver 580.159.04, medians of 20", "write to NULL", "cold",
                     "ms after the bad kernel was launched", "316 ms", "870 ms", "7.10 ms", "not noticed",
                     "next good kernel", "0", "200", "800"):
            self.assertIn(word, words)
        self.assertEqual(len(picture.of("rect", "bar")), 6)
        self.assertEqual(len(picture.of("text", "heading")), 2)
        self.assertEqual(picture.root.find(SPACE + "title").text, "What a fault costs")
        # Neighbours meet: what one ends with the next begins with.
        bars = [picture.bar_box(bar) for bar in picture.of("rect", "bar")][:3]
        for one, other in zip(bars, bars[1:]):
            self.assertAlmostEqual(one.right, other.left, delta=0.02)

    def test_unknown_is_not_zero(self):
        picture = self.draw("unknown")
        bars = picture.of("rect", "bar")
        self.assertEqual([bar[0].text for bar in bars], ["not noticed: 0.000 ms to 5.00 ms",
                                                         "old process ends: 5.00 ms to not known"])
        self.assertEqual(["open" in bar.get("class").split() for bar in bars], [False, True])
        values = [text.text for text in picture.of("text", "value")]
        self.assertEqual(values, ["not known", "not known", "not known", "147 ms"])
        # The legend has one of each kind besides.
        self.assertEqual(len(picture.of("path", "mark")), 1 + 4)

    def test_hostile_texts_stay_texts(self):
        picture = self.draw("hostile")
        self.assertEqual({element.tag for element in picture.root.iter()},
                         {SPACE + tag for tag in ("svg", "title", "style", "rect", "line", "text", "path")})
        label = picture.of("text", "label")[0].text
        self.assertTrue(label.startswith("</text><script>&\"'\ufffd\ufffd[31m\ufffd"), ascii(label))
        self.assertTrue(picture.root.find(SPACE + "title").text.endswith("]]>\U0001f525\u6f22"))
        with open(self.path, "rb") as file:
            self.assertTrue(file.read().isascii())

    def test_every_class_has_a_rule_and_can_be_seen(self):
        picture = self.draw("typical")
        light, dark = picture.root.find(SPACE + "style").text.split("@media(prefers-color-scheme:dark){")
        used = {name for element in picture.root.iter() for name in element.get("class", "").split()}
        for name in used - {"label", "value", "tick", "axis", "subtitle", "legend", "key"}:
            self.assertIn(f".{name}{{", light, name)
        fills = dict(re.findall(r"(?:^|\})(\.?\w+)\{[^}]*?fill:(#\w+)", light))
        dark_fills = dict(fills, **dict(re.findall(r"(?:^|\})(\.?\w+)\{[^}]*?fill:(#\w+)", dark)))
        for colours in (fills, dark_fills):
            page = colours[".page"]
            for name in ("text", ".soft"):
                self.assertGreaterEqual(contrast(colours[name], page), 4.5, name)
            for name in [".mark"] + [f".c{number}" for number in range(8)]:
                self.assertGreaterEqual(contrast(colours[name], page), 3, name)

    def test_the_same_every_time(self):
        self.draw("typical")
        with open(self.path, "rb") as file:
            first = file.read()
        done = run("save", "typical", self.path, env=dict(os.environ, LC_ALL="de_DE.UTF-8"))
        self.assertEqual(done.returncode, 0)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), first)

    # ---- the file ----

    def test_bad_paths(self):
        inside = os.path.join(self.folder, "file")
        with open(inside, "w", encoding="utf-8") as file:
            file.write("x")
        for path, word in ((os.path.join(self.folder, "no", "such.svg"), "No such file or directory"),
                           (self.folder, "Is a directory"), (self.folder + "/new/", "Is a directory"),
                           (os.path.join(inside, "x.svg"), "Not a directory"), ("", "No such file or directory"),
                           (os.path.join(self.folder, "n" * 300), "File name too long"),
                           ("/" + "n" * 5000, "File name too long")):
            for arguments in (["check", path], ["save", "typical", path]):
                self.one_line(run(*arguments), "cannot write '", word)
        self.assertEqual(os.listdir(self.folder), ["file"])

    def test_forbidden(self):
        os.chmod(self.folder, 0o755)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("old")
        os.chmod(self.path, 0o444)
        other = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
        try:
            run("check", self.path, **other)
        except PermissionError:
            self.skipTest("another user may not run the program where it lies")
        for path in (self.path, os.path.join(self.folder, "new.svg")) if other else (self.path,):
            for arguments in (["check", path], ["save", "typical", path]):
                self.one_line(run(*arguments, **other), "cannot write '" + path, "Permission denied")
        with open(self.path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")
        self.assertEqual(os.listdir(self.folder), ["picture.svg"])

    def test_nothing_is_half_written(self):
        def few_bytes():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

        for old in (None, "old"):
            if old:
                with open(self.path, "w", encoding="utf-8") as file:
                    file.write(old)
            self.one_line(run("save", "typical", self.path, preexec_fn=few_bytes), self.path, "File too large")
            self.assertEqual(os.listdir(self.folder), ["picture.svg"] if old else [])
        with open(self.path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")
        self.one_line(run("save", "typical", "/dev/full"), "/dev/full", "No space left on device")

    def test_a_full_disk_keeps_the_old_file(self):
        script = (f"mount -t tmpfs -o size=4k none {self.folder} || exit 77; {PROGRAM} save empty {self.path}; echo $?; "
                  f"{PROGRAM} save typical {self.path}; echo $?; ls -A {self.folder}; cat {self.path}")
        done = subprocess.run(["unshare", "-rm", "sh", "-c", script], text=True, timeout=30, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode == 77 or done.stderr.startswith("unshare"):
            self.skipTest(f"nothing can be mounted here: {done.stderr}")
        self.assertEqual(done.stderr, f"svg-cases: cannot write '{self.path}': No space left on device\n")
        self.assertRegex(done.stdout, r"^0\n2\npicture\.svg\n<svg (?s:.)*</svg>\n$")

    def test_permissions(self):
        done = run("save", "typical", self.path, preexec_fn=lambda: os.umask(0o027))
        self.assertEqual(done.returncode, 0)
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o640)
        os.chmod(self.path, 0o606)
        self.draw("empty")
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o606)

    def test_links_and_devices(self):
        link = os.path.join(self.folder, "link.svg")
        os.symlink("picture.svg", link)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("old")
        self.assertEqual(run("save", "typical", link).returncode, 0)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(Picture(self.path).root.tag, SPACE + "svg")
        done = run("save", "typical", "/dev/stdout")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(tree.fromstring(done.stdout).tag, SPACE + "svg")
        self.assertEqual(run("save", "typical", "plain.svg", cwd=self.folder).returncode, 0)
        self.assertEqual(sorted(os.listdir(self.folder)), ["link.svg", "picture.svg", "plain.svg"])

    def test_check_leaves_nothing(self):
        self.assertEqual(run("check", self.path).returncode, 0)
        self.assertEqual(os.listdir(self.folder), [])


unittest.main(argv=sys.argv[:1])
