"""Tests of the co-location benchmark that need no GPU: `python3 -m unittest benches/cuda/test_coloc.py`."""

import contextlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import coloc  # noqa: E402
import curve  # noqa: E402
import figures  # noqa: E402
import intervals  # noqa: E402
import limits  # noqa: E402
import models  # noqa: E402
import readme  # noqa: E402
import records  # noqa: E402
import roles  # noqa: E402
import sides  # noqa: E402
import svg  # noqa: E402
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


def llm(first, gaps, kind="lc"):
    """A window of answers of three tokens: the first after `first` ms each, gaps in pairs."""
    said = {"role": "llm", "kind": kind, "rate": 4.0, "first_ms": list(first)}
    said["gap_ms"] = [gap for pair in gaps for gap in pair]
    whole = [f + sum(pair) for f, pair in zip(first, gaps)]
    return dict(said, latency_ms=whole, wait_ms=[w / 2 for w in whole], queued_ms=[0.0] * len(whole))


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

    def test_answers_in_tokens_need_fewer_requests_and_random_arrivals_some_more(self):
        self.assertEqual(coloc.window_seconds(["llm", "train"], 5), 20.0)
        self.assertEqual(round(coloc.window_seconds(["llm", "train"], 5, "poisson"), 3), 20.6)
        for mix in limits.ALL:
            roles_, names, secs = coloc.plan(mix, coloc.arguments(["--bin", "/nowhere", mix]))
            for role in (r for r in roles_ if r in roles.RATES):
                due = round(roles.RATES[role] * secs) * 5
                self.assertGreaterEqual(due, 400 if role in roles.STREAMED else 1000, mix)
            self.assertEqual("mps" in names, mix in limits.PLAIN_MPS)
            self.assertLess(coloc.memory_gib(roles_, names), 75, mix)

    def test_a_quick_run_has_windows_of_a_quarter(self):
        words = ["--bin", "/x", "llm+train"]
        full, quick = (coloc.plan("llm+train", coloc.arguments(w))[2] for w in (words, ["--quick", *words]))
        self.assertEqual((full, quick), (20.6, 5.15))

    def test_best_effort_programs_by_themselves_have_shorter_windows_unless_they_serve(self):
        self.assertEqual(coloc.length("best-effort", ["llm", "train"], 20.6), 10)
        self.assertEqual(coloc.length("native", ["llm", "train"], 20.6), 20.6)
        self.assertEqual(coloc.length("best-effort", ["llm", "llm-low"], 20.6), 20.6)

    def test_what_it_will_take_is_told_before(self):
        self.assertEqual(coloc.spread_over([5, 3, 3, 1], 2), 6)
        self.assertEqual(coloc.started(["alone", "best-effort", "native", "xsched"]), ["native", "xsched"])
        self.assertEqual(coloc.memory_gib(["llm", "train"], ["alone", "native", "xsched"]), 2 * (2.6 + 7.5))
        with tempfile.TemporaryDirectory() as work, contextlib.redirect_stderr(io.StringIO()) as said:
            words = ["--bin", "/x", "--out", f"{work}/c.jsonl", "--systems", "alone,native", "--secs", "9"]
            coloc.announce(coloc.arguments([*words, "--gpus", "2", "--rounds", "2", "rn18+rn50", "llm+train"]))
        self.assertIn("coloc: llm+train: 4 windows of 9 s (alone, native): about 68 s, 10 GiB\n", said.getvalue())
        self.assertIn("in all, 2 mixes at a time\n", said.getvalue())

    def test_windows_of_other_arrivals_are_others(self):
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "c.jsonl"
            words = ["--bin", "/x", "--out", str(out), "--secs", "1", "--systems", "alone", "--rounds", "1"]
            args = coloc.arguments(words)
            old = dict(window("alone", 0, lc(1.0)), mix="rn18+rn50", build=args.build)
            records.append(out, old)
            self.assertEqual(len(coloc.still_open("rn18+rn50", args)), 1)
            args.arrivals = "regular"  # what older records are, which do not tell
            self.assertEqual(coloc.still_open("rn18+rn50", args), [])
            args.arrivals = "poisson"
            records.append(out, dict(old, arrivals="poisson"))
            self.assertEqual(coloc.still_open("rn18+rn50", args), [])
            self.assertEqual(coloc.summaries(out)["rn18+rn50"]["arrivals"], "poisson")

    def test_every_round_begins_with_another_system(self):
        order = coloc.open_windows("m", ["a", "b", "c"], range(3), set())
        self.assertEqual([name for _, name in order], ["a", "b", "c", "b", "c", "a", "c", "a", "b"])

    def test_what_is_recorded_is_not_measured_again(self):
        self.assertEqual(
            coloc.open_windows("m", ["a", "b"], range(2), {("m", "a", 0), ("m", "b", 1), ("x", "b", 0)}), [(0, "b"), (1, "a")]
        )

    def test_systems_that_say_nothing_about_a_mix_are_left_out(self):
        names = ["alone", "best-effort", "native", "xsched"]
        self.assertEqual(coloc.applicable(["rn18"], names), ["alone", "xsched"])
        self.assertEqual(coloc.applicable(["rn50"], names), ["best-effort", "native", "xsched"])
        self.assertEqual(coloc.applicable(["rn18", "rn50"], names), names)
        self.assertEqual(coloc.applicable(["llm", "llm-low"], names), names)

    def test_mistakes_are_told(self):
        for words in (["rn19"], ["--systems", "alone,mqs", "rn18"], ["--variant", "x", "rn18"], ["--rounds", "0"]):
            with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as end:
                coloc.arguments(words)
            self.assertEqual(end.exception.code, 2)
            self.assertIn("error:", said.getvalue())


