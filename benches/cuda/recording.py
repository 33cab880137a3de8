#!/usr/bin/env python3
"""Records a server beside a training on a GPU, and compares what `xsched simulate` foretells of the recording with what the programs measured.

  recording.py [--bin DIR] [--out FILE] [--seconds N] [--pause MS]

The server answers requests of 40 steps of a small decoder, each some random time after the last answer, and the training trains another
network. Both are processes of PyTorch. The server runs alone, without xsched; then both run side by side without xsched, under `hpf`, under
`hpf` while they are recorded, and under `observe`, where gates stand open and only time slices of the classes differ from the driver's. The
recording is then simulated under `hpf` and `native`, which is without xsched. Prints a line of JSON for each time, and one for each figure that was foretold.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = r"""
import json, random, sys, time
import torch

role, seconds, pause = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]) / 1e3
torch.manual_seed(1)
size = 2048 if role == "serve" else 4096
layers = [torch.nn.TransformerEncoderLayer(size, 16, 4 * size, batch_first=True) for _ in range(4)]
net = torch.nn.Sequential(*layers).cuda().half()


def serve():
    x = torch.randn(1, 1, size, device="cuda", dtype=torch.half)
    with torch.no_grad():
        for _ in range(40):
            x = net(x)
    torch.cuda.synchronize()


def train():
    x = torch.randn(8, 128, size, device="cuda", dtype=torch.half)
    net(x).float().pow(2).mean().backward()
    torch.cuda.synchronize()


work = serve if role == "serve" else train
for _ in range(10):
    work()
print("ready", flush=True)
sys.stdin.readline()
chance, taken, begin = random.Random(3), [], time.monotonic()
while time.monotonic() < begin + seconds:
    if role == "serve":
        time.sleep(pause / 5 + chance.expovariate(1 / pause))
    start = time.monotonic()
    work()
    taken.append((time.monotonic() - start) * 1e3)
lasted = time.monotonic() - begin
taken.sort()
found = {"n": len(taken), "per_s": len(taken) / lasted, "p50_ms": taken[len(taken) // 2], "p99_ms": taken[len(taken) * 99 // 100]}
print(json.dumps({key: round(value, 2) for key, value in found.items()}), flush=True)
"""

# Each time: its name, the programs (server, training), the policy or none.
TIMES = (("alone", 1, ""), ("bare", 2, ""), ("hpf", 2, "hpf"), ("recorded", 2, "hpf"), ("observe", 2, "observe"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=Path(__file__).parents[2] / "target/release", help="folder of xsched")
    parser.add_argument("--out", type=Path, default=Path("recording.toml"), help="the recording [%(default)s]")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each time [%(default)s]")
    parser.add_argument("--pause", type=float, default=100.0, help="of the server before a request, in the mean, ms [%(default)s]")
    args = parser.parse_args()
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        try:
            for name, count, policy in TIMES:
                measured[name] = bench.run(count, policy, name == "recorded")
                print(json.dumps({"part": name, **measured[name]}), flush=True)
        finally:
            bench.daemon.terminate()
            bench.daemon.wait()
    print(args.out.read_text().split("\n\n")[0])
    figures = Path(f"{args.out}.json")
    simulate = ["simulate", str(args.out), "--policy", "hpf", "--policy", "native", "--json", str(figures)]
    subprocess.run([*bench.xsched, *simulate], check=True)
    for run, name in zip(json.loads(figures.read_text())["runs"], ("recorded", "bare")):
        # Both are one script: the server is the first of the two that was started.
        server, training = run["programs"][:2]
        latency = server["latency_us"] or {"p50": 0, "p99": 0}
        foretold = {"server p50_ms": latency["p50"] / 1e3, "server p99_ms": latency["p99"] / 1e3, "server per_s": server["per_second"]}
        for key, value in foretold.items():
            print(json.dumps({"part": "foretold", "policy": name, "what": key, "measured": measured[name]["server"][key.split()[1]], "foretold": value}))
        steps = {"measured_per_s": measured[name]["training"]["per_s"]}
        print(json.dumps({"part": "foretold", "policy": name, "what": "training", **steps, "foretold_share_percent": training["share_percent"]}))


class Bench:
    def __init__(self, args, folder):
        self.args, self.xsched, self.program = args, [str(args.bin / "xsched")], Path(folder) / "program.py"
        self.environment = dict(os.environ, XSCHED_SOCKET=f"{folder}/xsched.sock")
        self.program.write_text(PROGRAM)
        self.daemon = subprocess.Popen([*self.xsched, "daemon"], env=self.environment)
        while subprocess.run([*self.xsched, "ps"], env=self.environment, capture_output=True).returncode:
            time.sleep(0.02)

    def start(self, role, policy):
        before = [*self.xsched, "run", "--share", "time", "--priority", "high" if role == "serve" else "low", "--"] if policy else []
        command = [*before, sys.executable, str(self.program), role, str(self.args.seconds), str(self.args.pause)]
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, count, policy, recorded):
        """Runs the server, and the training if so, under a policy or without xsched. Returns their figures."""
        if policy:
            subprocess.run([*self.xsched, "policy", "set", policy], env=self.environment, check=True, stdout=subprocess.DEVNULL)
        started = [self.start(role, policy) for role in ("serve", "train")[:count]]
        for process in started:
            while "ready" not in process.stdout.readline():
                if process.poll() is not None:
                    sys.exit(f"a program ended: {process.returncode}")
        recorder = None
        if recorded:
            command = [*self.xsched, "record", "-o", str(self.args.out), "--force", "--for", f"{self.args.seconds:.0f}s"]
            recorder = subprocess.Popen(command, env=self.environment)
            time.sleep(0.3)
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        figures = [json.loads(process.stdout.read().strip().splitlines()[-1]) for process in started]
        if recorder and recorder.wait() != 0:
            sys.exit("the recording failed")
        for process in started:
            process.wait()
        return dict(zip(("server", "training"), figures))


if __name__ == "__main__":
    main()
