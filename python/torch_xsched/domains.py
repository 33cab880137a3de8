"""Scheduling domains of loaded libraries, by the functions of include/xsched/domain.h."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Iterator, Mapping, Sequence

from xsched import XSchedError
from xsched._library import mapped_files, preloaded_function

_NUMBERS = {"system": 0, "user": 1}
# Stands for what is not named, which is the program's own by itself.
_REST = "default"


def checked(domains: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The same as tuples, or ValueError."""
    found: dict[str, tuple[str, ...]] = {}
    for domain, names in domains.items():
        if domain not in _NUMBERS:
            raise ValueError(f"a domain is 'system' or 'user', not {domain!r}")
        if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"domains[{domain!r}] is a list of parts of library names, not {names!r}")
        if domain == "system" and _REST in names:
            raise ValueError("'default', what is not named, can only be of domain 'user'")
        found[domain] = tuple(names)
    return found


def libraries(domains: Mapping[str, Sequence[str]]) -> dict[int, int]:
    """The domain's number for an address in each loaded library that is named; the first domain that names it holds."""
    found: dict[int, int] = {}
    for path, address in mapped_files().items():
        name = os.path.basename(path).lower()
        for domain, parts in domains.items():
            if any(part != _REST and part.lower() in name for part in parts):
                found.setdefault(address, _NUMBERS[domain])
    return found


@contextlib.contextmanager
def in_force(domains: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Sets the domains of the named libraries that are loaded, on this thread, and gives the former ones back."""
    named = libraries(domains)
    if not named:
        yield
        return
    set_for, get_for = map(preloaded_function, ("XSetSchedulingDomainFor", "XGetSchedulingDomainFor"))
    if set_for is None or get_for is None:
        raise XSchedError("the preloaded libxsched.so has no scheduling domains: install one version of xsched")
    former: list[tuple[int, int]] = []
    try:
        for address, domain in named.items():
            current = ctypes.c_int()
            _need(get_for(ctypes.byref(current), ctypes.c_void_p(address)))
            _need(set_for(domain, ctypes.c_void_p(address)))
            former.append((address, current.value))
        yield
    finally:
        for address, domain in reversed(former):
            set_for(domain, ctypes.c_void_p(address))


def _need(result: int) -> None:
    if result != 0:
        raise XSchedError(f"a library's scheduling domain cannot be set: result {result} of include/xsched/domain.h")
