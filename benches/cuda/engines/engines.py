#!/usr/bin/env python3
"""vLLM beside the training of roles.py on one GPU, bare and under each system.

  engines.py --bin DIR --out FILE [--site DIR] [--systems A,B] [--variant NAME=bin:DIR] [--rounds N] [--secs S] [--rate R]
             [--sync] [--deadline SECS] [--standin] | --show FILE

--sync is an option of engine.py. --site is a folder with vLLM's packages, put before Python's own for the engine alone. Each system has an engine and a training of its
own, all started before the first window; then the systems take turns, round by round, each in a window of S seconds in which all others
are idle, with the same arrivals (Poisson) in a round. Every other round goes the other way round, so that `alone` is first and last.
Systems: alone, train (the training by itself), native (nothing done), mps-prio, xsched and variants of it (see systems.py).

FILE gets a record for each window, with the times of all tokens. --show prints figures of all rounds together: P50, P90 and P99 of the
gap between tokens and of the time to the first one, the training's tokens a second, busy time (part of the window in which requests were
in flight), and the training's part of the work left, its rate alone × (1 − busy).
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import machine  # noqa: E402
import records  # noqa: E402
import systems  # noqa: E402
from systems import Deadline, Site, Trouble, Worker  # noqa: E402

START_S = 300
LEAD_S = 0.5
BARE = ("alone", "train", "native")  # served by the same processes
QUIET_S = 1.0  # between two windows


class Pair:
    """An engine and a training as one system starts them."""

    def __init__(self, site, system, args, log):
        self.site, self.system = site, system
        engine = [sys.executable, str(HERE / "engine.py"), "--model", args.model]
        train = [sys.executable, str(HERE.parent / "roles.py"), "train"]
        engine += ["--sync"] if args.sync else []
        if args.standin:
            engine, train = [*engine, "--standin"], [sys.executable, str(HERE / "standin.py")]
        command, env = site.command(system, "lc", engine)
        env = dict(env, **engine_env(args))
        self.engine = Worker("engine", command, env, log / f"{system}-engine.err", kind="lc")
        command, env = site.command(system, "be", train)
        self.train = Worker("train", command, env, log / f"{system}-train.err", kind="be")

    def warm(self):
        for worker in (self.engine, self.train):
            worker.expect("IMPORTED", START_S)
            worker.send("warm")
        for worker in (self.engine, self.train):
            worker.expect("WARM", START_S)
        self.engine.send("tokens")
        self.tokens = self.engine.expect("TOKENS", START_S)

    def window(self, name, number, args):
        start = time.monotonic() + LEAD_S
        span = f"{start:.6f} {start + args.secs:.6f}"
        if name != "train":
            self.engine.send(f"go poisson {span} {args.rate} {number}")
        if name != "alone":
            self.train.send(f"go flat {span} 0")
        found = {}
        if name != "alone":
            found["train"] = json.loads(self.train.expect("RESULT", args.secs + 60))
        if name != "train":
            found["engine"] = json.loads(self.engine.expect("RESULT", args.secs + 60))
        return dict(found, **self.seen())

    def seen(self):
        """What the daemon says of the two programs; the engine's is a child of the process that was started."""
        if self.system not in self.site.daemons:
            return {}
        said = self.site.seen(self.system)
        launched = [sum(group["launches"] for group in program["groups"]) for program in said]
        unscheduled = sum(sum((g.get("unscheduled") or {}).values()) for program in said for g in program["groups"])
        found = {"seen": said, "programs": sum(count > 0 for count in launched), "unscheduled": unscheduled}
        if found["programs"] < 2 or unscheduled:
            print(f"engines: {self.system}: {launched} launches are known, {unscheduled} unscheduled", file=sys.stderr)
        return found


def engine_env(args):
    caches = Path(args.caches)
    env = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_CACHE_ROOT": str(caches / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
    }
    return dict(env, PYTHONPATH=args.site) if args.site else env


def started_as(name):
    return "native" if name in BARE else name


def measure(args, site, log, deadline):
    pairs, sick = {}, {}
    try:
        # The first engine fills the caches that the others then start from.
        for name in dict.fromkeys(map(started_as, args.names)):
            pairs[name] = Pair(site, name, args, log)
            if len(pairs) == 1:
                pairs[name].warm()
                print(f"engines: the first engine is warm after {time.monotonic() - args.began:.0f} s", flush=True)
        for name, pair in list(pairs.items())[1:]:
            try:
                pair.warm()
                print(f"engines: {name} is warm after {time.monotonic() - args.began:.0f} s", flush=True)
            except Trouble as trouble:
                sick[name] = str(trouble)
                print(f"engines: {name} is left out: {trouble}", file=sys.stderr, flush=True)
        for number in range(args.rounds):
            order = args.names if number % 2 == 0 else args.names[::-1]
            for name in order:
                if started_as(name) in sick:
                    continue
                if not deadline.allows(args.secs + 5):
                    print("engines: out of time", file=sys.stderr)
                    return systems.UNFINISHED
                pair = pairs[started_as(name)]
                time.sleep(QUIET_S)
                try:
                    found = pair.window(name, number, args)
                except Trouble as trouble:
                    sick[started_as(name)] = str(trouble)
                    print(f"engines: {name}: {trouble}", file=sys.stderr, flush=True)
                    continue
                record = dict(bench="engines", system=name, round=number, secs=args.secs, rate=args.rate, sync=args.sync, tokens=pair.tokens)
                build = args.builds.get(name)
                records.append(args.out, dict(record, **({"build": build} if build else {}), **found))
    finally:
        systems.end_all(worker for pair in pairs.values() for worker in (pair.engine, pair.train))
    return 0


