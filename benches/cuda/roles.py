#!/usr/bin/env python3
"""One process of a benchmark: a PyTorch or JAX model that works when it is told to.

  roles.py ROLE [--batch N]

It reads its orders, one a line, from standard input and answers on standard output:

  (start)                        IMPORTED       libraries are loaded, the device is opened
  warm                           WARM [MIB]     model built, algorithms chosen, device idle again; memory held for it
  go MODE START END RATE [SEED]  RESULT {json}  worked from now until END; measured from START (seconds of the
                                                monotonic clock)
  quit, or end of input          (ends)

Modes: `paced` = RATE requests a second, regularly; `poisson` = as many, at random times that SEED says; `closed` = one
request after the other; `flat` = best-effort, eight steps queued before each wait. With the first two a late start
counts as latency. All but flat give all latencies in ms, flat gives items per second. The orders let one start serve
many measuring windows, and let conductors alternate between processes.

Roles that serve requests: rn18 (ResNet-18), bert-lc (BERT-base), decode (16 tokens without CUDA graphs), llm and
llm-low (a language model of 0.78 billion parameters: eager prefill of 128-512 tokens, then 31 CUDA graphs of a token
each, each token read back before the next is begun), gen (generate() of transformers: a Llama of 1.1 billion parameters,
24 tokens without CUDA graphs). llm and gen give besides, in ms, the time from when each request was due to its first token (first_ms) and from each token to the next (gap_ms),
and how much of such a gap was waiting for the device after the token's last command was given (gap_wait_ms). Flat out: rn50 (ResNet-50, images), gemm
(kernels of about 100 ms), bert-be (BERT-base), llm-be (the same language model, batches of 64, tokens), train (training
of a transformer, tokens), jax (eight matrix products with tanh under JAX's jit, how often).
"""

import argparse
import json
import math
import os
import random
import sys
import time

