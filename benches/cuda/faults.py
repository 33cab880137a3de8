#!/usr/bin/env python3
"""What happens when something dies, stops or never comes back. Time sharing only: pool.py has
the same for pools, whose programs share their faults.

  faults.py [--bin DIR] [--out FILE] [--quick] [NAME ...]

Names:
  daemon    in each mix of coloc.py: the daemon killed, a new one started, that one stopped for 3 s; results are as
            before, and no program holds more descriptors than before
  kills     clients killed at random, 200 times, beside one that must go on and keep its results
  stopped   a best-effort program stopped (SIGSTOP) for 3 s while it has the device, then an urgent one
  gate      programs suspended for two minutes at every level, then resumed
  ends      SIGINT, SIGTERM and exit() while suspended; the primary context reset in the end

Every check has a time limit: what hangs fails. A check that fails says so in its record ("failed": why), and the exit
status is 1.
"""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time

import coloc
import machine
import micro
import records
import systems
import units
from harness import Daemon
from micro import Bench, finish
from systems import Trouble, Variant

NAMES = ("daemon", "kills", "stopped", "gate", "ends")
LEVELS = micro.LEVELS
START_S = 60


class Failed(Exception):
    """A check did not hold."""


def require(holds, why):
    if not holds:
        raise Failed(why)


def address(gpus, visible):
    """Address of the first visible GPU as the kernel's log has it, `0000:00:06`; None where it cannot be told."""
    name = (visible or "0").split(",")[0]
    found = [g for number, g in enumerate(gpus) if name in (g["uuid"], str(number))]
    return found[0]["pci.bus_id"].lower()[-12:].rpartition(".")[0] if found else None


def faults_of(log, where):
    """Lines of a kernel's log about faults of the GPU at an address, or of any GPU."""
    return [line for line in log.splitlines() if "NVRM: Xid" in line and f"(pci:{where or ''}" in line.lower()]


