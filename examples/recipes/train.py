"""Trains a transformer on random data without end: on one GPU, or under torchrun on one for each rank."""

import argparse
import itertools
import os
import time

import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", default="cuda", help="PyTorch's name of the device [cuda]")
parser.add_argument("--layers", type=int, default=12, help="[12]")
parser.add_argument("--width", type=int, default=1024, help="[1024]")
parser.add_argument("--batch", type=int, default=16, help="sequences of 512 in a step [16]")
parser.add_argument("--secs", type=float, default=float("inf"), help="end after so many seconds [never]")
args = parser.parse_args()

rank, ranks = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
device = f"cuda:{rank}" if args.device == "cuda" else args.device
layer = nn.TransformerEncoderLayer(args.width, 16, 4 * args.width, dropout=0, batch_first=True, norm_first=True)
model = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False).to(device)
if ranks > 1:
    torch.distributed.init_process_group("nccl" if args.device == "cuda" else "gloo")
    model = nn.parallel.DistributedDataParallel(model, device_ids=[rank] if args.device == "cuda" else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = torch.randn(args.batch, 512, args.width, device=device)

begin = said = time.monotonic()
done = 0
for step in itertools.count(1):
    with torch.autocast(args.device, torch.bfloat16):
        loss = (model(data) - data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 5 == 0:
        loss.item()  # waits for the device
        now = time.monotonic()
        if rank == 0 and now - said > 2:
            print(f"train.py: step {step}, {(step - done) / (now - said):.1f} steps/s", flush=True)
            said, done = now, step
        if ranks == 1 and now - begin > args.secs:
            break
