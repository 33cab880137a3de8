"""The ladder's own judgement and bookkeeping, without a GPU. Run with `python3 -m unittest`."""

import ctypes
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
for folder in ("programs", "../../lib", "../../../benches/cuda"):
    sys.path.insert(0, str(HERE / folder))

import catalog  # noqa: E402
import checks  # noqa: E402
import harness  # noqa: E402
import judge  # noqa: E402
import ladder  # noqa: E402
import plan  # noqa: E402

NONE = {"attach": 0, "passthrough": 0, "error": 0}
ROWS = HERE / "../../../crates/xsched-shim/src/platform/cuda"


def outcome(text, status=0, stderr="", timed_out=False):
    return harness.Outcome(status, text, stderr, 1.0, timed_out)


def program(name="p", **options):
    return catalog.Program(name, ["p"], options.pop("seconds", 1), **options)


class Comparing(unittest.TestCase):
    def reference(self, *texts, **options):
        reference, problem = judge.reference([outcome(text, **options) for text in texts])
        self.assertIsNone(problem)
        return reference

    def test_what_is_repeatable_must_stay_the_same_to_the_bit(self):
        reference = self.reference("a #01 1.0\n", "a #01 1.0\n")
        self.assertIsNone(judge.differences(reference, outcome("a #01 1.0\n")))
        self.assertIn("1 of 1 lines", judge.differences(reference, outcome("a #02 1.0\n")))
        self.assertIn("1 of 1 lines", judge.differences(reference, outcome("a #01 1.00000001\n")))

    def test_what_varies_by_itself_may_vary_about_as_much(self):
        reference = self.reference("a #01 1.000 5\nb #07 3", "a #02 1.001 5\nb #07 3")
        self.assertIsNone(judge.differences(reference, outcome("a #03 1.004 5\nb #07 3")))
        self.assertIsNotNone(judge.differences(reference, outcome("a #03 1.01 5\nb #07 3")))
        self.assertIsNotNone(judge.differences(reference, outcome("a #03 1.001 5\nb #08 3")))
        self.assertIsNotNone(judge.differences(reference, outcome("a #03 nan 5\nb #07 3")))
        self.assertIsNotNone(judge.differences(reference, outcome("a ERROR 1.001 5\nb #07 3")))

    def test_a_third_bare_run_widens_what_may_vary(self):
        two = [outcome("a #01 1.0"), outcome("a #02 1.1")]
        self.assertTrue(judge.needs_third(two))
        self.assertFalse(judge.needs_third([two[0], two[0]]))
        reference, _ = judge.reference([*two, outcome("a #03 1.5")])
        self.assertIsNone(judge.differences(reference, outcome("a #04 2.9")))

    def test_words_that_vary_are_no_reference(self):
        for first, second in (("a yes", "a no"), ("a 1", "a 1 2"), ("a 1", "b 1"), ("a 1", "a 1\nb 2")):
            reference, problem = judge.reference([outcome(first), outcome(second)])
            self.assertIsNone(reference)
            self.assertIn("each time", problem)

    def test_statuses_and_missing_lines(self):
        reference = self.reference("a 1\nb 2", "a 1\nb 2", status=1)
        self.assertIsNone(judge.differences(reference, outcome("a 1\nb 2", 1)))
        self.assertIn("exit status 0 instead of 1", judge.differences(reference, outcome("a 1\nb 2")))
        self.assertIn("2 lines bare, 1 now", judge.differences(reference, outcome("a 1", 1)))
        self.assertIn("did not end", judge.differences(reference, outcome("a 1\nb 2", 1, timed_out=True)))
        self.assertIn("exit statuses", judge.reference([outcome("a"), outcome("a", 1)])[1])

    def test_stderr_counts_but_for_numbers_and_what_the_scheduler_says(self):
        runs = [outcome("a", stderr=f"warning {n} at 0x{n}f\n") for n in (1, 2)]
        reference, _ = judge.reference(runs)
        self.assertIsNone(judge.differences(reference, outcome("a", stderr="xsched: hello\nwarning 77 at 0xabc\n")))
        self.assertIn("stderr", judge.differences(reference, outcome("a", stderr="error\n")))
        reference, _ = judge.reference([outcome("a", stderr="x"), outcome("a", stderr="y")])
        self.assertIsNone(judge.differences(reference, outcome("a", stderr="z")))


