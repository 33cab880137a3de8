#!/usr/bin/env python3
"""One of the two programs of drain.py.

  drain_program.py urgent               a language model that decodes: answers of a few tokens, with pauses at random
  drain_program.py training [no-copy]   training without end, which notes which part of a step it is in
  drain_program.py kernels              single kernels of a millisecond, with little and with much state in each multiprocessor
  drain_program.py parts                the parts of a training step, one of them over and over

All print IMPORTED, and after `warm` WARM. Times are seconds of the monotonic clock. Each order is answered by a line RESULT {json}:

  work UNTIL       (urgent) [[begin, gap ms, …], …]; (training) [[when, part of a step that begins], …]
  answer AT COUNT  (urgent) [begin, gap ms, …] of so many tokens
  names            (kernels, parts) what there is
  run NAME AT      (kernels) when it was launched and when it was done
  repeat NAME UNTIL (parts) how often
  profile          (training) of each kernel of eight steps: how often, µs in all, µs of the longest
"""

import json
import random
import sys
import time

import models

TOKENS = 6
PAUSE_S = (0.008, 0.018)
DEPTH = 8


def urgent(torch):
    model, chance = models.Language(torch, 1, 1024), random.Random(3)

    def request(tokens=TOKENS):
        marks = [time.monotonic()]
        for _ in range(tokens):
            model.decode()
            model.read()
            marks.append(time.monotonic())
        return [round(marks[0], 6), *(round((b - a) * 1e3, 3) for a, b in zip(marks, marks[1:]))]

    def warm():
        with torch.no_grad():
            model.capture()
            request()

    def work(end, tokens=TOKENS):
        end = float(end)
        found = []
        with torch.no_grad():
            while time.monotonic() < end:
                time.sleep(chance.uniform(*PAUSE_S))
                found.append(request(int(tokens)))
        return found

    def answer(at, tokens):
        with torch.no_grad():
            until(at)
            return request(int(tokens))

    return warm, {"work": work, "answer": answer}


def training(torch, *options):
    marks = []
    note = lambda part: marks.append([round(time.monotonic(), 6), part])  # noqa: E731
    step, _ = models.training(torch, note=note, copies="no-copy" not in options)

    def some():
        for _ in range(DEPTH):
            step()
        note("wait")
        torch.cuda.synchronize()

    def work(end):
        end = float(end)
        marks.clear()
        while time.monotonic() < end:
            some()
        return marks

    def profile():
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as seen:
            some()
        found = {}
        for event in seen.events():
            of_kernel = found.setdefault(event.name[:160], [0, 0.0, 0.0])
            us = event.device_time_total
            of_kernel[:] = of_kernel[0] + 1, round(of_kernel[1] + us, 1), max(of_kernel[2], us)
        return dict(sorted(found.items(), key=lambda item: -item[1][1]))

    return some, {"work": work, "profile": profile}


def parts(torch):
    """What a step of `models.training` is made of, in its shapes."""
    functional, half = torch.nn.functional, dict(device="cuda", dtype=torch.bfloat16)
    rows, width, vocabulary = 16 * 512, 768, 8192

    def product(inner, outer):
        a, b = torch.randn(rows, inner, **half), torch.randn(outer, inner, **half)
        g = torch.randn(rows, outer, **half)
        return (lambda: a @ b.T), (lambda: g @ b), (lambda: g.T @ a)

    def both(call, *inputs):
        """Forward alone, and backward alone."""
        inputs = [x.detach().requires_grad_() for x in inputs]
        y = call(*inputs)
        g = torch.randn_like(y)
        return (lambda: call(*inputs)), (lambda: torch.autograd.grad(y, inputs, g, retain_graph=True))

    def warm():
        if found:
            return
        sizes = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
        products = {name: (a * width, b * width) for name, (a, b) in sizes.items()} | {"head": (width, vocabulary)}
        for name, (inner, outer) in products.items():
            for way, call in zip(("forward", "to input", "to weight"), product(inner, outer)):
                found[f"{name} {way}"] = call
        q = [torch.randn(16, 12, 512, 64, **half) for _ in range(3)]
        norm = (torch.randn(*shape, device="cuda") for shape in ((rows, width), (width,), (width,)))
        pairs = {
            "attention": both(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True), *q),
            "norm": both(lambda x, w, b: functional.layer_norm(x, (width,), w, b), *norm),
            "gelu": both(functional.gelu, torch.randn(rows, 4 * width, **half)),
        }
        index = torch.randint(0, vocabulary, (16, 512), device="cuda")
        pairs["loss"] = both(lambda x: functional.cross_entropy(x, index.reshape(-1)), torch.randn(rows, vocabulary, device="cuda"))
        pairs["embedding"] = both(lambda w: functional.embedding(index, w), torch.randn(vocabulary, width, device="cuda"))
        for name, (forward, backward) in pairs.items():
            found[f"{name} forward"], found[f"{name} backward"] = forward, backward
        weights = [torch.randn(n, width, device="cuda") for n in (768, 3 * 768, 4 * 768, 4 * 768) * 12 + (8192, 8192)]
        found["cast"] = lambda: [w.to(torch.bfloat16) for w in weights]
        bias = torch.randn(rows, 3 * width, **half)
        found["bias"] = lambda: bias.sum(0)
        text = torch.randint(0, vocabulary, (16, 513)).pin_memory()
        found["copy"] = lambda: text.to("cuda", non_blocking=True)
        for w in weights:
            w.grad = torch.randn_like(w)
        optimizer = torch.optim.AdamW(weights, lr=1e-6)
        found["optimizer"] = optimizer.step
        for call in found.values():
            for _ in range(2):
                call()

    found = {}

    def repeat(name, until):
        call, count, until = found[name.replace("_", " ")], 0, float(until)
        while time.monotonic() < until:
            for _ in range(DEPTH):
                call()
            count += DEPTH
            torch.cuda.synchronize()
        return count

    return warm, {"names": lambda: list(found), "repeat": repeat}


