# SPDX-License-Identifier: Apache-2.0
"""Network namespaces, which may contain a switch's interfaces and its Thrift server."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from canary_softswitch.errors import SoftSwitchError

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Namespace:
    """The network namespace of a process, which must be alive.

    Args:
        pid: The id of the process; None for this process.
    """

    pid: int | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run the block in the namespace, in this thread; sockets opened in it stay there.

        Raises:
            SoftSwitchError: The process has ended, or this one may not enter.
        """
        if self.pid is None:
            yield
            return
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._enter(f"/proc/{self.pid}/ns/net")
            try:
                yield
            finally:
                if _libc.setns(here, 0):
                    raise SystemError("a thread cannot leave a network namespace")
        finally:
            os.close(here)

    def _enter(self, path: str) -> None:
        try:
            there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as e:
            raise SoftSwitchError(f"no network namespace {path}: {e.strerror}") from None
        try:
            if _libc.setns(there, 0):
                why = os.strerror(ctypes.get_errno())
                raise SoftSwitchError(f"cannot enter the network namespace {path}: {why}")
        finally:
            os.close(there)

    def is_up(self, interface: str) -> bool:
        """Return True if an interface exists and is not down."""
        root = "" if self.pid is None else f"/proc/{self.pid}/root"
        try:
            return Path(f"{root}/sys/class/net/{interface}/operstate").read_text() != "down\n"
        except OSError:
            return False


HERE = Namespace()
