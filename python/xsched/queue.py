"""One stream as a preemptible queue."""

from __future__ import annotations

import os
import threading
from ctypes import byref, c_int, c_uint64
from typing import Any, Optional, Union

from . import _library
from ._errors import Failed, XSchedError
from .program import priority_of

_CREATE = {"cuda": "CudaQueueCreate", "hip": "HipQueueCreate", "opencl": "OclQueueCreate"}
_NOT_ALLOWED, _NOT_SUPPORTED = 4, 5
_IDLE = 1
_SYNC, _WAIT = 1, {None: 0, "all": 2, "idle": 4}


def handle_of(stream: Any) -> int:
    """The number of a stream: itself, or what the objects of PyTorch, CuPy, Numba or PyOpenCL keep. ``None``: the default one."""
    if stream is None:
        return 0
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    for name in ("cuda_stream", "ptr", "int_ptr", "handle"):
        value = getattr(stream, name, None)
        value = getattr(value, "value", value) if name == "handle" else value
        if isinstance(value, int):
            return value
    kind = type(stream).__name__
    raise TypeError(f"a stream is a number or an object with .cuda_stream, .ptr, .int_ptr or .handle, not {kind}")


def _us_or_none(us: Optional[int]) -> int:
    """Microseconds as the C API has them, for which -1 is none."""
    return -1 if us is None else _library.whole_number("us", us)


def _platform_of(stream: Any) -> str:
    if hasattr(stream, "int_ptr"):
        return "opencl"
    hip = any(os.path.basename(path).startswith("libamdhip64") for path in _library.mapped_files())
    return "hip" if hip and not _library.is_loaded("libcuda.so.1") else "cuda"


class Queue:
    """A stream of any framework as a queue with a priority of its own.

    :param stream: a stream's number, or an object of PyTorch, CuPy, Numba or PyOpenCL; ``None`` is the default stream. The
        stream must live longer than the queue.
    :param priority: a class's name or -255 to 255, never above what the operator allows; ``None``: the program's.
    :param platform: ``"cuda"``, ``"hip"`` or ``"opencl"``; ``None``: found from the stream and the loaded libraries.
    :param level: the highest preemption level, 1 to 3; ``None``: the highest of the device.
    :raises NotPreloaded: the preload library is not in this process.
    :raises Failed: the driver knows no such stream.

    The queue ends by :meth:`close`, at the end of a ``with`` block, or with the process; the stream itself stays.
    """

    def __init__(
        self,
        stream: Any,
        priority: Union[int, str, None] = None,
        *,
        platform: Optional[str] = None,
        level: Optional[int] = None,
    ) -> None:
        _library.need_attached()
        number = None if priority is None else priority_of(priority)
        platform = platform or _platform_of(stream)
        if not isinstance(platform, str) or platform not in _CREATE:
            raise ValueError(f"platform is one of cuda, hip, opencl, not {platform!r}")
        if level not in (None, 1, 2, 3):
            raise ValueError(f"level is 1, 2, 3 or None, not {level!r}")
        self.stream = stream  # which keeps it alive
        self._lock = threading.Lock()
        self._priority = number
        hardware = c_uint64()
        _library.call(_CREATE[platform], byref(hardware), handle_of(stream))
        self._handle, self._owned = _queue_over(hardware, level)
        self._hardware = hardware.value
        if number is not None:
            try:
                self.set_priority(number)
            except BaseException:
                self.close()
                raise

    def __repr__(self) -> str:
        return f"Queue({self.stream!r}, priority={self._priority})"

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int:
        if self._handle is None:
            raise XSchedError("the queue is closed")
        return self._handle

    @property
    def priority(self) -> Optional[int]:
        """Priority that was asked for; ``None``: the program's."""
        return self._priority

    @priority.setter
    def priority(self, value: Union[int, str]) -> None:
        self.set_priority(value)

    def set_priority(self, value: Union[int, str]) -> None:
        """Sets the queue's priority: a class's name or -255 to 255; -256: it does not run until it gets another one."""
        number = priority_of(value)
        _library.call("XHintPriority", self._open(), number)
        self._priority = number

    def set_utilization(self, percent: int) -> None:
        """Sets the part of the device that the queue asks for, 0 to 100 percent."""
        _library.call("XHintUtilization", self._open(), _library.whole_number("percent", percent))

    def set_deadline(self, us: Optional[int]) -> None:
        """Sets the time from a request's begin until it is due, in µs; ``None``: no deadline."""
        _library.call("XHintDeadline", self._open(), _us_or_none(us))

    def set_laxity(self, us: Optional[int], lax: Union[int, str] = "low", critical: Union[int, str] = "high") -> None:
        """Sets the longest wait of a request, in µs, and the priorities until then and from then on; ``None``: no laxity."""
        _library.call("XHintLaxity", self._open(), _us_or_none(us), priority_of(lax), priority_of(critical))

    def suspend(self, *, wait: Optional[str] = None, sync: bool = False) -> None:
        """Holds launches on the stream until :meth:`resume`.

        A thread that holds Python's lock while it launches is not held: PyTorch, CuPy and ctypes release it.

        :param wait: before the suspension, ``"all"`` waits for all launches so far, ``"idle"`` until nothing is left.
        :param sync: afterwards, waits for the commands that the device still has.
        """
        if not (wait is None or isinstance(wait, str)) or wait not in _WAIT:
            raise ValueError(f"wait is None, 'all' or 'idle', not {wait!r}")
        _library.call("XQueueSuspend", self._open(), _WAIT[wait] | (_SYNC if sync else 0))

    def resume(self) -> None:
        """Ends the suspension."""
        _library.call("XQueueResume", self._open(), 0)

    def wait(self) -> None:
        """Waits until all launches so far are complete."""
        _library.call("XQueueWaitAll", self._open())

    def idle(self) -> bool:
        """True if all launches are complete. Does not wait."""
        state = c_int()
        _library.call("XQueueQuery", self._open(), byref(state))
        return state.value == _IDLE

    def close(self) -> None:
        """Resumes the queue and ends it; the stream is again one of the program's. A second call does nothing, nor does a call
        for a second queue over a stream, which belongs to the first."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is None:
            return
        if self._owned:
            _library.call("XQueueDestroy", handle)
            _library.call("HwQueueDestroy", self._hardware)


def _queue_over(hardware: c_uint64, level: Optional[int]) -> tuple[Optional[int], bool]:
    """A new queue of the highest level that the device has; or the one that there is, which is not ours to end."""
    made = c_uint64()
    levels = (3, 2, 1) if level is None else (level,)
    for wished in levels:
        try:
            _library.call("XQueueCreate", byref(made), hardware, wished, 0)
            return made.value, True
        except Failed as failure:
            if failure.result == _NOT_ALLOWED:
                _library.call("XQueueGet", byref(made), hardware)
                return made.value, False
            if failure.result != _NOT_SUPPORTED or wished == levels[-1]:
                raise
    raise AssertionError("the loop ends above")
