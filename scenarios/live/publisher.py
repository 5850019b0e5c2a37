"""What is watched tells its server of it, and is not held up by it.

Lines are written by a thread; if the server is slow, counters are left out.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from scenarios.process.user import sudo_user
from testbed.network.network import Network

LOOPBACK = "127.0.0.1"
_WAITING = 64
_PATIENCE_S = 3
_NICE = 10
"""Who looks can wait, the run cannot."""
_LEAST_S = 0.4


class Teller(Protocol):
    """Lets browsers hear something, without waiting for them."""

    def tell(self, name: str, what: Any) -> None: ...


class Publisher:
    """A server that was started, on a free port of this machine's loopback.

    Raises:
        OSError: There is no loopback, or no process to be had.
    """

    def __init__(self) -> None:
        user = sudo_user()  # the network is root's, its page is not
        with socket.create_server((LOOPBACK, 0)) as listening:
            self.address = f"http://{LOOPBACK}:{listening.getsockname()[1]}/"
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-m", "scenarios.live.server", str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                process_group=0,  # Ctrl-C is for the run, with which it ends
                **({} if user is None else user.started_as()),
            )
        os.setpriority(os.PRIO_PROCESS, self._server.pid, _NICE)
        self._lines: queue.Queue[tuple[str, Any] | None] = queue.Queue()
        self._told = threading.Event()
        self._writer = threading.Thread(target=self._write, name="watch", daemon=True)
        self._writer.start()

    def tell(self, name: str, what: Any) -> None:
        """Let all browsers hear something; nobody waits for it."""
        if name not in ("counters", "losses") or self._lines.qsize() < _WAITING:
            self._lines.put((name, what))

    def close(self) -> None:
        """Let the server hear the rest; it tells it to who listens and ends, in its own time."""
        self._lines.put(None)
        if not self._told.wait(_PATIENCE_S):
            self._server.kill()

    def _write(self) -> None:
        pipe = self._server.stdin
        assert pipe is not None
        with suppress(OSError):  # it has gone: there is nobody to tell
            while (said := self._lines.get()) is not None:
                name, what = said
                pipe.write(f"{name} {json.dumps(what, separators=(',', ':'))}\n".encode())
                pipe.flush()
        with suppress(OSError):
            pipe.close()
        self._told.set()
        self._server.wait()


class _Reading:
    """One kind of counter, read so seldom that it takes little of the time."""

    def __init__(
        self, read: Callable[[], npt.NDArray[np.uint64]], n_links: int, share: float
    ) -> None:
        self._read, self._share, self._next = read, share, 0.0
        self.values = [0] * n_links

    def look(self, anyway: bool) -> bool:
        """Read it if it is time to; whether it was."""
        begin = time.perf_counter()
        if begin < self._next and not anyway:
            return False
        self.values = self._read().tolist()
        now = time.perf_counter()
        self._next = now + max(_LEAST_S, (now - begin) / self._share)
        return True


class Counters:
    """The counters of every link of a network, told a few times a second.

    Args:
        faults: What is broken now: directed links and their loss rates.
        share: Of the time, that reading a kind of counter may take.
    """

    def __init__(
        self,
        publisher: Teller,
        network: Network,
        faults: Callable[[], list[tuple[int, float]]],
        share: float,
    ) -> None:
        self._publisher, self._network, self._faults = publisher, network, faults
        n_links = network.topology.n_links
        self._packets = _Reading(network.link_packets, n_links, share)
        self._drops = _Reading(network.fault_drops, n_links, share)
        self._broken: list[tuple[int, float]] = []
        self._begin = time.perf_counter()

    def look(self, anyway: bool = False, busy: bool = False) -> None:
        """Tell them if it is time to, or ``anyway``.

        Args:
            busy: The switches are asked by somebody else: what only they know is told as it was.
        """
        lost = not busy and self._drops.look(anyway)
        if not self._packets.look(anyway or lost):
            return
        if not busy:
            self._broken = self._faults()
        said = {"at": round(time.perf_counter() - self._begin, 2), "packets": self._packets.values}
        if lost:
            self._publisher.tell("losses", said | {"drops": self._drops.values})
        self._publisher.tell("counters", said | {"faults": self._broken})
