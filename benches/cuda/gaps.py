#!/usr/bin/env python3
"""Gaps within requests: a program that launches 1.2 ms of kernels as a graph, waits on its host for a gap, and so on, beside a training.

  gaps.py --systems old=bins/old,new=bins/new [--gaps 0.6,0.8,1.2,2] [--secs 4] [--rounds 2]

For each gap: tokens a second and the gap between two tokens of the urgent program, alone and beside the training under each build of xsched,
and the training's steps a second, in turns. Prints one JSON object for each system, gap and round, and a table. Needs PyTorch and a GPU."""
import argparse, json, os, subprocess, sys, time


def token(gaps, secs, out):
    import torch
    a = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    torch.mm(a, a)
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()

    def capture(n):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            b = a
            for _ in range(n):
                b = torch.mm(a, b) * 0.01
        return graph

    def length(graph):
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        return sorted(times)[len(times) // 2]

    n = 40
    graph = capture(n)
    n = max(1, int(n * 1.2e-3 / length(graph)))
    graph = capture(n)
    results = []
    print("ready", flush=True)
    for line in sys.stdin:
        gap, begin, last, times, answers = float(line) * 1e-3, time.perf_counter(), None, [], 0
        while time.perf_counter() < begin + secs:
            graph.replay()
            torch.cuda.synchronize()
            now = time.perf_counter()
            if last is not None:
                times.append(now - last)
            last = now
            answers += 1
            # A request has 64 tokens; after it the program waits longer.
            until = now + (gap if answers % 64 else 0.05)
            if not answers % 64:
                last = None
            while time.perf_counter() < until:
                pass
        times.sort()
        at = lambda part: round(times[int((len(times) - 1) * part)] * 1e3, 3)
        print(json.dumps({"p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99), "tokens": len(times)}), flush=True)


def train():
    import torch
    layers = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)) for _ in range(12)])
    layers = layers.cuda().to(torch.bfloat16)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
    x = torch.randn(8192, 1024, device="cuda", dtype=torch.bfloat16)
    count = 0
    print("ready", flush=True)
    while True:
        optimizer.zero_grad()
        layers(x).float().pow(2).mean().backward()
        optimizer.step()
        count += 1
        if count % 4 == 0:
            torch.cuda.synchronize()
            print(f"{time.time():.4f} {count}", flush=True)


class Program:
    """A process of a role, under a system."""

    def __init__(self, role, prefix, env, gaps, secs):
        command = [*prefix, sys.executable, os.path.abspath(__file__), role, "--gaps", gaps, "--secs", str(secs)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        assert self.process.stdout.readline().strip() == "ready", role

    def end(self):
        self.process.kill()
        self.process.wait()


class Steps:
    """Steps of a training, read by a thread."""

    def __init__(self, program):
        import threading
        self.seen = []
        threading.Thread(target=self.read, args=[program.process.stdout], daemon=True).start()

    def read(self, lines):
        for line in lines:
            at, count = line.split()
            self.seen.append((float(at), int(count)))

    def rate(self, begin, end):
        inside = [(at, count) for at, count in self.seen if begin <= at <= end]
        if len(inside) < 2:
            return 0.0
        return round((inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0]), 2)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("role", nargs="?", choices=["token", "train"])
    options.add_argument("--systems", default="")
    options.add_argument("--gaps", default="0.6,0.8,1.2,2")
    options.add_argument("--secs", type=float, default=4)
    options.add_argument("--rounds", type=int, default=2)
    options = options.parse_args()
    if options.role == "token":
        return token(options.gaps, options.secs, sys.stdout)
    if options.role == "train":
        return train()
    builds = dict(part.split("=", 1) for part in options.systems.split(",") if part)
    rows = {}
    for turn in range(options.rounds):
        for system in ["alone", "train", "native", *builds]:
            if system in ("train", "native") and turn:
                continue
            env, prefix = dict(os.environ), lambda _: []
            if system in builds:
                folder = os.path.abspath(builds[system])
                env["XSCHED_SOCKET"] = f"/tmp/gaps-{system}-{turn}/xsched.sock"
                os.makedirs(os.path.dirname(env["XSCHED_SOCKET"]), mode=0o700, exist_ok=True)
                prefix = lambda level: [f"{folder}/xsched", "run", "--priority", level, "--"]
            training = system != "alone" and Program("train", prefix("low"), env, options.gaps, options.secs)
            steps = training and Steps(training)
            if system == "train":
                time.sleep(1 + options.secs)
                now = time.time()
                row = {"system": system, "steps_per_s": steps.rate(now - options.secs, now)}
                print(json.dumps(row), flush=True)
                training.end()
                continue
            urgent = Program("token", prefix("high"), env, options.gaps, options.secs)
            for gap in options.gaps.split(","):
                begin = time.time()
                urgent.process.stdin.write(gap + "\n")
                urgent.process.stdin.flush()
                row = {"system": system, "gap_ms": float(gap), "round": turn, **json.loads(urgent.process.stdout.readline())}
                if steps:
                    row["steps_per_s"] = steps.rate(begin, time.time())
                rows.setdefault((system, gap), []).append(row)
                print(json.dumps(row), flush=True)
            urgent.end()
            if training:
                training.end()
    print(f"{'':10} {'gap':>5} {'P50':>8} {'P99':>8} {'tokens':>7} {'steps/s':>8}")
    for (system, gap), of in rows.items():
        mean = lambda key: sum(row.get(key, 0) for row in of) / len(of)
        print(f"{system:10} {gap:>5} {mean('p50_ms'):8.3f} {mean('p99_ms'):8.3f} {mean('tokens'):7.0f} {mean('steps_per_s'):8.2f}")


if __name__ == "__main__":
    main()
