"""Tests of the co-location benchmark that need no GPU: `python3 -m unittest benches/cuda/test_coloc.py`."""

import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import coloc  # noqa: E402
import records  # noqa: E402
import roles  # noqa: E402
import systems  # noqa: E402


def window(system, number, *roles):
    return {
        "bench": "coloc",
        "mix": "m",
        "system": system,
        "round": number,
        "secs": 1,
        "build": "b",
        "roles": list(roles),
    }


def lc(*values, rate=20.0):
    return {"role": "rn18", "latency_ms": list(values), "rate": rate}


def be(per_s, role="rn50"):
    return {"role": role, "per_s": per_s}


class Planning(unittest.TestCase):
    def test_mixes_are_read_and_mistakes_named(self):
        self.assertEqual(coloc.parse_mix("bert-lc+bert-be*3"), ["bert-lc"] + ["bert-be"] * 3)
        for wrong in ("rn19", "rn18+", "bert-be*0", "bert-be*x", "bert-be*"):
            with self.assertRaises(ValueError):
                coloc.parse_mix(wrong)

    def test_a_window_holds_enough_requests_over_the_rounds(self):
        self.assertEqual(coloc.window_seconds(["rn18", "rn50"], 5), 10.0)
        self.assertEqual(coloc.window_seconds(["bert-lc", "rn50"], 5), 6.0)
        self.assertEqual(coloc.window_seconds(["rn50"], 5), 6.0)

    def test_every_round_begins_with_another_system(self):
        order = coloc.open_windows("m", ["a", "b", "c"], 3, set())
        self.assertEqual([name for _, name in order], ["a", "b", "c", "b", "c", "a", "c", "a", "b"])

    def test_what_is_recorded_is_not_measured_again(self):
        self.assertEqual(
            coloc.open_windows("m", ["a", "b"], 2, {("m", "a", 0), ("m", "b", 1), ("x", "b", 0)}), [(0, "b"), (1, "a")]
        )

    def test_systems_that_say_nothing_about_a_mix_are_left_out(self):
        names = ["alone", "best-effort", "native", "xsched"]
        self.assertEqual(coloc.applicable(["rn18"], names), ["alone", "xsched"])
        self.assertEqual(coloc.applicable(["rn50"], names), ["best-effort", "native", "xsched"])
        self.assertEqual(coloc.applicable(["rn18", "rn50"], names), names)

    def test_mistakes_are_told(self):
        for words in (["rn19"], ["--systems", "alone,mqs", "rn18"], ["--variant", "x", "rn18"], ["--rounds", "0"]):
            with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as end:
                coloc.arguments(words)
            self.assertEqual(end.exception.code, 2)
            self.assertIn("error:", said.getvalue())


