#!/usr/bin/env python3
"""What pools do on this GPU: who is in one, and what happens when something in one fails or is killed.

  pool.py [--bin DIR] [--out FILE] [--gpu N] [--quick] [CASE ...]

Cases:
  members    `low` and `normal` programs are clients of one MPS server, `high` ones are not; order of classes inside
  address    an illegal address in a pooled program: all of the pool have the error, the urgent program loses nothing, the
             next program finds a fresh pool at once
  idle       kill -9 of a pooled program without work
  flight     kill -9 of a pooled program whose short kernels are in flight
  gate       kill -9 of a pooled program behind closed gates
  ahead      the same ten times, with 64 ms of kernels given ahead, beside an urgent program that never rests; and
             as often a program that exits by itself
  next       ten times kill -9 of the only pooled program, with up to 256 ms of kernels given ahead without rivals, right
             after an urgent one came that never rests; the next program must not end with it
  server     kill -9 of the MPS server
  control    kill -9 of the MPS control daemon
  daemon     kill -9 of xsched's daemon, and another one

In each an urgent program outside asks for short kernels all the time: it must get every one. Every wait has a limit; a
case that fails says so in its record ("failed": why), and the exit status is 1.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import records
import units
from harness import Daemon
from systems import Trouble, Variant, Worker

CASES = ("members", "address", "idle", "flight", "gate", "ahead", "next", "server", "control", "daemon")
ILLEGAL_ADDRESS = 700
PATIENCE_S = 30
PERIOD_S = 0.005  # of the urgent program's requests
KILLS = 10
TEARDOWN_S = 0.5  # a server that waits for what is executed of a client that is gone gives up within 0.3 s


class Failed(Exception):
    """A check did not hold."""


def require(holds, why):
    if not holds:
        raise Failed(why)


def wait_until(holds, why, seconds=PATIENCE_S):
    end = time.monotonic() + seconds
    while not holds():
        require(time.monotonic() < end, f"after {seconds} s: {why}")
        time.sleep(0.01)


def processes(name):
    """Process ids of this name, by their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if entry.name.isdigit() and any(Path(os.fsdecode(word)).name == name for word in words[:2]):
            found.append(int(entry.name))
    return found


class Urgent:
    """A program outside that asks for a short kernel again and again, and says how long the longest request took."""

    def __init__(self, program):
        self.program, self.served, self.longest_s, self.trouble = program, 0, 0.0, None
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.ask, daemon=True)
        self.thread.start()

    def ask(self):
        try:
            while not self.over.is_set():
                begin = time.monotonic()
                self.told("give 10", "given 0")
                self.told("take", "ran")
                self.served += 1
                self.longest_s = max(self.longest_s, time.monotonic() - begin)
                time.sleep(PERIOD_S)
        except (Trouble, OSError, ValueError) as error:  # ValueError: its input was closed
            self.trouble = str(error)

    def told(self, order, answer):
        """Gives an order. Any other answer is trouble at once: errors come in the same places."""
        self.program.send(order)
        line = self.program.expect("", PATIENCE_S)
        if not line.startswith(answer):
            raise Trouble(f"{order!r} is answered with {line!r}; {self.program.last_words()}")

    def end(self):
        self.over.set()
        self.thread.join()
        require(self.trouble is None, f"the urgent program: {self.trouble}")
        return {"urgent_served": self.served, "urgent_longest_ms": round(self.longest_s * 1e3, 2)}


