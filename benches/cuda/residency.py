#!/usr/bin/env python3
"""Facts about memory that moves between device and host: residency.c, part by part, without and with MPS.

  residency.py [--out FILE] [--only PART,PART…] [--no-mps] [--mib N] [--driver DIR] [--deadline SECS]

Builds residency.c by cc and runs each part in a process of its own, since some end their context. Each line of FILE is JSON: a result
of a part, with "mps": true where it ran under MPS, or {"part": …, "status": …} for a part that failed or ran past its limit. The MPS
daemon is private to this run (own folders for pipes and logs) and ended with it. --mib: MiB that `cost` moves (2048). --driver names a
folder with another libcuda.so.1. Parts that do not fit into --deadline (90 s) are left out, and told.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Part, with its argument, and its limit in s.
PARTS = (
    ("facts", 20),
    ("attributes", 10),
    ("host", 20),
    ("cpu", 10),
    ("graph", 15),
    ("copies", 20),
    ("spin", 15),
    ("gate", 30),
    ("beneath", 10),
    ("cost", 30),
    ("fault kernel", 10),
    ("fault copy", 10),
    ("fault memset", 10),
    ("fault noaccess", 10),
)
# A fault under MPS ends the contexts of all clients: none is made there.
UNDER_MPS = ("facts", "attributes", "host", "graph", "copies", "spin", "gate", "beneath", "cost")
TOOLS = ":/usr/local/nvidia/bin"


class Mps:
    """Private MPS daemon. `trouble` says why there is none."""

    def __init__(self, folder):
        self.process, self.trouble = None, None
        self.env = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        for path in self.env.values():
            os.mkdir(path)
        self.control = shutil.which("nvidia-cuda-mps-control", path=os.environ.get("PATH", "") + TOOLS)
        if not self.control:
            self.trouble = "nvidia-cuda-mps-control is missing"
            return
        self.process = subprocess.Popen([self.control, "-f"], env=self.environment(), stdout=subprocess.DEVNULL)
        give_up = time.monotonic() + 5
        while self.ask("get_default_active_thread_percentage") is None:
            if self.process.poll() is not None or time.monotonic() > give_up:
                self.trouble = f"the MPS daemon does not answer (status {self.process.poll()})"
                return
            time.sleep(0.1)

    def environment(self):
        env = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        return env | self.env

    def ask(self, words):
        try:
            done = subprocess.run(
                [self.control], input=words + "\n", env=self.environment(), capture_output=True, text=True, timeout=10
            )
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode == 0 else None

    def end(self):
        if not self.process:
            return
        servers = [int(word) for word in (self.ask("get_server_list") or "").split() if word.isdigit()]
        self.ask("quit -t 5")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            for pid in [*servers, self.process.pid]:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
            self.process.wait()


def run(program, words, limit, env, mark):
    """Results of one part. Its output goes to a file, so that a part that is ended keeps what it found."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([program, *words.split()], stdout=out, stderr=err, env=env)
        began = time.monotonic()
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            status = f"ended after {limit:.0f} s"
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                status += ", and does not go"
        out.seek(0)
        err.seek(0)
        found = [json.loads(line) for line in out if line.endswith("}\n")]
        last = {"part": words, "status": status, "seconds": round(time.monotonic() - began, 2)}
        said = err.read().strip()
        return [result | mark for result in [*found, last | ({"error": said[-400:]} if said else {})]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--no-mps", action="store_true")
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--driver", type=Path)
    parser.add_argument("--deadline", type=float, default=90)
    args = parser.parse_args()
    known = {part.split()[0] for part, _ in PARTS}
    if unknown := [part for part in args.only or [] if part not in known]:
        parser.error(f"{unknown[0]!r} is no part: use {', '.join(sorted(known))}")
    end = time.monotonic() + args.deadline
    env = dict(os.environ)
    if args.driver:
        env["LD_LIBRARY_PATH"] = f"{args.driver.resolve()}:{env.get('LD_LIBRARY_PATH', '')}"

    def tell(results):
        lines = "".join(json.dumps(result) + "\n" for result in results)
        sys.stdout.write(lines)
        sys.stdout.flush()
        if args.out:
            with args.out.open("a") as file:
                file.write(lines)

    def measure(parts, env, mark):
        for part, limit in parts:
            if args.only and part.split()[0] not in args.only:
                continue
            left = end - time.monotonic()
            if left < 3:
                tell([{"part": part, "status": "left out: no time"} | mark])
                continue
            words = f"cost {args.mib}" if part == "cost" else part
            tell(run(program, words, min(limit, left), env, mark))

    with tempfile.TemporaryDirectory(prefix="residency-") as folder:
        program = f"{folder}/residency"
        built = subprocess.run(
            ["cc", "-O2", "-w", "-pthread", "-o", program, HERE / "residency.c", "-ldl"], capture_output=True, text=True
        )
        if built.returncode:
            print(f"residency.py: residency.c does not build: {built.stderr.strip()}", file=sys.stderr)
            return 3
        measure(PARTS, env, {})
        if args.no_mps or args.driver:
            return 0
        mps = Mps(folder)
        try:
            if mps.trouble:
                tell([{"part": "mps", "status": mps.trouble}])
                return 0
            limits = dict(PARTS)
            measure([(part, limits[part]) for part in UNDER_MPS], mps.environment(), {"mps": True})
        finally:
            mps.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
