#!/usr/bin/env python3
"""Memory of the device shared by processes (CUDA IPC), as torch.multiprocessing does it for loaders and servers."""

import checks

torch = checks.need("torch")

ROUNDS = 20
WORDS = 1 << 20


def doubles(tensors, answers):
    """In another process: works on what it is sent, in place, and says when that is done."""
    while (tensor := tensors.get()) is not None:
        tensor.mul_(2)
        torch.cuda.synchronize()
        answers.put(float(tensor[0]))
        del tensor


@checks.check
def a_tensor_is_worked_on_by_two_processes():
    ways = torch.multiprocessing.get_context("spawn")
    tensors, answers = ways.Queue(), ways.Queue()
    child = ways.Process(target=doubles, args=(tensors, answers))
    child.start()
    tensor = torch.ones(WORDS, device=checks.DEVICE)
    told = []
    for _ in range(ROUNDS):
        tensors.put(tensor)
        told.append(answers.get(timeout=100))
        tensor.add_(1)
    tensors.put(None)
    child.join(100)
    torch.cuda.synchronize()
    checks.show("status", child.exitcode)
    checks.show("told", told[-1])
    checks.show("result", tensor)


if __name__ == "__main__":
    checks.main()
