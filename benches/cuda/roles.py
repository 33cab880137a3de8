#!/usr/bin/env python3
"""One process of a benchmark: a PyTorch model that works when it is told to.

  roles.py ROLE [--batch N]

It reads its orders, one a line, from standard input and answers on standard output:

  (start)                 IMPORTED       libraries are loaded, the device is opened
  warm                    WARM           model built, algorithms chosen, device idle again
  go MODE START END RATE  RESULT {json}  worked from now until END; measured from START (seconds of the monotonic clock)
  quit, or end of input   (ends)

Modes: `paced` = RATE requests a second, a late start counts as latency; `closed` = one request after the other;
`flat` = best-effort, eight steps queued before each wait. paced and closed give all latencies in ms, flat gives items
per second. The orders let one start serve many measuring windows, and let conductors alternate between processes.
"""

import argparse
import json
import sys
import time

RATES = {"rn18": 20.0, "bert-lc": 50.0, "decode": 10.0}  # latency-critical role -> requests per second
BEST_EFFORT = ("rn50", "gemm", "bert-be")  # flat out
ROLES = (*RATES, *BEST_EFFORT)
DEPTH = 8  # best-effort steps queued before a wait
AUTOTUNED = ("rn18", "rn50")  # roles whose algorithms are chosen by measuring: nothing else may run meanwhile
SLOW_WARM = ("rn50", "gemm")  # roles whose step takes 100 ms: few are enough


def resnet(torch, name, batch):
    import torchvision

    model = getattr(torchvision.models, name)().cuda().eval().half()
    x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.float16)
    return (lambda: model(x)), batch


def bert(torch, batch):
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig()).cuda().eval().half()
    x = torch.randint(0, 30000, (batch, 128), device="cuda")
    return (lambda: model(x).last_hidden_state), batch


