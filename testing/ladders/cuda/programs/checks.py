"""What the Python programs of the ladder share: named checks, and how a result is shown.

A program is a file of functions marked `@check`. Run, it calls them in order, or those named on its command line; each
prints lines `NAME #DIGEST NUMBERS…` or `NAME TEXT`. A digest is of all bits of a result; the numbers are for comparing
results of which a library itself does not give the same bits every time. A check that throws prints `NAME ERROR …`.

Exit codes: 0, 1 a check threw, 2 no such check, 3 something this program needs is not installed.
"""

import hashlib
import importlib
import os
import sys

# LADDER_DEVICE=cpu tries out most of the PyTorch programs where there is no GPU.
DEVICE = os.environ.get("LADDER_DEVICE", "cuda")
CHECKS = []
SHOWN = 3  # elements shown besides mean, deviation, least and greatest


def check(function):
    CHECKS.append(function)
    return function


def need(*modules):
    """Imports them all or ends the program; gives the first."""
    found = []
    for name in modules:
        try:
            found.append(importlib.import_module(name))
        except ModuleNotFoundError as error:
            print(f"skip: {error}")
            sys.exit(3)
    return found[0]


def absent(what):
    print(f"skip: {what}")
    sys.exit(3)


def as_array(value):
    """A NumPy array of a tensor of any library; what NumPy has no type for becomes float32."""
    import numpy

    if hasattr(value, "detach"):  # PyTorch
        value = value.detach().cpu()
        if value.dtype not in _numpy_types():
            value = value.float()
        return value.contiguous().numpy()
    if hasattr(value, "get") and not isinstance(value, dict):  # CuPy
        value = value.get()
    return numpy.ascontiguousarray(numpy.asarray(value))


def _numpy_types():
    import torch

    return {
        torch.float16,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
    }


def digest(value):
    data = value if isinstance(value, (bytes, bytearray, memoryview)) else as_array(value).tobytes()
    return "#" + hashlib.sha256(data).hexdigest()[:16]


def numbers(value):
    import numpy

    flat = as_array(value).astype(numpy.complex128).reshape(-1)
    flat = numpy.concatenate([flat.real, flat.imag]) if numpy.any(flat.imag) else flat.real
    if not flat.size:
        return ""
    shown = [flat.mean(), flat.std(), flat.min(), flat.max(), *flat[:SHOWN]]
    return " ".join(f"{x:.9g}" for x in shown)


def show(name, value):
    """Prints one result: text, whole numbers and bytes as they are, arrays by digest and numbers."""
    if isinstance(value, (str, int)):
        text = str(value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        text = digest(value)
    else:
        text = f"{digest(value)} {numbers(value)}"
    print(f"{name} {text}".rstrip(), flush=True)


def close(name, value, expected, tolerance):
    """Prints whether a result is what it must be, computed in another way; `tolerance` is relative to the greatest."""
    import numpy

    value, expected = as_array(value).astype(numpy.float64), as_array(expected).astype(numpy.float64)
    worst = float(numpy.max(numpy.abs(value - expected)) / max(1e-30, float(numpy.max(numpy.abs(expected)))))
    print(f"{name} {'right' if worst <= tolerance else f'WRONG by {worst:.3g}'}", flush=True)
    if not worst <= tolerance:
        raise AssertionError(f"{name} is off by {worst:.3g} of the greatest value")


def must(name, holds):
    """Prints and demands that something holds."""
    print(f"{name} {'yes' if holds else 'NO'}", flush=True)
    if not holds:
        raise AssertionError(name)


def main():
    names = [function.__name__ for function in CHECKS]
    for wanted in sys.argv[1:]:
        if wanted not in names:
            print(f"no check {wanted!r}; there are {', '.join(names)}", file=sys.stderr)
            sys.exit(2)
    failed = False
    for function in CHECKS:
        if sys.argv[1:] and function.__name__ not in sys.argv[1:]:
            continue
        try:
            function()
        except Exception as error:  # every check gets its turn
            failed = True
            first = (str(error).splitlines() or [""])[0]
            print(f"{function.__name__} ERROR {type(error).__name__}: {first[:160]}", flush=True)
    sys.exit(1 if failed else 0)