# Role that serves requests -> requests per second.
RATES = {"rn18": 20.0, "bert-lc": 50.0, "decode": 10.0, "llm": 4.0, "llm-low": 4.0, "gen": 0.6}
LOWER = {"llm-low": "normal"}  # role that serves requests, yet is not the urgent one -> its class
BEST_EFFORT = ("rn50", "gemm", "bert-be", "llm-be", "train", "jax")  # flat out
ROLES = (*RATES, *BEST_EFFORT)
DEPTH = 8  # best-effort steps queued before a wait
AUTOTUNED = ("rn18", "rn50", "jax")  # roles whose algorithms are chosen by measuring: nothing else may run meanwhile
SLOW_WARM = ("rn50", "gemm", "gen")  # roles whose step takes 100 ms or more: few are enough
STREAMED = ("llm", "llm-low", "gen")  # roles whose answer comes in tokens
TOKENS = 32  # of an answer
LENGTHS = range(128, 513, 16)  # tokens of a prompt


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
    """One kernel of about 100 ms on an H200. A part of its result is checked: where many programs fill a GPU there is no room for
    a copy of all of it."""
    a, b = (torch.randn(32768, 32768, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return (lambda: (a @ b)[:1024]), 1


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
    if role == "train":
        import models

        return models.training(torch, batch or 16)
    return gemm(torch) if role == "gemm" else decode(torch)


def due_times(mode, start, end, rate, seed=0):
    """When requests are due: none for `closed`. `poisson` = a Poisson process that comes to exactly as many as the rate
    says: independent times, each equally likely anywhere in the window. Whoever is given the same seed and length of
    window is asked at the same moments of it."""
    if mode == "closed":
        return None
    if mode == "poisson":
        draw = random.Random(f"arrivals {seed}")
        places = sorted(draw.random() for _ in range(round(round(rate * (end - start), 3))))
        return [start + (end - start) * place for place in places]
    return [start + number / rate for number in range(math.ceil((end - start) * rate - 1e-9))]


def prompt_lengths(seed, count):
    """How many tokens each prompt has."""
    draw = random.Random(f"lengths {seed}")
    return [draw.choice(LENGTHS) for _ in range(count)]


class Role:
    def __init__(self, torch, name, batch):
        self.torch, self.name, self.batch = torch, name, batch
        self.step = self.last = None
        self.prefill = None  # what makes the first token of an answer, if it is another step
        self.generate = None  # what makes a whole answer, if it is made in one piece
        self.items = 0

    def warm(self):
        torch = self.torch
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)
        self.build()
        for _ in range(3 if self.name in SLOW_WARM else 30):
            self.step()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what the choice of algorithms needed: others want to live here too
        for length in LENGTHS if self.prefill else ():
            self.prefill(length)
        for _ in range(2 if self.name in SLOW_WARM else 10):
            self.last = self.step()
        torch.cuda.synchronize()

    def build(self):
        if self.name == "gen":
            import models

            self.generate = models.generating(self.torch, LENGTHS[-1] + TOKENS)
            self.step, self.items = (lambda: self.generate(LENGTHS[0])[1]), 1
            return
        if not self.name.startswith("llm"):
            self.step, self.items = build(self.torch, self.name, self.batch)
            return
        import models

        if self.name in STREAMED:
            model = models.Language(self.torch, 1, LENGTHS[-1] + TOKENS)
            for length in LENGTHS:  # libraries set up something for each
                model.prefill(length)
            self.prefill, self.wait = model.prefill, model.read
        else:
            model = models.Language(self.torch, self.batch or 64, 256)
        model.capture()
        self.step, self.items = model.decode, model.batch

    def memory_mib(self):
        """What the library holds on the device, without the context; nothing where that is not known."""
        return round(self.torch.cuda.memory_reserved() / 2**20) if self.torch else None

    def wait(self):
        self.torch.cuda.synchronize()

    def digest(self):
        """Equal between runs up to the library's own choice of algorithm."""
        return float(self.last.float().abs().mean())

    def go(self, mode, start, end, rate, seed=0):
        if mode == "flat":
            found = self.flat(start, end)
        else:
            found = self.requests(start, end, due_times(mode, start, end, rate, seed), seed)
            found["rate"] = None if mode == "closed" else rate
        return dict(found, role=self.name, mode=mode, check=self.digest())

    def requests(self, start, end, times=None, seed=0):
        """Latencies of requests that are due at these times, or come one after the other. And how much of each was
        waiting for the device after its last commands were given, and before it was begun: the rest is the host's."""
        latencies, waits, queued, first, gaps, gap_waits, late = [], [], [], [], [], [], 0
        lengths = prompt_lengths(seed, len(times or []) or 1)
        done = start
        while times is None or len(latencies) < len(times):
            due = done if times is None else times[len(latencies)]
            pause = due - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            if due >= end or time.monotonic() >= end:
                break
            begin = begun = time.monotonic()
            if times is not None and begin - due > 1e-3:  # a late start counts: no coordinated omission
                begin, late = due, late + 1
            marks, waited = self.request(lengths[len(latencies) % len(lengths)])
            done = marks[-1]
            latencies.append(round((done - begin) * 1e3, 4))
            waits.append(round(sum(waited) * 1e3, 4))
            queued.append(round((begun - begin) * 1e3, 4))
            if self.name in STREAMED:
                first.append(round((marks[0] - begin) * 1e3, 4))
                gaps += [round((b - a) * 1e3, 4) for a, b in zip(marks, marks[1:])]
                gap_waits += [round(wait * 1e3, 4) for wait in waited[1:]]
        found = {"latency_ms": latencies, "wait_ms": waits, "queued_ms": queued, "late": late}
        if times is not None:
            found["unserved"] = len(times) - len(latencies)  # not begun when the window ended
        return dict(found, first_ms=first, gap_ms=gaps, gap_wait_ms=gap_waits) if self.name in STREAMED else found

    def request(self, length):
        """Serves one: when each part of the answer was there, and how long the device was waited for, for each part."""
        if self.generate:
            marks, self.last, waited = self.generate(length)
            return marks, waited
        marks, waited = [], []
        for place in range(TOKENS if self.name in STREAMED else 1):
            self.last = self.prefill(length) if self.prefill and place == 0 else self.step()
            given = time.monotonic()
            self.wait()
            marks.append(time.monotonic())
            waited.append(marks[-1] - given)
        return marks, waited

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


class Jax(Role):
    """Eight matrix products with tanh, compiled into one program; eight of it are queued before each wait."""

    def build(self):
        import jax
        import jax.numpy as jnp

        def chain(x, weights):
            for _ in range(8):
                x = jnp.tanh(x @ weights)
            return x

        one, other = jax.random.split(jax.random.PRNGKey(0))
        x = jax.random.normal(one, (4096, 4096), dtype=jnp.bfloat16)
        weights = jax.random.normal(other, (4096, 4096), dtype=jnp.bfloat16) / 64
        compiled = jax.jit(chain)
        self.step, self.items = (lambda: compiled(x, weights)), 1

    def warm(self):
        self.build()
        for _ in range(10):
            self.last = self.step()
            self.wait()
        self.digest()  # is compiled, too

    def wait(self):
        self.last.block_until_ready()

    def memory_mib(self):
        import jax

        stats = jax.local_devices()[0].memory_stats() or {}
        held = stats.get("pool_bytes") or stats.get("peak_bytes_in_use")
        return round(held / 2**20) if held else None

    def digest(self):
        return float(abs(self.last.astype("float32")).mean())


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
            held = role.memory_mib()
            answer("WARM" if held is None else f"WARM {held}")
        elif words[:1] == ["go"] and len(words) in (5, 6):
            mode, start, end, rate = words[1], *map(float, words[2:5])
            answer("RESULT " + json.dumps(role.go(mode, start, end, rate, *map(int, words[5:]))))
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
    parser.add_argument("--hold", type=int, default=0, metavar="GIB", help="memory that it has besides, as a server's cache")
    args = parser.parse_args()
    if args.role == "jax":
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # others want to live here too
        import jax

        jax.numpy.zeros(1).block_until_ready()
        say("IMPORTED")
        serve(Jax(None, args.role, args.batch), sys.stdin, say)
        return
    import torch

    # Loaded here, where processes may load in parallel.
    if args.role == "gen":
        from transformers import LlamaConfig, LlamaForCausalLM  # noqa: F401
    elif args.role.startswith("bert"):
        from transformers import BertConfig, BertModel  # noqa: F401
    elif args.role.startswith("rn"):
        import torchvision  # noqa: F401
    held = [torch.zeros(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(args.hold)]
    torch.zeros(1, device="cuda")
    say("IMPORTED")
    with torch.no_grad():
        serve(Role(torch, args.role, args.batch), sys.stdin, say)
    del held


if __name__ == "__main__":
    main()
