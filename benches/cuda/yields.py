#!/usr/bin/env python3
"""Best-effort programs that end beside an urgent one in the same MPS server: how often that takes the urgent one along.

  yields.py [--bin DIR] [--out FILE] [--gpu N] [--quick] [--deadline SECS] [--summary] [CASE ...]

The urgent program (class high) is in the inner pool and asks for a short kernel every 5 ms. Its neighbours run kernels of
100 us without a pause, so that each ends in the midst of its work. Cases, by how a neighbour ends:

  kill       SIGKILL, 50 times
  exit       exit() in one thread while another gives commands, 50 times
  terminate  SIGTERM, and SIGKILL 100 ms later where it goes on, as at an eviction
  interrupt  SIGINT twice to the process group of `xsched run`: Ctrl-C twice in a terminal
  oom        the kernel's OOM killer, in a cgroup (v2) of its own whose limit is lowered; skipped where none can be made
  fault      a kernel's illegal address, in a neighbour that is not proven and so is in the outer pool

10 times each unless said otherwise. In all but `fault` neighbours are proven (pool.proven_minutes = 0) and in the inner pool,
five at a time; in `fault` one at a time, each an executable of its own, since those that faulted are known. A program that is in
another pool than it should be fails the case. Where an end has made xsched begin another MPS server while the urgent program is
still in the old one, all are started anew (`apart`).

A record is of up to ten ends: `ends`; `took_urgent`, after how many of them the urgent program had lost its context (it is
started anew then, and its neighbours, too); `took_neighbours`, how many others had ended; `served`, the requests of the urgent
program, and the longest in ms; `where` the programs were. What is recorded is not measured again: with --deadline the same
command goes on where it stopped. A table and the rates are printed in the end; --summary prints nothing else. Exit status 1: a case
failed, or took the urgent program along more often than the default placement `auto` may: once in kill and exit together, never in
fault.
"""

import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import records
import units
from pool import Failed, Urgent, processes, require, wait_until
from systems import INSIDE, Trouble, Variant, Worker

ENDS = {"kill": 50, "exit": 50, "terminate": 10, "interrupt": 10, "oom": 10, "fault": 10}
UNPROVEN = "@pool.urgent=inside @pool.proven_minutes=10"
OF_A_RECORD, QUICK_ENDS, AT_ONCE = 10, 3, 5
SECONDS = 25  # about, of a record
SETTLES_S = 0.5  # a server that waits for what is executed of a client that is gone gives up within 0.3 s
GRACE_S = 0.1  # between SIGTERM and SIGKILL
PATIENCE_S = 30
SERVERS_S = 5  # a server that is no longer used ends within that
MOST_APART = 3  # in a record
MOST = {("kill", "exit"): 1, ("fault",): 0}  # cases -> how often they may take the urgent program along together


class Unavailable(Exception):
    """Something this machine lacks."""


class Apart(Exception):
    """The neighbours are in another MPS server than the urgent program."""


class Memory:
    """A cgroup (v2) for each of some programs, with a limit of memory that can be lowered until the OOM killer comes."""

    def __init__(self):
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        roots = [Path(words[1]) for words in mounts if words[2] == "cgroup2"]
        own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
        if not roots or not own:
            raise Unavailable("no cgroup v2 is mounted")
        self.made, why = [], None
        for parent in dict.fromkeys((roots[0] / own[0].lstrip("/"), roots[0])):
            try:
                self.parent = parent
                self.remove(self.group("try"))
                return
            except (OSError, Unavailable) as error:
                why = why or str(error)
        raise Unavailable(why)

    def group(self, name):
        """A new cgroup."""
        folder = self.parent / f"xsched-bench-{os.getpid()}-{name}"
        folder.mkdir()
        self.made.append(folder)
        if not (folder / "memory.max").exists():
            self.remove(folder)
            raise Unavailable(f"{self.parent}: its children have no memory controller")
        return folder

    def remove(self, folder):
        self.made.remove(folder)
        folder.rmdir()

    def close(self):
        for folder in list(self.made):
            try:
                self.remove(folder)
            except OSError as error:
                print(f"yields: {folder} stays: {error}", file=sys.stderr)


def kills_of(folder):
    """How often the OOM killer has ended something of a cgroup."""
    words = dict(line.split() for line in (folder / "memory.events").read_text().splitlines())
    return int(words["oom_kill"])


SERVER = "nvidia-cuda-mps-server"