class Figures(unittest.TestCase):
    def test_rates_come_from_whole_steps_inside_the_window(self):
        marks = [(0.0, 0), (1.5, 10), (2.5, 20), (3.5, 30), (4.5, 40)]
        self.assertEqual(roles.rate_between(marks, 1, 4), {"per_s": 10.0, "done": 20, "took_s": 2.0})

    def test_a_step_longer_than_the_window_counts_whole(self):
        self.assertEqual(roles.rate_between([(0.5, 8), (9.5, 16)], 1, 4)["per_s"], round(8 / 9, 4))
        self.assertEqual(roles.rate_between([(9.5, 8)], 1, 4)["per_s"], 0.0)

    def test_targets_follow_their_definition(self):
        """time left = 1 - rate x P50 alone; target = 0.95 x rate without the latency-critical role x time left."""
        found = coloc.summary(
            [
                window("alone", 0, lc(*[5.0] * 100)),
                window("best-effort", 0, be(1000.0)),
                window("native", 0, lc(*[10.0] * 100), be(950.0)),
                window("xsched", 0, lc(*[5.5] * 100), be(855.0)),
            ]
        )
        self.assertEqual(found["time_left"], 0.9)
        row = found["systems"]["xsched"]
        self.assertEqual(row["p99_to_alone"], 1.1)
        self.assertEqual(row["best_effort_of_time_left"], 0.95)
        self.assertEqual(row["best_effort_of_target"], 1.0)
        self.assertEqual(row["best_effort_to_native"], 0.9)

    def test_several_processes_of_a_role_add_up_and_several_roles_count_alike(self):
        base = coloc.rates([window("best-effort", 0, be(10.0), be(30.0), be(8.0, "gemm"))])
        self.assertEqual(base, {"rn50": 40.0, "gemm": 8.0})
        self.assertEqual(coloc.relative({"rn50": 20.0, "gemm": 8.0}, base), 0.75)

    def test_rounds_are_pooled_for_the_p99_and_compared_one_by_one(self):
        found = coloc.summary(
            [
                window("alone", 0, lc(*[1.0] * 99, 2.0)),
                window("alone", 1, lc(*[1.0] * 100)),
                window("xsched", 0, lc(*[2.0] * 100)),
                window("xsched", 1, lc(*[3.0] * 100)),
            ]
        )["systems"]["xsched"]
        self.assertEqual((found["n"], found["p99"]), (200, 3.0))
        self.assertEqual(found["p99_to_alone_by_round"], {"median": 2.0, "min": 1.0, "max": 3.0, "n": 2})

    def test_a_request_is_the_hosts_part_and_waiting(self):
        told = dict(lc(5.0, 3.0), wait_ms=[1.0, 0.5])
        row = coloc.summary([window("native", 0, told)])["systems"]["native"]
        self.assertEqual((row["host"], row["wait"]), ({"p50": 4.0, "p99": 4.0}, {"p50": 1.0, "p99": 1.0}))
        self.assertIn("| 4.00 / 4.00 | 1.00 / 1.00 |", coloc.table(coloc.summary([window("native", 0, told)])))
        # Rounds that do not tell would make figures of others than the latencies beside them.
        older = coloc.summary([window("native", 0, told), window("native", 1, lc(5.0))])["systems"]["native"]
        self.assertNotIn("wait", older)


class Systems(unittest.TestCase):
    def test_devices_are_numbered_as_a_program_sees_them(self):
        self.assertEqual(systems.visible_device(2, "", []), "2")
        self.assertEqual(systems.visible_device(1, None, ["GPU-a", "GPU-b"]), "GPU-b")
        self.assertEqual(systems.visible_device(0, "1", ["GPU-a", "GPU-b"]), "GPU-b")
        self.assertEqual(systems.visible_device(1, "GPU-a,GPU-b", ["GPU-b", "GPU-a"]), "GPU-b")
        with self.assertRaises(systems.Trouble):
            systems.visible_device(2, "4,5", [])

    def test_a_variant_is_read_from_words(self):
        variant = systems.Variant("XSCHED_LOG=debug @budget_us=300 policy:up --level 1 --threshold=4")
        self.assertEqual(variant.env, {"XSCHED_LOG": "debug"})
        self.assertEqual((variant.config, variant.policy, variant.bin), (["budget_us = 300"], "up", None))
        self.assertEqual(systems.Variant("bin:/opt/before").bin, Path("/opt/before"))
        self.assertEqual(variant.options, ["--level", "1", "--threshold=4"])

    def test_native_programs_find_no_mps_and_nothing_of_ours(self):
        with tempfile.TemporaryDirectory() as work, systems.Site("/nowhere", work) as site:
            command, env = site.command("native", "lc", ["prog", 1])
            self.assertEqual(command, ["prog", "1"])
            self.assertEqual(list(Path(env["CUDA_MPS_PIPE_DIRECTORY"]).iterdir()), [])
            self.assertFalse([name for name in env if name.startswith("XSCHED_")])
            with self.assertRaises(systems.Trouble):
                site.command("xsched", "lc", ["prog"])

    def test_who_ends_early_is_told_with_what_its_mps_daemon_wrote(self):
        with tempfile.TemporaryDirectory() as work:
            logs = Path(work) / "mps-log"
            logs.mkdir()
            (logs / "control.log").write_text("old\nolder\nno device\nno server\nno luck\n")
            command = [sys.executable, "-c", "import sys; sys.exit('sees no device')"]
            env = {"CUDA_MPS_LOG_DIRECTORY": str(logs)}
            worker = systems.Worker("rn18", command, env, Path(work) / "rn18.err")
            with self.assertRaises(systems.Trouble) as told:
                worker.expect("IMPORTED", 20)
            worker.end()
            self.assertEqual(
                str(told.exception), "rn18 ended early (exit 1): sees no device; MPS: no device / no server / no luck"
            )


