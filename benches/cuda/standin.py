#!/usr/bin/env python3
"""Stands in for roles.py in the tests of the conductors: same orders and answers, no device, invented figures."""

import json
import sys
import time

role = sys.argv[1]
print("IMPORTED", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "warm":
        print("some library says hello\nWARM", flush=True)
    elif words[0] == "go":
        mode, start, end, rate = words[1], *map(float, words[2:])
        time.sleep(max(0.0, end - time.monotonic()))
        count = max(1, round((end - start) * (rate or 100)))
        found = {"latency_ms": [1.0 + i / count for i in range(count)], "late": 0, "rate": rate}
        if mode == "flat":
            found = {"per_s": 50.0, "done": count, "took_s": end - start}
        print("RESULT " + json.dumps(dict(found, role=role, mode=mode, check=0.5)), flush=True)
    elif words[0] == "quit":
        break
