"""The steps with PyTorch, a line of JSON for each: {"step": ..., "outcome": {"ok"|"failed"|"skipped"|"none": text}}.

Argument: the device, "cuda" by default (which is also the name of AMD's GPUs in PyTorch).
"""

import json
import sys


def say(step, kind, text):
    print(json.dumps({"step": step, "outcome": {kind: " ".join(str(text).split())}}), flush=True)


try:
    import torch
except Exception as why:  # An installation may be broken in many ways.
    say("import torch", "none", f"{type(why).__name__}: {why}")
    sys.exit()

functional = torch.nn.functional
device = sys.argv[1] if len(sys.argv) > 1 else "cuda"


def small(*shape):
    """Whole numbers of -2 to 2: sums of products are exact, also where a GPU rounds its inputs."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(1)).float()


def on_cpu():
    assert torch.arange(6).sum().item() == 15, "the sum of 0 to 5 is not 15"
    return ""


def to_device():
    x = small(1000)
    assert torch.equal(x.to(device).cpu(), x), "what comes back is not what went there"
    return "1000 elements right"


def randn():
    torch.manual_seed(0)
    x = torch.randn(10000, device=device)
    assert abs(x.mean().item()) < 0.05 and abs(x.std().item() - 1) < 0.05, "not normally distributed"
    return f"first {x[0].item():.6f}"


def matmul():
    ones = torch.ones(256, 256, device=device)
    product = ones @ ones
    assert bool((product == 256.0).all()), f"between {product.min().item()} and {product.max().item()}"
    return "every element is 256.0"


def convolution():
    x, weight = small(2, 3, 16, 16), small(4, 3, 3, 3)
    expected = functional.conv2d(x, weight, padding=1)
    found = functional.conv2d(x.to(device), weight.to(device), padding=1).cpu()
    assert torch.allclose(found, expected, atol=1e-2), f"off by {(found - expected).abs().max().item()}"
    return "as on the CPU"


def model():
    """Two steps of training, on the CPU and on the device."""
    losses = []
    for where in ["cpu", device]:
        torch.manual_seed(2)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 10)
        ).to(where)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        x, label = small(8, 3, 16, 16).to(where), torch.arange(8).to(where)
        for _ in range(2):
            loss = functional.cross_entropy(net(x), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) < 0.05 * abs(losses[0]), f"loss {losses[1]}, on the CPU {losses[0]}"
    return "trains as on the CPU"


say("import torch", "ok", torch.__version__)
STEPS = [
    ("tensor on the CPU", on_cpu),
    ("tensor to the device", to_device),
    ("randn on the device", randn),
    ("BLAS: ones of 256 x 256", matmul),
    ("convolution", convolution),
    ("small model", model),
]
for name, step in STEPS:
    if step is not on_cpu and device == "cuda" and not torch.cuda.is_available():
        say(name, "skipped", "PyTorch sees no GPU")
        continue
    try:
        say(name, "ok", step())
    except Exception as why:
        say(name, "failed", f"{type(why).__name__}: {why}")
