#!/usr/bin/env python3
"""Training with PyTorch: autograd, optimizers, mixed precision, from loaders with workers that fork or are spawned."""

import multiprocessing
import warnings

import checks

torch = checks.need("torch", "torchvision", "numpy")
import torchvision  # noqa: E402

DEVICE = checks.DEVICE
functional = torch.nn.functional
torch.backends.cudnn.deterministic = True


def train(model, x, target, optimizer, steps, lossy=functional.cross_entropy):
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = lossy(model(x), target)
        loss.backward()
        optimizer.step()
    return loss


@checks.check
def convolutional():
    torch.manual_seed(1)
    model = torchvision.models.resnet18(num_classes=10).to(DEVICE)
    x, target = torch.randn(16, 3, 64, 64).to(DEVICE), torch.arange(16).to(DEVICE) % 10
    loss = train(model, x, target, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), 5)
    checks.show("resnet18.loss", loss)
    checks.show("resnet18.weights", model.fc.weight)


@checks.check
def attention():
    torch.manual_seed(2)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.1, batch_first=True)
    model = torch.nn.Sequential(
        torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.nn.Linear(128, 5)
    ).to(DEVICE)
    x, target = torch.randn(8, 32, 128).to(DEVICE), torch.randn(8, 32, 5).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checks.show("attention.loss", train(model, x, target, optimizer, 10, functional.mse_loss))
    checks.show("attention.weights", model[1].weight)


@checks.check
def mixed_precision():
    if DEVICE != "cuda":
        return
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
    optimizer, scaler = torch.optim.Adam(model.parameters(), fused=True), torch.amp.GradScaler()
    x, target = torch.randn(64, 256).cuda(), torch.arange(64).cuda() % 10
    for _ in range(20):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = functional.cross_entropy(model(x), target)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    checks.show("mixed.loss", loss)
    checks.show("mixed.weights", model[2].weight)


class Squares(torch.utils.data.Dataset):
    """Made in the workers, on the CPU."""

    def __len__(self):
        return 256

    def __getitem__(self, at):
        x = torch.arange(32.0) * (at + 1) / 256
        return x, x.square().sum()


def load(method):
    """One epoch from a loader whose workers are started while the device is in use."""
    torch.manual_seed(4)
    model = torch.nn.Linear(32, 1).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=32, num_workers=2, pin_memory=DEVICE == "cuda", multiprocessing_context=method
    )
    for x, y in loader:
        x, y = x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
        optimizer.zero_grad()
        functional.mse_loss(model(x)[:, 0], y).backward()
        optimizer.step()
    checks.show(f"loader.{method}", model.weight)


@checks.check
def workers_that_fork():
    load("fork")


@checks.check
def workers_that_are_spawned():
    load("spawn")


def child(queue):
    """In a process of its own with its own context on the device."""
    x = torch.arange(1000.0, device=DEVICE)
    queue.put(float((x * x).sum()))


@checks.check
def processes_that_share_the_device():
    if DEVICE != "cuda":
        return
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=child, args=(queue,)) for _ in range(2)]
    for process in children:
        process.start()
    found = [queue.get(timeout=100) for _ in children]
    for process in children:
        process.join()
    checks.show("children", " ".join(str(value) for value in found))
    checks.show("their_ends", " ".join(str(process.exitcode) for process in children))


@checks.check
def forked_child_may_not_use_the_device():
    """PyTorch refuses it, in words that must come through."""
    if DEVICE != "cuda":
        return
    torch.zeros(1, device=DEVICE)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def attempt():
        try:
            torch.zeros(1, device=DEVICE)
            queue.put("accepted")
        except RuntimeError as error:
            queue.put(str(error).split(".")[0][:100])

    process = context.Process(target=attempt)
    process.start()
    checks.show("forked", queue.get(timeout=60))
    process.join()
    checks.show("goes_on", torch.ones(10, device=DEVICE).sum())


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*fork.*")
    checks.main()