def xids(where):
    """The same of this machine's log; None where it may not be read."""
    try:
        done = subprocess.run(["dmesg"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return faults_of(done.stdout, where) if done.returncode == 0 else None


def footprint(pid):
    """What a process holds: descriptors, and resident memory in KiB."""
    status = open(f"/proc/{pid}/status").read()
    return {
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "rss_kib": next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")),
    }


def programs_hold(programs):
    """Descriptors of each program of a set."""
    return [footprint(worker.process.pid)["descriptors"] for worker in programs.workers]


def wait_until(holds, seconds, why):
    """Looks again and again, since what it waits for is another process's doing."""
    deadline = time.monotonic() + seconds
    while not holds():
        require(time.monotonic() < deadline, f"not within {seconds} s: {why}")
        time.sleep(0.02)


class Faults:
    def __init__(self, site, unit, args):
        self.site, self.unit, self.args, self.quick = site, unit, args, args.quick
        self.bench = Bench(site, unit, args.quick)
        self.where = address(machine.gpus(), site.env.get("CUDA_VISIBLE_DEVICES"))

    def check(self, name, case, seconds, body):
        """A unit that also records how the check came out, and faults of the GPU meanwhile."""

        def guarded():
            before = xids(self.where)
            try:
                found = body()
            except (Failed, Trouble) as why:
                found = {"failed": str(why)}
            after = xids(self.where)
            found["xids"] = "the kernel's log may not be read" if None in (before, after) else after[len(before) :]
            if isinstance(found["xids"], list) and found["xids"]:
                found.setdefault("failed", f"the driver reports: {found['xids'][0]}")
            return found

        self.unit.run(f"fault {name}", case, 0, seconds, guarded)

    def flat(self, system, kind, *options, us=1000, more=()):
        program = self.bench.start(system, kind, ["flat", "run", *self.bench.spin(us), *more], *options)
        program.expect('{"t"', START_S)
        self.site.require_seen(system, [program])
        return program

    def latest(self, program):
        """The newest line of a flat program, or none so far."""
        found = None
        while not program.lines.empty():
            line = program.lines.get()
            if line is None:
                raise Failed(f"{program.name} ended: {program.last_words()}")
            found = json.loads(line)
        return found

    def advances(self, program, seconds, why):
        """Waits until the program completes something that was not complete before."""
        self.latest(program)
        start = json.loads('{"t"' + program.expect('{"t"', seconds))["done"]
        wait_until(lambda: (self.latest(program) or {"done": start})["done"] > start, seconds, why)

    def stands_still(self, program):
        """Fails if a suspended flat program goes on once what was on the device has ended (it tells every 50 ms)."""
        time.sleep(0.5)
        self.latest(program)
        time.sleep(0.3)
        line = self.latest(program)
        require(line is None, f"work goes on while suspended: {line}")

    # ---- daemon ------------------------------------------------------------------------------------------------------

    def daemon(self):
        for mix in self.args.mixes.split(","):
            self.check("daemon", mix, 90, lambda m=mix: self.one_daemon(m))

    def one_daemon(self, mix):
        """A window with the daemon as it is, one in which things happen to it, one after: same results."""
        step = 1.0 if self.quick else 3.0
        system = f"daemon {mix}"
        self.site.variants[system] = Variant("--share time")
        programs = coloc.Set(self.site, system, mix, self.args.worker, self.site.work)
        try:
            programs.imported()
            programs.warm()
            before = programs.window(2 * step)
            attached = len(self.site.seen(system))
            require(attached == len(programs.workers), f"{attached} of {len(programs.workers)} programs are attached")
            held = programs_hold(programs)
            events = []

            def happens(what):
                events.append({"what": what, "t": round(time.monotonic() - begin, 2)})

            begin = time.monotonic() + coloc.LEAD_S
            for worker in programs.workers:
                mode, rate = ("paced", coloc.RATES[worker.name]) if worker.name in coloc.RATES else ("flat", 0)
                worker.send(f"go {mode} {begin:.6f} {begin + 5 * step:.6f} {rate}")
            time.sleep(coloc.LEAD_S + step)
            old = self.site.daemons[system]
            old.process.kill()
            old.process.wait()
            happens("killed")
            time.sleep(step)
            new = Daemon(self.site.xsched, old.socket.parent, "hpf")
            self.site.daemons[system] = new
            happens("started again")
            wait_until(
                lambda: len(self.site.seen(system)) == len(programs.workers), 10, "all attached to the new daemon"
            )
            happens("all attached")
            os.kill(new.process.pid, signal.SIGSTOP)
            happens("stopped")
            time.sleep(step)
            os.kill(new.process.pid, signal.SIGCONT)
            happens("goes on")
            meanwhile = [json.loads(w.expect("RESULT", 5 * step + 60)) for w in programs.workers]
            wait_until(lambda: len(self.site.seen(system)) == len(programs.workers), 10, "all attached in the end")
            after = programs.window(2 * step)
            holding = programs_hold(programs)
        finally:
            programs.close()
        more = [f"{a['role']}: {x} to {y}" for a, x, y in zip(after, held, holding) if y > x]
        require(not more, f"descriptors grew with the new daemon: {', '.join(more)}")
        for a, b, c in zip(before, meanwhile, after):
            # Within what a library's own order of additions may change; the compatibility ladder compares bit for bit.
            require(
                math.isclose(a["check"], b["check"], rel_tol=1e-3)
                and math.isclose(a["check"], c["check"], rel_tol=1e-3),
                f"{a['role']}: results differ: {a['check']} {b['check']} {c['check']}",
            )
        return {
            "mix": mix,
            "events": events,
            "descriptors": holding,
            "before": coloc.brief(before),
            "meanwhile": coloc.brief(meanwhile),
            "after": coloc.brief(after),
        }

    # ---- kills -------------------------------------------------------------------------------------------------------

    def kills(self):
        count = 10 if self.quick else 200
        self.check("kills", str(count), 30 + count * 1.1, lambda: self.one_kills(count))

    def one_kills(self, count):
        chance = random.Random(count)
        system = "kills"
        self.site.variants[system] = Variant("--share time")
        survivor = self.flat(system, "normal", us=200)
        daemon = self.site.daemons[system].process.pid
        victims, settled, running = [], None, 0

        def kill(victim):
            os.killpg(victim.process.pid, signal.SIGKILL)
            victim.process.wait()
            return not victim.lines.empty() and victim.lines.get() is not None  # it had come to work

        def comes_to_work(victim):
            """Waits for it, but not long: it may be kept off the device by others, or still start."""
            begin = time.monotonic()
            while victim.lines.empty() and time.monotonic() < begin + 1.5:
                time.sleep(0.01)

        try:
            for number in range(count):
                while len(victims) < 3:
                    kind, us = chance.choice(("low", "normal", "high")), chance.choice((10, 200, 2000))
                    victims.append(self.bench.start(system, kind, ["flat", "run", *self.bench.spin(us)]))
                victim = chance.choice(victims)
                # So that some die while they start, some at work, some at the gate.
                if number % 2:
                    comes_to_work(victim)
                time.sleep(chance.random() * 0.4)
                running += kill(victim)
                victims.remove(victim)
                # Urgent ones may keep the survivor off the device; dead ones may not.
                if number % 10 == 9 or number + 1 == count:
                    for other in victims:
                        kill(other)
                    victims = []
                    wait_until(lambda: len(self.site.seen(system)) == 1, 10, "the daemon forgets the dead")
                    self.advances(survivor, 10, "the survivor goes on")
                    settled = settled or footprint(daemon)
            now = footprint(daemon)
            done = finish(survivor)[-1]["done"]
        finally:
            systems.end_all([survivor, *victims])
        require(running > 0, "none of those killed had come to work")
        require(now["descriptors"] <= settled["descriptors"], f"descriptors of the daemon grew: {settled} to {now}")
        require(now["rss_kib"] <= settled["rss_kib"] + 1024, f"memory of the daemon grew: {settled} to {now}")
        return {
            "kills": count,
            "at_work": running,
            "survivor_done": done,
            "daemon_after_10": settled,
            "daemon_in_the_end": now,
        }

    # ---- stopped -----------------------------------------------------------------------------------------------------

    def stopped(self):
        for level in LEVELS:
            self.check("stopped", f"low, level {level}", 15, lambda v=level: self.low_stopped(v))
            self.check("stopped", f"high, level {level}", 15, lambda v=level: self.high_stopped(v))

    def low_stopped(self, level):
        """The best-effort program is stopped while it has the device; the urgent one is served throughout."""
        seconds = 1 if self.quick else 3
        requests = int((seconds + 2) / 0.02)
        low = self.flat(level, "low")
        high = None
        try:
            high = self.bench.start(
                level,
                "high",
                ["flat", "paced", *self.bench.spin(200), "--kernels", 5, "--period-us", 20000, "--requests", requests],
            )
            high.expect('{"ready"', START_S)
            time.sleep(1)
            os.kill(low.process.pid, signal.SIGSTOP)
            try:
                time.sleep(seconds)
            finally:
                os.kill(low.process.pid, signal.SIGCONT)
            latency = json.loads("{" + high.expect("{", 60))["latency_us"]
            self.advances(low, 10, "the stopped program goes on")
            done = finish(low)[-1]["done"]
        finally:
            systems.end_all([p for p in (low, high) if p])
        found = records.latencies(latency)
        require(found["max"] < 1e6, f"a request took {found['max'] / 1e6:.1f} s while the other was stopped")
        return {"level": level, "secs": seconds, "latency_us": found, "low_done": done}

    def high_stopped(self, level):
        """The urgent program is stopped while it holds the device; the other gets it, and gives it back."""
        seconds = 1 if self.quick else 3
        low = self.flat(level, "low")
        high = None
        try:
            high = self.flat(level, "high")
            time.sleep(0.5)
            os.kill(high.process.pid, signal.SIGSTOP)
            try:
                begin = time.monotonic()
                self.advances(low, 10, "the urgent one is stopped, the other goes on")
                waited = time.monotonic() - begin
                time.sleep(seconds)
                self.advances(low, 10, "the urgent one is stopped, the other still goes on")
            finally:
                os.kill(high.process.pid, signal.SIGCONT)
            self.advances(high, 10, "the stopped program goes on")
            done = {"high": finish(high)[-1]["done"], "low": finish(low)[-1]["done"]}
        finally:
            systems.end_all([p for p in (low, high) if p])
        return {"level": level, "secs": seconds, "other_went_on_after_s": round(waited, 3), "done": done}

    # ---- gate --------------------------------------------------------------------------------------------------------

    def xsched(self, system, *words):
        socket = self.site.daemon(system).socket
        done = subprocess.run(
            [str(w) for w in (self.site.xsched, *words, "--socket", socket)], capture_output=True, text=True, timeout=30
        )
        require(done.returncode == 0, f"xsched {words[0]}: {done.stderr.strip()}")

    def gate(self):
        seconds = 3 if self.quick else 120
        self.check("gate", f"closed for {seconds} s", seconds + 30, lambda: self.one_gate(seconds))

    def one_gate(self, seconds):
        """At all levels at once: the two minutes are waited for once. A program of each, with a daemon of each."""
        programs = {}
        try:
            for level in LEVELS:
                programs[level] = self.flat(level, "normal")
            for level, program in programs.items():
                self.xsched(level, "suspend", "--pid", program.process.pid)
            for level, program in programs.items():
                self.stands_still(program)
            time.sleep(seconds)
            for level, program in programs.items():
                line = self.latest(program)
                require(line is None, f"level {level}: work went on while suspended: {line}")
                require(program.process.poll() is None, f"level {level}: the program ended")
                self.xsched(level, "resume", "--pid", program.process.pid)
            for level, program in programs.items():
                self.advances(program, 10, f"level {level}: work goes on after resume")
            done = {level: finish(program)[-1]["done"] for level, program in programs.items()}
        finally:
            systems.end_all(programs.values())
        return {"secs": seconds, "done": done}

    # ---- ends --------------------------------------------------------------------------------------------------------

    def ends(self):
        for level in LEVELS:
            for way in ("SIGINT", "SIGTERM", "exit"):
                self.check("ends", f"{way}, level {level}", 10, lambda w=way, v=level: self.one_end(w, v))
            self.check("ends", f"context reset, level {level}", 10, lambda v=level: self.one_reset(v))

    def one_end(self, way, level):
        more = ("--exit-after", 2000) if way == "exit" else ("--default-signals",)
        program = self.flat(level, "normal", more=more)
        try:
            self.xsched(level, "suspend", "--pid", program.process.pid)
            self.stands_still(program)
            begin = time.monotonic()
            if way != "exit":
                program.process.send_signal(getattr(signal, way))
            try:
                status = program.process.wait(10)
            except subprocess.TimeoutExpired:
                raise Failed(f"{way} did not end it within 10 s") from None
            took = time.monotonic() - begin
        finally:
            if program.process.poll() is None:
                os.killpg(program.process.pid, signal.SIGKILL)
            program.end()
        expected = 0 if way == "exit" else -getattr(signal, way)
        require(status == expected, f"{way}: exit status {status}, not {expected}: {program.last_words()}")
        return {"level": level, "way": way, "took_s": round(took, 3)}

    def one_reset(self, level):
        program = self.flat(level, "normal", more=("--reset-at-end",))
        try:
            return {"level": level, "done": finish(program)[-1]["done"]}
        finally:
            program.end()


def main():
    parser = units.parser(__doc__, "faults.jsonl")
    parser.add_argument("--mixes", default=",".join(coloc.MIXES), help="for daemon [%(default)s]")
    parser.add_argument("--worker", default=str(systems.HERE / "roles.py"), help="the program that plays the roles")
    parser.add_argument("names", nargs="*", default=list(NAMES), metavar="NAME")
    args = parser.parse_args()
    args.worker = [args.worker]
    unknown = [n for n in args.names if n not in NAMES]
    if unknown:
        parser.error(f"{unknown[0]!r} is unknown: use {', '.join(NAMES)}")
    try:
        for mix in args.mixes.split(","):
            coloc.parse_mix(mix)
    except ValueError as error:
        parser.error(f"--mixes: {error}")

    def body(site, unit):
        faults = Faults(site, unit, args)
        for name in args.names:
            getattr(faults, name)()

    status = units.conduct(args, body, dict(micro.VARIANTS))
    failed = [
        r for r in units.newest([r for r in records.load(args.out) if r["bench"].startswith("fault ")]) if "failed" in r
    ]
    for record in failed:
        print(f"FAILED {record['bench']} {record['case']}: {record['failed']}", file=sys.stderr)
    return status or (1 if failed else 0)


if __name__ == "__main__":
    sys.exit(main())
