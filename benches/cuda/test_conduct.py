"""The scripts against a stand-in driver, and through the real xsched where it is built:
`python3 -m unittest benches/cuda/test_conduct.py`. XSCHED_BIN names the folder of xsched and libxsched.so."""

import json
import os
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

import alone  # noqa: E402
import bench  # noqa: E402
import faults  # noqa: E402
import micro  # noqa: E402
import records  # noqa: E402
import report  # noqa: E402
import systems  # noqa: E402
import yields  # noqa: E402


def xsched_bin():
    """The folder of a built xsched, or none."""
    root = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))
    places = [os.environ.get("XSCHED_BIN"), HERE.parent.parent / "bin", root / "release", root / "debug"]
    return next(
        (Path(p) for p in places if p and (Path(p) / "xsched").exists() and (Path(p) / "libxsched.so").exists()), None
    )


class Dividing(unittest.TestCase):
    def test_every_job_falls_to_one_part_and_parts_are_alike(self):
        found = bench.jobs()
        for parts in (1, 3, 14):
            divided = bench.divide(found, parts)
            self.assertEqual(sorted(str(j) for p in divided for j in p), sorted(map(str, found)))
        self.assertTrue(all(sum(j.seconds for j in part) <= 480 for part in bench.divide(found, 14)))

    def test_parts_are_read(self):
        self.assertEqual(bench.part_of("2/12"), (2, 12))
        for wrong in ("0/3", "4/3", "2", "a/b", "1/"):
            with self.assertRaises(Exception):
                bench.part_of(wrong)


class Reading(unittest.TestCase):
    LINES = [{"t": 1.0, "done": 0}, {"t": 2.0, "done": 100}, {"t": 4.0, "done": 200}]

    def test_work_between_two_lines_is_in_proportion(self):
        self.assertEqual(micro.done_at(self.LINES, 1.5), 50)
        self.assertEqual(micro.done_at(self.LINES, 3.0), 150)
        self.assertEqual(micro.done_at(self.LINES, 9.0), 200)
        self.assertEqual(micro.rate_of(self.LINES, 1.5, 3.0), 100 / 1.5)

    def test_added_cost_is_taken_round_by_round(self):
        def line(case, number, ns):
            return {"case": f"{case} / own stream", "stream": "own", "round": number, "ns": ns, "cycles": 2 * ns}

        rows = report.launch(
            [line("bare", 0, 100.0), line("alone", 0, 101.0), line("bare", 1, 200.0), line("alone", 1, 203.0)]
        )
        self.assertEqual(rows[1]["added_ns"], {"median": 2.0, "min": 1.0, "max": 3.0, "n": 2})
        self.assertNotIn("added_ns", rows[0])

    def test_a_report_of_nothing_is_empty(self):
        with tempfile.TemporaryDirectory() as work:
            self.assertEqual(report.gather(work), {})
            self.assertEqual(report.markdown({}), "# Measurements\n")


