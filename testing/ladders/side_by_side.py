#!/usr/bin/env python3
"""Programs of random lengths and backlogs side by side, under random policies, levels and commands of an operator: does
everybody who must get on, and is every result right? Looks for programs that have the device no more, and for agents that
do not sleep. In some trials the daemon is killed in the end: the programs end well without.

  side_by_side.py [--bin target/release] [--trials 20] [--seed 1] [--device sim|cuda]

On the simulated device and on the software CUDA driver. The same seed makes the same trials; how they interleave is the
machine's. Exit code 1 if one failed: it is printed with what `xsched ps` says. Needs gcc and
`cargo build --release --workspace`.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "testing/lib"))
from harness import Background, Daemon, Skip, compile_c, end_all, run, started  # noqa: E402

# Who gets nowhere for so long, in seconds, is stuck: a batch is a quarter of a second of work at most.
STUCK_S = 20
BATCH_US = 250_000
# Agents are looked at for so long, in seconds, and may run for this part of it.
REST_S, REST_SHARE = 0.3, 0.5
GUARANTEE = "[classes.low]\nguarantee_percent = 20\nquantum_us = 5000\n"
PRIORITIES = {"low": -128, "normal": 0, "high": 128}


class Steady:
    """A program that gives batch after batch, and says so after each."""

    def __init__(self, command, env, words, priority):
        self.words, self.priority, self.at, self.lines = words, priority, 0.0, []
        self.process = subprocess.Popen(
            [str(word) for word in command], env=env, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        started.add(self.process)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.at = time.monotonic()
            else:
                self.lines.append(line.strip())

    def agent_s(self):
        """Processor time of its agent thread, in seconds."""
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            if (task / "comm").read_text() == "xsched-agent\n":
                fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def tell_to_end(self):
        try:
            self.process.stdin.write("end\n")
            self.process.stdin.close()
        except BrokenPipeError:
            pass

    def end(self):
        """Waits for its end; what is wrong with that, if anything."""
        try:
            status = self.process.wait(STUCK_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return "does not end"
        finally:
            started.discard(self.process)
        self.reader.join()
        good = status == 0 and any(line.startswith("ok") for line in self.lines)
        return None if good else f"ends with status {status}: {self.lines[-3:]}"


class Trial:
    """One of the random cases."""

    def __init__(self, dice, device):
        self.device = device or dice.choice(["sim", "cuda"])
        self.policy = dice.choice(["up", "pup", "hpf", "hpf"])
        self.guarantee = self.policy == "hpf" and dice.random() < 0.7
        self.level = dice.choice(["auto", "auto", "1", "2", "3"])
        self.programs = [self.program(dice, n) for n in range(dice.choice([2, 2, 3]))]
        self.commands = [self.command(dice) for _ in range(dice.choice([0, 0, 4, 8]))]
        self.killed = dice.random() < 0.4

    def program(self, dice, n):
        us = dice.choice([20, 50, 200, 200, 1000, 4000])
        batch = min(dice.choice([1, 4, 16, 64, 128, 400]), BATCH_US // us)
        mode = dice.choice(["", "", "", "graph", "blocking", "joined", "loading"]) if self.device == "cuda" else ""
        priority = ("low", "high")[n % 2] if self.policy == "hpf" else "normal"
        return (us, batch, mode, priority, dice.choice([0, 0.02, 0.3, 1.0]))

    def command(self, dice):
        words = dice.choice([
            ["suspend"], ["resume"], ["hint", "--priority", dice.choice([-128, 0, 128])],
            ["policy", "set", dice.choice(["up", "pup", "hpf", "chaos"])]])
        return (words, dice.randrange(3), dice.choice([0, 0.01, 0.1, 0.3]))

    def __str__(self):
        promise = " with a guarantee" if self.guarantee else ""
        death = ", daemon killed" if self.killed else ""
        return f"{self.device}, {self.policy}{promise}, level {self.level}{death}: {self.programs}; {self.commands}"

    def must_get_on(self, programs):
        """Sets of programs of each of which one must get on."""
        if self.policy != "hpf":
            return [[program] for program in programs]
        classes = [[p for p in programs if p.priority == name] for name in ("high", "low")]
        return classes if self.guarantee else classes[:1]

    def play(self, bench, folder):
        """What went wrong, line by line."""
        (folder / "config.toml").write_text(GUARANTEE if self.guarantee else "")
        env = dict(os.environ, SIMDEV_SOCKET=str(folder / "sim.sock"), XDG_RUNTIME_DIR=str(folder))
        programs = []
        try:
            Background([bench.xsched, "sim-device", "--socket", env["SIMDEV_SOCKET"]], env, folder, "device")
            daemon = Daemon(bench.xsched, folder, self.policy, "--config", folder / "config.toml")
            for us, batch, mode, priority, delay in self.programs:
                level = [] if self.level == "auto" else ["--level", self.level]
                options = ["--require", "--socket", daemon.socket, "--priority", priority, *level]
                words = [us, batch, *([mode] if mode else [])]
                program, needs = bench.program(self.device)
                run_it = [bench.xsched, "run", *options, "--", program, *words]
                programs.append(Steady(run_it, env | needs, words, priority))
                time.sleep(delay)
            self.disturb(bench, daemon, programs)
            wrong = [f"{[p.words for p in some]} stuck" for some in self.must_get_on(programs) if not gets_on(some)]
            if wrong:
                wrong.append(run([bench.xsched, "ps", "--socket", daemon.socket]).stdout)
            wrong += unscheduled(programs, daemon) + restless(programs)
            if self.killed:
                daemon.process.kill()
                daemon.process.wait()
                wrong += [f"{program.words} stuck without a daemon" for program in programs if not gets_on([program])]
                wrong += restless(programs)
            for program in programs:
                program.tell_to_end()
            ends = [(program.words, program.end()) for program in programs]
            return wrong + [f"{words} {end}" for words, end in ends if end]
        finally:
            end_all()
            for process in list(started):
                process.wait()
                started.discard(process)

    def disturb(self, bench, daemon, programs):
        """The operator's commands; then all is as it was."""
        ask = lambda *words: run([bench.xsched, *words, "--socket", daemon.socket])  # noqa: E731
        for words, n, pause in self.commands:
            of = ["--pid", programs[n % len(programs)].process.pid] if words[0] != "policy" else []
            ask(*words, *of)
            time.sleep(pause)
        if self.commands:
            ask("policy", "set", self.policy)
            for program in programs:
                of = ["--pid", program.process.pid]
                ask("resume", *of)
                ask("hint", "--priority", PRIORITIES[program.priority], *of)