class Counting(unittest.TestCase):
    def seen(self, pid=7, **calls):
        return {"pid": pid, "total": sum(calls.values()), "calls": calls, "recorded": {}, "failed": {}}

    def reported(self, launches, pid=7, **added):
        return {"pid": pid, "launches": launches, "unscheduled": NONE, "added": added}

    def test_equal_counts_pass_and_others_do_not(self):
        self.assertIsNone(judge.miscounted([self.seen(cuA=3)], [self.reported(3)]))
        self.assertIn("counted 2", judge.miscounted([self.seen(cuA=3)], [self.reported(2)]))
        self.assertIn("counted 4", judge.miscounted([self.seen(cuA=3)], [self.reported(4)]))

    def test_what_the_library_added_is_taken_off_where_it_is_of_a_counted_kind(self):
        self.assertIsNone(
            judge.miscounted([self.seen(cuA=3, cuB=2)], [self.reported(3, cuB=2, cuStreamWriteValue32_v2=9)])
        )

    def test_every_process_is_held_against_its_own(self):
        self.assertIn("reports nothing", judge.miscounted([self.seen(cuA=3)], []))
        self.assertIn("saw no such process", judge.miscounted([], [self.reported(3)]))
        self.assertIsNone(
            judge.miscounted([self.seen(), self.seen(8, cuA=1)], [self.reported(1, 8), self.reported(0, 9)])
        )

    def test_unscheduled_commands_are_a_failure(self):
        self.assertIsNone(judge.unscheduled([self.reported(3)]))
        self.assertIn("passthrough", judge.unscheduled([self.reported(3) | {"unscheduled": NONE | {"passthrough": 1}}]))

    def functions(self):
        text = (HERE / "count/functions.h").read_text()
        return dict(re.findall(r'^    \{"(\w+)", (LAUNCH|COPY), ', text, re.MULTILINE))

    @unittest.skipUnless(ROWS.exists(), "the library's sources are not here")
    def test_the_counter_and_the_library_count_the_same_functions(self):
        # A macro's first line names its list and the class of its rows.
        text = "\n".join(file.read_text() for file in ROWS.glob("*.rs"))
        lists = re.findall(r"^\w+! \{\n    \w+: (Launch|Copy);\n(.*?)^\}", text, re.DOTALL | re.MULTILINE)
        rows = {name: kind.upper() for kind, body in lists for name in re.findall(r"^    fn (cu\w+)", body, re.MULTILINE)}
        self.assertGreater(len(rows), 100)
        self.assertEqual(self.functions(), rows)

    def test_cupti_knows_the_functions_by_these_names(self):
        path = ladder.find_cupti()
        if path is None:
            self.skipTest("no CUPTI")
        cupti, name, known = ctypes.CDLL(path), ctypes.c_char_p(), set()
        for number in range(1, 4096):
            if cupti.cuptiGetCallbackName(1, number, ctypes.byref(name)) == 0 and name.value:
                known.add(name.value.decode())
        # What came after CUDA 13.0.
        newer = ("cuFabricCpyBatchAsync", "cuMemcpyWithAttributesAsync", "cuMemcpy3DWithAttributesAsync")
        self.assertEqual([n for n in self.functions() if n not in known and not n.startswith(newer)], [])


