#!/usr/bin/env python3
"""Programs that come and go at random under one daemon for a long time: are all results right, do memory, descriptors and
decisions of the daemon stay as they were?

  soak.py --secs N [--platform opencl|cuda] [--bin DIR] [--program FILE] [--out FILE] [--svg FILE] [--log FILE]
          [--seed N] [--share HOW]
  soak.py --plot FILE --svg FILE [--title TEXT]

Programs of testing/programs/suite/work.c give commands back to back; each checks its result at its end, and its launches are held against
what the scheduler counted. Meanwhile, in a random order that the seed decides: programs start, end, are killed, stopped and
continued, suspended and resumed, get another priority; the policy changes, and the configuration is read again. Each ten seconds a
line of JSON is written (--out): memory, descriptors, threads, mapped files and processor time of the daemon, how many programs
there are and how many of them in a pool, how long decisions took (two programs made by hand on a device of their own, policy hpf),
beside a bare hop from a thread to another, what happened so far (let_go: programs that went on unscheduled since the machine did
not run the daemon for 0.8 s, as they said). --log has each act with its time, what programs said and what the daemon said of
itself. Exit status 1 if a result was wrong, a program hung, or the daemon ended.

Needs in DIR (default: target/release) xsched, libxsched.so and the program `decision`, which `cargo build --release -p
xsched-decisions` leaves there; and gcc, unless the workload is given (--program).
"""

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "testing/lib"), str(ROOT / "benches/cuda")]
import svg  # noqa: E402
from harness import Daemon, Skip, compile_c, end_all, run, started  # noqa: E402

# A program that gets nowhere for so long after it could, in seconds, hangs.
STUCK_S = 90
SAMPLE_S = 10
SAMPLES = 150
PROGRAMS = (2, 5)
CLASSES = ("low", "normal", "high")
POLICIES = ("hpf", "up", "cfs", "fair", "mlfq", "chaos")
# How often what happens, among so many.
ACTS = {"start": 5, "end": 5, "kill": 3, "stop": 3, "suspend": 3, "priority": 4, "policy": 2, "reload": 2, "ps": 2}
PROBE = '[devices."sim:probe"]\npolicy = "hpf"\n'
LET_GO = "runs unscheduled until"
# A daemon that is silent for so long lets all programs go. What ends then has no time to say so.
SILENT_S = 0.8
STALL = re.compile(r"no decision for (\d+) ms")
USUAL = re.compile(r"xsched: (attached process |process \d+.* has left|.*: by user |listening |the configuration )")
LIBRARIES = {"opencl": ["-lOpenCL"], "cuda": ["-ldl"]}


