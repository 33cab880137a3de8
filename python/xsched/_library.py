"""The C API by ctypes, and where xsched's files lie."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import os
import shutil
from ctypes import POINTER, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

from ._errors import OUT_OF_RANGE, Failed, NotPreloaded, XSchedError

_HANDLE = POINTER(c_uint64)
# docs/reference/c-api.md has each of them.
_FUNCTIONS: dict[str, dict[str, list[Any]]] = {
    "libpreempt.so": {
        "XQueueCreate": [_HANDLE, c_uint64, c_int64, c_int64],
        "XQueueDestroy": [c_uint64],
        "XQueueGet": [_HANDLE, c_uint64],
        "XQueueWaitAll": [c_uint64],
        "XQueueQuery": [c_uint64, POINTER(c_int)],
        "XQueueSuspend": [c_uint64, c_int64],
        "XQueueResume": [c_uint64, c_int64],
        "HwQueueDestroy": [c_uint64],
        "XHintSetScheduler": [c_int, c_int],
        "XHintPriority": [c_uint64, c_int32],
        "XHintUtilization": [c_uint64, c_int32],
        "XHintTimeslice": [c_int64],
        "XHintLaxity": [c_uint64, c_int64, c_int32, c_int32],
        "XHintDeadline": [c_uint64, c_int64],
        "XHintKDeadline": [c_size_t],
    },
    "libhalcuda.so": {"CudaQueueCreate": [_HANDLE, c_void_p]},
    "libhalhip.so": {"HipQueueCreate": [_HANDLE, c_void_p]},
    "libhalopencl.so": {"OclQueueCreate": [_HANDLE, c_void_p]},
}
_LIBRARY_OF = {name: library for library, names in _FUNCTIONS.items() for name in names}


def is_set(variable: str) -> bool:
    """True if a variable of the environment that switches something is on, as the library reads it."""
    return os.environ.get(variable, "").lower() not in ("", "0", "off", "no", "false")


def attached() -> bool:
    """True if the preload library is in this process and may schedule it."""
    return not is_set("XSCHED_DISABLE") and hasattr(ctypes.CDLL(None), "XSchedFunctions")


def need_attached() -> None:
    """Raises :class:`NotPreloaded` unless :func:`attached`."""
    if not attached():
        raise NotPreloaded


def mapped_files() -> dict[str, int]:
    """Paths of the files that are mapped as code into this process, and an address within each."""
    files: dict[str, int] = {}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            words = line.rstrip("\n").split(maxsplit=5)
            if len(words) == 6 and words[5].startswith("/") and "x" in words[1]:
                files.setdefault(words[5], int(words[0].split("-")[0], 16))
    return files


def is_loaded(library: str) -> bool:
    """True if the loader has a library of this name in this process. Loads nothing."""
    try:
        ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True


def _folders() -> Iterator[Path]:
    """Folders that may have xsched's libraries: that of the preloaded one, else what is installed with this package."""
    for path in mapped_files():
        if os.path.basename(path) == "libxsched.so":
            yield Path(path).parent
    preload = os.environ.get("XSCHED_PRELOAD")
    if preload:
        yield Path(preload).resolve().parent
    for above in Path(__file__).resolve().parents:
        yield above / "lib" / "xsched"
    yield Path("/usr/local/lib/xsched")


def folder() -> Path:
    """The folder of ``libpreempt.so`` and its siblings."""
    for found in _folders():
        if (found / "libpreempt.so").is_file():
            return found
    raise XSchedError(
        "libpreempt.so is nowhere to be found: install xsched's wheel, or set XSCHED_PRELOAD to the path of libxsched.so"
    )


def command() -> str:
    """Path of the ``xsched`` command that belongs to :func:`folder`; else one of ``PATH``."""
    for near in _folders():
        for path in (near / "xsched", near.parent.parent / "bin" / "xsched"):
            if path.is_file() and os.access(path, os.X_OK):
                return str(path)
    found = shutil.which("xsched")
    if found is None:
        raise XSchedError("the xsched command is not in PATH: install xsched's wheel, or put the command's folder into PATH")
    return found


@functools.cache
def _open(library: str) -> ctypes.CDLL:
    path = folder() / library
    try:
        opened = ctypes.CDLL(str(path))
    except OSError as error:
        raise XSchedError(f"{path} cannot be loaded: {error}") from None
    for name, arguments in _FUNCTIONS[library].items():
        try:
            function = getattr(opened, name)
        except AttributeError:
            raise XSchedError(f"{path} has no {name}: install one version of xsched") from None
        function.argtypes, function.restype = arguments, c_int
    return opened


def whole_number(name: str, value: object) -> int:
    """A value as a whole number, as NumPy's are too; `name` is the argument's."""
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):
            return operator.index(value)  # type: ignore[arg-type]
    raise TypeError(f"{name} is a whole number, not {value!r}")


def _fits(value: object, kind: Any) -> bool:
    """Whether an argument is the same after its conversion to C, which cuts off what is too large."""
    return not isinstance(value, int) or (kind(value).value or 0) == value


def call(name: str, *arguments: object) -> None:
    """Calls a function of the C API, without Python's lock; raises :class:`Failed` unless it succeeds."""
    kinds = _FUNCTIONS[_LIBRARY_OF[name]][name]
    if not all(map(_fits, arguments, kinds)):
        raise Failed(name, OUT_OF_RANGE)
    function: Callable[..., int] = getattr(_open(_LIBRARY_OF[name]), name)
    result = function(*arguments)
    if result != 0:
        raise Failed(name, result)


def preloaded_function(name: str) -> Optional[Callable[..., int]]:
    """A function that libxsched.so itself exports."""
    return getattr(ctypes.CDLL(None), name, None)