class Pools:
    def __init__(self, site, unit, args):
        self.site, self.unit, self.args, self.system, self.started = site, unit, args, None, []

    def start(self, name, kind, *arguments):
        binary = self.site.bin / name
        words, env = self.site.command(self.system, kind, [binary, *arguments])
        worker = Worker(binary.name, words, env, self.site.work / f"{time.monotonic_ns()}.err", patience=2)
        self.started.append(worker)
        return worker

    def told(self, kind="low"):
        """A program that does as it is told, with a context."""
        program = self.start("pooled", kind)
        program.expect("context 0", PATIENCE_S)
        return program

    def steady(self, kind="low", us=200, batch=8):
        """A program that runs kernels of so many µs all the time, two batches ahead; it tells of each batch."""
        program = self.start("steady", kind, us, batch)
        program.expect("ready", PATIENCE_S)
        return program

    def advances(self, program):
        while not program.lines.empty():
            require(program.lines.get() is not None, f"{program.name} ended: {program.last_words()}")
        try:
            line = program.lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise Failed(f"{program.name} gets nowhere for {PATIENCE_S} s") from None
        require(line is not None, f"{program.name} ended: {program.last_words()}")

    def entry(self, program):
        said = self.site.daemons[self.system].ps() or {"programs": []}
        return next((p for p in said["programs"] if p["pid"] == program.process.pid), None)

    def require_share(self, program, share):
        found = self.entry(program)
        require(found and found["share"] == share, f"{program.name} shares by {found and found['share']}, not {share}")

    def run(self, case):
        self.unit.run("pool", case, 0, 60, lambda: self.one(case))

    def one(self, case):
        self.system = f"pool {case}"
        self.site.variants[self.system] = Variant("@pool.urgent=outside --share pool")
        found = {}
        try:
            urgent = Urgent(self.told("high"))
            self.require_share(urgent.program, "time")
            found = getattr(self, case)() or {}
            found |= urgent.end()
            require(found["urgent_served"] > 0, "the urgent program was never served")
        except (Failed, Trouble) as why:
            found["failed"] = str(why)
        finally:
            for program in self.started:
                program.end()
            self.started.clear()
        return found

    def members(self):
        normal, low = self.steady("normal"), self.steady("low")
        self.require_share(normal, "pool")
        self.require_share(low, "pool")
        require(len(processes("nvidia-cuda-mps-server")) == 1, "there is not one server")
        before = [self.entry(p)["groups"][0]["launches"] for p in (normal, low)]
        time.sleep(0.3 if self.args.quick else 2)
        after = [self.entry(p)["groups"][0]["launches"] for p in (normal, low)]
        made = [b - a for a, b in zip(before, after)]
        require(made[1] * 4 < made[0], f"`normal` goes before `low`: launches {made}")
        return {"launches_normal_low": made}

    def crash(self):
        innocent, culprit = self.told(), self.told()
        culprit.send("crash")
        culprit.expect(f"crash {ILLEGAL_ADDRESS}", PATIENCE_S)
        innocent.send("sync")
        innocent.expect(f"sync {ILLEGAL_ADDRESS}", PATIENCE_S)

    def fresh(self):
        begin = time.monotonic()
        program = self.told()
        self.require_share(program, "pool")
        program.send("give 10")
        program.expect("given 0", PATIENCE_S)
        program.send("take")
        program.expect("ran", PATIENCE_S)
        return {"next_program_s": round(time.monotonic() - begin, 3)}

    def address(self):
        self.crash()
        return self.fresh()

    def stays_when_killed(self, victim):
        """Whether another program of the pool goes on when one is killed; the next one finds a pool in any case."""
        stays = self.steady()
        self.advances(stays)
        victim.process.kill()
        victim.process.wait()
        try:
            for _ in range(3):
                self.advances(stays)
            found = {"others_go_on": True}
        except (Failed, Trouble) as why:
            found = {"others_go_on": False, "why": str(why)[:200]}
        return found | self.fresh()

    def idle(self):
        found = self.stays_when_killed(self.told())
        require(found["others_go_on"], "an idle program took the pool along")
        return found

    def flight(self):
        victim = self.steady()
        self.advances(victim)
        found = self.stays_when_killed(victim)
        require(found["others_go_on"], "a program of short kernels took the pool along")
        return found

    def gate(self):
        normal, low = self.steady("normal"), self.steady("low")
        self.advances(normal)
        wait_until(lambda: self.entry(low)["groups"][0]["state"] == "ready", "`low` is held")
        low.process.kill()
        low.process.wait()
        for _ in range(3):
            self.advances(normal)

    def ahead(self):
        """Who ends with kernels given ahead, while an urgent program leaves the pool next to nothing of the device."""
        found = {"kills": KILLS, "exits": KILLS, "kills_took_others": 0, "exits_took_others": 0}
        stays = self.steady()
        for number in range(2 * KILLS):
            victim = self.steady(us=1000, batch=32)
            self.advances(victim)
            self.require_share(victim, "pool")
            hog = self.steady("high", us=1000)
            wait_until(lambda: self.entry(victim)["groups"][0]["state"] == "ready", "`low` is held")
            if number % 2 == 0:
                victim.process.kill()
            else:
                victim.send("exit")
            time.sleep(TEARDOWN_S)
            hog.process.kill()
            hog.process.wait()
            victim.process.wait(PATIENCE_S)
            try:
                for _ in range(3):
                    self.advances(stays)
            except (Failed, Trouble):
                found["exits_took_others" if number % 2 else "kills_took_others"] += 1
                stays = self.steady()
        took = found["kills_took_others"] + found["exits_took_others"]
        return found | ({"failed": f"{took} of {2 * KILLS} took another program along"} if took else {})

    def next(self):
        found = {"kills": KILLS, "next_ended": 0}
        for number in range(KILLS):
            killed = self.steady(us=(200, 1000)[number % 2], batch=128)
            self.advances(killed)
            hog = self.steady("high", us=1000)
            self.advances(hog)
            killed.process.kill()
            killed.process.wait()
            program = self.start("pooled", "low")
            try:
                program.expect("context 0", PATIENCE_S)
                self.require_share(program, "pool")
                time.sleep(TEARDOWN_S)
                program.send("sync")
                require(program.expect("sync", PATIENCE_S) == "0", "its context is lost")
            except (Failed, Trouble):
                found["next_ended"] += 1
            for each in (hog, program):
                each.process.kill()
                each.process.wait()
        ended = found["next_ended"]
        return found | ({"failed": f"{ended} of {KILLS} ended the next program"} if ended else {})

    def server(self):
        lost = self.steady()
        self.advances(lost)
        for pid in processes("nvidia-cuda-mps-server"):
            os.kill(pid, signal.SIGKILL)
        return self.fresh()

    def control(self):
        lost = self.steady()
        self.advances(lost)
        for pid in processes("nvidia-cuda-mps-control"):
            os.kill(pid, signal.SIGKILL)
        time.sleep(1)  # until the daemon has seen it
        return self.fresh()

    def daemon(self):
        stays = self.steady()
        self.advances(stays)
        old = self.site.daemons[self.system]
        old.process.kill()
        old.process.wait()
        self.advances(stays)
        self.site.daemons[self.system] = Daemon(self.site.xsched, old.socket.parent, "hpf")
        wait_until(lambda: self.entry(stays) is not None, "it is attached again")
        self.require_share(stays, "pool")
        self.advances(stays)
        return self.fresh()


def main():
    parser = units.parser(__doc__, "pool.jsonl")
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE")
    args = parser.parse_args()
    unknown = [c for c in args.cases if c not in CASES]
    if unknown:
        parser.error(f"{unknown[0]!r} is unknown: use {', '.join(CASES)}")
    if subprocess.run(["pgrep", "-f", "nvidia-cuda-mps"], capture_output=True).returncode == 0:
        print("pool.py: some MPS runs already, which these cases would kill: end it first", file=sys.stderr)
        return 3

    def body(site, unit):
        pools = Pools(site, unit, args)
        for case in args.cases:
            pools.run(case)

    status = units.conduct(args, body)
    failed = [r for r in units.newest([r for r in records.load(args.out) if r["bench"] == "pool"]) if "failed" in r]
    for record in failed:
        print(f"FAILED {record['case']}: {record['failed']}", file=sys.stderr)
    return status or (1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
