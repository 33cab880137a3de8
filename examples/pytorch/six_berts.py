"""Six BERTs in three groups of two: high, normal and low. As processes, or as threads of one process.

python3 examples/pytorch/six_berts.py processes
python3 examples/pytorch/six_berts.py threads
"""

import os
import re
import subprocess
import sys
import threading
import time

if sys.argv[1:2] == ["threads"]:
    import xsched  # of the wheel, or PYTHONPATH=python

    # The program's class is the ceiling of its queues. Before PyTorch is there: what ran before runs twice.
    xsched.ensure(["--priority", "high"])

import torch

import pace
from bert import Bert

GROUPS = {"high": 128, "normal": 0, "low": -128}
EACH = 2


def report(latencies_ms):
    for group, found in latencies_ms.items():
        found = sorted(found)
        p50, p99 = (found[min(len(found) - 1, int(len(found) * q))] for q in (0.5, 0.99))
        print(f"{group:<8}{len(found):>6} requests   P50 {p50:8.2f} ms   P99 {p99:8.2f} ms")


def as_processes(args):
    """Each is bert.py under `xsched run`."""
    bert = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bert.py")
    said = ["--device", args.device, "--layers", args.layers, "--requests", args.requests, "--period", args.period]
    command = [sys.executable, bert, *map(str, said)]
    started = [
        (group, subprocess.Popen(["xsched", "run", "--priority", group, "--", *command], stdout=subprocess.PIPE, text=True))
        for group in GROUPS
        for _ in range(EACH)
    ]
    latencies_ms = {group: [] for group in GROUPS}
    for group, process in started:
        lines, _ = process.communicate()
        if process.returncode:
            sys.exit(f"a BERT of the group {group} ended with status {process.returncode}")
        latencies_ms[group] += [float(ms) for ms in re.findall(r"^request \d+: ([0-9.]+) ms$", lines, re.MULTILINE)]
    report(latencies_ms)


def as_threads(args):
    """Each has a thread, a stream, and an XQueue with a priority of its own."""
    from torch_xsched import XSchedQueue

    latencies_ms = {group: [] for group in GROUPS}

    def run(group, model, sentence):
        stream = torch.cuda.Stream()
        with XSchedQueue(stream, GROUPS[group]).enabled(), torch.inference_mode():
            for _ in range(args.requests):
                begin = time.perf_counter()
                model(sentence)
                stream.synchronize()
                latencies_ms[group].append((time.perf_counter() - begin) * 1e3)
                time.sleep(args.period / 1e3)

    threads = []
    for group in GROUPS:
        for _ in range(EACH):
            model = Bert(args.layers).eval().to(args.device)
            sentence = torch.randint(0, 30522, (1, 128)).to(args.device)
            threads.append(threading.Thread(target=run, args=(group, model, sentence)))
    torch.cuda.synchronize()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report(latencies_ms)


def main():
    parser = pace.options("six BERTs in three groups: processes|threads first")
    parser.add_argument("kind", choices=["processes", "threads"])
    parser.add_argument("--layers", type=int, default=12, help="[12]")
    parser.set_defaults(requests=200, period=0)
    args = parser.parse_args()
    as_processes(args) if args.kind == "processes" else as_threads(args)


if __name__ == "__main__":
    main()
