#!/usr/bin/env python3
"""CUDA graphs of PyTorch: captured in every mode, beside busy threads, replayed many times, and from autograd."""

import threading

import checks

torch = checks.need("torch", "numpy")
if not torch.cuda.is_available():
    checks.absent("no GPU")
torch.backends.cudnn.deterministic = True


def model_and_input(seed=1):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256), torch.nn.LayerNorm(256)]
    return torch.nn.Sequential(*layers).cuda(), torch.randn(32, 256).cuda()


def warm(work):
    """What a capture needs: everything has run once, on another stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)


def captured(model, x, **options):
    warm(lambda: model(x))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        y = model(x)
    return graph, y


@torch.no_grad()
def same_as_eager(name, **options):
    model, x = model_and_input()
    graph, y = captured(model, x, **options)
    for turn in range(50):
        x.copy_(torch.full_like(x, turn * 0.01).add_(torch.arange(256, device="cuda") * 1e-3))
        graph.replay()
    checks.must(f"{name}.as_eager", torch.allclose(y, model(x), rtol=1e-5, atol=1e-6))
    checks.show(name, y)


@checks.check
def capture_modes():
    for mode in ("global", "thread_local", "relaxed"):
        same_as_eager(mode, capture_error_mode=mode)


@checks.check
@torch.no_grad()
def launches_from_other_threads():
    """While one thread captures, others launch, copy and synchronise."""
    model, x = model_and_input(2)
    other, z = model_and_input(3)
    expected, stop, wrong, turns = other(z).clone(), threading.Event(), [], [0]

    def work():
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            while not stop.is_set():
                found = other(z)
                stream.synchronize()
                turns[0] += 1
                if not torch.allclose(found, expected, rtol=1e-5, atol=1e-6):
                    wrong.append(turns[0])

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for turn in range(10):
            graph, y = captured(model, x, capture_error_mode="thread_local")
            for _ in range(20):
                graph.replay()
            torch.cuda.current_stream().synchronize()
    finally:
        stop.set()
        worker.join()
    checks.must("thread_was_right", turns[0] > 0 and not wrong)
    checks.show("captured_beside_it", y)


@checks.check
@torch.no_grad()
def forked_capture():
    """A capture that spreads over streams by events."""
    model, x = model_and_input(4)
    streams = [torch.cuda.Stream() for _ in range(3)]

    def work():
        here, parts = torch.cuda.current_stream(), []
        for i, stream in enumerate(streams):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                parts.append(model(x + i))
        for stream in streams:
            here.wait_stream(stream)
        return torch.stack(parts).sum(0)

    warm(work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = work()
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    checks.show("forked", y)


@checks.check
def graphed_callables():
    """Training through make_graphed_callables."""
    model, x = model_and_input(5)
    x.requires_grad_()
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    target = torch.zeros(32, 256, device="cuda")
    for _ in range(20):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(graphed(x), target)
        loss.backward()
        optimizer.step()
    checks.show("loss", loss)
    checks.show("weights", next(model.parameters()))


@checks.check
@torch.no_grad()
def long_graph():
    """Two thousand small kernels in one graph, several launches in flight."""
    x = torch.zeros(1024, device="cuda")

    def work():
        for _ in range(1000):
            x.mul_(1.0001).add_(1.0)

    warm(work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    x.zero_()
    for _ in range(30):
        graph.replay()
    checks.show("long", x)


@checks.check
def refused_in_capture():
    """What a capture forbids it forbids, and afterwards all is well."""
    x = torch.ones(16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            y = x + 1
            torch.cuda.synchronize()
        checks.show("synchronize_in_capture", "accepted")
    except RuntimeError as error:
        checks.show("synchronize_in_capture", type(error).__name__)
    checks.show("goes_on", (x + 2).sum())
    del y


if __name__ == "__main__":
    checks.main()
