# SPDX-License-Identifier: Apache-2.0
"""Sends the state of a run or network to the server of its page, without waiting for it.

A thread writes the lines. If the server is slow, counters are left out.
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

from scenarios.live.loopback import LOOPBACK
from scenarios.process.namespace import PAGE
from testbed.network.network import Network

_WAITING = 64
_PATIENCE_S = 3
_NICE = 10
"""Niceness of the server: the run has priority over its page."""
_LEAST_S = 0.4


class PagePublisher(Protocol):
    """Sends events to the browsers that show a page, without waiting for them."""

    def publish(self, name: str, what: Any) -> None:
        """Send an event, with content that can be written as JSON, to all browsers."""


class Publisher:
    """A server process for one page, on a free port of the loopback interface.

    Raises:
        OSError: There is no loopback interface, or no process can be started.
    """

    def __init__(self) -> None:
        with _listening() as listening:
            self.address = f"http://{LOOPBACK}:{listening.getsockname()[1]}/"
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-m", "scenarios.live.server", str(listening.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[listening.fileno()],
                process_group=0,  # Ctrl-C goes to the run, and the server ends with the run
            )
        os.setpriority(os.PRIO_PROCESS, self._server.pid, _NICE)
        self._lines: queue.Queue[tuple[str, Any] | None] = queue.Queue()
        self._sent = threading.Event()
        self._writer = threading.Thread(target=self._write, name="watch", daemon=True)
        self._writer.start()

    def publish(self, name: str, what: Any) -> None:
        """Send an event to all browsers, without waiting for them; counters are left out if many
        events wait."""
        if name not in ("counters", "losses") or self._lines.qsize() < _WAITING:
            self._lines.put((name, what))

    def close(self) -> None:
        """Send the events that still wait; the server passes them on, and ends by itself."""
        self._lines.put(None)
        if not self._sent.wait(_PATIENCE_S):
            self._server.kill()

    def _write(self) -> None:
        """Write the events to the server's standard input, until `close` is called."""
        pipe = self._server.stdin
        assert pipe is not None
        with suppress(OSError):  # the server has ended
            while (event := self._lines.get()) is not None:
                name, what = event
                pipe.write(f"{name} {json.dumps(what, separators=(',', ':'))}\n".encode())
                pipe.flush()
        with suppress(OSError):
            pipe.close()
        self._sent.set()
        self._server.wait()


def _listening() -> socket.socket:
    """Return the socket of the page: the one that was opened outside of this process's network
    namespace, or a new one."""
    if opened := os.environ.pop(PAGE, ""):
        return socket.socket(fileno=int(opened))
    return socket.create_server((LOOPBACK, 0))


class _Reading:
    """Reads one kind of counter so rarely that reading takes at most ``share`` of the time."""

    def __init__(
        self, read: Callable[[], npt.NDArray[np.uint64]], n_links: int, share: float
    ) -> None:
        self._read, self._share, self._next = read, share, 0.0
        self.values = [0] * n_links

    def read_if_due(self, anyway: bool) -> bool:
        """Read the counters if they are due, or if ``anyway``; return whether they were read."""
        begin = time.perf_counter()
        if begin < self._next and not anyway:
            return False
        self.values = self._read().tolist()
        now = time.perf_counter()
        self._next = now + max(_LEAST_S, (now - begin) / self._share)
        return True


class Counters:
    """Sends the counters of all links of a network to browsers, a few times a second.

    Args:
        faults: Returns the faults at present: directed links and their loss rates.
        share: Largest share of the time that reading one kind of counter may take, from 0 to 1.
    """

    def __init__(
        self,
        publisher: PagePublisher,
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

    def publish_if_due(self, anyway: bool = False, busy: bool = False) -> None:
        """Send the counters to browsers if they are due, or if ``anyway``.

        Args:
            busy: Whether another thread uses the switches; then the drops, which only the switches
                know, are not read again.
        """
        lost = not busy and self._drops.read_if_due(anyway)
        if not self._packets.read_if_due(anyway or lost):
            return
        if not busy:
            self._broken = self._faults()
        at = {"at": round(time.perf_counter() - self._begin, 2), "packets": self._packets.values}
        if lost:
            self._publisher.publish("losses", at | {"drops": self._drops.values})
        self._publisher.publish("counters", at | {"faults": self._broken})