@unittest.skipUnless(shutil.which("gcc"), "gcc is missing (apt-get install gcc)")
class Scripts(unittest.TestCase):
    """Real processes: the C programs, the stand-in driver, and xsched."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        work = Path(cls.folder.name)
        cls.bin, cls.driver = work / "bin", work / "driver"
        cls.bin.mkdir(), cls.driver.mkdir()
        flags = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
        for source in HERE.glob("*.c"):
            subprocess.run([*flags, "-o", cls.bin / source.stem, source, "-ldl", "-lpthread", "-lm"], check=True)
        subprocess.run(
            [*flags, "-shared", "-fPIC", "-o", cls.driver / "libcuda.so.1", HERE / "standin/driver.c", "-lpthread"],
            check=True,
        )
        built = xsched_bin()
        cls.xsched = built is not None
        for name in ("xsched", "libxsched.so") if built else ():
            os.symlink(built / name, cls.bin / name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_script(self, script, *words, driver=True, timeout=120):
        env = dict(os.environ, LD_LIBRARY_PATH=str(self.driver) if driver else "", PYTHONDONTWRITEBYTECODE="1")
        command = [sys.executable, HERE / script, "--bin", self.bin, *words]
        return subprocess.run([str(w) for w in command], env=env, capture_output=True, text=True, timeout=timeout)

    def measured(self, script, *words):
        """Records of a run that must succeed."""
        if not self.xsched:
            self.skipTest("xsched is not built: cargo build")
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "out.jsonl"
            done = self.run_script(script, "--out", out, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [r for r in records.load(out) if r["bench"] != "machine"]

    def test_programs_without_a_driver_say_so(self):
        for command in (["flat", "calibrate"], ["preempt", "run"], ["launch", "hold"], ["held", "gate"], ["stamp", "idle"]):
            done = subprocess.run([self.bin / command[0], *command[1:]], env={}, capture_output=True, text=True)
            if "libcuda.so.1" not in done.stderr:
                self.skipTest("there is a real driver here")
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (3, "", 1))

    def test_programs_tell_mistakes_in_one_line(self):
        for command in (
            ["flat"],
            ["flat", "run"],
            ["flat", "run", "--steps-per-us"],
            ["preempt", "run", "--count", "x"],
            ["launch", "run", "--own"],
            ["flat", "walk"],
            ["held", "breath"],
            ["stamp", "run"],
            ["stamp", "--secs", "1"],
        ):
            done = subprocess.run([self.bin / command[0], *command[1:]], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (2, "", 1), command)

    def test_flat_notices_wrong_results(self):
        """The same program with a driver that loses a kernel: built with its launch of every 7th spin left out."""
        with tempfile.TemporaryDirectory() as work:
            text = (HERE / "standin/driver.c").read_text()
            broken = text.replace(
                "    case SPIN:\n", "    case SPIN:\n        if (op->blocks && ++lost % 7 == 0) return begin;\n"
            )
            broken = broken.replace("struct op {", "static unsigned lost;\nstruct op {", 1)
            self.assertNotEqual(broken.count("lost"), 0)
            Path(work, "broken.c").write_text(broken)
            subprocess.run(
                ["gcc", "-shared", "-fPIC", "-o", f"{work}/libcuda.so.1", f"{work}/broken.c", "-lpthread"], check=True
            )
            command = [self.bin / "flat", "run", "--us", "100", "--steps-per-us", "50", "--secs", "0.1"]
            done = subprocess.run(command, env={"LD_LIBRARY_PATH": work}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertGreater(json.loads(done.stdout.splitlines()[-1])["wrong"], 0)

    def test_accounting_of_programs_alone_and_beside_another(self):
        found = {r["case"]: r for r in self.measured("accounting.py", "--quick", "--secs", "1", "--only", "followed 20")}
        found |= {r["case"]: r for r in self.measured("accounting.py", "--quick", "--only", "alone 50")}
        self.assertEqual(sorted(found), ["alone 50 %", "followed 20 %"])
        # The stand-in has no driver that tells how active it was.
        self.assertEqual(found["followed 20 %"]["at_most_s"], 0)
        self.assertEqual(found["alone 50 %"]["at_most_s"], found["alone 50 %"]["charged_s"])
        for one in found.values():
            self.assertGreaterEqual(one["charged_s"], 0.98 * one["busy_s"])
            self.assertEqual(one["by_driver_s"], 0)

    def test_launch_cost_of_all_cases(self):
        found = self.measured("micro.py", "--quick", "launch")
        self.assertEqual(len(found), 8)
        self.assertTrue(all(r["ns"] > 0 for r in found))

    def test_preemption_latency_beside_every_kernel(self):
        found = self.measured("micro.py", "--quick", "--systems", "native,1", "preempt")
        self.assertEqual(len(found), 14)
        self.assertTrue(all(len(r["latency_us"]) == 30 for r in found))
        self.assertTrue(all(r["beside_per_s"] > 0 for r in found if r["kernel"] != "none"))
        self.assertTrue(all(len(r["seen"]) >= 1 for r in found if r["system"] == "1"))

    def test_preemption_latency_ends_when_time_is_up(self):
        command = [self.bin / "preempt", "run", "--count", "100000", "--secs", "0.2", "--period-us", "1000"]
        env = {"LD_LIBRARY_PATH": str(self.driver)}
        done = subprocess.run(command, env=env, input="go\n", capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])["latency_us"]
        self.assertTrue(0 < len(found) < 100_000 and min(found) > 0, found[:5])

    def test_programs_in_a_mix_are_scheduled_and_seen(self):
        worker = ["--worker", HERE / "standin/worker.py"]
        systems_ = ["--systems", "alone,native,xsched,level1", "--variant", "level1=--level 1", "--arrivals", "regular"]
        found = self.measured("coloc.py", *worker, *systems_, "--rounds", 1, "--secs", 1, "rn18+rn50")
        self.assertEqual([r["system"] for r in found], ["alone", "native", "xsched", "level1"])
        self.assertEqual(sorted(p["priority"] for p in found[2]["seen"]), [-128, 128])
        self.assertEqual(len(found[2]["roles"][0]["latency_ms"]), 20)

    def test_answers_in_tokens_come_at_the_same_moments_under_all_systems(self):
        words = ["--worker", HERE / "standin/worker.py", "--systems", "alone,best-effort,xsched-time,xsched"]
        found = self.measured("coloc.py", *words, "--rounds", 1, "--secs", 2, "llm+llm-low+train")
        self.assertEqual([r["system"] for r in found], ["alone", "best-effort", "xsched-time", "xsched"])
        for record in (found[2], found[3]):
            self.assertEqual(sorted(p["priority"] for p in record["seen"]), [-128, 0, 128])
            urgent, lower, train = record["roles"]
            self.assertEqual([urgent["kind"], lower["kind"], train["kind"]], ["lc", "normal", "be"])
            for said in (urgent, lower):
                self.assertEqual(len(said["first_ms"]) + said["unserved"], 8)
                self.assertEqual(len(said["gap_ms"]), 31 * len(said["first_ms"]))
            self.assertGreater(train["per_s"], 0)
        # Builds that have pools tell how each program shares.
        self.assertLessEqual({p.get("share") for p in found[2]["seen"]}, {"time", None})

    def test_a_pool_that_is_not_had_is_no_result(self):
        if not self.xsched:
            self.skipTest("xsched is not built: cargo build")
        if shutil.which("nvidia-cuda-mps-control"):
            self.skipTest("there is an MPS daemon to be had here")
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "out.jsonl"
            words = ["--out", out, "--worker", HERE / "standin/worker.py", "--systems", "xsched-pool"]
            done = self.run_script("coloc.py", *words, "--rounds", 1, "--secs", 0.3, "rn18+rn50")
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("rn50 is in no pool", done.stderr)
            self.assertEqual([r["bench"] for r in records.load(out)], ["machine"])

    def test_cost_alone_and_idle(self):
        found = self.measured("alone.py", "--quick", "--worker", HERE / "standin/worker.py", "rn18")
        self.assertEqual([r["bench"] for r in found], ["alone", "idle"])
        self.assertGreater(found[0]["launches"], 0)
        self.assertEqual(
            [(f["system"], f["what"]) for f in found[1]["found"]],
            [("native", "program"), ("control", "program"), ("xsched", "program"), ("xsched", "daemon")],
        )

    def test_cost_alone_is_the_median_of_neighbouring_turns(self):
        def record(number, *turns):
            turns = [{"native": [n], "control": [n * 1.005], "xsched": [x]} for n, x in turns]
            return dict(bench="alone", role="rn18", set=number, launches=7, turns=turns)

        row = alone.summary([record(0, (1.0, 1.01), (3.0, 3.03)), record(1, (2.0, 2.02), (1.0, 9.0))])["rn18"]
        self.assertEqual((row["ratio"]["median"], row["ratio"]["low"], row["turns"], row["n"]), (1.01, 1.01, 4, 4))
        self.assertEqual((row["ratio_by_set"]["min"], row["ratio_by_set"]["n"]), (1.01, 2))
        self.assertEqual(row["control"]["high"], 1.005)

    def test_groups_as_processes(self):
        words = ["--quick", "--kinds", "processes", "--batch", "1", "--worker", HERE / "standin/worker.py"]
        found = self.measured("groups.py", *words)
        self.assertEqual([r["system"] for r in found], ["native", "xsched"])
        self.assertEqual(list(found[1]["latency_ms"]), ["high", "middle", "low"])
        self.assertEqual(sorted(p["priority"] for p in found[1]["seen"]), [-128, -128, 0, 0, 128, 128])

    def test_start_to_end_beside_an_urgent_program(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, more in (("brief", "'--secs', '0.3'"), ("endless", "'--every', '100'")):
                words = f"'flat', 'run', '--us', '100', '--steps-per-us', '50', {more}"
                Path(folder, f"{name}.py").write_text(f"import os\nos.execl({str(self.bin / 'flat')!r}, {words})\n")
            words = ["--folder", folder, "--programs", "brief,endless", "--systems", "native,xsched", "--limit", 3]
            found = self.measured("startup.py", *words)
        for record in found:
            self.assertLess(record["ended_s"]["brief"], 3)
            self.assertEqual(list(record["not_ended"]), ["endless"])
            self.assertTrue(any("ms of the last second" in line for line in record["not_ended"]["endless"]))
            self.assertGreater(len(record["latency_us"]), 50)
        self.assertEqual([r["system"] for r in found], ["native", "xsched"])
        self.assertEqual(sorted(p["priority"] for p in found[1]["seen"]), [-128, 128])
        self.assertIn("| endless within 3 |", report.startup_text(report.startup(found)))

    def test_commands_behind_a_gate_and_what_waits_for_them(self):
        found = self.measured("micro.py", "--quick", "held")
        self.assertEqual([(r["held"], r["programs"]) for r in found], list(micro.HELD))
        # Nothing makes the host wait with this driver; what is held there ends when its input does.
        self.assertTrue(all(r["returned"] and len(r["latency_us"]) == 20 for r in found))
        self.assertIn("| event x 2 | yes |", report.held_text(report.held(found)))

    def test_faults_of_other_gpus_are_not_ours(self):
        gpus = [{"uuid": "GPU-a", "pci.bus_id": "00000000:00:06.0"}, {"uuid": "GPU-b", "pci.bus_id": "00000000:C3:00.0"}]
        log = "[1] NVRM: Xid (PCI:0000:00:06): 31, pid=7\n[2] NVRM: loaded\n[3] NVRM: Xid (PCI:0000:c3:00): 43, pid=8\n"
        where = [faults.address(gpus, visible) for visible in (None, "1", "GPU-b", "GPU-a,GPU-b", "GPU-c")]
        self.assertEqual(where, ["0000:00:06", "0000:c3:00", "0000:c3:00", "0000:00:06", None])
        found = [[line[1] for line in faults.faults_of(log, w)] for w in ("0000:00:06", "0000:c3:00", None)]
        self.assertEqual(found, [["1"], ["3"], ["1", "3"]])

    def test_faults(self):
        found = self.measured(
            "faults.py",
            "--quick",
            "--worker",
            HERE / "standin/worker.py",
            "--mixes",
            "rn18+rn50",
            "daemon",
            "kills",
            "gate",
        )
        self.assertEqual(
            [(r["bench"], r.get("failed")) for r in found],
            [("fault daemon", None), ("fault kills", None), ("fault gate", None)],
        )

    def test_a_program_that_runs_unscheduled_is_no_result(self):
        if not self.xsched:
            self.skipTest("xsched is not built: cargo build")
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "out.jsonl"
            done = self.run_script(
                "coloc.py",
                "--out",
                out,
                "--worker",
                HERE / "standin/worker.py",
                "--systems",
                "xsched",
                "--rounds",
                1,
                "--secs",
                0.3,
                "rn18",
                driver=False,
            )
            self.assertEqual(done.returncode, 3)
            self.assertIn("runs unscheduled", done.stderr)
            self.assertEqual([r["bench"] for r in records.load(out)], ["machine"])

    def test_a_part_goes_on_where_it_stopped(self):
        if not self.xsched:
            self.skipTest("xsched is not built: cargo build")
        with tempfile.TemporaryDirectory() as work:
            words = ["--results", work, "--quick", "--only", "launch"]
            first = self.run_script("bench.py", *words)
            self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
            lines = (Path(work) / "quick/launch.jsonl").read_text()
            again = self.run_script("bench.py", *words)
            self.assertEqual(again.returncode, 0)
            self.assertEqual((Path(work) / "quick/launch.jsonl").read_text(), lines)
            self.assertIn("## `launch`", (Path(work) / "quick/report.md").read_text())
            self.assertEqual(self.run_script("bench.py", *words, "--limit", 1).returncode, systems.UNFINISHED)

    def test_mistakes_are_told(self):
        for script, words in (
            ("bench.py", ["--only", "colo"]),
            ("bench.py", ["--part", "3/2"]),
            ("micro.py", ["lunch"]),
            ("micro.py", ["--systems", "4", "preempt"]),
            ("micro.py", ["--variant", "longer", "preempt"]),
            ("alone.py", ["rn50"]),
            ("faults.py", ["fire"]),
            ("groups.py", ["--batch", "0"]),
            ("yields.py", ["open"]),
            ("report.py", ["/nowhere/at/all"]),
        ):
            command = [sys.executable, HERE / script, *words]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("error:", done.stderr)


# An `xsched` that only knows which programs it started: its `ps` puts them where the configuration says.
STAND_IN_XSCHED = """#!{python}
import json, os, signal, sys, tomllib
from pathlib import Path

