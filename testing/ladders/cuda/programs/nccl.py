#!/usr/bin/env python3
"""Collectives over NCCL on two GPUs, one process each: kernels that wait for each other on the devices."""

import os
import subprocess
import sys
import tempfile
from datetime import timedelta

import checks

torch = checks.need("torch", "numpy")
RANKS = 2


def rank(number, store):
    """One process: its lines are printed by rank 0 only, after all have agreed."""
    import torch.distributed as dist

    torch.cuda.set_device(number)
    dist.init_process_group(
        "nccl", init_method=f"file://{store}", rank=number, world_size=RANKS, timeout=timedelta(seconds=90)
    )
    torch.manual_seed(number)
    x = torch.randn(1 << 20, device="cuda")
    for _ in range(50):
        dist.all_reduce(x)
        x *= 0.5
    parts = [torch.empty(1000, device="cuda") for _ in range(RANKS)]
    dist.all_gather(parts, x[:1000].contiguous())
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[number])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(32, 64, device="cuda")).square().mean().backward()
        optimizer.step()
    if number == 0:
        checks.show("all_reduce", x)
        checks.must("gathered_alike", torch.equal(parts[0], parts[1]))
        checks.show("trained", model.module.weight)
    dist.barrier()
    dist.destroy_process_group()


@checks.check
def two_ranks():
    if not torch.cuda.is_available() or torch.cuda.device_count() < RANKS:
        checks.absent(f"fewer than {RANKS} GPUs")
    env = dict(os.environ, NCCL_NVLS_ENABLE="0", LOCAL_WORLD_SIZE=str(RANKS))
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen([sys.executable, __file__, "--rank", str(n), f"{folder}/store"], env=env)
            for n in range(RANKS)
        ]
        checks.show("ends", " ".join(str(process.wait()) for process in ranks))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(int(sys.argv[2]), sys.argv[3])
    else:
        checks.main()
