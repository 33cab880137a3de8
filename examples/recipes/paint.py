"""Diffusion: a small UNet with random weights makes pictures of 64 x 64 without end, by diffusers."""

import argparse
import itertools
import time

import torch
from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", default="cuda", help="PyTorch's name of the device [cuda]")
parser.add_argument("--batch", type=int, default=16, help="pictures at a time [16]")
parser.add_argument("--steps", type=int, default=30, help="of the sampler [30]")
parser.add_argument("--width", type=int, default=128, help="channels of the first layer [128]")
args = parser.parse_args()

torch.set_float32_matmul_precision("high")
width = args.width
unet = UNet2DModel(sample_size=64, block_out_channels=(width, 2 * width, 2 * width, 4 * width),
                   down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
                   up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D"))
pipe = DDIMPipeline(unet, DDIMScheduler()).to(args.device)
pipe.set_progress_bar_config(disable=True)

said, done = time.monotonic(), 0
for batch in itertools.count(1):
    pictures = pipe(batch_size=args.batch, num_inference_steps=args.steps, output_type="pil").images
    if time.monotonic() - said > 2:
        rate = (batch - done) * len(pictures) / (time.monotonic() - said)
        print(f"paint.py: batch {batch}, {rate:.1f} pictures/s", flush=True)
        said, done = time.monotonic(), batch
