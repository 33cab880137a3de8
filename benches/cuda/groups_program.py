#!/usr/bin/env python3
"""An ordinary PyTorch program: six threads, each with a BERT and a stream of its own, in three priorities.

  groups_program.py [--batch N]

It knows nothing of xsched; urgency is what PyTorch offers, `torch.cuda.Stream(priority=…)`: -2, -1 and 0, two threads
each. It takes the orders of roles.py (warm, go MODE START END RATE, quit), where RATE is of each thread; `go closed`
lets one thread work alone. It answers with the latencies of each priority.
"""

import argparse
import json
import sys
import threading

from roles import Role, say

PRIORITIES = (-2, -2, -1, -1, 0, 0)
NAMES = {-2: "high", -1: "middle", 0: "low"}


class Task(Role):
    """A role on a stream of its own."""

    def __init__(self, torch, priority, batch):
        super().__init__(torch, "bert-lc", batch)
        self.priority = priority
        self.stream = torch.cuda.Stream(priority=priority)

    def warm(self):
        with self.torch.cuda.stream(self.stream):
            super().warm()

    def wait(self):
        self.stream.synchronize()  # its own work only: the others' is not its business

    def go(self, mode, start, end, rate):
        # Both are settings of the thread.
        with self.torch.no_grad(), self.torch.cuda.stream(self.stream):
            return super().go(mode, start, end, rate)


def together(tasks, start, end, rate):
    """All at once, a thread each; name -> latencies."""
    found = [None] * len(tasks)

    def work(i):
        found[i] = tasks[i].go("paced", start, end, rate)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if None in found:
        sys.exit("a thread failed")
    result = {name: [] for name in NAMES.values()}
    for task, one in zip(tasks, found):
        result[NAMES[task.priority]] += one["latency_ms"]
    return {"groups": result, "rate": rate, "streams": {NAMES[t.priority]: t.stream.priority for t in tasks}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1)
    args = parser.parse_args()
    import torch
    from transformers import BertConfig, BertModel  # noqa: F401

    torch.zeros(1, device="cuda")
    say("IMPORTED")
    tasks = []
    for line in sys.stdin:
        words = line.split()
        if words[0] == "warm":
            with torch.no_grad():
                tasks = [Task(torch, priority, args.batch) for priority in PRIORITIES]
                for task in tasks:
                    task.warm()
            say("WARM")
        elif words[0] == "go":
            start, end, rate = map(float, words[2:])
            found = tasks[0].go("closed", start, end, 0) if words[1] == "closed" else together(tasks, start, end, rate)
            say("RESULT " + json.dumps(found))
        else:
            break


if __name__ == "__main__":
    main()
