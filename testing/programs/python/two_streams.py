#!/usr/bin/env python3
"""One PyTorch program with two threads and a stream of each priority: requests of matrix products, side by side.

  two_streams.py SECONDS

A request is 8 products of 4096 x 4096 matrices in half precision, waited for; then the thread pauses for 2 to 6 ms of its
own. Both threads work to the same end, so that neither is ever without the other. Prints a line a request: 1 for the
stream of high priority or 0 for the other, and the latency in ms. Needs a GPU and nothing of xsched.

Exit codes: 0 done, 1 a wrong result, 2 bad arguments, 3 no PyTorch or no GPU.
"""

import random
import sys
import threading
import time

PRODUCTS, SIDE = 8, 4096


class Task(threading.Thread):
    def __init__(self, torch, level):
        super().__init__()
        self.torch, self.level, self.latencies_ms, self.is_right = torch, level, [], False
        # PyTorch's own scale: -1 is the more urgent one.
        self.stream = torch.cuda.Stream(priority=-level)
        self.ones = torch.full((SIDE, SIDE), 1 / SIDE, dtype=torch.float16, device="cuda")
        self.out = torch.empty_like(self.ones)

    def request(self):
        with self.torch.cuda.stream(self.stream):
            for _ in range(PRODUCTS):
                self.torch.matmul(self.ones, self.ones, out=self.out)
        self.stream.synchronize()

    def run(self):
        pause = random.Random(self.level)
        while time.monotonic() < self.end:
            begin = time.monotonic()
            self.request()
            self.latencies_ms.append((time.monotonic() - begin) * 1e3)
            time.sleep(pause.uniform(0.002, 0.006))
        # SIDE products of 1 / SIDE each, SIDE times over.
        self.is_right = bool(((self.out.float() * SIDE - 1).abs() < 0.01).all())


def main():
    try:
        seconds = float(sys.argv[1])
    except (IndexError, ValueError):
        print("two_streams.py: use a number of seconds", file=sys.stderr)
        return 2
    try:
        import torch
    except ImportError as error:
        print(f"two_streams.py: {error}: pip install torch", file=sys.stderr)
        return 3
    if not torch.cuda.is_available():
        print("two_streams.py: PyTorch finds no GPU", file=sys.stderr)
        return 3
    tasks = [Task(torch, level) for level in (0, 1)]
    for task in tasks:
        task.request()
    torch.cuda.synchronize()
    end = time.monotonic() + seconds
    for task in tasks:
        task.end = end
        task.start()
    for task in tasks:
        task.join()
    for task in tasks:
        for latency in task.latencies_ms:
            print(task.level, f"{latency:.3f}")
    return 0 if all(task.is_right for task in tasks) else 1


if __name__ == "__main__":
    sys.exit(main())
