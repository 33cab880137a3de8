"""A stream of PyTorch's with a priority of its own."""

from __future__ import annotations

from typing import Any, Optional, Union

import xsched

from ._torch import torch


class XSchedQueue(xsched.Queue):
    """A ``torch.cuda.Stream`` with any priority from -255 to 255, where PyTorch itself knows two or a few.

    :param stream: the stream; ``None``: PyTorch's current one. PyTorch hands out streams of a pool again and again: two of its
        objects may be one stream, and then have one priority.
    :param priority: a class's name or -255 to 255; never above what the operator allows the program.
    """

    def __init__(self, stream: Any = None, priority: Union[int, str] = 0, *, level: Optional[int] = None) -> None:
        module = torch()
        if stream is None:
            stream = module.cuda.current_stream()
        hip = getattr(module.version, "hip", None)
        super().__init__(stream, priority, platform="hip" if hip else "cuda", level=level)

    def enabled(self) -> Any:
        """``with queue.enabled():``: PyTorch's work of this thread goes to the stream."""
        return torch().cuda.stream(self.stream)