words = sys.argv[2:]
after = lambda name: words[words.index(name) + 1]
socket = Path(after("--socket")) if "--socket" in words else None

def lives(pid):
    try:
        return Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

if sys.argv[1] == "--version":
    print("xsched stand-in")
elif sys.argv[1] == "daemon":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    socket.write_text("")
    socket.with_suffix(".pool").write_text(json.dumps(tomllib.loads(Path(after("--config")).read_text())["pool"]))
    signal.pause()
elif sys.argv[1] == "ps":
    if not socket.exists():
        sys.exit(3)
    pool, programs = json.loads(socket.with_suffix(".pool").read_text()), []
    for pid, urgent in map(json.loads, socket.read_text().splitlines()):
        inner = urgent and pool["urgent"] == "inside" or pool["proven_minutes"] == 0 and not urgent
        place = "outer" if (Path(sys.argv[0]).parent / "no-inner").exists() or not inner else "inner"
        if lives(pid):
            programs.append(dict(pid=pid, priority=128 if urgent else -128, share="pool", pool=place, pool_why="so", groups=[]))
    print(json.dumps(dict(programs=programs)))
elif sys.argv[1] == "run":
    with open(socket, "a") as file:
        file.write(json.dumps([os.getpid(), after("--priority") == "high"]) + "\\n")
    command = words[words.index("--") + 1:]
    os.execv(command[0], command)
