"""What the examples share: requests at a pace, work without end, and the options for both."""

import argparse
import itertools
import sys
import time

if "--priority" in sys.argv[:-1]:
    # Before PyTorch is there: what ran before runs twice.
    import xsched  # of the wheel, or PYTHONPATH=python

    xsched.ensure(["--priority", sys.argv[sys.argv.index("--priority") + 1]])

import torch


def options(about):
    """Options that all examples have."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--device", default="cuda", help="PyTorch's name of the device [cuda, also for AMD's]")
    parser.add_argument("--priority", help="class or number: starts this program again under `xsched run --priority`")
    parser.add_argument("--requests", type=int, default=0, help="end after so many [0 = never]")
    parser.add_argument("--period", type=float, default=50, help="ms between two requests, 0 = one after the other [50]")
    # The same numbers in the weights each time.
    torch.manual_seed(0)
    return parser


def synchronize(device):
    if device != "cpu":
        torch.cuda.synchronize()


def serve(request, args):
    """A request each period. Its latency counts from when it was due, so that a late start is part of it."""
    for _ in range(5):
        request()
    synchronize(args.device)
    due = time.perf_counter()
    for n in itertools.count(1):
        time.sleep(max(0, due - time.perf_counter()))
        request()
        synchronize(args.device)
        done = time.perf_counter()
        print(f"request {n}: {(done - due) * 1e3:.3f} ms", flush=True)
        if n == args.requests:
            return
        due = due + args.period / 1e3 if args.period else done


def work(step, args):
    """Steps without end. A few are given to the device before the host waits."""
    for n in itertools.count(1):
        step()
        if n % 4 == 0:
            synchronize(args.device)
        print(f"step {n}", flush=True)
        if n == args.requests:
            return synchronize(args.device)