class Arrivals(unittest.TestCase):
    def test_the_same_seed_asks_at_the_same_moments_of_a_window(self):
        one, other = (roles.due_times("poisson", start, start + 20, 4.0, 3001) for start in (0, 1000))
        self.assertEqual([round(t + 1000, 6) for t in one], [round(t, 6) for t in other])
        self.assertNotEqual(one, roles.due_times("poisson", 0, 20, 4.0, 3000))
        self.assertEqual(roles.prompt_lengths(5, 9), roles.prompt_lengths(5, 9))
        self.assertTrue(all(128 <= n <= 512 for n in roles.prompt_lengths(5, 999)))

    def test_random_arrivals_are_as_many_as_the_rate_says_and_their_gaps_exponential(self):
        times = roles.due_times("poisson", 0, 5000, 4.0, 1)
        self.assertEqual(len(times), 20_000)
        gaps = sorted(b - a for a, b in zip(times, times[1:]))
        self.assertAlmostEqual(sum(gaps) / len(gaps), 0.25, 2)
        for share, wanted in ((0.5, 0.1733), (0.9, 0.5756), (0.99, 1.1513)):
            self.assertAlmostEqual(gaps[int(share * len(gaps))] / wanted, 1, 1)

    def test_regular_arrivals_and_those_that_follow_each_other(self):
        self.assertEqual(roles.due_times("paced", 10, 10.2, 20.0), [10, 10.05, 10.1, 10.15])
        self.assertIsNone(roles.due_times("closed", 0, 1, 0))

    def test_seeds_follow_from_the_round_and_the_place_in_the_mix_alone(self):
        class Silent:
            def __init__(self, name):
                self.name, self.kind, self.memory_mib, self.orders = name, coloc.kind(name), 100, []
                self.process = SimpleNamespace(pid=7 if name == "llm" else 8)

            def send(self, order):
                self.orders.append(order.split())

            def expect(self, *_):
                return "{}"

        class Site:
            def require_seen(self, *_):
                pass

            def gate_waits(self, _):
                asked.append(None)
                return {7: 2.5 * len(asked)}

        one, asked = coloc.Set.__new__(coloc.Set), []
        one.site, one.system, one.workers = Site(), "x", [Silent(n) for n in ("llm", "train", "llm-low")]
        said = one.window(2, None, "poisson", 3)
        self.assertEqual([r["kind"] for r in said], ["lc", "be", "normal"])
        self.assertEqual([r.get("gate_ms") for r in said], [2.5, None, None])
        one.window(2, figures.BARE["alone"], "poisson", 3)
        one.window(2, figures.BARE["best-effort"], "regular", 3)
        urgent, flat, lower = (w.orders for w in one.workers)
        self.assertEqual([(o[1], o[4:]) for o in urgent], [("poisson", ["4.0", "3000"])] * 2)
        self.assertEqual([(o[1], o[4:]) for o in flat], [("flat", ["0"])] * 2)
        self.assertEqual([(o[1], o[4:]) for o in lower], [("poisson", ["4.0", "3002"]), ("paced", ["4.0"])])

    def test_an_answer_in_tokens_tells_its_first_token_and_gaps(self):
        class Fake(roles.Role):
            last = None

            def wait(self):
                pass

            def digest(self):
                return 0.0

        role, asked = Fake(None, "llm", None), []
        role.prefill, role.step = asked.append, lambda: None
        start = coloc.time.monotonic() + 0.01
        said = role.go("poisson", start, start + 0.5, 20.0, 7)
        served = len(said["latency_ms"])
        self.assertEqual(served + said["unserved"], 10)
        self.assertEqual((len(said["first_ms"]), len(said["gap_ms"])), (served, 31 * served))
        self.assertEqual(asked, roles.prompt_lengths(7, 10)[:served])
        for i, whole in enumerate(said["latency_ms"]):
            self.assertAlmostEqual(whole, said["first_ms"][i] + sum(said["gap_ms"][31 * i : 31 * i + 31]), 1)
        self.assertEqual(len(said["gap_wait_ms"]), len(said["gap_ms"]))
        role.name = "rn18"
        self.assertNotIn("first_ms", role.go("closed", start, coloc.time.monotonic() + 0.01, 0))

    def test_waits_of_generate_are_what_is_not_the_call_of_the_model(self):
        """A stand-in of transformers, whose parts each take so long by a clock of their own."""
        clock = [0.0]

        class Model:
            def __init__(self, *_):
                self.half = self.cuda = self.eval = lambda: self

            def prepare_inputs_for_generation(self, ids, use_cache=True):
                clock[0] += 0.1

            def generate(self, ids, streamer, logits_processor, max_new_tokens, **_):
                streamer.put(ids)
                for _ in range(max_new_tokens):
                    if asks:
                        self.prepare_inputs_for_generation(ids)
                    clock[0] += 5.0  # the commands of the model are given
                    logits_processor[0](ids, None)
                    clock[0] += 0.75
                    streamer.put(ids)
                    clock[0] += 0.25  # whether to stop
                return ids

        names = dict(LlamaConfig=lambda **_: None, LlamaForCausalLM=Model, LogitsProcessorList=list)
        tensor = mock.MagicMock()
        for asks, wanted in ((True, [0.75, 1.0, 1.0]), (False, [])):
            with mock.patch.dict(sys.modules, transformers=SimpleNamespace(**names)):
                generate = models.generating(tensor, 99, tokens=3)
            with mock.patch("time.monotonic", lambda: clock[0]):
                marks, _, waits = generate(7)
            self.assertEqual([round(wait, 6) for wait in waits], wanted)
            self.assertEqual([round(b - a, 6) for a, b in zip(marks, marks[1:])], [6.1 if asks else 6.0] * 2)


