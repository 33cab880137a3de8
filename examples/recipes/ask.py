"""Asks a server of OpenAI's form for completions, one after the other, and says how long the answers took."""

import argparse
import json
import math
import time
import urllib.error
import urllib.request

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000/v1/completions")
parser.add_argument("--model", default="random", help="name that the server knows the model by [random]")
parser.add_argument("--secs", type=float, default=10, help="how long [10]")
parser.add_argument("--pause", type=float, default=100, help="ms from an answer to the next question [100]")
parser.add_argument("--tokens", type=int, default=16, help="of an answer [16]")
parser.add_argument("--patience", type=float, default=120, help="seconds that the server may take to start [120]")
args = parser.parse_args()


def ask():
    """Milliseconds until the answer."""
    body = {"model": args.model, "prompt": "Once upon a time " * 8, "max_tokens": args.tokens, "temperature": 0}
    request = urllib.request.Request(args.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["choices"], "an answer without a choice"
    return (time.monotonic() - begin) * 1e3


def answered():
    """Waits for a server that has just been started."""
    end = time.monotonic() + args.patience
    while True:
        try:
            return ask()
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


for _ in range(3):
    answered()
end, times = time.monotonic() + args.secs, []
while time.monotonic() < end:
    times.append(ask())
    time.sleep(args.pause / 1e3)
times.sort()
p50, p90 = (times[math.ceil(len(times) * part) - 1] for part in (0.5, 0.9))
print(f"{len(times)} answers: P50 {p50:.0f} ms, P90 {p90:.0f} ms, longest {times[-1]:.0f} ms")
