"""The kit's own tests: what needs no GPU."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import kit  # noqa: E402

SYSFS = HERE.parents[2] / "stand-ins/kfd/sysfs"
BIN, RUNTIME = (Path(os.environ[name]) if name in os.environ else None for name in ("XSCHED_BIN", "HIP_RUNTIME"))


class KitTest(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.dict(os.environ, XSCHED_SYSFS=str(SYSFS))
        patch.start()
        self.addCleanup(patch.stop)

    def test_the_drivers_gpus_are_described_without_serial_numbers(self):
        nodes = kit.kfd_nodes()
        self.assertEqual([n["gpu_id"] for n in nodes], [51966, 47806])
        self.assertEqual(nodes[0]["gfx_target_version"], 90010)
        self.assertFalse(any("unique_id" in n or "hive_id" in n for n in nodes))

    def test_instruction_sets_are_named_as_compilers_do(self):
        for number, name in ((90010, "gfx90a"), (90402, "gfx942"), (110001, "gfx1101"), (90008, "gfx908")):
            with mock.patch.object(kit, "kfd_nodes", return_value=[{"gfx_target_version": number}]):
                self.assertEqual(kit.architectures(), [name])

    def test_bad_arguments_are_refused_with_what_is_accepted(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as end:
            kit.arguments(["--only", "minimal,nonsense"])
        self.assertEqual(end.exception.code, 2)
        self.assertIn("'nonsense' is no step: use minimal, blas", said.getvalue())

    def test_what_differs_or_goes_unscheduled_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            options = kit.arguments(["--bin", folder, "--out", f"{folder}/out.json"])
            one = kit.Kit(options, folder)
            outcomes = iter([("same\n", 0), ("same\n", 0), ("same\n", 0), ("other\n", 0), ("same\n", 0)])
            stats = [
                {"pid": 1, "launches": 5, "unscheduled": {"attach": 0}},
                {"pid": 1, "launches": 5, "unscheduled": {"attach": 0}},
                {"pid": 1, "launches": 5, "unscheduled": {"attach": 2}},
            ]

            def run(command, **_):
                text, status = next(outcomes)
                return kit.harness.Outcome(status, text, "", 0.1, False)

            with (
                mock.patch.object(kit.harness, "run", run),
                mock.patch.object(kit.harness, "Daemon"),
                mock.patch.object(kit.harness, "json_lines", lambda _: [stats.pop(0)]),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                one.compare("program", ["program"])
            self.assertEqual([r["status"] for r in one.results], ["ok", "ok", "failed", "failed"])
            self.assertEqual(json.loads(json.dumps(one.results))[1]["launches"], 5)


class WholeKitTest(unittest.TestCase):
    """The command as its user runs it. The software HIP runtime takes the place of AMD's and stand-ins that of hipBLAS,
    MIOpen and PyTorch: what is shown is that the kit itself works."""

    def setUp(self):
        if not BIN or not (BIN / "xsched").exists():
            self.skipTest("XSCHED_BIN: the folder of a built xsched")
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="kit-")))
        # A machine with a GPU has the same results.
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("XSCHED_", "HIP_", "LD_"))}
        self.env |= {"PYTHONDONTWRITEBYTECODE": "1", "ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1"}

    def kit(self, *words, env):
        out = self.folder / "kit.json"
        command = [HERE / "kit.sh", "--bin", BIN, "--out", out, *words]
        done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=600)
        return done, json.loads(out.read_text())["results"]

    def test_without_a_gpu_each_step_is_left_out_by_name_and_the_status_is_3(self):
        done, results = self.kit("--quick", env=self.env)
        self.assertEqual((done.returncode, done.stderr), (3, ""), done.stdout)
        self.assertEqual([r["name"] for r in results], list(kit.STEPS))
        for result in results:
            self.assertEqual(result["status"], "skipped", result)
            self.assertTrue(result["why"].strip(), result)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), len(kit.STEPS) + 1)
        self.assertTrue(lines[-1].startswith("0 ok, 0 failed, 6 skipped"), lines[-1])

    def standins(self):
        """Builds the stand-ins; the environment in which compilers and programs find them."""
        folder, flags = self.folder, ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{HERE}/standin"]
        runtime = RUNTIME / "libamdhip64.so.5"
        for source, library in (("hipblas.c", "libhipblas.so"), ("miopen.c", "libMIOpen.so")):
            command = ["gcc", *flags, "-o", folder / library, HERE / "standin" / source, runtime]
            command.append(f"-Wl,-soname,{library}")
            subprocess.run(list(map(str, command)), check=True)
        found = {"CPATH": HERE / "standin", "LIBRARY_PATH": folder, "LD_LIBRARY_PATH": f"{RUNTIME}:{folder}"}
        device = {"SIMDEV_SOCKET": folder / "device", "SIMDEV_SERVER": BIN / "xsched"}
        env = {k: v for k, v in self.env.items() if "VISIBLE" not in k}
        return env | {k: str(v) for k, v in (found | device).items()}

    def test_its_programs_run_bare_and_scheduled_and_their_results_are_compared(self):
        if not RUNTIME or not (RUNTIME / "libamdhip64.so.5").exists():
            self.skipTest("HIP_RUNTIME: what `cargo xtask hip-runtime DIR` laid out")
        if not shutil.which("hipcc"):
            self.skipTest("hipcc is not installed")
        done, results = self.kit("--only", "minimal,blas,conv", env=self.standins())
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        wanted = [f"{step} {mode}" for step in ("minimal", "blas", "conv") for mode in ("bare", *kit.MODES)]
        self.assertEqual([(r["name"], r["status"]) for r in results], [(name, "ok") for name in wanted])
        launches = {r["name"]: r["launches"] for r in results if "launches" in r}
        # Each round of `blas` sets, multiplies and copies back; `conv` finds its algorithm by running it once.
        self.assertEqual(launches["blas xsched"], 2 + 100 * 3)
        self.assertEqual(launches["conv xsched"], 3 + 20 * 2 + 21 * (1 + 2 * 4 * (1 + 3 * 3)))
        for step in ("minimal", "blas", "conv"):
            self.assertEqual(len({launches[f"{step} {mode}"] for mode in kit.MODES}), 1, launches)

    def test_the_steps_of_pytorch_run_what_there_is_and_take_in_its_figures(self):
        if not RUNTIME or not (RUNTIME / "libamdhip64.so.5").exists():
            self.skipTest("HIP_RUNTIME: what `cargo xtask hip-runtime DIR` laid out")
        env, program = self.standins(), self.folder / "program"
        source = HERE.parents[2] / "programs/hip/minimal.c"
        command = ["gcc", "-o", program, source, RUNTIME / "libamdhip64.so.5", "-lpthread", "-lm"]
        subprocess.run(list(map(str, command)), check=True)
        env["STANDIN_PROGRAM"] = str(program)
        done, results = self.kit("--only", "torch,coloc", "--python", HERE / "standin/python3", env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        wanted = [f"{name} {mode}" for name in kit.TORCH for mode in ("bare", *kit.MODES)] + ["coloc"]
        self.assertEqual([(r["name"], r["status"]) for r in results], [(name, "ok") for name in wanted])
        for name in kit.TORCH:
            self.assertTrue((kit.ROOT / f"testing/ladders/cuda/programs/{name}.py").is_file(), name)
        windows = [w for w in results[-1]["windows"] if w.get("bench") == "coloc"]
        systems = {"alone", "best-effort", "native", "xsched", *kit.VARIANTS}
        self.assertEqual({(w["mix"], w["system"]) for w in windows}, {(m, s) for m in kit.MIXES for s in systems})

    def test_the_requests_for_suspension_are_made_on_the_pretended_driver(self):
        if not shutil.which("hipcc"):
            self.skipTest("hipcc is not installed")
        driver, kfd = self.folder / "fakekfd.so", SYSFS.parent
        command = ["gcc", "-shared", "-fPIC", f"-I{kfd}/include", "-o", driver, kfd / "fakekfd.c", kfd / "more.c"]
        subprocess.run(list(map(str, [*command, "-ldl", "-lpthread"])), check=True)
        env = {k: v for k, v in self.env.items() if "VISIBLE" not in k}
        env |= {"XSCHED_SYSFS": str(SYSFS), "FAKEKFD_SYSFS": str(SYSFS)}
        words = ["--only", "suspend", "--quick", "--requests-only", "--preload", driver]
        done, results = self.kit(*words, env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        found = results[0]["figures"]["alone"]
        requests = [found[f"{name}_request_us"]["n"] for name in ("suspend", "resume")]
        self.assertEqual((found["rounds"], requests), (20, [20, 20]))
        self.assertGreater(found["queues"], 0)
        self.assertEqual((found["stopped_us"], found["running_us"]), (None, None), "no kernel runs there")

    def test_a_wrong_product_is_found(self):
        if not RUNTIME or not shutil.which("hipcc"):
            self.skipTest("HIP_RUNTIME and hipcc")
        env = self.standins()
        command = ["gcc", "-shared", "-fPIC", "-DWRONG", f"-I{HERE}/standin", "-o", self.folder / "libhipblas.so"]
        command += [HERE / "standin/hipblas.c", RUNTIME / "libamdhip64.so.5", "-Wl,-soname,libhipblas.so"]
        subprocess.run(list(map(str, command)), check=True)
        done, results = self.kit("--only", "blas", "--quick", env=env)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual([(r["name"], r["status"]) for r in results], [("blas bare", "failed")])
        self.assertIn("FAIL sgemm rounds 100 wrong", results[0]["why"])


if __name__ == "__main__":
    unittest.main()
