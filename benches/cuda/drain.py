#!/usr/bin/env python3
"""What a training program was at when an urgent program came, and how many of its tokens were late for it.

  drain.py [--bin DIR] [--out FILE] [--gpu N] [--quick] [--kernels | --parts] [--seconds S] [--traces DIR] [--variant NAME=WORDS ...]

A language model gives answers of six tokens with pauses at random, so that it comes some forty times a second. The record has, for each
request, how many gaps between its tokens were late (over 1.2 times the median), and the part of a training step that the training's host was in.
With --kernels, single kernels of a millisecond instead of training: how many tokens of an answer of 31 were late until it had come to its
end, which tells what a time slice is worth to it. With --parts, each part of a training step over and over: how many requests of twelve tokens had
so many late gaps. --variant is as that of coloc.py; where its name begins with `no-copy`, no step begins with a copy from the host. --traces: where
what the daemon remembers of each variant is put.
"""

import bisect
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import systems
import units
from systems import Variant, Worker

CLASSES = {"urgent": "lc", "training": "be", "kernels": "be", "parts": "be"}
START_S = 200
LATE = 1.2
MANY = 4  # late gaps of a request
ANSWER = 31  # tokens beside a kernel
TOKENS = 12  # of a request beside a part of a step


class Pair:
    """The two programs of one variant."""

    def __init__(self, site, name, beside):
        self.site, self.name, self.workers = site, name, {}
        for program in ("urgent", beside):
            kind = CLASSES[program]
            words = [sys.executable, systems.HERE / "drain_program.py", program]
            if program == "training" and name.startswith("no-copy"):
                words.append("no-copy")
            command, env = site.command(name, kind, words)
            self.workers[program] = Worker(program, command, env, site.work / f"{name}-{program}.err", kind=kind)

    def ready(self):
        for worker in self.workers.values():
            worker.expect("IMPORTED", START_S)
        systems.warm(self.workers.values(), (), START_S)
        self.site.require_seen(self.name, self.workers.values())

    def work(self, seconds):
        until = time.monotonic() + seconds
        for worker in self.workers.values():
            worker.send(f"work {until:.3f}")
        return {name: json.loads(worker.expect("RESULT", seconds + 60)) for name, worker in self.workers.items()}

    def ask(self, program, *words):
        self.workers[program].send(" ".join(map(str, words)))
        return json.loads(self.workers[program].expect("RESULT", START_S))

    def kernels(self, trials):
        """Of each kernel: late gaps, and when it was done after the answer began, in ms."""
        chance = random.Random(5)
        usual = statistics.median(self.ask("urgent", "answer", time.monotonic() + 0.01, ANSWER)[1:])
        found = {}
        for name, about in self.ask("kernels", "names").items():
            of_kernel = []
            for _ in range(trials):
                at = time.monotonic() + 0.005
                self.workers["kernels"].send(f"run {name.replace(' ', '_')} {at:.6f}")
                begin, *gaps = self.ask("urgent", "answer", f"{at + chance.uniform(0.1, 0.4) * about['us'] / 1e6:.6f}", ANSWER)
                launched, done = json.loads(self.workers["kernels"].expect("RESULT", START_S))
                late = sum(gap > LATE * usual for gap in gaps)
                of_kernel.append({"late": late, "had_ms": round((begin - launched) * 1e3, 3), "done_ms": round((done - begin) * 1e3, 3)})
            found[name] = dict(about, trials=of_kernel)
            print(f"  {self.name}, {name}: {about['us']:.0f} µs, late {[t['late'] for t in of_kernel]}", file=sys.stderr, flush=True)
        return {"usual_ms": usual, "kernels": found}

    def parts(self, seconds):
        """Of each part of a step: how often it ran, and how many requests had so many late gaps."""
        usual = statistics.median(self.ask("urgent", "answer", time.monotonic() + 0.01, ANSWER)[1:])
        found = {}
        for name in self.ask("parts", "names"):
            until = time.monotonic() + seconds
            self.workers["parts"].send(f"repeat {name.replace(' ', '_')} {until:.3f}")
            self.workers["urgent"].send(f"work {until:.3f} {TOKENS}")
            requests = json.loads(self.workers["urgent"].expect("RESULT", START_S))
            runs = json.loads(self.workers["parts"].expect("RESULT", START_S))
            late = [sum(gap > LATE * usual for gap in gaps) for _, *gaps in requests]
            found[name] = {"runs": runs, "late": {n: late.count(n) for n in sorted(set(late))}}
            print(f"  {self.name}, {name}: {runs} runs, late {found[name]['late']}", file=sys.stderr, flush=True)
        return {"usual_ms": usual, "parts": found}

    def trace(self, seconds):
        socket = self.site.daemon(self.name).socket
        words = [self.site.xsched, "trace", "--socket", socket, "--last", f"{seconds:.0f}s", "--json"]
        return subprocess.run(words, capture_output=True, check=True, text=True).stdout


