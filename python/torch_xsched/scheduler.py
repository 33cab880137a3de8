"""The whole process more urgent for a while."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Iterator, Mapping, Optional, Sequence, Union

import xsched
from xsched import XSchedError, program

from . import domains as _domains
from ._torch import begin


class XSchedScheduler:
    """What holds inside ``with scheduler.enabled():``.

    :param policy: what orders this process's queues, by a policy's name. Where a daemon decides, it must be the daemon's own
        policy. Where none does (``xsched run --local``, ``--no-daemon``), the process decides by it inside the block.
        ``None``: whatever there is.
    :param domains: ``{"system": [...], "user": [...]}``: parts of the file names of loaded libraries. Streams that a library
        of ``system`` makes inside the block, on its thread, go before the program's other streams of the same priority;
        those of ``user`` do not. ``"default"`` in ``user`` stands for all that is not named.
    :param priority: the class or priority of the process inside the block.
    :raises ValueError: no such policy, domain or priority.
    """

    def __init__(
        self,
        policy: Optional[str] = "priority",
        domains: Optional[Mapping[str, Sequence[str]]] = None,
        *,
        priority: Union[int, str] = "high",
    ) -> None:
        self.policy = None if policy is None else program.policy_name(policy)
        self.domains = _domains.checked(domains or {})
        self.priority = xsched.priority_of(priority)

    @contextlib.contextmanager
    def enabled(self) -> Iterator["XSchedScheduler"]:
        """Inside the block the whole process has the scheduler's class: all threads, autograd's among them, and default streams
        included. Outside it has its former one, scheduled as ever. Blocks may lie within each other and in several threads: the
        highest class holds, and the last one that ends gives the former back.

        :raises xsched.NotPreloaded: nothing would change.
        :raises xsched.NotRegistered: a program without PyTorch has made no device call yet.
        :raises xsched.XSchedError: the daemon's policy is another one; no daemon answers.
        """
        if not xsched.attached():
            raise xsched.NotPreloaded
        begin()
        with contextlib.ExitStack() as stack:
            if _local.open or program.scheduler()[0] != "global":
                stack.enter_context(_local.used(self.policy))
            else:
                _same_policy(self.policy)
                stack.enter_context(xsched.raised(self.priority))
            stack.enter_context(_domains.in_force(self.domains))
            yield self


def _same_policy(wished: Optional[str]) -> None:
    """Raises if the daemon's policy is another one."""
    if wished is None:
        return
    for current in program.policies():
        if current.lower() != wished:
            raise XSchedError(
                f"the daemon decides by {current}, not by {wished}: pass policy=None to take what there is, or change it by "
                f"`xsched policy set {wished}`"
            )


class _Local:
    """The policy of a scheduler inside the process while blocks are open. Where no other process is heard, a class of the
    process would order nothing."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.open: list[str] = []
        self.former: tuple[str, Optional[str]] = ("global", None)

    @contextlib.contextmanager
    def used(self, policy: Optional[str]) -> Iterator[None]:
        if policy is None:
            yield
            return
        with self.lock:
            if self.open and self.open[0] != policy:
                raise XSchedError(f"this process decides by {self.open[0]} in another block, not by {policy}: end that one first")
            if not self.open:
                self.former = program.scheduler()
                xsched.set_scheduler("local", policy)
            self.open.append(policy)
        try:
            yield
        finally:
            with self.lock:
                self.open.remove(policy)
                if not self.open:
                    xsched.set_scheduler(*self.former)


_local = _Local()


def _forget() -> None:
    """In a forked child, which has a runtime of its own."""
    global _local
    _local = _Local()


os.register_at_fork(after_in_child=_forget)
