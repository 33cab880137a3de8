"""The ladder's own judgement: what it lets pass and what it does not. Run with `python3 -m unittest`."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lib"))

import harness  # noqa: E402
import ladder  # noqa: E402
import programs  # noqa: E402

NONE = {"attach": 0, "passthrough": 0, "error": 0}


def seen(failed=0, **calls):
    return {"pid": 7, "total": sum(calls.values()), "calls": calls, "failed": {"clX": failed} if failed else {}}


def reported(launches, unscheduled=NONE, **added):
    return {"pid": 7, "launches": launches, "unscheduled": unscheduled, "added": added}


def outcome(text, status=0):
    return harness.Outcome(status, text, "", 0.0, False)


class Counting(unittest.TestCase):
    def test_equal_counts_pass(self):
        self.assertIsNone(ladder.miscounted([seen(clA=3)], [reported(3)]))
        self.assertIsNone(ladder.miscounted([], []))

    def test_what_the_library_added_is_taken_off(self):
        self.assertIsNone(ladder.miscounted([seen(clA=3, clM=2)], [reported(3, clM=2)]))
        self.assertIn("added 3 clM", ladder.miscounted([seen(clA=3, clM=2)], [reported(3, clM=3)]))

    def test_one_launch_too_few_or_too_many_fails(self):
        self.assertIn("counted 2", ladder.miscounted([seen(clA=3)], [reported(2)]))
        self.assertIn("counted 4", ladder.miscounted([seen(clA=3)], [reported(4)]))

    def test_a_refused_call_may_count_or_not(self):
        for launches, passes in [(2, False), (3, True), (4, True), (5, False)]:
            problem = ladder.miscounted([seen(failed=1, clA=4)], [reported(launches)])
            self.assertEqual(problem is None, passes, launches)

    def test_a_process_without_statistics_fails(self):
        self.assertIn("reports none", ladder.miscounted([seen(clA=3)], []))

    def test_unscheduled_launches_fail(self):
        line = reported(3, NONE | {"passthrough": 1})
        self.assertIn("unscheduled", ladder.miscounted([seen(clA=3)], [line]))


class Comparing(unittest.TestCase):
    def setUp(self):
        self.exact = programs.Program("p", ["p"], "own")
        self.loose = programs.Program("p", ["p"], "own", programs.without_decimals)

    def test_times_and_rates_may_differ_where_said(self):
        self.assertIsNone(ladder.differences(self.loose, outcome("copy 1.25 GB/s 3e-05"), outcome("copy 7.5 GB/s 1e-04")))
        self.assertIsNotNone(ladder.differences(self.exact, outcome("1.25"), outcome("7.5")))

    def test_free_memory_may_differ_in_clinfo(self):
        sizes = programs.without_sizes
        self.assertEqual(sizes("Global memory size 7610773504 (7.088GiB)"), sizes("Global memory size 744 (1.2GiB)"))
        self.assertNotEqual(sizes("Max compute units 2"), sizes("Max compute units 3"))

    def test_words_and_whole_numbers_never_do(self):
        self.assertIsNotNone(ladder.differences(self.loose, outcome("41 passed in 1.0s"), outcome("40 passed in 1.0s")))
        self.assertIsNotNone(ladder.differences(self.loose, outcome("ok"), outcome("WRONG")))

    def test_another_exit_status_fails(self):
        self.assertIn("exit status 1", ladder.differences(self.exact, outcome("x"), outcome("x", 1)))


if __name__ == "__main__":
    unittest.main()
