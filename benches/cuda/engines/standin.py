#!/usr/bin/env python3
"""A training without a GPU, for `engines.py --standin`: it takes the orders of roles.py, and does 1,000 items a second."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from roles import rate_between, say, serve  # noqa: E402


class Training:
    def warm(self):
        pass

    def memory_mib(self):
        return None

    def go(self, mode, start, end, rate, seed=0):
        marks = []
        while not marks or marks[-1][0] < end:
            time.sleep(0.01)
            marks.append((time.monotonic(), round(1000 * time.monotonic())))
        return rate_between(marks, start, end)


say("IMPORTED")
serve(Training(), sys.stdin, say)