def union_s(spans):
    """Length of the union of spans of time."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def figures(found):
    """Figures by system, of all of its windows together."""
    table = {}
    for name in dict.fromkeys(r["system"] for r in found):
        windows = [r for r in found if r["system"] == name]
        unscheduled = [r["unscheduled"] for r in windows if "unscheduled" in r]
        requests = [q for r in windows for q in r.get("engine", {}).get("requests", [])]
        row = {"windows": len(windows), "requests": len(requests), "tokens": sorted({r["tokens"] for r in windows})}
        if unscheduled:
            row["unscheduled"] = max(unscheduled)
            row["programs"] = min(r["programs"] for r in windows if "programs" in r)
        if requests:
            gaps = [b - a for q in requests for a, b in zip(q["token_ms"], q["token_ms"][1:])]
            firsts = [q["token_ms"][0] for q in requests]
            for what, values in (("gap_ms", gaps), ("first_ms", firsts)):
                row[what] = {f"p{p}": round(records.percentile(values, p / 100), 3) for p in (50, 90, 99)}
            spans = [
                [(q["at_s"], q["at_s"] + q["token_ms"][-1] / 1e3) for q in r["engine"]["requests"]] for r in windows
            ]
            busy = sum(union_s([(a, min(b, r["secs"])) for a, b in each]) for r, each in zip(windows, spans))
            row["busy"] = round(busy / sum(r["secs"] for r in windows), 4)
        rates = [r["train"]["per_s"] for r in windows if "train" in r]
        if rates:
            row["train_per_s"] = round(sum(rates) / len(rates))
        table[name] = row
    alone = table.get("train", {}).get("train_per_s")
    for row in table.values():
        if alone and "busy" in row and "train_per_s" in row:
            row["of_work_left"] = round(row["train_per_s"] / (alone * (1 - row["busy"])), 3)
    return table


def show(path):
    table = figures([r for r in records.load(path) if r.get("bench") == "engines"])
    print(f"{'':12} {'gap P50/P90/P99 ms':>22} {'first P50/P90/P99 ms':>24} {'busy':>6} {'training/s':>11} {'of left':>8}  tokens")
    for name, row in table.items():
        gap, first = ("/".join(f"{v:.2f}" for v in row.get(what, {}).values()) for what in ("gap_ms", "first_ms"))
        train, left = row.get("train_per_s", ""), row.get("of_work_left", "")
        line = f"{name:12} {gap:>22} {first:>24} {row.get('busy', ''):>6} {train:>11} {left:>8}  {' '.join(row['tokens'])}"
        counted = f", {row['programs']} programs, {row['unscheduled']} launches unscheduled" if "programs" in row else ""
        print(f"{line} {row['windows']} windows, {row['requests']} requests{counted}")
    digests = {token for row in table.values() for token in row["tokens"]}
    print(f"greedy tokens: {'equal' if len(digests) == 1 else 'DIFFERENT'} under all systems")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=systems.default_bin())
    parser.add_argument("--out", default="results/engines.jsonl")
    parser.add_argument("--site", help="folder with vLLM's packages")
    parser.add_argument("--caches", default="/tmp/engine-caches")
    parser.add_argument("--model", default="/tmp/llama-1b")
    parser.add_argument("--systems", default="alone,train,native,mps-prio,xsched")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--secs", type=float, default=25.0)
    parser.add_argument("--rate", type=float, default=3.0)
    parser.add_argument("--deadline", type=float)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--standin", action="store_true", help="neither vLLM nor a GPU")
    parser.add_argument("--show", metavar="FILE")
    systems.add_variants(parser)
    args = parser.parse_args()
    if args.show:
        return show(args.show)
    args.began = time.monotonic()
    systems.end_on_signals()
    variants = systems.variants_of(parser, args)
    args.names = [*args.systems.split(","), *variants]
    args.builds = {name: machine.build(v.bin or args.bin) for name, v in variants.items()}
    args.builds["xsched"] = machine.build(args.bin)
    records.append(args.out, machine.describe(args.bin))
    with tempfile.TemporaryDirectory(prefix="engines-") as work:
        # Whatever the surrounding environment says of devices: vLLM takes no name of one but a number.
        with Site(args.bin, work, None, variants) as site:
            log = Path(os.environ.get("ENGINE_LOGS", work))
            log.mkdir(parents=True, exist_ok=True)
            try:
                return measure(args, site, log, Deadline(args.deadline))
            except Trouble as trouble:
                print(f"engines: {trouble}", file=sys.stderr)
                return 1
            finally:
                show(args.out)


if __name__ == "__main__":
    sys.exit(main())
