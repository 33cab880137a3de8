"""PyTorch, imported when it is needed."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from xsched import XSchedError


def torch() -> Any:
    """The module."""
    try:
        module = importlib.import_module("torch")
    except ImportError as error:
        raise XSchedError(
            f"PyTorch cannot be imported ({error}): install it, or use the package xsched, which needs none"
        ) from None
    return module


def begin() -> None:
    """Lets the daemon know the program, by a launch on PyTorch's current device; does nothing in a program without PyTorch."""
    module = sys.modules.get("torch")
    if module is None or not module.cuda.is_available():
        return
    module.zeros(1, device="cuda")