class Ends:
    """The programs of one case."""

    def __init__(self, site, case):
        self.site, self.case, self.system, self.started = site, case, f"yields {case}", []
        self.memory, self.groups, self.copies = None, {}, 0
        site.variants[self.system] = Variant(UNPROVEN if case == "fault" else INSIDE)

    def start(self, binary, kind, *arguments, group=None):
        words, env = self.site.command(self.system, kind, [binary, *arguments])
        if group:
            words = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *words]
        worker = Worker(Path(binary).name, words, env, self.site.work / f"{time.monotonic_ns()}.err", patience=2)
        self.started.append(worker)
        return worker

    def place(self, program):
        """`inner`, `outer`, or how the program shares its GPU outside of the pools; and why."""
        found = []

        def told():
            said = self.site.daemons[self.system].ps() or {"programs": []}
            found[:] = [p for p in said["programs"] if p["pid"] == program.process.pid]
            return found

        wait_until(told, f"{program.name} is attached", PATIENCE_S)
        return found[0].get("pool") or found[0].get("share"), found[0].get("pool_why")

    def require_place(self, program, place, found, role):
        where, why = self.place(program)
        found["where"][role] = sorted({*found["where"].get(role, ()), str(where)})
        because = f": {why}" if why else ""
        require(where == place, f"the {role} program {program.name} is in {where}, not in the {place} pool{because}")

    def urgent(self, found):
        program = self.start(self.site.bin / "pooled", "high")
        program.expect("context 0", PATIENCE_S)
        self.require_place(program, "inner", found, "urgent")
        return Urgent(program)

    def neighbours(self, count, found):
        """Best-effort programs, each of which has run something."""
        if self.case == "fault":
            programs = [self.faulty()]
        else:
            groups = [self.cgroup() for _ in range(count)] if self.case == "oom" else [None] * count
            programs = [self.start(self.site.bin / "steady", "low", 100, 4, group=group) for group in groups]
            self.groups = dict(zip(programs, groups))
        for program in programs:
            program.expect("ready" if self.case != "fault" else "context 0", PATIENCE_S)
        for program in programs:
            self.require_place(program, "outer" if self.case == "fault" else "inner", found, "best-effort")
        if self.case != "fault":
            try:
                wait_until(lambda: len(self.servers()) <= 1, "all are in one MPS server", SERVERS_S)
            except Failed as why:
                raise Apart(str(why)) from None
        return programs

    def servers(self):
        """Process ids of the MPS servers of this case's daemon: their environment names its folder."""
        folder, found = os.fsencode(self.site.daemons[self.system].socket.parent), []
        for pid in processes(SERVER):
            try:
                if folder in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
            except OSError:
                continue
        return found

    def faulty(self):
        """A program to fault: an executable of its own."""
        self.copies += 1
        copy = self.site.work / f"faulty-{time.monotonic_ns()}"
        shutil.copy(self.site.bin / "pooled", copy)
        with open(copy, "ab") as file:
            file.write(f"\n# {self.copies}\n".encode())
        return self.start(copy, "low")

    def cgroup(self):
        self.memory = self.memory or Memory()
        return self.memory.group(time.monotonic_ns())

    def works(self, program):
        """Whether the program gets on, now; else it has ended."""
        if self.case == "fault":
            return program.process.poll() is None
        while not program.lines.empty():
            if program.lines.get() is None:
                return False
        try:
            return program.lines.get(timeout=PATIENCE_S) is not None
        except queue.Empty:
            raise Failed(f"{program.name} gets nowhere for {PATIENCE_S} s") from None

    # ---- ends --------------------------------------------------------------------------------------------------------

    def kill(self, program, _):
        program.process.kill()

    def exit(self, program, _):
        program.send("exit")

    def terminate(self, program, found):
        program.process.terminate()
        try:
            program.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            program.process.kill()
            found["forced"] = found.get("forced", 0) + 1

    def interrupt(self, program, _):
        for _ in range(2):
            try:
                os.killpg(program.process.pid, signal.SIGINT)
            except ProcessLookupError:  # the first one was enough
                return
            time.sleep(0.02)

    def oom(self, program, _):
        group = self.groups[program]
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0")
        (group / "memory.max").write_text("65536")
        wait_until(lambda: program.process.poll() is not None, "the OOM killer ends it", PATIENCE_S)
        require(kills_of(group) > 0, f"{program.name} ended without the OOM killer: {program.process.returncode}")
        self.memory.remove(group)

    def fault(self, program, found):
        program.send("crash")
        code = program.expect("crash", PATIENCE_S)
        require(code != "0", "a kernel with an illegal address was served")
        found["codes"] = sorted({*found.get("codes", ()), code})
        program.process.kill()

    # ---- record ------------------------------------------------------------------------------------------------------

    def run(self, count, draw):
        """A record of so many ends; with `failed` where a check did not hold, `skipped` where this machine lacks something."""
        found = {"ends": 0, "took_urgent": 0, "took_neighbours": 0, "served": 0, "longest_ms": 0.0, "where": {}}
        urgent = None
        try:
            if self.case == "oom":
                self.memory = self.memory or Memory()
            urgent = self.urgent(found)
            while found["ends"] < count:
                try:
                    urgent = self.some(urgent, count, draw, found)
                except Apart as why:
                    found["apart"] = found.get("apart", 0) + 1
                    require(found["apart"] <= MOST_APART, str(why))
                    self.account(urgent, found)
                    self.end(urgent)
                    urgent = self.urgent(found)
            self.account(urgent, found)
            urgent.end()
        except Unavailable as why:
            return {"skipped": str(why)}
        except (Failed, Trouble) as why:
            found["failed"] = str(why)
        finally:
            self.end(urgent)
        return found

    def some(self, urgent, count, draw, found):
        """Starts a few neighbours and ends them one by one; gives the urgent program, which may be another one then."""
        before = found["ends"]
        for victim in self.neighbours(min(AT_ONCE, count - before), found):
            if not self.works(victim):
                found["took_neighbours"] += 1
                continue
            time.sleep(draw.uniform(0.01, 0.1))
            getattr(self, self.case)(victim, found)
            found["ends"] += 1
            victim.process.wait(PATIENCE_S)
            time.sleep(SETTLES_S)
            served = urgent.served
            wait_until(lambda: urgent.trouble or urgent.served > served, "the urgent program is served", PATIENCE_S)  # noqa: B023
            if urgent.trouble:
                found["took_urgent"] += 1
                found.setdefault("why", urgent.trouble[:200])
                self.account(urgent, found)
                self.end(urgent)
                return self.urgent(found)
        require(found["ends"] > before, "no neighbour works")
        return urgent

    def account(self, urgent, found):
        found["served"] += urgent.served
        found["longest_ms"] = max(found["longest_ms"], round(urgent.longest_s * 1e3, 2))

    def end(self, urgent=None):
        """Ends all programs."""
        if urgent:
            urgent.over.set()
        for program in self.started:
            if program.process.poll() is None:
                os.killpg(program.process.pid, signal.SIGKILL)
            program.process.wait()
        self.started.clear()
        if self.memory:
            self.memory.close()