class Intervals(unittest.TestCase):
    def test_they_hold_the_true_quantile_in_19_of_20_samples(self):
        draw, held = random.Random(1), {0.5: 0, 0.9: 0, 0.99: 0}
        for _ in range(300):
            found = intervals.Sample([[[draw.expovariate(1)] for _ in range(200)] for _ in range(5)])
            for share, true in ((0.5, 0.69315), (0.9, 2.30259), (0.99, 4.60517)):
                _, low, high = found.interval(share)
                held[share] += low <= true <= high
        for share, times in held.items():
            self.assertTrue(0.91 <= times / 300 <= 0.99, (share, times))

    def test_they_are_those_of_a_bootstrap_that_draws(self):
        draw = random.Random(2)
        rounds = [[[draw.gauss(10 + number, 1)] for _ in range(200)] for number in range(3)]
        _, low, high = intervals.Sample(rounds).interval(0.9)
        drawn = []
        for _ in range(400):
            again = intervals.Sample([draw.choices(units, k=len(units)) for units in rounds])
            drawn.append(again.at(0.9))
        found = intervals.middle(drawn)
        self.assertLess(abs(found[0] - low) + abs(found[1] - high), 0.15)

    def test_values_that_go_together_make_them_wider(self):
        draw = random.Random(3)
        alike = [[[draw.expovariate(1)] * 31 for _ in range(400)]]
        apart = [[[value] for unit in alike[0] for value in unit]]
        (_, low, high), (_, low_apart, high_apart) = (intervals.Sample(s).interval(0.9) for s in (alike, apart))
        self.assertGreater(high - low, 3 * (high_apart - low_apart))

    def test_ratios_and_differences_of_the_same_are_one_and_nothing(self):
        draw = random.Random(4)
        one, other = (intervals.Sample([[[draw.gauss(10, 1)] for _ in range(1000)]]) for _ in range(2))
        value, low, high = intervals.ratio(one, other, 0.99)
        self.assertTrue(0.95 < low < value < high < 1.06 and low < 1 < high, (low, value, high))
        value, low, high = intervals.difference(one, other, 0.5)
        self.assertTrue(-0.2 < low < 0 < high < 0.2, (low, value, high))
        self.assertEqual(intervals.ratio(one, other, 0.9), intervals.ratio(one, other, 0.9))

    def test_samples_that_go_together_wholly_are_compared(self):
        for units, length in ((2, 3), (3, 2), (5, 2), (8, 3)):
            rounds = [[[float(length * n + i + 1) for i in range(length)] for n in range(units)]]
            twice = [[[2 * value for value in unit] for unit in round] for round in rounds]
            one, other = (intervals.Sample(values, ["r"]) for values in (rounds, twice))
            self.assertEqual(one.together(other, 0.5), 1)
            self.assertEqual(intervals.ratio(other, one, 0.5)[0], 2)

    def test_requests_that_both_serve_are_drawn_together(self):
        draw = random.Random(6)
        bursts = [[draw.expovariate(1 / 10) for _ in range(200)] for _ in range(3)]

        def served(names, tenth=0.0):
            rounds = [[[burst * (1 + tenth) + draw.random()] for burst in each] for each in bursts]
            return rounds, intervals.Sample(rounds, names)

        (rounds, one), (others, other) = served([1, 2, 3]), served([1, 2, 3], 0.1)
        _, low, high = intervals.ratio(other, one, 0.9)
        drawn = []
        for _ in range(400):
            chosen = [[draw.randrange(200) for _ in range(200)] for _ in range(3)]
            again = [intervals.Sample([[each[i] for i in at] for each, at in zip(s, chosen)]) for s in (others, rounds)]
            drawn.append(again[0].at(0.9) / again[1].at(0.9))
        found = intervals.middle(drawn)
        self.assertLess(abs(found[0] - low) + abs(found[1] - high), 0.05, (found, low, high))
        _, low_apart, high_apart = intervals.ratio(other, served([4, 5, 6])[1], 0.9)
        self.assertGreater(high_apart - low_apart, 3 * (high - low), "other rounds say less")
        short = intervals.Sample([rounds[0][:-1], *rounds[1:]], [1, 2, 3])
        self.assertEqual(short.together(one, 0.9), 0, "one was not served")

    def test_rounds_are_resampled_and_a_single_one_tells_nothing_of_chance(self):
        def mean(chosen):
            return {"mean": sum(chosen) / len(chosen)}

        self.assertEqual(intervals.of_rounds([4], mean), {"mean": (4, None, None)})
        value, low, high = intervals.of_rounds([1, 2, 3, 4, 5], mean)["mean"]
        self.assertEqual(value, 3)
        self.assertTrue(1.4 <= low <= 2 and 4 <= high <= 4.6, (low, high))

    def test_many_values_are_no_burden(self):
        draw = random.Random(5)
        one = intervals.Sample([[[draw.random() for _ in range(31)] for _ in range(260)] for _ in range(5)])
        begin = coloc.time.monotonic()
        for share in (0.5, 0.9, 0.99):
            intervals.ratio(one, one, share)
        self.assertLess(coloc.time.monotonic() - begin, 2)


class Limits(unittest.TestCase):
    def test_verdicts_say_whether_chance_can_explain_it(self):
        most, least = limits.Limit("gap p99", 1.05), limits.at_least("work kept", 0.9)
        wanted = ["met", "undecided", "missed"]
        self.assertEqual([most.verdict(*i) for i in ((0.9, 1.05), (1.0, 1.06), (1.06, 1.2))], wanted)
        self.assertEqual([least.verdict(*i) for i in ((0.9, 1), (0.8, 0.95), (0.8, 0.89))], wanted)
        self.assertEqual(most.verdict(None, None), "undecided")

    def test_limits_are_of_mixes_and_measures_that_there_are(self):
        self.assertLessEqual(set(limits.LIMITS), set(limits.ALL))
        self.assertLessEqual({l.measure for mine in limits.LIMITS.values() for l in mine}, set(limits.WORDS))
        for mix in limits.ALL:
            coloc.parse_mix(mix)

    def test_what_is_bound_by_the_host_is_judged_by_what_the_device_adds(self):
        value, low, high = figures.by_wait((0.4, 0.3, 0.5), (20.0, 16.0, 25.0))
        self.assertEqual((round(value, 4), round(low, 4), round(high, 5)), (1.02, 1.012, 1.03125))
        _, low, high = figures.by_wait((-0.1, -0.2, 0.1), (10.0, 8.0, 12.5))
        self.assertEqual((round(low, 4), round(high, 5)), (0.975, 1.0125))
        said = {str(limit) for limit in limits.LIMITS["bert-lc+rn50+gemm"]}
        self.assertIn("request P99 alone with the device wait beyond alone, to alone <= 1.05", said)

    def windows(self):
        draw = random.Random(6)

        def answers(first, gap):
            gaps = [[gap * draw.uniform(0.99, 1.01) for _ in range(2)] for _ in range(80)]
            return llm([first * draw.uniform(0.95, 1.05) for _ in range(80)], gaps)

        found = []
        for number in range(4):
            part = {
                "alone": [answers(8, 1.2)],
                "best-effort": [be(200.0 + number, "train"), be(10.0, "llm-be")],
                "xsched-time": [answers(9.5, 1.3), be(150.0, "train"), be(4.0, "llm-be")],
                "xsched": [answers(8.2, 1.22), be(240.0, "train"), be(8.5, "llm-be")],
            }
            more = dict(mix="llm+train+llm-be", arrivals="poisson")
            found += [dict(window(name, number, *said), **more) for name, said in part.items()]
        return found

    def test_a_mix_is_judged_by_its_limits(self):
        found = coloc.summary(self.windows())
        row = found["systems"]["xsched"]
        said = {v["measure"]: v["verdict"] for v in row["verdicts"]}
        self.assertEqual(said, {"gap p99": "met", "first p90": "met", "work kept": "met", "least kept": "met"})
        time = {v["measure"]: v["verdict"] for v in found["systems"]["xsched-time"]["verdicts"]}
        self.assertEqual((time["work kept"], time["least kept"]), ("missed", "missed"))
        self.assertNotIn("verdicts", found["systems"]["alone"])
        self.assertEqual(row["metrics"]["gap"]["n"], 4 * 80 * 2)
        value, low, high = found["noise"]["first"]["p90"]
        self.assertTrue(low <= 1 <= high, (low, value, high))
        value, low, high = row["work"]["work to time"]
        self.assertTrue(1.86 < low <= value <= high < 1.87)

    def test_tables_say_it(self):
        text = coloc.table(coloc.summary(self.windows()))
        self.assertIn("| xsched | token gap | 1.22 (1.22–1.22) |", text)
        self.assertIn("| alone, odd rounds to even | first token |", text)
        self.assertRegex(text, r"\| xsched \| train 240.0 \(1\d\d.\d %\), llm-be 8.5 \(85.0 %\) \|")
        self.assertRegex(text, r"\| token gap P99 to alone <= 1.2 \| [^|]* \*\*met\*\* \| [^|]* \*\*met\*\* \|")
        for part in text.split("\n\n"):
            self.assertEqual(len({line.count("|") for line in part.splitlines()}), 1)

    def test_a_host_bound_program_is_judged_by_what_it_waits_for_the_device(self):
        def served(wait):
            whole = lc(*[8.0 + i / 1000 for i in range(500)], rate=50.0)
            return dict(whole, wait_ms=[wait + i / 1e4 for i in range(500)])

        waits = {"alone": 0.1, "xsched": 0.3, "native": 2}
        found = [window(name, n, served(w)) for n in range(2) for name, w in waits.items()]
        found = coloc.summary([dict(w, mix="bert-lc+bert-be*5") for w in found])["systems"]
        said = {name: {v["measure"]: v["verdict"] for v in found[name]["verdicts"]} for name in ("xsched", "native")}
        self.assertEqual(said["xsched"], {"wait p99": "met", "latency p50": "met"})
        self.assertEqual(said["native"]["wait p99"], "missed")
        self.assertEqual(found["xsched"]["wait_beyond_alone"]["p99"][0], 0.2)

    def test_a_role_of_lower_class_is_told_apart_from_the_urgent_one(self):
        urgent, lower = llm([8.0] * 9, [[1.0, 1.0]] * 9), llm([80.0] * 9, [[9.0, 9.0]] * 9, "normal")
        base = llm([40.0] * 9, [[9.0, 9.0]] * 9, "normal")
        found = coloc.summary([window("best-effort", 0, base), window("xsched", 0, urgent, lower)])
        row = found["systems"]["xsched"]
        self.assertEqual(row["lower_to_alone"]["first"]["p99"], [2.0, 2.0, 2.0])
        self.assertEqual((row["n"], row["p50"], row["lower"]["first"]["p50"][0]), (9, 10.0, 80.0))
        self.assertIn("| xsched, lower class | token gap | 9.00 (9.00–9.00) |", coloc.table(found))

    def test_the_time_left_counts_no_time_in_which_requests_were_queued(self):
        queued = dict(lc(5.0, 5.0, 55.0), queued_ms=[0.0, 0.0, 50.0])
        self.assertEqual(coloc.summary([window("alone", 0, queued)])["time_left"], 0.9)


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


