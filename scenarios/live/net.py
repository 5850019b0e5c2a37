"""Shows a network at Mininet's prompt in browsers: its counters, its faults and verdicts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from analysis.evaluation.columns import BENCHES
from analysis.methods.base import UNSEEN, Diagnosis
from analysis.methods.registry import build
from analysis.pages.live_page import live_page
from scenarios.live.network import Live
from scenarios.live.publisher import Counters, Publisher
from testbed.network.network import Network, NetworkError

_OFTEN_S, _SHARE = 0.2, 0.03


class WatchedNet:
    """Sends the state of a network to browsers, until it is closed.

    Args:
        live: The object that injects faults into the network and measures it.
    """

    def __init__(self, network: Network, live: Live) -> None:
        self._live = live
        self._network = network
        self._troubles: list[str] = []
        self._publisher = Publisher()
        self.address = self._publisher.address
        self._publisher.publish(
            "page", live_page(live.topology, live.monitor, f"{live.topology.title}, live", (), 0)
        )
        self._publisher.publish("doing", {"what": "up"})

        def faults() -> list[tuple[int, float]]:
            return [(fault.link, fault.rate) for fault in live.faults]

        self._counters = Counters(self._publisher, network, faults, _SHARE)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="counters", daemon=True)
        self._thread.start()

    def verdicts(self, found: Mapping[str, Diagnosis]) -> None:
        """Show the latest diagnosis of every method."""
        methods = [
            {
                "name": name,
                "bench": BENCHES[build(name).bench],
                "undirected": verdict.native == "undirected",
                "flagged": np.unique(verdict.flagged).tolist(),
                "unobserved": [n for n, state in enumerate(verdict.state) if state == UNSEEN],
                "ties": verdict.ties,
                "rate": [],
            }
            for name, verdict in found.items()
        ]
        self._publisher.publish("verdict", {"when": "as asked last", "methods": methods})

    def close(self) -> None:
        """Show that the network is down, and stop the server."""
        self._over.set()
        self._thread.join()
        self._publisher.publish("end", {"what": "over: the network is down"})
        self._publisher.close()

    def _tell_troubles(self) -> None:
        """Show the network's problems if they have changed."""
        if self._network.degraded != self._troubles:
            self._troubles = list(self._network.degraded)
            self._publisher.publish("doing", {"what": "; ".join(["up", *self._troubles])})

    def _look(self) -> None:
        """Send the counters to browsers a few times a second; without those that need the switches
        while another thread uses the switches."""
        while not self._over.wait(_OFTEN_S):
            free = self._live.using.acquire(blocking=False)
            try:
                self._counters.publish_if_due(busy=not free)
                self._tell_troubles()
            except NetworkError:  # a node has ended, which the prompt's commands report
                return
            finally:
                if free:
                    self._live.using.release()


@contextmanager
def watched_net(asked: bool, network: Network, live: Live) -> Iterator[WatchedNet | None]:
    """Show a network in browsers during a block, if ``asked``; else yield None."""
    if not asked:
        yield None
        return
    watched = WatchedNet(network, live)
    try:
        print(f"watch: {watched.address}", flush=True)
        yield watched
    finally:
        watched.close()