def rounds(case, quick):
    """How many ends each record of a case is of."""
    count = QUICK_ENDS if quick else ENDS[case]
    return [min(OF_A_RECORD, count - begin) for begin in range(0, count, OF_A_RECORD)]


def summary(found):
    """Case -> its records together."""
    result = {}
    for record in found:
        case = record["case"]
        if case not in ENDS or "ends" not in record and "skipped" not in record:
            continue  # of an older script
        row = result.setdefault(case, dict(ends=0, took_urgent=0, took_neighbours=0, served=0, longest_ms=0.0, where={}, said=[]))
        for name in ("ends", "took_urgent", "took_neighbours", "served"):
            row[name] += record.get(name, 0)
        row["longest_ms"] = max(row["longest_ms"], record.get("longest_ms", 0.0))
        for role, places in record.get("where", {}).items():
            row["where"][role] = sorted({*row["where"].get(role, ()), *places})
        row["said"] += [f"{name}: {record[name]}" for name in ("failed", "skipped", "why", "apart") if name in record]
    return result


HEAD = ("end", "ends", "took the urgent program along", "took neighbours along", "requests served", "longest, ms", "where", "")


def table(result):
    """A summary as Markdown."""
    rows = []
    for case, row in result.items():
        where = ", ".join(f"{role}: {'/'.join(places)}" for role, places in row["where"].items())
        figures = (row[name] for name in ("ends", "took_urgent", "took_neighbours", "served", "longest_ms"))
        rows.append((case, *figures, where or None, "; ".join(dict.fromkeys(row["said"])) or None))
    return records.table(HEAD, rows)


def rates(result):
    """Lines that compare what was taken along with what may be, and whether all of it is within that."""
    lines, good = [], True
    for cases, most in MOST.items():
        mine = [result[case] for case in cases if case in result]
        ends, took = sum(row["ends"] for row in mine), sum(row["took_urgent"] for row in mine)
        enough = ends >= sum(ENDS[case] for case in cases)
        good &= took <= most
        said = "too often for `auto`" if took > most else "as seldom as `auto` asks for" if enough else "too few ends to tell"
        lines.append(f"{' and '.join(cases)}: {took} of {ends} took the urgent program along (at most {most}): {said}")
    return lines, good


def main():
    parser = units.parser(__doc__, "yields.jsonl")
    parser.add_argument("--summary", action="store_true", help="only print what FILE holds")
    parser.add_argument("cases", nargs="*", default=list(ENDS), metavar="CASE")
    args = parser.parse_args()
    unknown = [c for c in args.cases if c not in ENDS]
    if unknown:
        parser.error(f"{unknown[0]!r} is unknown: use {', '.join(ENDS)}")

    def body(site, unit):
        for case in args.cases:
            ends = Ends(site, case)
            for number, count in enumerate(rounds(case, args.quick)):
                draw = random.Random(f"ends {case} {number}")
                unit.run("yields", case, number, SECONDS, lambda e=ends, c=count, d=draw: e.run(c, d))

    status = 0 if args.summary else units.conduct(args, body)
    found = units.newest([r for r in records.load(args.out) if r.get("bench") == "yields"])
    lines, good = rates(summary(found))
    print("\n".join([table(summary(found)), "", *lines]))
    for record in (r for r in found if "failed" in r):
        print(f"FAILED {record['case']}: {record['failed']}", file=sys.stderr)
        good = False
    return status or (0 if good else 1)


if __name__ == "__main__":
    sys.exit(main())