class Noise(unittest.TestCase):
    """Made-up rounds of a program whose requests take the host 8 ms and the device 0.1 ms."""

    def served(self, host=8.0, wait=0.1, count=200, **more):
        waits = [wait + 0.0001 * i for i in range(count)]
        whole = [host + 0.001 * (i % 7) + waits[i] for i in range(count)]
        return dict(lc(*whole, rate=50.0), wait_ms=waits, queued_ms=[0.0] * count, **more)

    def rounds(self, alone=(8.0, 8.1, 7.9, 8.0, 8.05), xsched=None, work=1000.0):
        found = []
        for number, host in enumerate(alone):
            mine = (xsched or {}).get(number, self.served(host, 0.3))
            found += [window("alone", number, self.served(host)), window("best-effort", number, be(work + number))]
            found += [window("mps-prio", number, self.served(host, 2.0), be(800.0)), window("xsched", number, mine, be(700.0))]
        return found

    def test_quiet_rounds_are_all_shown(self):
        found = coloc.summary(self.rounds())
        self.assertNotIn("marked", found)
        row = found["systems"]["xsched"]
        self.assertEqual((row["windows"], "left_out" in row, "noisy" in row), (5, False, False))
        self.assertEqual([round(v, 3) for v in row["wait_beyond_alone"]["p99"]], [0.2] * 3)
        self.assertEqual(row["wait_beyond_alone_by_round"]["p99"], {"median": 0.2, "min": 0.2, "max": 0.2, "n": 5})
        self.assertNotIn("left out", coloc.table(found))

    def test_a_round_whose_alone_is_unlike_the_others_is_left_out_of_every_system(self):
        windows = self.rounds(alone=(8.0, 10.0, 7.9, 8.0, 8.05))
        found = coloc.summary(windows)
        self.assertEqual(found["marked"], [{"system": None, "round": 1, "why": ["alone's P50 is 25 % above the median of rounds"]}])
        self.assertEqual([row["left_out"] for row in found["systems"].values()], [1] * 4)
        self.assertEqual(found["systems"]["xsched"]["n"], 4 * 200)
        text = coloc.table(found)
        self.assertIn("| xsched, 1 of 5 left out | request |", text)
        self.assertIn("| all | 1 | alone's P50 is 25 % above the median of rounds |", text)
        self.assertIn("| best-effort, 1 of 5 left out | rn50 1002.5 |", text)
        everything = coloc.summary(windows, leave_out=False)
        self.assertEqual((everything["systems"]["xsched"]["n"], "marked" in everything), (1000, False))
        self.assertNotIn("left out", coloc.table(everything))
        with tempfile.TemporaryDirectory() as work:
            for one in windows:
                records.append(f"{work}/c.jsonl", one)
            command = [sys.executable, HERE / "coloc.py", "--bin", "/x", "--summary", "--out", f"{work}/c.jsonl"]
            shown = [subprocess.run([*command, *more], capture_output=True, text=True).stdout for more in ((), ("--noisy",))]
        self.assertEqual(["| xsched, 1 of 5 left out | request" in text for text in shown], [True, False])
        self.assertEqual(["| xsched | request" in text for text in shown], [False, True])

    def test_the_tail_of_the_wait_marks_a_round_where_chance_does_not_explain_it(self):
        def alone(number, tail, slow):
            said = self.served()
            said["wait_ms"] = [wait + (tail if i < slow else 0) for i, wait in enumerate(said["wait_ms"])]
            return window("alone", number, said)

        windows = [alone(0, 0, 0), alone(1, 0.5, 10), alone(2, 0, 0), alone(3, 0.5, 1), alone(4, 0, 0)]
        why = figures.marks(windows)[1]
        self.assertEqual(list(why), [1], "one request of 200 is no tail")
        self.assertRegex(why[1][0], r"alone's P99 of the wait is \d+ % above the median of rounds")
        few = [dict(w, roles=[{k: v[:99] if isinstance(v, list) else v for k, v in r.items()} for r in w["roles"]]) for w in windows]
        self.assertEqual(figures.marks(few)[1], {}, "the greatest of 99 values is no P99")

    def test_differences_as_short_as_a_wake_up_are_none(self):
        windows = [window("alone", n, self.served(0.05, wait)) for n, wait in enumerate((0.05, 0.05, 0.065))]
        self.assertEqual(figures.marks(windows), ({}, {}))

    def test_a_window_with_a_longer_hosts_part_is_left_out_by_itself(self):
        noisy = {2: self.served(9.0, 0.3), 3: self.served(8.2, 0.3)}
        found = coloc.summary(self.rounds(xsched=noisy))
        why = [{"system": "xsched", "round": 2, "why": ["the host's part is 1.10 ms beyond alone's, 14 % of a request"]}]
        self.assertEqual(found["marked"], why)
        self.assertEqual((found["systems"]["xsched"]["left_out"], found["systems"]["mps-prio"].get("left_out")), (1, None))
        self.assertIn("| xsched, 1 of 5 left out | rn50 700.0", coloc.table(found))

    def test_waits_at_a_gate_are_scheduling_and_no_noise(self):
        held = {2: self.served(9.0, 0.3, gate_ms=200 * 1.1)}
        found = coloc.summary(self.rounds(xsched=held))
        self.assertNotIn("marked", found)
        self.assertEqual(found["systems"]["xsched"]["n"], 1000)
        # And a longer wait for the device is none, however long.
        self.assertNotIn("marked", coloc.summary(self.rounds(xsched={2: self.served(7.9, 50.0)})))

    def test_a_system_of_noise_only_is_shown_with_the_word(self):
        windows = self.rounds(xsched={n: self.served(9.5, 0.3) for n in range(5)})
        found = coloc.summary(windows)
        row = found["systems"]["xsched"]
        self.assertEqual((row["noisy"], row["windows"], row["n"], "left_out" in row), (True, 5, 1000, False))
        text = coloc.table(found)
        self.assertIn("| xsched, noise | request |", text)
        self.assertIn("| xsched, noise | rn50 700.0", text)
        self.assertEqual(text.count("the host's part is"), 5)

    def test_each_system_is_compared_with_alone_of_its_own_rounds(self):
        """Rounds 0 and 1 are one run, 2 and 3 another with other systems, in which the host is a little slower."""
        windows = [window("alone", n, self.served(8.0 if n < 2 else 8.6)) for n in range(4)]
        windows += [window("xsched" if n < 2 else "mps-prio", n, self.served(8.0 if n < 2 else 8.6)) for n in range(4)]
        found = coloc.summary(windows)["systems"]
        self.assertEqual((found["xsched"]["p50_to_alone"], found["mps-prio"]["p50_to_alone"]), (1.0, 1.0))

    def tokens(self, gap, wait, count=40):
        said = llm([8.0 + 0.01 * i for i in range(count)], [[gap + 0.001 * i, gap] for i in range(count)])
        return dict(said, gap_wait_ms=[wait] * (2 * count))

    def test_token_gaps_are_judged_by_their_own_wait(self):
        windows = []
        for number in range(3):
            windows += [window("alone", number, self.tokens(50.0, 5.0)), window("xsched", number, self.tokens(50.5, 5.5))]
            windows += [window("native", number, self.tokens(60.0, 15.0)), window("noisy", number, self.tokens(55.0, 5.0))]
        found = coloc.summary([dict(w, mix="gen+train") for w in windows])
        row = found["systems"]["xsched"]
        self.assertEqual(row["gap_wait_beyond_alone"]["p99"], [0.5] * 3)
        self.assertEqual([round(v, 2) for v in row["gap_by_wait"]["p50"]], [1.01] * 3)
        self.assertEqual([m["system"] for m in found["marked"]], ["noisy"] * 3)
        self.assertIn("10 % of a token gap", found["marked"][0]["why"][0])
        self.assertEqual([round(v, 2) for v in found["systems"]["native"]["gap_wait_beyond_alone"]["p50"]], [10.0] * 3)
        # Waits that were not measured tell nothing.
        silent = [dict(w, roles=[dict(r, wait_ms=[0.0] * 40, gap_wait_ms=[0.0] * 80) for r in w["roles"]]) for w in windows]
        found = coloc.summary(silent)
        self.assertNotIn("marked", found)
        self.assertNotIn("gap_by_wait", found["systems"]["xsched"])

    def test_work_is_related_to_other_systems(self):
        windows = self.rounds()
        for number in range(5):
            told = be(630.0), dict(be(4.0), role="train")
            windows += [window("xsched-inside", number, self.served(8.0, 0.15), *told)]
        windows = [dict(w, mix="bert-lc+bert-be*5") for w in windows]
        row = coloc.summary(windows)["systems"]["xsched-inside"]
        self.assertEqual((row["work"]["work to xsched"][0], row["work"]["work to mps-prio"][0]), (0.9, 0.7875))
        said = {v["limit"]: v["verdict"] for v in row["sides"]}
        self.assertEqual(list(said.values()), ["met", "missed", "missed"])
        # Rounds of different runs: medians, of which chance says nothing.
        apart = [dict(w, round=w["round"] + 9) if w["system"] == "xsched-inside" else w for w in windows]
        work = coloc.summary(apart)["systems"]["xsched-inside"]["work"]
        self.assertEqual(work["work to xsched"], [0.9, None, None])

    def test_targets_name_measures_and_systems_that_there_are(self):
        for mix, by in limits.SIDES.items():
            coloc.parse_mix(mix)
            self.assertLessEqual(set(by), set(systems.BUILT_IN))
            for limit in (limit for wanted in by.values() for limit in wanted):
                self.assertIn(limit.measure, limits.WORDS)


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

    def test_best_effort_programs_are_asked_into_the_pool_and_the_urgent_one_is_not(self):
        pool, time = (systems.Variant(*systems.BUILT_IN[name]) for name in ("xsched-pool", "xsched-time"))
        self.assertEqual((pool.options_of("lc"), pool.options_of("be")), ([], ["--share", "pool"]))
        self.assertEqual(time.options_of("lc"), ["--share", "time"])
        self.assertEqual(systems.Variant(*systems.BUILT_IN["xsched"]).options_of("be"), [])
        self.assertIsNone(pool.wrong_share("lc", "time"))
        self.assertIsNone(pool.wrong_share("be", "pool"))
        self.assertIsNone(time.wrong_share("be", None))
        self.assertIn("is in a pool", pool.wrong_share("lc", "pool"))
        self.assertIn("shares by time", pool.wrong_share("be", "time"))
        self.assertIn("in no pool", pool.wrong_share("normal", None))
        self.assertIn("shares by pool instead of time", time.wrong_share("be", "pool"))

    def test_variants_put_urgent_programs_inside_and_leave_out_priorities(self):
        inside = systems.Variant("@pool.urgent=inside @pool.proven_minutes=0 @x='[1]' @y='\"z\"' class:none anywhere:llm-be")
        self.assertEqual(inside.config, ['pool.urgent = "inside"', "pool.proven_minutes = 0", "x = [1]", 'y = "z"'])
        self.assertEqual((inside.urgent_place, inside.priority_of("lc"), inside.priority_of(3)), ("inside", [], []))
        plain = systems.Variant()
        self.assertEqual((plain.urgent_place, plain.priority_of("lc"), plain.priority_of(3)), ("outside", ["--priority", "high"], ["--priority", 3]))
        for wrong in ("class:high", "@x=["):
            with self.assertRaises(ValueError):
                systems.Variant(wrong)
        self.assertEqual(systems.Variant(*systems.BUILT_IN["xsched-noyield"]).daemon_env, {"XSCHED_YIELD": "0"})

    def test_urgent_programs_are_in_the_inner_pool_where_they_were_put_there_and_nowhere_else(self):
        inside, flags = (systems.Variant(*systems.BUILT_IN[name]) for name in ("xsched-inside", "xsched-noflags"))
        auto = systems.Variant("@pool.urgent=auto")
        for variant in (inside, flags):
            for kind, role in (("lc", "rn18"), ("be", "rn50"), ("normal", "llm-low")):
                self.assertIsNone(variant.wrong_share(kind, "pool", "inner", role))
                self.assertIn("is in the outer pool", variant.wrong_share(kind, "pool", "outer", role))
                self.assertIn("does not tell the side", variant.wrong_share(kind, "pool", None, role))
                self.assertIn("in no pool: it shares by time", variant.wrong_share(kind, "time", None, role))
            for place in (("pool", "outer"), ("pool", "inner"), ("time", None)):
                self.assertIsNone(variant.wrong_share("be", *place, "gemm"), "its kernels are long")
        for place in (("pool", "inner"), ("pool", "outer"), ("time", None)):
            self.assertIsNone(auto.wrong_share("lc", *place, "rn18"), "it is as the daemon finds best")
        self.assertIn("though it is urgent", systems.Variant().wrong_share("lc", "pool", "inner", "rn18"))
        self.assertIn("though it is urgent", systems.Variant("@pool.urgent=outside").wrong_share("lc", "pool", "inner", "rn18"))
        anywhere = systems.Variant(f"{systems.INSIDE} anywhere:llm-be")
        self.assertIsNone(anywhere.wrong_share("be", "pool", "outer", "llm-be"))
        timed = systems.Variant(f"{systems.INSIDE} --share time")
        self.assertIn("shares by pool instead of time", timed.wrong_share("be", "pool", "inner", "rn50"))

    def test_programs_that_share_otherwise_are_trouble(self):
        def program(share):
            group = dict(launches=3, level=2, state="idle", wait_us=1500, yielding=dict(held_us=500))
            return dict(pid=7, priority=-128, share=share, pool="outer", pool_why=self.why, groups=[group])

        self.why = None

        class Daemon:
            def ps(self):
                return {"programs": [program(self.share)]}

            def stop(self):
                pass

        class Worker:
            name, kind, process = "train", "be", type("P", (), {"pid": 7})

            def last_words(self):
                return "no MPS"

        with tempfile.TemporaryDirectory() as work, systems.Site("/nowhere", work) as site:
            site.daemons["xsched-pool"] = daemon = Daemon()
            daemon.share = "pool"
            site.require_seen("xsched-pool", [Worker()])
            self.assertEqual([site.seen("xsched-pool")[0][key] for key in ("share", "pool")], ["pool", "outer"])
            self.assertEqual((site.gate_waits("xsched-pool"), site.gate_waits("native")), ({7: 2.0}, {}))
            daemon.share = "time"
            with self.assertRaises(systems.Trouble) as told:
                site.require_seen("xsched-pool", [Worker()])
            self.assertEqual(
                str(told.exception), "train is in no pool: it shares by time under xsched-pool; no MPS"
            )
            site.daemons["xsched-inside"], daemon.share, self.why = daemon, "pool", "its kernels take up to 4.2 ms"
            with self.assertRaises(systems.Trouble) as told:
                site.require_seen("xsched-inside", [Worker()])
            why = "train is in the outer pool, not the inner one under xsched-inside (its kernels take up to 4.2 ms)"
            self.assertIn(why, str(told.exception))

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
            "--noisy",  # how a busy machine is seen is not what is tested
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

    def test_answers_in_tokens_beside_training(self):
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "c.jsonl"
            done = self.coloc(out, "--secs", "1", "llm+train+llm-low")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("coloc: llm+train+llm-low: 6 windows of 1 s", done.stderr)
            windows = [r for r in records.load(out) if r["bench"] == "coloc"]
            by = {(w["system"], w["round"]): w for w in windows}
            self.assertEqual([r["role"] for r in by["best-effort", 0]["roles"]], ["train", "llm-low"])
            self.assertEqual({(w["arrivals"], w["run"]) for w in windows}, {("poisson", windows[0]["run"])})
            said = by["native", 1]["roles"][0]
            self.assertEqual((said["mode"], len(said["first_ms"]) + said["unserved"]), ("poisson", 4))
            self.assertEqual(len(said["gap_ms"]), 31 * len(said["first_ms"]))
            for text in ("| native | token gap |", "| native, lower class | first token |", "poisson arrivals"):
                self.assertIn(text, done.stdout)
            report = Path(work) / "report"
            subprocess.run([sys.executable, HERE / "report.py", work, "--out", report], check=True, capture_output=True)
            self.assertIn("token gap", (report / "report.md").read_text())
            self.assertIn("llm+train+llm-low", json.loads((report / "report.json").read_text())["coloc"])

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


