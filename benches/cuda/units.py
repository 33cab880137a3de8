"""Small measurements, each done once: what is recorded is skipped, and no unit begins that would end too late."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import machine
import records
import systems
from systems import Deadline, Site, Trouble


class Units:
    """The units of one run of one script."""

    def __init__(self, out, build, deadline=None):
        self.out, self.build, self.deadline = Path(out), build, Deadline(deadline)
        self.recorded = records.done(out, "bench", "case", "round", "build")
        self.finished, self.troubles = True, []

    def missing(self, bench, case, number=0):
        return (bench, case, number, self.build) not in self.recorded

    def run(self, bench, case, number, seconds, body):
        """Records what `body` returns (a dictionary), unless that is there or `seconds` more are too many. Trouble with
        one unit does not keep the others from being measured."""
        if not self.missing(bench, case, number):
            return
        if not self.deadline.allows(seconds):
            self.finished = False
            return
        begin = time.monotonic()
        try:
            found = body()
        except (Trouble, RuntimeError, OSError) as error:
            self.troubles.append(f"{bench} {case}: {error}")
            print(f"{bench} {case}: {error}", file=sys.stderr, flush=True)
            return
        record = dict(bench=bench, case=case, round=number, build=self.build, at=round(time.time(), 1), **found)
        records.append(self.out, record)
        shown = {k: v for k, v in found.items() if not isinstance(v, (list, dict)) or len(str(v)) < 200}
        print(f"{bench} {case} {number + 1}: {shown} ({time.monotonic() - begin:.1f} s)", file=sys.stderr, flush=True)


def parser(doc, out):
    """The options that all these scripts have."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--bin", default=systems.default_bin(), help="folder of xsched, libxsched.so and the C programs")
    found.add_argument("--out", type=Path, default=Path(out), help="JSON lines to add to [%(default)s]")
    found.add_argument("--gpu", type=int, help="number of the GPU to use")
    found.add_argument(
        "--quick", action="store_true", help="a few seconds each, to try the scripts: the figures mean nothing"
    )
    found.add_argument(
        "--deadline", type=float, metavar="SECS", help="end after so long with exit status 75, to be continued"
    )
    return found


def conduct(args, body, variants=None):
    """Calls `body(site, units)` with a site that lives as long; gives the exit status."""
    systems.end_on_signals()
    machine.record(args.out, args.bin)
    units = Units(args.out, machine.build(args.bin), args.deadline)
    with tempfile.TemporaryDirectory(prefix="xsched-bench-") as work, Site(args.bin, work, args.gpu, variants) as site:
        body(site, units)
    for line in units.troubles:
        print(f"trouble: {line}", file=sys.stderr)
    if units.troubles:
        return 3
    return 0 if units.finished else systems.UNFINISHED


def newest(found):
    """Of records, those of the build measured last."""
    return [r for r in found if r["build"] == found[-1]["build"]] if found else []
