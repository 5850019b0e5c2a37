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


class PagePublisher(Protocol):
    """Sends events to the browsers that show a page, without waiting for them."""

    def publish(self, name: str, what: Any) -> None: ...


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
        self._sent = threading.Event()
        self._writer = threading.Thread(target=self._write, name="watch", daemon=True)
        self._writer.start()

    def publish(self, name: str, what: Any) -> None:
        """Send an event to all browsers, without waiting for them."""
        if name not in ("counters", "losses") or self._lines.qsize() < _WAITING:
            self._lines.put((name, what))

    def close(self) -> None:
        """Send what is still waiting; the server passes it on and ends in its own time."""
        self._lines.put(None)
        if not self._sent.wait(_PATIENCE_S):
            self._server.kill()

    def _write(self) -> None:
        pipe = self._server.stdin
        assert pipe is not None
        with suppress(OSError):  # it has gone: nobody reads
            while (event := self._lines.get()) is not None:
                name, what = event
                pipe.write(f"{name} {json.dumps(what, separators=(',', ':'))}\n".encode())
                pipe.flush()
        with suppress(OSError):
            pipe.close()
        self._sent.set()
        self._server.wait()


class _Reading:
    """One kind of counter, read so seldom that it takes little of the time."""

    def __init__(
        self, read: Callable[[], npt.NDArray[np.uint64]], n_links: int, share: float
    ) -> None:
        self._read, self._share, self._next = read, share, 0.0
        self.values = [0] * n_links

    def read_if_due(self, anyway: bool) -> bool:
        """Read the counters if it is time to, or ``anyway``; return whether they were read."""
        begin = time.perf_counter()
        if begin < self._next and not anyway:
            return False
        self.values = self._read().tolist()
        now = time.perf_counter()
        self._next = now + max(_LEAST_S, (now - begin) / self._share)
        return True


class Counters:
    """The counters of every link of a network, sent to browsers a few times a second.

    Args:
        faults: What is broken now: directed links and their loss rates.
        share: Of the time, that reading a kind of counter may take.
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
        """Send the counters to the browsers if it is time to, or ``anyway``.

        Args:
            busy: The switches are asked by somebody else: what only they know is sent as it was.
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
