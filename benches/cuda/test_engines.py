"""Tests of the comparison with inference engines that need no GPU: `python3 -m unittest benches/cuda/test_engines.py`."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "engines"))

import engines  # noqa: E402


def window(system, requests=(), per_s=None, tokens="same"):
    found = {"bench": "engines", "system": system, "round": 0, "secs": 10.0, "tokens": tokens}
    if requests:
        found["engine"] = {"requests": [{"at_s": at, "token_ms": marks} for at, marks in requests]}
    return dict(found, train={"per_s": per_s}) if per_s else found


class Figures(unittest.TestCase):
    def test_requests_in_flight_at_a_time_are_busy_once(self):
        self.assertEqual(engines.union_s([(0, 2), (1, 3), (5, 6), (5.5, 5.6)]), 4)

    def test_the_work_left_is_that_of_the_training_alone_outside_of_requests(self):
        requests = [(0.0, [1000.0, 2000.0]), (1.0, [1000.0, 3000.0])]
        table = engines.figures([window("train", per_s=100), window("xsched", requests, per_s=45)])
        self.assertEqual(table["xsched"]["busy"], 0.4)
        self.assertEqual(table["xsched"]["of_work_left"], 0.75)
        self.assertEqual(table["xsched"]["gap_ms"]["p50"], 2000.0)
        self.assertEqual(table["xsched"]["first_ms"]["p99"], 1000.0)


class Conduct(unittest.TestCase):
    def test_systems_take_turns_and_answers_are_equal(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "engines.jsonl"
            command = [sys.executable, HERE / "engines" / "engines.py", "--standin", "--out", out]
            command += ["--bin", folder, "--systems", "alone,train,native", "--rounds", "2", "--secs", "1"]
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("greedy tokens: equal under all systems", done.stdout)
            found = [json.loads(line) for line in out.read_text().splitlines()]
            order = [record["system"] for record in found if record["bench"] == "engines"]
            self.assertEqual(order, ["alone", "train", "native", "native", "train", "alone"])
            for record in found[1:]:
                for request in record.get("engine", {}).get("requests", []):
                    self.assertEqual(len(request["token_ms"]), 64)


if __name__ == "__main__":
    unittest.main()
