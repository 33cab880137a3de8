#!/usr/bin/env python3
"""A language model's server beside a training, which do not fit into the GPU's memory together.

  fitting.py --bin FOLDER [--out FILE] [--hold GIB] [--tokens N] [--seconds N] [--turns N]

FOLDER holds `xsched` and `libxsched.so`. The training (1.2 billion parameters, Adam, low, `--memory swap`) takes 57 GiB with the default
number of tokens a step; the server (the role `llm`, high) holds 3 GiB and, as a cache, so many more (33; with 18 both fit into 79 GiB). Prints
one JSON object for each part, to FILE too: the server's token gaps alone, with the training suspended, and beside it, by turns, and of all
turns together; time until the server can answer; steps of the training before, beside and after; memory as `xsched ps` tells it; and whether
the losses equal those of a bare run. Takes three minutes; needs torch and nvidia-smi.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from freezing import answer, ask, reporting, tell, used_mib

HERE = Path(__file__).resolve().parent


def training(tokens):
    """Trains, and answers commands: steps N = so many, run SECONDS = as many as fit. Losses come with the answer."""
    import torch
    from torch.nn import functional

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    width, layers, length = 2048, 24, 1024

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
            self.one, self.two = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)

        def forward(self, x):
            q, k, v = self.qkv(self.one(x)).view(*x.shape[:2], 3, 16, width // 16).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(functional.gelu(self.up(self.two(x))))

    blocks = torch.nn.Sequential(*[Block() for _ in range(layers)]).cuda()
    optimizer = torch.optim.Adam(blocks.parameters(), lr=1e-5)
    data = torch.randn(tokens // length, length, width, device="cuda", dtype=torch.bfloat16)
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
            loss = (blocks(data).float() - data.float()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())

    step()
    print("ready", flush=True)
    for line in sys.stdin:
        words, began = line.split(), time.monotonic()
        before = len(losses)
        if words[0] == "steps":
            for _ in range(int(words[1])):
                step()
        else:
            while time.monotonic() < began + float(words[1]):
                step()
        held = torch.cuda.memory_reserved() / 2**30
        done, took = len(losses) - before, time.monotonic() - began
        print(json.dumps({"answer": losses, "steps": done, "s": round(took, 3), "reserved_gib": round(held, 2)}), flush=True)


class Server:
    """The role `llm`, which answers on its standard output."""

    def __init__(self, place, hold, *options):
        words = [place.xsched, "run", *options, "--", sys.executable, str(HERE / "roles.py"), "llm", "--hold", str(hold)]
        self.began = time.monotonic()
        self.child = subprocess.Popen(words, env=place.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        place.children.append(self.child)
        self.expect("IMPORTED")

    def expect(self, word):
        line = self.child.stdout.readline()
        if not line.startswith(word):
            raise RuntimeError(f"the server said {line!r}")
        return line[len(word) :]

    def warm(self):
        began = time.monotonic()
        tell(self.child, "warm")
        self.expect("WARM")
        return round(time.monotonic() - began, 2)

    def go(self, seconds, seed):
        start = time.monotonic() + 0.5
        tell(self.child, f"go poisson {start} {start + seconds} 4 {seed}")

    def result(self):
        return json.loads(self.expect("RESULT "))

    @staticmethod
    def figures(results):
        """Figures of all requests of these results."""
        all_of = lambda key: sorted(value for found in results for value in found[key])
        gaps, first = all_of("gap_ms"), all_of("first_ms")
        at = lambda values, part: values[min(len(values) - 1, int(part * len(values)))] if values else None
        return {"requests": len(first), "gap_p50_ms": at(gaps, 0.5), "gap_p99_ms": at(gaps, 0.99), "gap_worst_ms": at(gaps, 1),
                "first_p50_ms": at(first, 0.5), "first_p90_ms": at(first, 0.9)}

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def trainer(place, tokens, *before):
    words = [*before, sys.executable, __file__, "--training", str(tokens)]
    env = dict(place.env, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    child = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    place.children.append(child)
    return child


def ready(child):
    if child.stdout.readline().strip() != "ready":
        raise RuntimeError("the training did not start")


def brief(found):
    return {key: found[key] for key in ("steps", "s", "reserved_gib")}


def memory(place, child):
    programs = json.loads(place.run("ps", "--json").stdout)["programs"]
    held = next(program for program in programs if program["pid"] == child.pid)["memory"][0]["held"]
    return {key: round(held[key] / 2**30, 2) for key in ("used_bytes", "away_bytes")}


def measure(place, args, report):
    place.start_daemon()
    low = trainer(place, args.tokens, place.xsched, "run", "--priority", "low", "--memory", "swap", "--")
    ready(low)
    before = ask(low, "run 4")
    report("training alone", **brief(before), used_mib=used_mib())
    tell(low, "run 20")
    server = Server(place, args.hold, "--priority", "high")
    warmed = server.warm()
    report("start beside the training", warm_s=warmed, used_mib=used_mib(), memory=memory(place, low))
    both = answer(low)
    report("training while the server started", **brief(both))
    alone, beside, training = [], [], []
    for turn in range(args.turns):
        place.run("suspend", str(low.pid))
        server.go(args.seconds, turn)
        alone.append(server.result())
        place.run("resume", str(low.pid))
        tell(low, f"run {args.seconds + 1}")
        server.go(args.seconds, turn)
        beside.append(server.result())
        training.append(answer(low))
        report("turn", alone=server.figures(alone[-1:]), beside=server.figures(beside[-1:]), training=brief(training[-1]))
    steps, s = (sum(each[key] for each in training) for key in ("steps", "s"))
    report("all turns", alone=server.figures(alone), beside=server.figures(beside), steps_per_s=round(steps / s, 3), used_mib=used_mib(),
           memory=memory(place, low))
    server.end()
    began = time.monotonic()
    place.until(lambda: memory(place, low)["away_bytes"] == 0, 60)
    report("server gone", back_s=round(time.monotonic() - began, 2), memory=memory(place, low))
    after = ask(low, "steps 5")
    report("training after", **brief(after))
    low.stdin.close()
    low.wait()
    bare = trainer(place, args.tokens)
    ready(bare)
    count = min(len(after["answer"]), args.losses)
    found = ask(bare, f"steps {count - 1}")
    report("losses of a bare run", compared=count, equal=found["answer"][:count] == after["answer"][:count], **brief(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--training", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--bin", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--hold", type=int, default=33)
    parser.add_argument("--tokens", type=int, default=23 * 1024)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--losses", type=int, default=40, help="steps of the bare run at most")
    args = parser.parse_args()
    if args.training:
        return training(args.training)
    reporting(args, lambda place, report: measure(place, args, report))


if __name__ == "__main__":
    main()