def found_of(said):
    """How late each request was, and where the training was when it came."""
    marks = said["training"]
    times = [at for at, _ in marks]
    usual = statistics.median(gap for _, *gaps in said["urgent"] for gap in gaps)
    requests = []
    for begin, *gaps in said["urgent"]:
        at = bisect.bisect(times, begin) - 1
        part, since = (marks[at][1], round((begin - marks[at][0]) * 1e3, 3)) if at >= 0 else (None, None)
        late = sum(gap > LATE * usual for gap in gaps)
        requests.append({"begin": begin, "late": late, "part": part, "since_ms": since, "gap_ms": gaps})
    by_part = {}
    for request in requests:
        of_part = by_part.setdefault(request["part"], [0, 0])
        of_part[0] += 1
        of_part[1] += request["late"] >= MANY
    steps = sum(part == "copy" for _, part in marks)
    return {"usual_ms": usual, "count": len(requests), "steps": steps, "by_part": by_part, "requests": requests}


def main():
    parser = units.parser(__doc__, "drain.jsonl")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each variant [%(default)s]")
    parser.add_argument("--kernels", action="store_true", help="single kernels instead of training")
    parser.add_argument("--parts", action="store_true", help="the parts of a step, one by one; SECONDS for each")
    parser.add_argument("--trials", type=int, default=12, help="of each kernel [%(default)s]")
    parser.add_argument("--traces", type=Path, metavar="DIR")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=WORDS")
    args = parser.parse_args()
    chosen = dict(v.split("=", 1) for v in args.variant) or {"pool": "", "no-copy": "", "level 1": "be:--level=1"}
    seconds = 1.0 if args.quick else args.seconds
    beside = "kernels" if args.kernels else "parts" if args.parts else "training"

    def body(site, unit):
        pairs = [Pair(site, name, beside) for name in chosen]
        try:
            for pair in pairs:
                pair.ready()
            for pair in pairs:
                if args.kernels:
                    unit.run("kernels", pair.name, 0, 0, lambda pair=pair: pair.kernels(2 if args.quick else args.trials))
                    continue
                if args.parts:
                    unit.run("parts", pair.name, 0, 0, lambda pair=pair: pair.parts(seconds))
                    continue
                unit.run("drain", pair.name, 0, 0, lambda pair=pair: found_of(pair.work(seconds)))
                if args.traces:
                    (args.traces / f"{pair.name.replace(' ', '-')}.json").write_text(pair.trace(seconds))
        finally:
            systems.end_all(worker for pair in pairs for worker in pair.workers.values())

    return units.conduct(args, body, {name: variant(words) for name, words in chosen.items()})


def variant(words):
    """Words beginning with `be:` are options of the training alone."""
    words = words.split()
    best_effort = [word[len("be:") :] for word in words if word.startswith("be:")]
    return Variant(" ".join(word for word in words if not word.startswith("be:")), " ".join(best_effort))


if __name__ == "__main__":
    sys.exit(main())
