"""Batch work: BERT-base with random weights embeds texts of 128 tokens without end."""

import argparse
import itertools
import time

import torch
from transformers import BertConfig, BertModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", default="cuda", help="PyTorch's name of the device [cuda]")
parser.add_argument("--batch", type=int, default=256, help="texts of a batch [256]")
parser.add_argument("--layers", type=int, default=12, help="[12]")
args = parser.parse_args()

model = BertModel(BertConfig(num_hidden_layers=args.layers)).to(args.device, torch.bfloat16).eval()
texts = torch.randint(0, 30000, (args.batch, 128), device=args.device)

said, done = time.monotonic(), 0
with torch.inference_mode():
    for batch in itertools.count(1):
        vectors = model(texts).last_hidden_state[:, 0].cpu()
        if time.monotonic() - said > 2:
            rate = (batch - done) * args.batch / (time.monotonic() - said)
            print(f"embed.py: batch {batch}, {rate:.0f} texts/s", flush=True)
            said, done = time.monotonic(), batch