# Registers of a thread that are in use all the time, threads of a block, blocks of a multiprocessor, shared memory of a block.
KERNELS = {"few registers": (8, 256, 8, 0), "all registers": (200, 256, 1, 0), "all": (200, 256, 1, 220), "shared memory": (8, 256, 1, 220)}
SOURCE = """
extern "C" __global__ __launch_bounds__(%d, %d) void busy(float *out, int rounds) {
    extern __shared__ float shared[];
    float x[%d];
    for (int i = 0; i < %d; i++) x[i] = threadIdx.x + i;
    for (int r = 0; r < rounds; r++)
        #pragma unroll
        for (int i = 0; i < %d; i++) x[i] = x[i] * 1.0001f + x[(i + 1) %% %d];
    float sum = 0;
    for (int i = 0; i < %d; i++) sum += x[i];
    if (sum == 1.5f) out[threadIdx.x] = sum + shared[threadIdx.x];
}
"""
KERNEL_S = 1e-3


def kernels(torch):
    import cupy

    out, found = cupy.zeros(1024, dtype=cupy.float32), {}
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]

    def timed(call):
        cupy.cuda.Device().synchronize()
        begin = time.monotonic()
        call()
        cupy.cuda.Device().synchronize()
        return time.monotonic() - begin

    def made(registers, threads, blocks, kib):
        source = SOURCE % (threads, blocks, *[registers] * 5)
        kernel = cupy.RawKernel(source, "busy", options=("-std=c++17",))
        kernel.max_dynamic_shared_size_bytes = kib * 1024
        launch = lambda rounds: kernel((processors * blocks,), (threads,), (out, rounds), shared_mem=kib * 1024)  # noqa: E731
        launch(10)
        few, many = (min(timed(lambda n=n: launch(n)) for _ in range(5)) for n in (1000, 11000))
        rounds = round(KERNEL_S / ((many - few) / 10000))
        return (lambda: launch(rounds)), {"registers": kernel.num_regs, "shared_kib": kib, "us": min(timed(lambda: launch(rounds)) for _ in range(3)) * 1e6}

    def warm():
        for name, form in KERNELS.items():
            found.setdefault(name, made(*form))
        a, b = (cupy.ones(shape, dtype=cupy.float16) for shape in ((8192, 8192), (8192, 4096)))
        product = lambda: cupy.matmul(a, b)  # noqa: E731
        for _ in range(3):
            product()
        found["matrix product"] = product, {"us": timed(product) * 1e6}

    def run(name, at):
        until(at)
        begin = time.monotonic()
        found[name.replace("_", " ")][0]()
        cupy.cuda.Device().synchronize()
        return [begin, time.monotonic()]

    return warm, {"names": lambda: {name: about for name, (_, about) in found.items()}, "run": run}


def until(at):
    """Waits without sleeping for the last millisecond."""
    time.sleep(max(0.0, float(at) - time.monotonic() - 0.001))
    while time.monotonic() < float(at):
        pass


def main():
    import torch

    programs = {"urgent": urgent, "training": training, "kernels": kernels, "parts": parts}
    warm, orders = programs[sys.argv[1]](torch, *sys.argv[2:])
    torch.cuda.synchronize()
    print("IMPORTED", flush=True)
    for line in sys.stdin:
        word, *args = line.split()
        if word == "warm":
            for _ in range(3):
                warm()
            torch.cuda.synchronize()
            print("WARM", flush=True)
        else:
            print("RESULT", json.dumps(orders[word](*args)), flush=True)


if __name__ == "__main__":
    main()
