"""Tests of the HIP benchmark: `python3 -m unittest benches/hip/test_bench.py`. Those that run programs need the software
HIP runtime (HIP_RUNTIME, or target/hip-runtime) and a built xsched (XSCHED_BIN, or target/release)."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bench  # noqa: E402
import place  # noqa: E402
import records  # noqa: E402
import systems  # noqa: E402

NONE = {"attach": 0, "passthrough": 0, "error": 0}


def counted(launches, **unscheduled):
    return {"launches": launches, "unscheduled": NONE | unscheduled}


class Planning(unittest.TestCase):
    def test_every_round_begins_with_another_system_and_has_them_all(self):
        order = bench.turns(["a", "b", "c"], 4)
        self.assertEqual([name for _, name in order], list("abcbcacababc"))
        self.assertEqual([number for number, _ in order], [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3])

    def test_windows_hold_enough_requests_for_a_p99(self):
        for rate, rounds, share in ((50.0, 5, 1), (66.0, 5, 2), (1000.0, 3, 1)):
            secs = bench.window_s(rate, rounds, share)
            self.assertGreaterEqual(secs * rate * rounds * share, bench.REQUESTS)
            self.assertGreaterEqual(secs, bench.LEAST_S)

    def test_who_works_in_which_window(self):
        self.assertEqual([bench.mode(k, "native") for k in ("lc", "be")], ["paced", "flat"])
        self.assertEqual([bench.mode(k, "alone") for k in ("lc", "be")], ["paced", None])
        self.assertEqual([bench.mode(k, "best-effort") for k in ("lc", "be")], [None, "flat"])

    def test_mistakes_are_told(self):
        for words in (["colac"], ["coloc", "--systems", "mps"], ["groups", "--kinds", "x"], ["coloc", "--driver", "d"]):
            with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as end:
                bench.arguments(words)
            self.assertEqual(end.exception.code, 2)
            self.assertIn("error:", said.getvalue())


class Judging(unittest.TestCase):
    def test_counts_that_are_right(self):
        self.assertEqual(bench.wrong_counts("xsched", counted(100), 100, 80, {"hip": 99, "cuda": 0}), [])
        self.assertEqual(bench.wrong_counts("whitelist", counted(100, passthrough=80), 100, 80, {"hip": 99}), [])

    def test_counts_that_are_not(self):
        def wrong(system, counts, platforms=None):
            return len(bench.wrong_counts(system, counts, 100, 80, platforms or {"hip": 99}))

        self.assertEqual(wrong("xsched", counted(100)), 0)
        self.assertEqual(wrong("xsched", counted(99)), 1)
        self.assertEqual(wrong("xsched", counted(100, attach=1)), 1)
        self.assertEqual(wrong("xsched", counted(100, passthrough=80)), 1)
        self.assertEqual(wrong("whitelist", counted(100)), 1)
        self.assertEqual(wrong("xsched", counted(100), {"hip": 100, "cuda": 3}), 1)
        self.assertEqual(wrong("xsched", counted(100), {"hip": 0, "cuda": 0}), 1)
        self.assertEqual(wrong("whitelist", counted(99, error=1), {"cuda": 3}), 4)

    def test_launches_are_told_apart_by_platform(self):
        groups = [{"platform": "hip", "launches": 3}, {"platform": "hip", "launches": 4}]
        self.assertEqual(bench.by_platform({"groups": groups}), {"cuda": 0, "hip": 7})
        self.assertEqual(bench.by_platform({"groups": [{"platform": "cuda", "launches": 1}]}), {"cuda": 1})


class Figures(unittest.TestCase):
    def test_marks_become_a_rate(self):
        said = {"role": "be", "marks": [0.5, 8, 1.5, 16, 2.5, 24, 3.5, 32, 4.5, 40]}
        found = bench.finished(said, 1.0, 4.0)
        self.assertEqual((found["per_s"], found["done"], "marks" in found), (8.0, 16, False))
        self.assertEqual(bench.finished({"latency_ms": [1.0]}, 1.0, 4.0), {"latency_ms": [1.0]})

    def test_groups_are_pooled_over_rounds_and_compared_with_one_alone(self):
        found = [
            {"system": "alone", "round": 0, "latency_ms": {"alone": [2.0] * 100}},
            {"system": "alone", "round": 1, "latency_ms": {"alone": [4.0] * 100}},
            {"system": "xsched", "round": 0, "latency_ms": {"high": [2.0] * 50, "low": [8.0]}},
            {"system": "xsched", "round": 1, "latency_ms": {"high": [6.0] * 50, "low": [8.0]}},
        ]
        rows = {row[:2]: row[2:] for row in bench.group_rows(found)}
        self.assertEqual(rows[("xsched", "high")], (6.0, 6.0, 6.0, 4.0, "1.25 (1.00–1.50)", 100))
        self.assertEqual(rows[("xsched", "low")], (8.0, 8.0, 8.0, 8.0, "3.00 (2.00–4.00)", 2))

    def test_mixes_say_what_is_left_for_best_effort(self):
        def window(system, number, *said):
            return {"system": system, "round": number, "roles": list(said)}

        def lc(ms):
            return {"role": "lc", "rate": 50.0, "latency_ms": [ms] * 10}

        found = [window("alone", 0, lc(2.0)), window("best-effort", 0, {"role": "be", "per_s": 1000.0})]
        found += [window("xsched", r, lc(3.0), {"role": "be", "per_s": 810.0}) for r in (0, 1)]
        rows = {row[0]: row[1:] for row in bench.mix_rows(found)}
        self.assertEqual(rows["xsched"], (3.0, 3.0, 3.0, 3.0, "1.50 (1.50–1.50)", 20, 810.0, "90.0 %"))
        self.assertEqual(rows["best-effort"], (None,) * 6 + (1000.0, None))

    def test_only_what_was_measured_last_is_reported(self):
        found = [{"build": b, "digest": d} for b, d in (("1", "a"), ("2", "a"), ("2", "b"), ("2", "b"))]
        self.assertEqual(bench.newest(found), found[2:])
        self.assertEqual(bench.newest([]), [])

    def test_checks_are_summed_over_programs(self):
        native = {"system": "native", "wrong": [], "programs": [{"commands": 5}, {"commands": 6}]}
        one = {"commands": 9, "counted": [counted(9, passthrough=4)], "platforms": {"hip": 9, "cuda": 0}}
        listed = {"system": "whitelist", "wrong": ["x"], "programs": [one, one]}
        rows = bench.check_rows([native, listed])
        self.assertEqual(rows, [("native", 2, 11, None, None, None, 0), ("whitelist", 2, 18, 10, 8, 0, 1)])

    def test_the_ladder_is_summed_by_mode(self):
        runs = [("bare", True, 0), ("xsched", True, 4), ("xsched", False, 5)]
        found = bench.by_mode([{"mode": m, "ok": ok, "launches": n} for m, ok, n in runs])
        self.assertEqual(found["xsched"], {"well": 1, "runs": 2, "launches": 9})


class Conducting(unittest.TestCase):
    """Real programs, the software runtime and xsched."""

    def setUp(self):
        self.runtime = Path(os.environ.get("HIP_RUNTIME", place.default_runtime()))
        self.bin = Path(os.environ.get("XSCHED_BIN", systems.default_bin()))
        for needed in (self.runtime / place.RUNTIME, self.bin / "xsched", self.bin / "libxsched.so"):
            if not needed.exists():
                self.skipTest(f"{needed} is missing: cargo xtask test makes it")

    def test_every_system_is_measured_once_and_every_command_found(self):
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "hip.jsonl"
            command = [sys.executable, HERE / "bench.py", "coloc", "--quick", "--out", out]
            command += ["--bin", self.bin, "--runtime", self.runtime]
            for _ in range(2):
                done = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)
            found = records.load(out.parent / "quick" / out.name)
            windows = [(r["what"], r["system"]) for r in found if r["bench"] == "hip-coloc"]
            self.assertEqual(sorted(windows), sorted((m, s) for m in bench.MIXES for s in bench.SYSTEMS))
            checks = [r for r in found if r["bench"] == "hip-coloc-check"]
            self.assertEqual([r["wrong"] for r in checks], [[]] * 6, json.dumps(checks))
            self.assertIn("| whitelist |", done.stdout)

    def test_a_wrong_word_is_told_in_a_line(self):
        with tempfile.TemporaryDirectory() as work:
            load = place.build(self.runtime, work)
            env = dict(os.environ, LD_LIBRARY_PATH=str(self.runtime))
            for words in ([], ["lc"], ["lc", "gemm:1"], ["rn50", "spin"]):
                done = subprocess.run([load, *words], env=env, capture_output=True, text=True, timeout=30)
                self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (2, "", 1), words)


if __name__ == "__main__":
    unittest.main()