def gemm(torch):
    """One kernel of about 100 ms on an H200."""
    a, b = (torch.randn(32768, 32768, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return (lambda: a @ b), 1


def decode(torch, tokens=16, layers=12, width=768, heads=12, context=256):
    """A language model's decode loop without CUDA graphs: tiny kernels, one token after the other, one wait a token."""
    half = dict(device="cuda", dtype=torch.float16)
    functional = torch.nn.functional

    def matrix(rows, columns):
        return torch.randn(rows, columns, **half) / rows**0.5

    blocks = [
        dict(
            qkv=matrix(width, 3 * width),
            out=matrix(width, width),
            up=matrix(width, 4 * width),
            down=matrix(4 * width, width),
            keys=torch.randn(heads, context, width // heads, **half),
            values=torch.randn(heads, context, width // heads, **half),
        )
        for _ in range(layers)
    ]
    table, head = torch.randn(4096, width, **half), matrix(width, 4096)

    def token(number, place):
        x = table[number : number + 1]
        for block in blocks:
            y = functional.layer_norm(x, (width,))
            q, k, v = (y @ block["qkv"]).view(3, heads, 1, width // heads).unbind(0)
            block["keys"][:, place : place + 1] = k
            block["values"][:, place : place + 1] = v
            weights = torch.softmax(q @ block["keys"].transpose(1, 2) / 8, -1)
            x = x + (weights @ block["values"]).reshape(1, width) @ block["out"]
            x = x + functional.gelu(functional.layer_norm(x, (width,)) @ block["up"]) @ block["down"]
        logits = x @ head
        return int(logits.argmax()), logits

    def step():
        number, logits = 1, None
        for place in range(tokens):
            number, logits = token(number, place)
        return logits

    return step, tokens


def build(torch, role, batch):
    """The step of a role and how many items it makes."""
    if role == "rn18":
        return resnet(torch, "resnet18", batch or 1)
    if role == "rn50":
        return resnet(torch, "resnet50", batch or 1024)
    if role.startswith("bert"):
        return bert(torch, batch or 1)
    return gemm(torch) if role == "gemm" else decode(torch)


class Role:
    def __init__(self, torch, name, batch):
        self.torch, self.name, self.batch = torch, name, batch
        self.step = self.last = None
        self.items = 0

    def warm(self):
        torch = self.torch
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)
        self.step, self.items = build(torch, self.name, self.batch)
        for _ in range(3 if self.name in SLOW_WARM else 30):
            self.step()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what the choice of algorithms needed: others want to live here too
        for _ in range(2 if self.name in SLOW_WARM else 10):
            self.last = self.step()
        torch.cuda.synchronize()

    def wait(self):
        self.torch.cuda.synchronize()

    def go(self, mode, start, end, rate):
        found = (
            self.flat(start, end) if mode == "flat" else self.requests(start, end, rate if mode == "paced" else None)
        )
        # Equal between runs up to the library's own choice of algorithm.
        return dict(found, role=self.name, mode=mode, check=float(self.last.float().abs().mean()))

    def requests(self, start, end, rate):
        """Latencies of requests: paced at `rate` a second, or one after the other if that is None. And how much of each
        was waiting for the device after its last command was given: the rest is the host's."""
        latencies, waits, late, due = [], [], 0, start
        while True:
            pause = due - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            if due >= end or time.monotonic() >= end:
                break
            begin = time.monotonic()
            if rate and begin - due > 1e-3:  # a late start counts: no coordinated omission
                begin, late = due, late + 1
            self.last = self.step()
            given = time.monotonic()
            self.wait()
            done = time.monotonic()
            latencies.append(round((done - begin) * 1e3, 4))
            waits.append(round((done - given) * 1e3, 4))
            due = due + 1 / rate if rate else done
        return {"latency_ms": latencies, "wait_ms": waits, "late": late, "rate": rate}

    def flat(self, start, end):
        """Items completed per second between the first wait after `start` and the last one before `end`."""
        marks, done = [], 0
        while not marks or marks[-1][0] < end:
            for _ in range(DEPTH):
                self.last = self.step()
            self.wait()
            done += DEPTH * self.items
            marks.append((time.monotonic(), done))
        return rate_between(marks, start, end)


def rate_between(marks, start, end):
    """The rate seen by `marks` (time, items done by then) in the window; a step that outlasts it counts whole."""
    inside = [m for m in marks if start <= m[0] <= end]
    if len(inside) < 2:  # too slow for this window: from the mark before it to the one after
        before = [m for m in marks if m[0] < start][-1:] or [marks[0]]
        inside = before + [m for m in marks if m[0] > before[0][0]][-1:]
    if len(inside) < 2:
        return {"per_s": 0.0, "done": 0, "took_s": round(end - start, 3)}
    took, done = inside[-1][0] - inside[0][0], inside[-1][1] - inside[0][1]
    return {"per_s": round(done / took, 4), "done": done, "took_s": round(took, 4)}


def serve(role, orders, answer):
    """Follows orders until there are none."""
    for line in orders:
        words = line.split()
        if words[:1] == ["warm"]:
            role.warm()
            answer("WARM")
        elif words[:1] == ["go"] and len(words) == 5:
            mode, start, end, rate = words[1], *map(float, words[2:])
            answer("RESULT " + json.dumps(role.go(mode, start, end, rate)))
        elif words[:1] == ["quit"]:
            break
        else:
            sys.exit(f"not an order: {line!r}")


def say(text):
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=ROLES, metavar="ROLE", help=", ".join(ROLES))
    parser.add_argument("--batch", type=int, help="items of one step [default: the role's own]")
    args = parser.parse_args()
    import torch

    # Loaded here, where processes may load in parallel.
    if args.role.startswith("bert"):
        from transformers import BertConfig, BertModel  # noqa: F401
    elif args.role.startswith("rn"):
        import torchvision  # noqa: F401
    torch.zeros(1, device="cuda")
    say("IMPORTED")
    with torch.no_grad():
        serve(Role(torch, args.role, args.batch), sys.stdin, say)


if __name__ == "__main__":
    main()
