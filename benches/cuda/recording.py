#!/usr/bin/env python3
"""Records a server beside a training on a GPU, and compares what `xsched simulate` foretells of the recording with what the programs measured.

  recording.py [--bin DIR] [--out FILE] [--seconds N]

The server answers requests of 40 steps of a small decoder at random times, and the training trains another network. They run side by side twice, as
processes of PyTorch: under `hpf`, while they are recorded, and under `observe`, where gates stand open. The recording is then simulated under `hpf`
and `native`. One line of JSON for each figure: measured, foretold.
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

role, seconds = sys.argv[1], float(sys.argv[2])
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
chance, taken, due, end = random.Random(3), [], time.monotonic(), time.monotonic() + seconds
while time.monotonic() < end:
    if role == "serve":
        due += chance.expovariate(1 / 0.1)
        time.sleep(max(0, due - time.monotonic()))
    else:
        due = time.monotonic()
    work()
    taken.append((time.monotonic() - due) * 1e3)
taken.sort()
print(json.dumps({"n": len(taken), "p50_ms": taken[len(taken) // 2], "p99_ms": taken[len(taken) * 99 // 100]}), flush=True)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=Path(__file__).parents[2] / "target/release", help="folder of xsched")
    parser.add_argument("--out", type=Path, default=Path("recording.toml"), help="the recording [%(default)s]")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each time side by side [%(default)s]")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, XSCHED_SOCKET=f"{folder}/xsched.sock")
        xsched = [str(args.bin / "xsched")]
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM)
        daemon = subprocess.Popen([*xsched, "daemon"], env=environment)
        while subprocess.run([*xsched, "ps"], env=environment, capture_output=True).returncode:
            time.sleep(0.02)
        try:
            measured = {policy: side_by_side(xsched, environment, program, policy, args) for policy in ("hpf", "observe")}
        finally:
            daemon.terminate()
            daemon.wait()
    print(args.out.read_text().split("\n\n")[0])
    figures = Path(f"{args.out}.json")
    simulate = ["simulate", str(args.out), "--policy", "hpf", "--policy", "native", "--json", str(figures)]
    subprocess.run([*xsched, *simulate], check=True)
    for run, policy in zip(json.loads(figures.read_text())["runs"], ("hpf", "observe")):
        # Both are one script: the server is the one that has pauses between its requests, and the first of the two that was started.
        server, training = run["programs"][:2]
        latency = server["latency_us"] or {"p50": 0, "p99": 0}
        for key, foretold in (("p50_ms", latency["p50"] / 1e3), ("p99_ms", latency["p99"] / 1e3)):
            print(json.dumps({"policy": policy, "server": key, "measured": measured[policy][0][key], "foretold": foretold}))
        print(json.dumps({"policy": policy, "training": "steps", "measured": measured[policy][1]["n"],
                          "foretold_share_percent": training["share_percent"], "foretold_per_s": training["per_second"]}))


def side_by_side(xsched, environment, program, policy, args):
    """Runs both programs under a policy. Returns their figures; under hpf they are recorded."""
    subprocess.run([*xsched, "policy", "set", policy], env=environment, check=True)
    started = []
    for role, priority in (("serve", "high"), ("train", "low")):
        command = [*xsched, "run", "--share", "time", "--priority", priority, "--", sys.executable, str(program), role, str(args.seconds)]
        started.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for process in started:
        while "ready" not in process.stdout.readline():
            if process.poll() is not None:
                sys.exit(f"a program ended: {process.returncode}")
    recorder = None
    if policy == "hpf":
        recorder = subprocess.Popen([*xsched, "record", "-o", str(args.out), "--force", "--for", f"{args.seconds:.0f}s"], env=environment)
        time.sleep(0.3)
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    figures = [json.loads(process.stdout.read().strip().splitlines()[-1]) for process in started]
    if recorder and recorder.wait() != 0:
        sys.exit("the recording failed")
    for process in started:
        process.wait()
    return figures


if __name__ == "__main__":
    main()