"""
# Programs as pooled.c and steady.c. `fragile` beside them holds a number: after so many ends of neighbours a request fails.
STAND_IN_POOLED = """#!{python}
import os, sys
from pathlib import Path
here = Path(sys.argv[0]).parent
for line in ("init 0", "mps 1", "devices 1 x", "context 0"):
    print(line, flush=True)
for line in sys.stdin:
    ends = len(list(here.glob("began-*"))) - sum(Path("/proc", f.name[6:]).exists() for f in here.glob("began-*"))
    lost = (here / "fragile").exists() and ends >= int((here / "fragile").read_text())
    if line.startswith("give") and lost:
        (here / "fragile").unlink()
    answer = dict(give="given 700" if lost else "given 0", take="ran 1 2", cras="crash 700")[line[:4]]
    print(answer, flush=True)
"""
STAND_IN_STEADY = """#!{python}
import os, signal, sys, threading, time
from pathlib import Path
if (Path(sys.argv[0]).parent / "stubborn").exists():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def listens():
    for line in sys.stdin:
        if line == "exit\\n":
            os._exit(0)
(Path(sys.argv[0]).parent / f"began-{{os.getpid()}}").touch()
threading.Thread(target=listens, daemon=True).start()
print("ready", flush=True)
while True:
    time.sleep(0.01)
    print(time.monotonic_ns(), flush=True)