class Conducting(unittest.TestCase):
    """The whole command with stand-in workers: bare systems only, which need neither a GPU nor xsched."""

    def coloc(self, out, *more):
        command = [
            sys.executable,
            HERE / "coloc.py",
            "--worker",
            HERE / "standin/worker.py",
            "--bin",
            "/nowhere",
            "--out",
            out,
            "--secs",
            "0.2",
            "--rounds",
            "2",
            "--systems",
            "alone,best-effort,native",
            *more,
        ]
        return subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=60)

    def test_windows_are_measured_once_and_summed_up(self):
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "sub/c.jsonl"
            done = self.coloc(out, "rn18+rn50*2")
            self.assertEqual(done.returncode, 0, done.stderr)
            windows = [r for r in records.load(out) if r["bench"] == "coloc"]
            self.assertEqual(
                [(w["round"], w["system"]) for w in windows],
                [(0, "alone"), (0, "best-effort"), (0, "native"), (1, "best-effort"), (1, "native"), (1, "alone")],
            )
            self.assertEqual(
                [[r["role"] for r in w["roles"]] for w in windows[:3]],
                [["rn18"], ["rn50", "rn50"], ["rn18", "rn50", "rn50"]],
            )
            self.assertIn("| native |", done.stdout)
            # One window lost: only that one is measured again.
            text = out.read_text().splitlines()
            out.write_text("\n".join([text[0], *text[2:]]) + '\n{"torn": ')
            again = self.coloc(out, "rn18+rn50*2")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(again.stderr.count("rn18+rn50*2 "), 1, again.stderr)
            self.assertEqual(len([r for r in records.load(out) if r["bench"] == "coloc"]), 6)

    def test_a_deadline_ends_it_to_be_continued(self):
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "c.jsonl"
            done = self.coloc(out, "--deadline", "1", "rn18+rn50")
            self.assertEqual(done.returncode, systems.UNFINISHED)
            self.assertEqual([r["bench"] for r in records.load(out)], ["machine"])

    def test_a_system_that_cannot_be_had_does_not_keep_the_others_from_being_measured(self):
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "c.jsonl"
            done = self.coloc(out, "--systems", "alone,xsched", "rn18+rn50")
            self.assertEqual(done.returncode, 3)
            self.assertIn("coloc: rn18+rn50, xsched: /nowhere/xsched is missing", done.stderr)
            self.assertEqual([r["system"] for r in records.load(out) if r["bench"] == "coloc"], ["alone", "alone"])

    def test_several_gpus_serve_different_mixes(self):
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "c.jsonl"
            done = self.coloc(out, "--gpus", "2", "rn18+rn50", "rn18+gemm", "bert-lc+bert-be")
            self.assertEqual(done.returncode, 0, done.stderr)
            windows = [r for r in records.load(out) if r["bench"] == "coloc"]
            self.assertEqual(len(windows), 18)
            self.assertEqual({w["gpu"] for w in windows}, {0, 1})

    def test_a_worker_that_dies_is_told_and_nothing_of_it_is_recorded(self):
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "c.jsonl"
            dies = Path(work) / "dies.py"
            dies.write_text("import sys\nsys.exit('no device')\n")
            done = self.coloc(out, "--worker", str(dies), "rn18")
            self.assertEqual(done.returncode, 3)
            self.assertIn("coloc: rn18, native: rn18 ended early (exit 1): no device", done.stderr)
            self.assertEqual([r["bench"] for r in records.load(out)], ["machine"])


class Published(unittest.TestCase):
    PAGE = HERE.parents[1] / "README.md"

    @unittest.skipUnless(PAGE.exists() and (HERE.parents[1] / "docs").exists(), "a bundle has no README of the project")
    def test_the_readmes_table_is_what_its_raw_files_say(self):
        text = self.PAGE.read_text()
        command = text.split("<!-- made by: python3 ", 1)[1].split(" -->", 1)[0]
        done = subprocess.run(
            [sys.executable, *command.split()], cwd=self.PAGE.parent, capture_output=True, text=True, check=True
        )
        self.assertIn(done.stdout, text)


if __name__ == "__main__":
    unittest.main()