class Sides(unittest.TestCase):
    MIX = "bert-lc+bert-be*5"

    def test_all_systems_of_a_run_fit_on_a_gpu_and_have_their_own_alone(self):
        for mix in limits.SIDES:
            args = sides.arguments([mix, "--bin", "/x", "--out", "/nowhere/x.jsonl"])
            roles_ = coloc.parse_mix(mix)
            names = [name for group in args.groups for name in group]
            self.assertLessEqual({*limits.SIDES[mix], "native", "xsched", "mps-prio"}, set(names), mix)
            for number, group in enumerate(args.groups):
                self.assertLessEqual(coloc.memory_gib(roles_, group), sides.MOST_GIB, mix)
                self.assertEqual(group[:2], ["alone", "best-effort"])
                one = sides.of_run(args, number, group, 100)
                self.assertEqual((one.first_round, one.rounds, one.secs), (number * args.rounds, args.rounds, args.secs))
            self.assertTrue(any({"xsched", "xsched-inside"} <= set(group) for group in args.groups), mix)
            took = sum(
                coloc.start_seconds(roles_, group) + args.rounds * coloc.round_seconds(roles_, group, args.secs)
                for group in args.groups
            )
            self.assertLess(took, 540, mix)
        self.assertEqual([len(sides.runs(mix, ["alone", "native", *sides.COMPARED])) for mix in ("rn18+rn50", "rn18+rn50+gemm")], [1, 2])

    def test_a_shorter_deadline_has_shorter_windows_then_fewer_rounds_then_none(self):
        groups = sides.runs(self.MIX, ["alone", "best-effort", *sides.COMPARED])
        found = [sides.schedule(self.MIX, groups, deadline) for deadline in (540, 200, 150, 90)]
        self.assertEqual(found[0], (5, 6.0))
        self.assertEqual([number for number, _ in found[1:3]], [5, 4])
        self.assertTrue(3 <= found[1][1] < 6 and 3 <= found[2][1] < 6, found)
        self.assertIsNone(found[3])
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as end:
            sides.arguments([self.MIX, "--bin", "/x", "--deadline", "60"])
        self.assertEqual((end.exception.code, "too short" in said.getvalue()), (2, True))

    def test_what_was_begun_goes_on_with_windows_of_the_same_length(self):
        with tempfile.TemporaryDirectory() as work:
            out, words = Path(work) / "s.jsonl", [self.MIX, "--bin", "/x", "--out", f"{work}/s.jsonl"]
            records.append(out, dict(bench="sides", mix=self.MIX, build=coloc.machine.build("/x"), rounds=4, secs=3.5))
            args = sides.arguments([*words, "--deadline", "60"])
            self.assertEqual((args.rounds, args.secs), (4, 3.5))
            self.assertEqual(sides.arguments([*words, "--rounds", "3"]).rounds, 3)
            self.assertNotEqual(sides.arguments([*words, "--rounds", "3"]).secs, 3.5)

    def test_one_command_measures_and_prints_a_row_for_each_system(self):
        with tempfile.TemporaryDirectory() as work:
            out, drawn = Path(work) / "s.jsonl", Path(work) / "s.svg"
            words = ["--worker", HERE / "standin/worker.py", "--bin", "/nowhere", "--out", out, "--systems", "alone,best-effort,native"]
            command = [sys.executable, HERE / "sides.py", "rn18+rn50", *words, "--rounds", 2, "--secs", 0.3, "--svg", drawn]
            done = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            for name in ("alone", "best-effort", "native"):
                self.assertRegex(done.stdout, rf"\n\| {name}[^|]* \|")
            self.assertEqual(len([r for r in records.load(out) if r["bench"] == "coloc"]), 6)
            self.assertIn("<circle", drawn.read_text())
            again = subprocess.run([str(w) for w in (*command, "--summary")], capture_output=True, text=True, timeout=60)
            self.assertEqual((again.returncode, again.stdout), (0, done.stdout))