class Program:
    """The workload under xsched, without end until it is told."""

    def __init__(self, soak, number):
        dice = soak.dice
        us, batch = dice.choice([100, 200, 500, 1000]), dice.choice([4, 8, 16])
        self.priority, self.at, self.lines, self.born = dice.choice(CLASSES), 0.0, [], time.monotonic()
        self.was_let_go, self.soak = False, soak
        self.stats = soak.work / f"stats-{number}"
        # An urgent program is in no pool, whatever it asks for.
        share = ["--share", soak.share] if soak.share and self.priority != "high" else []
        command = [soak.xsched, "run", "--require", "--socket", soak.daemon.socket, "--priority", self.priority, *share, "--",
                   soak.program, "steady", us, batch]
        self.process = subprocess.Popen([str(word) for word in command], env=dict(os.environ, XSCHED_STATS=str(self.stats)),
                                        text=True, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        started.add(self.process)
        self.soak.note(f"process {self.pid} begins as {self.priority}: {batch} commands of {us} us at a time")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    @property
    def pid(self):
        return self.process.pid

    def read(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.at = time.monotonic()
            else:
                self.lines.append(line.strip())
                self.soak.note(f"process {self.pid} says: {line.strip()}")

    def end(self):
        """Ends it; what is wrong with its end, if anything."""
        try:
            self.process.stdin.write("end\n")
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            status = self.process.wait(STUCK_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"hangs at its end: {self.lines}"
        started.discard(self.process)
        self.reader.join(10)
        said = next((line for line in self.lines if line.startswith("launched ")), None)
        if status != 0 or "ok" not in self.lines or said is None:
            return f"exit status {status}: {self.lines}"
        try:
            stats = json.loads(self.stats.read_text())
        except (OSError, ValueError) as why:
            return f"its counts: {why}"
        launched = int(said.split()[2])
        # A machine that does not run the daemon for 0.8 s lets held programs go on; they say so.
        self.was_let_go = any(LET_GO in line for line in self.lines)
        unscheduled = dict(stats["unscheduled"], **({"attach": 0} if self.was_let_go else {}))
        if stats["launches"] != launched or any(unscheduled.values()):
            return f"launched {launched}, counted {stats['launches']}, unscheduled {stats['unscheduled']}"
        return None

    def kill(self):
        started.discard(self.process)
        self.process.kill()
        self.process.wait()
        self.reader.join(10)

    def close(self):
        self.process.stdout.close()
        self.stats.unlink(missing_ok=True)


class Soak:
    def __init__(self, options, work):
        self.dice, self.work, self.bin = random.Random(options.seed), work, options.bin.resolve()
        self.xsched, self.program, self.share = self.bin / "xsched", options.program, options.share
        self.probe = self.bin / "decision"
        if not self.xsched.exists() or not self.probe.exists():
            raise Skip(f"no {self.xsched} or no {self.probe}: cargo build --release --workspace, or --bin DIR")
        if self.program is None:
            header = f'-DPLATFORM="{options.platform}.h"'
            self.program = compile_c(ROOT / "testing/programs/suite/work.c", work / "work", header, "-lpthread", "-lm",
                                     *LIBRARIES[options.platform])
        self.config, self.policy = work / "config.toml", "hpf"
        self.write_config()
        self.daemon = Daemon(self.xsched, work, self.policy, "--config", self.config)
        self.pid = self.daemon.process.pid
        self.programs, self.number, self.wrong = [], 0, []
        self.counts = dict.fromkeys([*ACTS, "checked", "let_go"], 0)
        self.sink = open(options.out, "w") if options.out else sys.stdout
        self.log = open(options.log, "w", buffering=1) if options.log else None
        # When the daemon could not decide: from and until, s. Programs of which it is to be found out whether that was why.
        self.stalls, self.doubts = [], []
        self.began = time.monotonic()
        threading.Thread(target=self.listen, daemon=True).start()

    def ask(self, *words):
        self.note(f"xsched {' '.join(map(str, words))}")
        done = run([self.xsched, *words, "--socket", self.daemon.socket], timeout=60)
        # A program that was let go attaches again within a second.
        deadline = time.monotonic() + STUCK_S
        while done.status == 3 and "is attached" in done.stderr and self.was_let_go(words) and time.monotonic() < deadline:
            time.sleep(0.1)
            done = run([self.xsched, *words, "--socket", self.daemon.socket], timeout=60)
        if done.status != 0:
            self.fault(f"xsched {' '.join(map(str, words))}: {done.status} {done.stderr.strip()}")

    def was_let_go(self, words):
        """Whether a command is for a program that has said so."""
        named = [program for program in self.programs if program.pid in words]
        return any(LET_GO in line for program in named for line in program.lines)

    def fault(self, line):
        self.wrong.append(line)
        print(f"{time.monotonic() - self.began:.0f} s: {line}", file=sys.stderr, flush=True)

    def note(self, line):
        if self.log:
            self.log.write(f"{time.monotonic() - self.began:.3f} {line}\n")

    def listen(self):
        """Notes what the daemon says when it says it, if it is not usual."""
        with open(self.daemon.stderr) as lines:
            while self.daemon.running():
                line = lines.readline()
                if not line:
                    time.sleep(0.02)
                elif not USUAL.match(line):
                    if stall := STALL.search(line):
                        until = time.monotonic()
                        self.stalls.append((until - int(stall[1]) / 1000, until))
                    self.note(f"the daemon says: {line.strip()}")

    def doubt(self, program, line):
        """Something is wrong, unless the daemon was silent meanwhile, which it says later."""
        self.doubts.append((program.born, time.monotonic(), f"program {program.pid}: {line}"))

    def judge(self):
        for born, ended, line in self.doubts:
            is_why = any(until - since >= SILENT_S and since < ended and until > born for since, until in self.stalls)
            is_of_it = "unscheduled {'attach'" in line or "does not answer" in line
            self.note(f"{'the daemon was silent' if is_why else 'a fault'}: {line}")
            if is_why and is_of_it:
                self.counts["let_go"] += 1
            else:
                self.fault(line)
        self.doubts.clear()

    def write_config(self):
        # A less urgent program has nothing for so long while a more urgent one works without end.
        starvation, budget = self.dice.choice([1, 2]), self.dice.choice([300, 500, 1000])
        self.config.write_text(f"starvation_s = {starvation}\nbudget_us = {budget}\n{PROBE}")

    def start(self):
        self.number += 1
        self.programs.append(Program(self, self.number))

    def leave(self, program, how):
        self.programs.remove(program)
        if how == "end":
            wrong = program.end()
            self.counts["checked"] += 1
            self.counts["let_go"] += program.was_let_go
            if wrong:
                self.doubt(program, wrong)
        else:
            program.kill()
        program.close()

    def act(self):
        dice = self.dice
        kind = dice.choices(list(ACTS), ACTS.values())[0]
        if len(self.programs) <= PROGRAMS[0]:
            kind = "start"
        elif len(self.programs) >= PROGRAMS[1] and kind == "start":
            kind = "end"
        # Some calls need a program that is attached by now.
        working = [program for program in self.programs if program.at]
        if kind in ("kill", "stop", "suspend", "priority", "end") and not working:
            return
        program = dice.choice(working) if working else None
        self.counts[kind] += 1
        self.note(f"{kind} {program.pid if program else ''}")
        if kind == "start":
            self.start()
        elif kind in ("end", "kill"):
            self.leave(program, kind)
        elif kind == "stop":
            self.pause(program, lambda: os.kill(program.pid, signal.SIGSTOP), lambda: os.kill(program.pid, signal.SIGCONT))
        elif kind == "suspend":
            self.pause(program, lambda: self.ask("suspend", "--pid", program.pid),
                       lambda: self.ask("resume", "--pid", program.pid))
        elif kind == "priority":
            self.ask("hint", "--pid", program.pid, "--priority", dice.choice(CLASSES))
        elif kind == "policy":
            key = self.device()
            if key:
                self.ask("policy", "set", dice.choice(POLICIES), "--device", key)
        elif kind == "reload":
            self.write_config()
            os.kill(self.pid, signal.SIGHUP)
        else:
            self.ask("ps", "--json")

    def pause(self, program, begin, end):
        begin()
        time.sleep(self.dice.random() * 0.5)
        end()
        self.note("over")
        # It has as long as any other from now on.
        program.at = max(program.at, time.monotonic())

    def device(self):
        """The key of the device that the programs use."""
        ps = self.daemon.ps() or {"programs": []}
        keys = [group["device"] for program in ps["programs"] for group in program["groups"]]
        return next((key for key in keys if key != "sim:probe"), None)

    def look(self):
        """Ends what hangs."""
        now = time.monotonic()
        for program in list(self.programs):
            if program.process.poll() is not None:
                self.programs.remove(program)
                started.discard(program.process)
                self.doubt(program, f"ended by itself, status {program.process.returncode}: {program.lines}")
                program.close()
            elif now - max(program.at, program.born) > STUCK_S:
                ps = run([self.xsched, "ps", "--socket", self.daemon.socket], timeout=60).stdout
                self.fault(f"program {program.pid} of class {program.priority} gets nowhere:\n{ps}")
                self.leave(program, "kill")
        if not self.daemon.running():
            raise RuntimeError(f"the daemon has ended: {self.daemon.stderr.read_text()[-2000:]}")

    def sample(self):
        proc = Path(f"/proc/{self.pid}")
        status = (proc / "status").read_text()
        kib = int(re.search(r"VmRSS:\s+(\d+)", status).group(1))
        fields = (proc / "stat").read_text().rsplit(")", 1)[1].split()
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        maps = (proc / "maps").read_text().count("/memfd:")
        fds, threads = (len(list((proc / what).iterdir())) for what in ("fd", "task"))
        programs = (self.daemon.ps() or {"programs": []})["programs"]
        done = run([self.probe, SAMPLES, self.daemon.socket], timeout=120)
        if done.status != 0:
            self.fault(f"decisions were not measured: {done.stderr.strip()[-300:]}")
        took = json.loads(done.stdout) if done.status == 0 else {}
        # The daemon has decided since, and has said why not before.
        time.sleep(0.1)
        self.judge()
        line = {"t_s": round(time.monotonic() - self.began, 1), "rss_kib": kib, "fds": fds, "threads": threads,
                "memfds": maps, "cpu_s": cpu_s, "programs": len(programs),
                "pooled": sum(program["share"] == "pool" for program in programs),
                "decision_us": took.get("decision"), "hop_us": took.get("bare"),
                "acts": dict(self.counts), "wrong": len(self.wrong)}
        self.sink.write(json.dumps(line) + "\n")
        self.sink.flush()

    def play(self, secs):
        end, next_sample = self.began + secs, self.began + 2
        try:
            while time.monotonic() < end and len(self.wrong) < 10:
                self.act()
                self.look()
                if time.monotonic() >= next_sample:
                    self.sample()
                    next_sample = time.monotonic() + SAMPLE_S
                time.sleep(self.dice.random() * 0.8)
            for program in list(self.programs):
                self.leave(program, "end")
            time.sleep(2)
            self.sample()
        finally:
            log = self.daemon.stderr.read_text()
            self.daemon.stop()
            end_all()
        said = [line for line in log.splitlines() if not USUAL.match(line)]
        for line in said[:20]:
            print(f"the daemon said: {line}", file=sys.stderr)


def records(path):
    lines = [json.loads(line) for line in Path(path).read_text().splitlines() if line]
    return [line for line in lines if line["decision_us"]]


def summary(found):
    """What a run came to, part by part: flat is what is the same in each quarter."""
    quarters = [found[len(found) * n // 4:max(len(found) * (n + 1) // 4, len(found) * n // 4 + 1)] for n in range(4)]
    table = {}
    for name, of in (("rss_kib", lambda r: r["rss_kib"]), ("fds", lambda r: r["fds"]), ("memfds", lambda r: r["memfds"]),
                     ("decision_p50_us", lambda r: r["decision_us"]["p50"]), ("decision_p99_us", lambda r: r["decision_us"]["p99"]), ("hop_p99_us", lambda r: r["hop_us"]["p99"])):
        table[name] = [statistics.median(of(line) for line in quarter) for quarter in quarters]
    last = found[-1]
    return {"secs": last["t_s"], "samples": len(found), "medians_by_quarter": table, "acts": last["acts"], "wrong": last["wrong"],
            "daemon_cpu_share": round(last["cpu_s"] / last["t_s"], 4)}


def plot(found, path, title):
    """Curves over time, one above the other: the daemon's own in xsched's colour, the others grey."""
    wide, left, high, gap = 900, 70, 90, 36
    right = wide - 24
    curves = (("memory of the daemon, MiB", lambda r: r["rss_kib"] / 1024, "xsched-line"),
              ("its descriptors", lambda r: r["fds"], "xsched-line"),
              ("programs attached", lambda r: r["programs"], "alone-line"),
              ("decision, median, ms", lambda r: r["decision_us"]["p50"] / 1000, "xsched-line"),
              ("decision P99, ms", lambda r: r["decision_us"]["p99"] / 1000, "xsched-line"),
              ("beside it, a bare hop from a thread to another, P99, ms", lambda r: r["hop_us"]["p99"] / 1000, "alone-line"))
    last = max(line["t_s"] for line in found)
    lines = textwrap.wrap(title, int((right - left) / svg.room("x", 15)))
    parts = [svg.text(left, 24 + 20 * n, words, size=15) for n, words in enumerate(lines)]
    y = 34 + 20 * len(lines)
    for name, of, colour in curves:
        values = [of(line) for line in found]
        top = svg.ceiling(max(values) or 1)
        parts.append(svg.text(left, y - 7, name))
        for share in (0, 0.5, 1):
            at = y + high * (1 - share)
            parts.append(svg.line([(left, at), (right, at)], "lines"))
            parts.append(svg.text(left - 8, at + 4, f"{top * share:g}", "end", 11, "faint"))
        points = [(left + (right - left) * line["t_s"] / last, y + high * (1 - value / top)) for line, value in zip(found, values)]
        parts.append(svg.line(points, colour, 1.3))
        y += high + gap
    unit, step = (60, "min") if last >= 120 else (1, "s")
    every = svg.ceiling(last / unit / 7)
    ticks = [n * every for n in range(int(last / unit / every + 1e-9) + 1)]
    for tick in ticks:
        words = f"{tick:g} {step}" if tick == ticks[-1] else f"{tick:g}"
        parts.append(svg.text(left + (right - left) * tick * unit / last, y - gap + 18, words, "middle", 11, "faint"))
    Path(path).write_text(svg.document(wide, y - gap + 30, parts, title))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--secs", type=float)
    parser.add_argument("--platform", choices=sorted(LIBRARIES), default="opencl")
    parser.add_argument("--bin", type=Path, default=ROOT / "target/release")
    parser.add_argument("--program", type=Path, help="the workload, compiled for the platform")
    parser.add_argument("--out", type=Path, help="file for the samples, a line of JSON each (default: standard output)")
    parser.add_argument("--svg", type=Path, help="draw the samples")
    parser.add_argument("--log", type=Path, help="each act with its time, and what was said meanwhile")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the samples of a run that is over")
    parser.add_argument("--title", default="xsched's daemon under random starts, stops, kills, policies, priorities and reloads")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", choices=("auto", "time", "pool", "spatial"), help="how programs below `high` share [as `xsched run` chooses: no pool under policies that take turns]")
    options = parser.parse_args()
    if (options.secs is None) == (options.plot is None) or options.plot and not options.svg or options.svg and not (options.plot or options.out):
        parser.error("give --secs N, or --plot FILE with --svg FILE; --svg needs --out or --plot")
    wrong = []
    if options.secs:
        with tempfile.TemporaryDirectory(prefix="xsched-soak-") as work:
            try:
                soak = Soak(options, Path(work))
            except Skip as lacking:
                print(f"SKIPPED: soak: {lacking}", file=sys.stderr)
                return 3
            soak.play(options.secs)
            wrong = soak.wrong
    source = options.plot or options.out
    if source:
        found = records(source)
        print(json.dumps(summary(found), indent=1))
        if options.svg:
            plot(found, options.svg, options.title)
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