def gets_on(some):
    """Whether one of them finishes a batch from now on."""
    since = time.monotonic()
    while time.monotonic() < since + STUCK_S:
        if any(program.at > since for program in some):
            return True
        time.sleep(0.01)
    return False


def unscheduled(programs, daemon):
    """Those that the daemon knows nothing of: they would get on whatever it does."""
    since, missing = time.monotonic(), programs
    while missing and time.monotonic() < since + STUCK_S:  # it may only just have started
        known = [p["pid"] for p in daemon.ps()["programs"] if p["groups"]]
        missing = [program for program in missing if program.process.pid not in known]
        time.sleep(0.01)
    return [f"{program.words} unscheduled" for program in missing]


def restless(programs):
    """Those whose agent hardly sleeps."""
    begin = time.monotonic()
    before = [program.agent_s() for program in programs]
    time.sleep(REST_S)
    took = time.monotonic() - begin
    ran = [(program.words, (program.agent_s() - old) / took) for program, old in zip(programs, before)]
    return [f"the agent of {words} ran for {share:.0%} of the time" for words, share in ran if share > REST_SHARE]


class Bench:
    """The programs, built."""

    def __init__(self, binaries, work):
        self.bin, self.xsched = binaries, binaries / "xsched"
        for built in (self.xsched, binaries / "libsimdev.so", binaries / "libfakecuda.so"):
            if not built.exists():
                raise Skip(f"no {built}: cargo build --release --workspace, or --bin DIR")
        libraries = ["-lpthread", "-lm"]
        include = [f"-I{ROOT / 'crates/xsched-simdev/include'}", f"-I{ROOT / 'testing/lib'}"]
        sim = [f"-L{binaries}", "-lsimdev", f"-Wl,-rpath,{binaries}"]
        self.sim = compile_c(ROOT / "testing/programs/hazards/steady.c", work / "sim", *include, *sim, *libraries)
        self.cuda = compile_c(ROOT / "testing/programs/cuda/steady.c", work / "cuda", *libraries)
        self.manager = compile_c(ROOT / "testing/programs/cuda/fakerm.c", work / "fakerm.so", shared=True)
        self.driver = work / "driver"
        self.driver.mkdir()
        (self.driver / "libcuda.so.1").symlink_to(binaries / "libfakecuda.so")

    def program(self, device):
        """A device's program, and what it needs in its environment."""
        if device == "sim":
            return self.sim, {}
        return self.cuda, {"LD_LIBRARY_PATH": str(self.driver), "LD_PRELOAD": str(self.manager)}


def stop(number, _):
    """Told to end: what was started is ended on the way out."""
    sys.exit(128 + number)


def main():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("XSCHED_BIN", ROOT / "target/release"), type=Path)
    parser.add_argument("--trials", default=20, type=int)
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--device", choices=["sim", "cuda"])
    options = parser.parse_args()
    dice, failed = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as work:
        try:
            bench = Bench(options.bin.resolve(), Path(work))
        except Skip as lacking:
            print(f"SKIPPED: programs side by side: {lacking}", file=sys.stderr)
            return 3
        for n in range(1, options.trials + 1):
            trial = Trial(dice, options.device)
            with tempfile.TemporaryDirectory(dir=work) as folder:
                wrong = trial.play(bench, Path(folder))
            if wrong:
                failed += 1
                print(f"trial {n}: {trial}", *wrong, sep="\n", flush=True)
    print(f"{options.trials} trials, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
