"""The kit's own tests: what needs no GPU."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import kit  # noqa: E402

SYSFS = HERE.parent.parent / "kfd/sysfs"


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


if __name__ == "__main__":
    unittest.main()