class Curve(unittest.TestCase):
    MIX = "bert-lc+bert-be*5"
    POINTS = {  # system -> wait for the device in ms, best-effort requests per s
        "native": (9.3, 620.0),
        "mps-prio": (0.09, 943.0),
        "xsched": (0.13, 475.0),
        "xsched-noyield": (0.11, 665.0),
        "xsched-inside": (0.12, 860.0),
        "xsched-noflags": (0.121, 858.0),
    }

    def file(self, work, points):
        out, draw = Path(work) / "c.jsonl", random.Random(7)

        def served(wait):
            waits = [wait * draw.uniform(0.8, 1.0) for _ in range(300)]
            return dict(lc(*[8.0 + wait for wait in waits], rate=50.0), role="bert-lc", wait_ms=waits)

        for number in range(3):
            told = {"alone": [served(0.1)], "best-effort": [be(1000.0, "bert-be")]}
            told |= {name: [served(wait), *[be(work / 5, "bert-be")] * 5] for name, (wait, work) in points.items()}
            for name, said in told.items():
                records.append(out, dict(window(name, number, *said), mix=self.MIX))
        return out

    def drawn(self, points, *words):
        with tempfile.TemporaryDirectory() as work:
            picture = Path(work) / "c.svg"
            command = [sys.executable, HERE / "curve.py", self.file(work, points), "--svg", picture, *words]
            done = subprocess.run([str(w) for w in command], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return picture.read_text()

    def labels(self, text):
        """Words -> left, top, right and bottom of what is written beside the points."""
        places = re.findall(r'<text x="([0-9.]+)" y="([0-9.]+)"[^>]*font-size:12px[^>]*>([^<]*)</text>', text)
        return {w: (float(x), float(y) - 11, float(x) + svg.room(w, 12), float(y) + 3) for x, y, w in places if "less is better" not in w}

    def test_every_system_is_a_point_and_no_label_covers_another(self):
        alike = {name: (0.11 + n / 1000, 800.0 + n) for n, name in enumerate(self.POINTS)}
        for points in (self.POINTS, alike):
            text = self.drawn(points)
            self.assertEqual(text.count("<circle"), len(points))
            wide, high = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', text).groups())
            labels = list(self.labels(text).items())
            self.assertEqual(len([w for w, _ in labels if w in dict(curve.NAMES.values())]), len(points))
            dots = [tuple(map(float, found)) for found in re.findall(r'<circle [^>]*cx="([0-9.]+)" cy="([0-9.]+)"', text)]
            for n, (words, mine) in enumerate(labels):
                self.assertTrue(mine[0] >= 0 and mine[2] <= wide and mine[1] >= 0 and mine[3] <= high, words)
                for other, theirs in labels[n + 1 :]:
                    self.assertFalse(curve.overlap(mine, theirs), f"{words} covers {other}")
                for x, y in dots:
                    self.assertFalse(curve.overlap(mine, (x - 5, y - 5, x + 5, y + 5)), f"{words} covers a point")

    def test_points_lie_where_their_figures_are(self):
        text = self.drawn({"native": (9.1, 500.0), "xsched": (0.05, 250.0), "xsched-inside": (0.19, 750.0)})
        dots = re.findall(r'<circle class="(\w+)" cx="([0-9.]+)" cy="([0-9.]+)"', text)
        native, outside, inside = [(name, float(x), float(y)) for name, x, y in dots]
        self.assertEqual((native[0], outside[0]), ("native", "xsched"))
        self.assertEqual(outside[1], curve.LEFT, "no more than alone")
        self.assertLess(outside[1], inside[1])
        self.assertLess(inside[1], native[1])
        # Equal steps of work are equal steps on the page.
        self.assertAlmostEqual(outside[2] - native[2], native[2] - inside[2], delta=0.2)
        self.assertIn(">-0.05 ms · 250<", text)
        self.assertIn(">best-effort requests per s (more is better)<", text)

    def test_mistakes_are_told(self):
        with tempfile.TemporaryDirectory() as work:
            out = self.file(work, {"native": (9.3, 620.0)})
            for words in ([Path(work) / "none.jsonl"], [out, "--mix", "rn18+rn50"]):
                command = [sys.executable, HERE / "curve.py", *words, "--svg", Path(work) / "c.svg"]
                done = subprocess.run([str(w) for w in command], capture_output=True, text=True)
                self.assertEqual((done.returncode, "error:" in done.stderr), (2, True))


class Published(unittest.TestCase):
    """The pages and pictures are what the raw files say."""

    ROOT = HERE.parents[1]
    BENCHMARKS = ROOT / "docs/benchmarks"

    def setUp(self):
        if not (self.ROOT / "README.md").exists() or not self.BENCHMARKS.exists():
            self.skipTest("a bundle has no README of the project")

    def readme(self):
        return (self.ROOT / "README.md").read_text()

    def test_tables_and_pictures_are_what_their_commands_make(self):
        with tempfile.TemporaryDirectory() as work:
            for page in readme.PAGES:
                target = Path(work) / page
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes((self.ROOT / page).read_bytes())
            raw = Path(work) / "docs/benchmarks"
            shutil.copytree(self.BENCHMARKS, raw)
            pictures = ["h100/p99.svg", "h100/p99-all.svg", "h200/p99.svg"]
            for picture in pictures:
                (raw / picture).unlink()
            before = os.getcwd()
            os.chdir(work)
            try:
                for page in readme.PAGES:
                    text = (self.ROOT / page).read_text()
                    self.assertEqual(len(readme.MADE.findall(text)), 1, page)
                    self.assertEqual(readme.rewritten(text), text, f"{page}: python3 benches/cuda/readme.py --write")
            finally:
                os.chdir(before)
            for picture in pictures:
                self.assertEqual((raw / picture).read_text(), (self.BENCHMARKS / picture).read_text(), picture)

    def test_the_readmes_picture_has_the_figures_of_its_table(self):
        picture = (self.BENCHMARKS / "h100/p99.svg").read_text()
        for name, *figures in self.rows():
            self.assertIn(f">{name}<", picture)
            for figure in figures[: len(readme.SYSTEMS)]:
                self.assertIn(f">{figure.strip('*~')}<", picture)

    def rows(self):
        table = readme.MADE.search(self.readme())[3]
        return [line.strip("| ").split(" | ") for line in table.splitlines() if "×" in line]

    def test_the_readme_has_one_figure_a_cell_the_best_in_bold_and_one_commit_at_most(self):
        rows, systems = self.rows(), len(readme.SYSTEMS)
        self.assertEqual([len(row) for row in rows], [1 + 2 * systems] * len(readme.ROWS))
        for _, *cells in rows:
            self.assertTrue(all(re.fullmatch(r"(\*\*)?~?[0-9.]+ [×%]\1?", cell) for cell in cells), cells)
            for mine, best in ((cells[:systems], min), (cells[systems:], max)):
                values = [float(cell.strip("*~").split()[0]) for cell in mine]
                self.assertEqual([cell.startswith("**") for cell in mine], [value == best(values) for value in values])
        commits = re.findall(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,12}\b", self.readme())
        self.assertLessEqual(len(commits), 1, commits)

    def test_the_drawing_of_the_architecture_is_that_of_its_script(self):
        sys.path.insert(0, str(self.ROOT / "benches"))
        import drawing

        self.assertEqual((self.ROOT / "docs/pictures/architecture.svg").read_text(), drawing.architecture())

    def test_a_timeline_shows_runs_and_waits_of_its_part_of_a_record(self):
        def group(name, of, *spans):
            told = [{"doing": doing, "from_us": begin, "to_us": end} for doing, begin, end in spans]
            return {"id": f"g{name}", "program": {"name": name, "class": of, "pid": 1}, "spans": told}

        low = group("train", "low", ("runs", 0, 9_000), ("leaves", 9_000, 10_000), ("waits", 10_000, 40_000), ("runs", 90_000, 99_000))
        high = group("serve", "high", ("runs", 10_000, 40_000))
        trace = {"from_us": 0, "to_us": 100_000, "groups": [low, high, {"id": "g9", "program": None, "spans": []}]}
        with tempfile.TemporaryDirectory() as work:
            record, picture = Path(work) / "t.json", Path(work) / "t.svg"
            record.write_text(json.dumps(trace))
            script = [sys.executable, self.ROOT / "benches/timeline.py"]
            subprocess.run([*script, record, "--svg", picture, "--from", "5", "--ms", "50"], check=True)
            text = picture.read_text()
            bars = re.findall(r'<rect class="(xsched|alone)" x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)" height="26.0"', text)
            # 690 pixels for 50 ms: from 10 to 40 ms of the record for the urgent one, which comes first, from 5 to 9 for the other one.
            self.assertEqual(bars, [("xsched", "219.0", "414.0"), ("alone", "150.0", "55.2")])
            self.assertIn('<polyline class="alone-line" points="219.0,131.0 633.0,131.0"', text)
            self.assertLess(text.index(">serve<"), text.index(">train<"))
            record.write_text(json.dumps({**trace, "groups": []}))
            done = subprocess.run([*script, record, "--svg", picture], capture_output=True, text=True)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)

    def test_the_readmes_first_rows_are_those_that_it_says_xsched_is_for(self):
        first = re.search(r"\*\*xsched is for the first (\w+) rows\*\*", self.readme())[1]
        first = ["no", "one", "two", "three", "four"].index(first)
        worth = []
        for _, *cells in self.rows():
            native, mps, xsched = (float(cell.strip("*~").split()[0]) for cell in cells[: len(readme.SYSTEMS)])
            worth.append(min(native, mps) / xsched >= 2)
        self.assertEqual(worth, [True] * first + [False] * (len(worth) - first), "twice as good as the better of the others")

    def test_all_charts_have_the_palette_of_the_others(self):
        palette = {colour for pair in (svg.INK, svg.LINES, *svg.FILLS.values()) for colour in pair}
        charts = [self.ROOT / "docs/pictures/demo.svg", *self.BENCHMARKS.rglob("*.svg")]
        self.assertGreater(len(charts), 5)
        for chart in charts:
            used = {colour.lower() for colour in re.findall(r"#[0-9A-Fa-f]{6}\b", chart.read_text())}
            self.assertEqual(used - palette, set(), chart)
        # In the key of a chart that the command draws, a stroke stands before the words for it.
        key = re.compile(r'stroke="(#[0-9A-Fa-f]{6})"[^>]*/>\s*<text [^>]*>\s*(alone|together, without xsched|together, under xsched):')
        meant = {"alone": svg.ALONE, "together, without xsched": svg.NATIVE, "together, under xsched": svg.XSCHED}
        told = {words: colour.lower() for colour, words in key.findall((self.ROOT / "docs/pictures/demo.svg").read_text())}
        self.assertEqual(told, {words: light for words, (light, _) in meant.items()})

    def test_no_bar_is_cut_and_no_text_lies_outside(self):
        names = ("h100/p99.svg", "h100/p99-all.svg", "h200/p99.svg", "soak-pocl.svg", "h100/soak-cuda.svg")
        pictures = [self.ROOT / "docs/pictures" / f"{name}.svg" for name in ("architecture", "time-sharing")]
        for name in [*(self.BENCHMARKS / name for name in names), *pictures]:
            text = name.read_text()
            wide, high = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', text).groups())
            self.assertNotIn("→", text)
            for x, y, more, words in re.findall(r'<text x="([0-9.]+)" y="([0-9.]+)"([^>]*)>([^<]*)</text>', text):
                size = int((re.search(r"font-size:(\d+)px", more) or [None, "13"])[1])
                anchor = (re.search(r'text-anchor="(\w+)"', more) or [None, "start"])[1]
                begin = float(x) - svg.room(words, size) * {"start": 0, "middle": 0.5, "end": 1}[anchor]
                self.assertGreaterEqual(begin, 0, f"{name}: {words}")
                self.assertLessEqual(begin + svg.room(words, size), wide, f"{name}: {words}")
                self.assertLessEqual(float(y), high, f"{name}: {words}")
            for x, width in re.findall(r'<rect class="(?!paper)\w+" x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)"', text):
                self.assertLessEqual(float(x) + float(width), wide, name)


if __name__ == "__main__":
    unittest.main()