@unittest.skipUnless(shutil.which("gcc"), "no gcc")
class CountingLibrary(unittest.TestCase):
    """count.c, called by a stand-in of CUPTI."""

    def test_outermost_successful_calls_outside_of_captures_count(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            build = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
            shared = [*build, "-fPIC", "-shared", "-o"]
            stand_in = HERE / "count/standin.c"
            subprocess.run([*shared, folder / "count.so", HERE / "count/count.c", "-ldl", "-lpthread"], check=True)
            subprocess.run([*shared, folder / "libcuda.so.1", "-DDRIVER", stand_in], check=True)
            subprocess.run([*shared, folder / "libcupti.so", "-DCUPTI", stand_in], check=True)
            subprocess.run([*build, "-o", folder / "main", stand_in, "-ldl"], check=True)
            env = dict(os.environ, LD_LIBRARY_PATH=str(folder), COUNT_CUPTI=str(folder / "libcupti.so"))
            env["COUNT_OUT"] = str(folder / "out")
            done = subprocess.run([folder / "main", folder / "count.so"], env=env, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            line, *more = harness.json_lines(folder / "out")
        self.assertEqual(more, [])
        del line["pid"]
        self.assertEqual(line, {
            "total": 3, "launches": 2, "copies": 1,
            "calls": {"cuLaunchKernel": 1, "cuLaunchKernelEx": 1, "cuMemcpyHtoDAsync_v2": 1},
            "recorded": {"cuLaunchKernel": 1, "cuLaunchKernelEx": 1},
            "failed": {"cuLaunchKernel": 1},
        })  # fmt: skip


class Planning(unittest.TestCase):
    def test_parts_share_the_programs_evenly_and_completely(self):
        everything = [program(f"p{i}", seconds=1 + i % 7) for i in range(30)]
        for parts in (1, 2, 3, 7):
            split = [plan.part(everything, k, parts) for k in range(1, parts + 1)]
            self.assertEqual(sorted(p.name for part in split for p in part), sorted(p.name for p in everything))
            costs = [sum(plan.cost(p) for p in part) for part in split]
            self.assertLessEqual(max(costs) - min(costs), max(plan.cost(p) for p in everything))

    def test_the_real_programs_have_different_names_and_known_modes(self):
        everything = catalog.programs(lambda name: Path("bin") / name)
        self.assertEqual(len({p.name for p in everything}), len(everything))
        for one in everything:
            self.assertEqual([m for m in one.modes or () if m not in plan.MODES], [], one.name)
            self.assertGreater(one.timeout, 3 * one.seconds, one.name)

    def test_words_for_a_part(self):
        self.assertEqual(plan.parse_part("2/3"), (2, 3))
        for text in ("0/3", "4/3", "2", "a/b", "1/2/3"):
            with self.assertRaises(ValueError):
                plan.parse_part(text)

    def test_modes_of_a_program(self):
        self.assertEqual(plan.modes_of(program(), ["chaos-1"]), ["bare", "chaos-1"])
        self.assertNotIn("counted", plan.modes_of(program(counted=False)))
        self.assertEqual(plan.modes_of(program(modes=("xsched",))), ["bare", "xsched"])
        self.assertIn("inside", plan.modes_of(program()))
        self.assertNotIn("inside", plan.modes_of(program(faults=True)))


class Resuming(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "results.json"

    def test_finished_runs_are_found_again(self):
        plan.Results(self.path, "build").record("p", "xsched", True, source="s")
        results = plan.Results(self.path, "build")
        self.assertTrue(results.finished("p", "xsched", "s"))
        self.assertFalse(results.finished("p", "bare", "s"))
        self.assertFalse(results.finished("p", "xsched", "changed"))

    def test_another_build_counts_for_bare_runs_only(self):
        old = plan.Results(self.path, "old")
        old.record("p", "bare", True, source="s")
        old.record("p", "xsched", True, source="s")
        new = plan.Results(self.path, "new")
        self.assertTrue(new.finished("p", "bare", "s"))
        self.assertFalse(new.finished("p", "xsched", "s"))

    def test_failed_runs_are_repeated_when_asked_for(self):
        results = plan.Results(self.path, "build")
        results.record("p", "xsched", False, source="s")
        self.assertTrue(results.finished("p", "xsched", "s"))
        self.assertFalse(results.finished("p", "xsched", "s", again=True))

    def test_a_file_of_something_else_is_refused(self):
        self.path.write_text('{"version": 99}')
        with self.assertRaises(ValueError):
            plan.Results(self.path, "build")


class Showing(unittest.TestCase):
    def shown(self, value):
        with redirect_stdout(io.StringIO()) as text:
            checks.show("name", value)
        return text.getvalue()

    def test_text_whole_numbers_and_bytes(self):
        self.assertEqual(self.shown("yes"), "name yes\n")
        self.assertEqual(self.shown(42), "name 42\n")
        self.assertRegex(self.shown(b"abc"), r"^name #[0-9a-f]{16}\n$")
        self.assertNotEqual(self.shown(b"abc"), self.shown(b"abd"))


# An `xsched` that schedules nothing: it answers as the real one does, and writes the statistics it is told to.
STAND_IN = """#!{python}
import json, os, signal, subprocess, sys
from pathlib import Path
command, arguments = sys.argv[1], sys.argv[2:]
socket = Path(arguments[arguments.index("--socket") + 1]) if "--socket" in arguments else None
if command == "daemon":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    socket.touch()
    signal.pause()
elif command == "ps":
    pids = socket.read_text().split() if socket.exists() else []
    where = Path(sys.argv[0]).with_name("where")
    programs = [dict(pid=int(pid), share="pool", pool_why="so", pool=where.read_text() if where.exists() else "inner") for pid in pids]
    print(json.dumps(dict(programs=programs)))
    sys.exit(0 if socket.exists() else 3)
elif command == "run":
    program = subprocess.Popen(arguments[arguments.index("--") + 1:])
    signal.signal(signal.SIGTERM, lambda *_: program.terminate())
    with open(socket, "a") as file:
        file.write(f"{{os.getpid()}} {{program.pid}}\\n")
    print("xsched: stand-in", file=sys.stderr)
    status = program.wait()
    with open(os.environ["XSCHED_STATS"], "a") as file:
        unscheduled = json.loads(os.environ.get("UNSCHEDULED", "{{}}"))
        line = dict(pid=program.pid, launches=5, gate_waits=1, added={{}}, unscheduled=unscheduled)
        file.write(json.dumps(line) + "\\n")
    sys.exit(status)
"""


class EndToEnd(unittest.TestCase):
    """All of the ladder but the GPU: programs that print, run bare and under the stand-in."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.options = SimpleNamespace(
            bin=self.folder, work=self.folder / "work", jobs=2, again=False, modes=["bare", "xsched", "chaos-1"]
        )
        xsched = self.folder / "xsched"
        xsched.write_text(STAND_IN.format(python=sys.executable))
        xsched.chmod(0o755)

    def climb(self, script, seconds=0.1, budget=120, unscheduled=NONE, beside=None, **options):
        """Runs one Python text on the ladder; gives the ladder, the exit code and what was printed."""
        script_file = self.folder / "script.py"
        script_file.write_text(script)
        one = catalog.Program("one", [sys.executable, str(script_file), script], seconds, counted=False, **options)
        one.env = {"UNSCHEDULED": json.dumps(unscheduled), "FOLDER": str(self.folder)}
        results = plan.Results(self.folder / "results.json", "build", {})
        tools = SimpleNamespace(counting=lambda: (None, "not here"), program=lambda name: self.folder / name)
        climbed = ladder.Ladder(self.options, results, tools, time.monotonic() + budget)
        if beside is not None:
            threading.Thread(target=beside, args=(climbed,), daemon=True).start()
        with redirect_stdout(io.StringIO()) as printed:
            for mode in self.options.modes:
                climbed.mode(mode, [one])
            code = ladder.sum_up(climbed, [one])
        return climbed, code, printed.getvalue()

    def test_a_program_that_stays_the_same_passes(self):
        climbed, code, printed = self.climb("print('a #12 1.0')")
        self.assertEqual(code, 0, printed)
        self.assertEqual(sorted(climbed.results.content["runs"]), ["one/bare", "one/chaos-1", "one/xsched"])
        self.assertIn("xsched: stand-in", printed)

    def test_results_do_not_say_where_the_checkout_lies(self):
        lie = f"import sys; print('a', '{ladder.ROOT}/testing/x.c:1'); print('{ladder.ROOT}/y.py:2', file=sys.stderr)"
        climbed, code, printed = self.climb(f"{lie}; sys.exit(1)", status=1)
        self.assertEqual(code, 0, printed)
        reference = climbed.results.content["runs"]["one/bare"]["reference"]
        self.assertEqual((reference["lines"][-1], reference["stderr"]), ("a testing/x.c:1", ["y.py:#"]))

    def test_a_program_that_differs_under_the_scheduler_fails(self):
        script = "import os; print('a', 'XSCHED_STATS' in os.environ)"
        _, code, printed = self.climb(script)
        self.assertEqual(code, 1)
        self.assertIn("-a False\n     +a True", printed)

    def test_unscheduled_commands_fail(self):
        _, code, printed = self.climb("print('a 1')", unscheduled=NONE | {"attach": 3})
        self.assertEqual(code, 1)
        self.assertIn('"attach": 3', printed)

    def inside(self, script="import time; time.sleep(1); print('a 1')"):
        """The mode `inside` beside a stand-in of the rival, and of what starts MPS."""
        self.options.modes = ["bare", "inside"]
        (self.folder / "nvidia-cuda-mps-control").touch(0o755)
        rival = f"#!{sys.executable}\nimport signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        (self.folder / "rival").write_text(f"{rival}print('rival: ready', file=sys.stderr, flush=True)\nsignal.pause()\n")
        (self.folder / "rival").chmod(0o755)
        with mock.patch.object(ladder, "TOOLS", f"{self.folder}:{os.environ['PATH']}"):
            return self.climb(script)

    def test_programs_run_inside_with_their_rival_and_tell_where_they_were(self):
        climbed, code, printed = self.inside()
        self.assertEqual(code, 0, printed)
        self.assertEqual(climbed.results.content["runs"]["one/inside"]["places"], ["inner"])
        self.assertTrue(climbed.results.content["runs"]["(rival)/inside"]["ok"])
        self.assertIn("inside: 1 of 1 programs were in the inner pool", printed)

    def test_inside_fails_where_nothing_is_inside(self):
        (self.folder / "where").write_text("outer")
        climbed, code, printed = self.inside()
        self.assertEqual(code, 1)
        self.assertIn("it is not in the inner pool but in outer: so", climbed.results.content["runs"]["(rival)/inside"]["problem"])
        self.assertNotIn("one/inside", climbed.results.content["runs"])
        # The rival is inside, the programs are not.
        (self.folder / "where").unlink()
        moves = f"'XSCHED_STATS' in os.environ and open({str(self.folder / 'where')!r}, 'w').write('outer')"
        wanders = f"import os, time; {moves}; time.sleep(1); print('a 1')"
        self.options.again = True
        _, code, printed = self.inside(wanders)
        self.assertEqual(code, 1)
        self.assertIn("FAIL inside: nothing was ever in the inner pool", printed)

    def test_nothing_is_run_twice(self):
        count = "import os; open(os.environ['FOLDER'] + '/ran', 'a').write('x'); print('a 1')"
        for _ in range(2):
            _, code, _ = self.climb(count)
            self.assertEqual(code, 0)
        self.assertEqual((self.folder / "ran").read_text(), "xxxx")  # twice bare, xsched, chaos-1

    def test_out_of_time_leaves_runs_for_the_next_call(self):
        climbed, code, _ = self.climb("print('a 1')", seconds=10, budget=5)
        self.assertEqual((code, climbed.results.content["runs"]), (ladder.OUT_OF_TIME, {}))
        self.assertEqual(self.climb("print('a 1')", seconds=10)[1], 0)

    def test_a_program_that_lacks_something_is_skipped(self):
        climbed, code, printed = self.climb("import sys; print('skip: no module x'); sys.exit(3)")
        self.assertEqual((code, climbed.results.content["skipped"]), (3, {"one": "no module x"}), printed)

    def test_a_hang_is_ended_and_told(self):
        _, code, printed = self.climb(
            "import os, signal\nif 'XSCHED_STATS' in os.environ: signal.pause()\nprint('a 1')", timeout=2
        )
        self.assertEqual(code, 1)
        self.assertIn("did not end within", printed)

    def test_told_to_end_it_leaves_nothing_behind_and_goes_on_later(self):
        script = "import os, signal\nopen(os.environ['FOLDER'] + '/up', 'w')\nsignal.pause()"
        begun = []

        def stop_when_it_runs(climbed):
            while not (self.folder / "up").exists():
                time.sleep(0.01)
            begun.extend(process.pid for process in harness.started)
            climbed.stop()

        climbed, code, _ = self.climb(script, beside=stop_when_it_runs)
        self.assertEqual((code, climbed.results.content["runs"]), (ladder.OUT_OF_TIME, {}))
        self.assertEqual(len(begun), 1)
        self.assertRaises(ProcessLookupError, os.kill, begun[0], 0)
        self.assertEqual(harness.started, set())
        self.assertEqual(self.climb("print('a 1')")[1], 0)

    def test_a_command_that_is_not_there_is_skipped(self):
        results = plan.Results(None, "build", {})
        climbed = ladder.Ladder(
            self.options, results, SimpleNamespace(counting=lambda: (None, "")), time.monotonic() + 60
        )
        with redirect_stdout(io.StringIO()):
            climbed.mode("bare", [catalog.Program("gone", ["/nonexistent/tool"], 0.1)])
        self.assertIn("gone", results.content["skipped"])


if __name__ == "__main__":
    unittest.main()