"""


class EndsInside(unittest.TestCase):
    """yields.py with programs that stand in for xsched's and those that it starts."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bin, self.out = Path(folder.name) / "bin", Path(folder.name) / "out.jsonl"
        self.bin.mkdir()
        for name, text in (("xsched", STAND_IN_XSCHED), ("pooled", STAND_IN_POOLED), ("steady", STAND_IN_STEADY)):
            (self.bin / name).write_text(text.format(python=sys.executable))
            (self.bin / name).chmod(0o755)

    def ends(self, *words):
        command = [sys.executable, HERE / "yields.py", "--bin", self.bin, "--out", self.out, "--quick", *words]
        done = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=120)
        return done, {r["case"]: r for r in records.load(self.out) if r["bench"] == "yields"}

    def test_neighbours_end_in_every_way_and_the_urgent_program_goes_on(self):
        (self.bin / "stubborn").touch()
        done, found = self.ends("kill", "exit", "terminate", "interrupt", "fault")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({case: r["ends"] for case, r in found.items()}, dict.fromkeys(found, 3))
        self.assertEqual(len(found), 5)
        for case, record in found.items():
            self.assertEqual((record["took_urgent"], record["took_neighbours"]), (0, 0), record)
            self.assertGreater(record["served"], 3)
            self.assertGreater(record["longest_ms"], 0)
            self.assertEqual(record["where"], {"urgent": ["inner"], "best-effort": ["outer" if case == "fault" else "inner"]})
        self.assertEqual((found["terminate"]["forced"], found["fault"]["codes"]), (3, ["700"]))
        self.assertIn("kill and exit: 0 of 6 took the urgent program along (at most 1): too few ends to tell", done.stdout)
        again, _ = self.ends("kill", "exit")
        self.assertEqual((again.returncode, len(records.load(self.out))), (0, 6), "what is recorded is not measured again")
        shown, _ = self.ends("--summary")
        self.assertIn("| interrupt | 3 | 0 | 0 |", shown.stdout)

    def test_an_urgent_program_that_is_taken_along_is_counted_and_started_anew(self):
        (self.bin / "fragile").write_text("2")
        done, found = self.ends("kill")
        self.assertEqual(done.returncode, 0, done.stderr)
        record = found["kill"]
        self.assertEqual((record["ends"], record["took_urgent"]), (3, 1))
        self.assertIn("'give 10' is answered with 'given 700'", record["why"])
        self.assertIn("1 of 3 took the urgent program along", done.stdout)

    def test_a_wrong_placement_fails_the_case(self):
        (self.bin / "no-inner").touch()
        done, found = self.ends("kill")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(found["kill"]["failed"], "the urgent program pooled is in outer, not in the inner pool: so")
        self.assertIn("FAILED kill", done.stderr)

    def test_neighbours_in_another_server_than_the_urgent_program_are_told_apart(self):
        """Processes with the name of the server: two of this daemon's and another's."""
        folder, name = self.bin.parent, "nvidia-cuda-mps-server"
        shutil.copy(shutil.which("sleep"), self.bin / name)

        def server(place):
            process = subprocess.Popen([self.bin / name, "60"], env={"CUDA_MPS_PIPE_DIRECTORY": f"{place}/pipe"})
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)

        site = SimpleNamespace(variants={}, bin=self.bin, daemons={"yields kill": SimpleNamespace(socket=folder / "d0/hpf.sock")})
        ends, worker = yields.Ends(site, "kill"), mock.Mock()
        server(folder / "d1"), server(folder / "d0")
        yields.wait_until(lambda: len(ends.servers()) == 1, "it shows its environment")
        with (
            mock.patch.object(yields, "SERVERS_S", 0.05),
            mock.patch.multiple(ends, start=lambda *_, **__: worker, require_place=lambda *_: None),
        ):
            self.assertEqual(ends.neighbours(1, {}), [worker])
            server(folder / "d0")
            yields.wait_until(lambda: len(ends.servers()) == 2, "both show their environment")
            self.assertRaises(yields.Apart, ends.neighbours, 1, {})
        # All are started anew then, but not without end.
        begun = []
        with mock.patch.multiple(
            ends, urgent=lambda _: begun.append(mock.Mock(served=1, longest_s=0)) or begun[-1], some=mock.Mock(side_effect=yields.Apart("x"))
        ):
            found = ends.run(5, None)
        self.assertEqual((found["failed"], found["apart"], len(begun)), ("x", 4, 4))

    def test_the_oom_killer_comes_or_the_case_is_skipped_with_the_reason(self):
        done, found = self.ends("oom")
        self.assertEqual(done.returncode, 0, done.stderr)
        record = found["oom"]
        self.assertTrue(record.get("skipped") or (record["ends"], record["took_urgent"]) == (3, 0), record)
        try:
            yields.Memory()
        except yields.Unavailable as why:
            self.assertEqual(record, dict(record, skipped=str(why)))

    def test_rates_are_held_against_what_the_default_asks_for(self):
        def record(case, number, ends, took):
            return dict(case=case, round=number, ends=ends, took_urgent=took, where={"urgent": ["inner"]}, longest_ms=number)

        found = [record(case, n, 10, 0) for case in ("kill", "exit") for n in range(5)] + [record("fault", 0, 10, 0)]
        lines, good = yields.rates(yields.summary(found))
        self.assertTrue(good)
        self.assertTrue(all(line.endswith("as seldom as `auto` asks for") for line in lines), lines)
        for more in ([record("kill", 5, 1, 1), record("exit", 5, 1, 1)], [record("fault", 1, 1, 1)]):
            lines, good = yields.rates(yields.summary([*found, *more]))
            self.assertFalse(good, lines)
        self.assertTrue(yields.rates(yields.summary([*found, record("exit", 5, 1, 1)]))[1])
        self.assertEqual(yields.summary(found)["kill"]["longest_ms"], 4)
        self.assertEqual([yields.rounds("kill", False), yields.rounds("oom", False), yields.rounds("kill", True)], [[10] * 5, [10], [3]])


if __name__ == "__main__":
    unittest.main()
