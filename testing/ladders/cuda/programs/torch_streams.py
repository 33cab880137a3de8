#!/usr/bin/env python3
"""PyTorch on many streams and threads: events in a cycle, priorities, inference under load, both allocators."""

import threading

import checks

torch = checks.need("torch", "torchvision", "numpy")
if not torch.cuda.is_available():
    checks.absent("no GPU")
import torchvision  # noqa: E402

torch.backends.cudnn.deterministic = True


def in_threads(count, work):
    """Runs work(0) to work(count - 1) in threads; throws what one of them threw."""
    errors = []

    def one(number):
        try:
            work(number)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@checks.check
def events_in_a_cycle():
    """A waits for B and B for A, at different points, many times."""
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(1 << 16, device="cuda")
    torch.cuda.synchronize()
    for turn in range(300):
        for stream, other, factor in ((a, b, 1.01), (b, a, 0.99)):
            with torch.cuda.stream(stream):
                x.mul_(factor).add_(turn)
                done = torch.cuda.Event()
                done.record(stream)
            other.wait_event(done)
    torch.cuda.synchronize()
    checks.show("cycle", x)


@checks.check
def events_in_a_cycle_from_threads():
    """The same from two threads, which hand each other events."""
    streams = [torch.cuda.Stream(priority=p) for p in (0, -1)]
    x = torch.zeros(1 << 14, device="cuda")
    torch.cuda.synchronize()
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    last = [None]

    def work(me):
        with torch.cuda.stream(streams[me]):
            for turn in range(200):
                if not turns[me].acquire(timeout=60):
                    raise AssertionError("the other thread never came")
                if last[0] is not None:
                    streams[me].wait_event(last[0])
                x.mul_(0.99 if me else 1.01).add_(turn)
                last[0] = torch.cuda.Event()
                last[0].record(streams[me])
                turns[1 - me].release()

    in_threads(2, work)
    torch.cuda.synchronize()
    checks.show("cycle.threads", x)


@checks.check
@torch.inference_mode()
def threads_under_load():
    """Six threads of inference on own streams, each result compared, while one more keeps the device busy."""
    torch.manual_seed(1)
    model = torchvision.models.resnet18().cuda().eval()
    inputs = [torch.randn(2, 3, 128, 128).cuda() for _ in range(6)]
    expected = [model(x).clone() for x in inputs]
    big = torch.randn(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    stop, loads = threading.Event(), [0]

    def load():
        with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream()):
            while not stop.is_set():
                _ = big @ big
                torch.cuda.current_stream().synchronize()
                loads[0] += 1

    def infer(number):
        with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream(priority=-(number % 2))):
            for turn in range(20):
                found = model(inputs[number])
                torch.cuda.current_stream().synchronize()
                if not torch.allclose(found, expected[number], rtol=1e-3, atol=1e-3):
                    raise AssertionError(f"thread {number}, turn {turn} is wrong")

    loader = threading.Thread(target=load)
    loader.start()
    try:
        in_threads(6, infer)
    finally:
        stop.set()
        loader.join()
    checks.must("all_as_expected", loads[0] > 0)
    checks.show("expected", torch.stack(expected))


@checks.check
def default_stream_and_another():
    """The default stream and another one hand each other the same memory."""
    side = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    for turn in range(100):
        x.add_(1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.mul_(1.01)
        torch.cuda.current_stream().wait_stream(side)
    checks.show("handed", x)


@checks.check
def allocations_on_many_streams():
    """Memory freed on one stream is used on another only when it may be."""
    streams = [torch.cuda.Stream() for _ in range(4)]
    total = torch.zeros(4, 1 << 12, device="cuda")
    torch.cuda.synchronize()

    def work(number):
        with torch.cuda.stream(streams[number]):
            for turn in range(200):
                x = torch.full((1 << (12 + turn % 6),), float(turn), device="cuda")
                y = (x + number)[: 1 << 12]
                total[number] += y
                del x, y
                if turn % 50 == 49:
                    torch.cuda.empty_cache()

    in_threads(4, work)
    torch.cuda.synchronize()
    checks.show("allocations", total)


@checks.check
def event_queries():
    """A program that asks instead of waiting gets there, and times are not negative."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.ones(1 << 22, device="cuda")
    begin.record()
    for _ in range(50):
        x.mul_(1.001)
    end.record()
    while not end.query():
        pass
    checks.must("time_passed", begin.elapsed_time(end) > 0)
    checks.show("queried", x[:4])


@checks.check
def copies_beside_kernels():
    """Pinned copies both ways on their own streams beside kernels on a third."""
    up, down, work = (torch.cuda.Stream() for _ in range(3))
    host = [torch.full((1 << 18,), float(i)).pin_memory() for i in range(8)]
    back = [torch.empty(1 << 18).pin_memory() for _ in range(8)]
    for turn in range(5):
        for i in range(8):
            with torch.cuda.stream(up):
                there = host[i].to("cuda", non_blocking=True)
            work.wait_stream(up)
            with torch.cuda.stream(work):
                result = there * 2 + turn
            down.wait_stream(work)
            with torch.cuda.stream(down):
                back[i].copy_(result, non_blocking=True)
            for tensor, stream in ((there, work), (result, down)):
                tensor.record_stream(stream)
        torch.cuda.synchronize()
        if any(float(b[0]) != i * 2 + turn or float(b[-1]) != i * 2 + turn for i, b in enumerate(back)):
            raise AssertionError(f"turn {turn} copied wrong values")
    checks.show("copies", torch.stack(back))


if __name__ == "__main__":
    checks.main()
