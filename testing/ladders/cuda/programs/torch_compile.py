#!/usr/bin/env python3
"""torch.compile: Inductor's own kernels, training through them, and CUDA graph trees (mode reduce-overhead)."""

import warnings

import checks

torch = checks.need("torch", "numpy")
if not torch.cuda.is_available():
    checks.absent("no GPU")
warnings.filterwarnings("ignore")


def made():
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 64)
    ).cuda()
    return model, torch.randn(32, 128).cuda()


@checks.check
def inference():
    model, x = made()
    with torch.inference_mode():
        found = torch.compile(model)(x)
        checks.close("as_eager", found, model(x), 1e-4)
    checks.show("compiled", found)


@checks.check
def pointwise_and_reduction():
    x = torch.linspace(-3, 3, 1 << 16).cuda().reshape(256, 256)
    work = torch.compile(lambda t: (torch.sin(t) * torch.exp(-t * t)).sum(1).cumsum(0))
    checks.show("fused", work(x))


@checks.check
def training():
    model, x = made()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
    checks.show("loss", loss)


@checks.check
def graph_trees():
    model, x = made()
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.inference_mode():
        for _ in range(20):
            torch.compiler.cudagraph_mark_step_begin()
            found = compiled(x).clone()
    checks.show("graph_trees", found)


if __name__ == "__main__":
    checks.main()
