# SPDX-License-Identifier: Apache-2.0
"""Shows a run in browsers: its phase, its links' counters, and Canary's verdict after each epoch. A
network at Mininet's prompt is shown with its counters, its faults and verdicts.

The record of the run does not depend on it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from analysis.evaluation.columns import BENCHES
from analysis.methods.base import views_of
from analysis.methods.diagnosis import UNSEEN, Diagnosis
from analysis.methods.registry import build, make_method
from analysis.pages.live_page import live_page
from analysis.telemetry.telemetry import SegmentCounts, Telemetry
from analysis.telemetry.views.segments import read_segments
from scenarios.experiment.inputs import Layout
from scenarios.experiment.observer import Observer
from scenarios.experiment.recording import Epoch
from scenarios.experiment.setup import Emulation
from scenarios.live.network import Live
from scenarios.live.publisher import Counters, PagePublisher, Publisher
from testbed.network.network import Network, NetworkError

WATCHED_METHOD = "canary"
"""The method whose verdict is shown: it reads only the meters, and takes milliseconds."""


_OFTEN_S = 0.25
_SHARE_OF_RUN = 0.02  # of the time, for reading counters


class WatchedRun(Observer):
    """Shows a run in browsers from its beginning.

    Args:
        publisher: Sends the events to the browsers.
    """

    window = 1

    def __init__(self, publisher: PagePublisher) -> None:
        self._publisher = publisher
        self._doing, self._again = "", 0.0
        self._counters: Counters | None = None
        self._diagnosing = ThreadPoolExecutor(1, "verdicts")
        self._sent: list[npt.NDArray[np.int64]] = []
        self._lost: list[npt.NDArray[np.int64]] = []

    def planned(self, layout: Layout) -> None:
        """Show the page of the fabric with its faults."""
        fabric, faults = layout.fabric, layout.plan.faults
        of_fabric = [(each.link, each.rate) for each in faults if each.link < fabric.n_links]
        epochs = layout.epochs.number
        page = live_page(fabric, layout.monitor, layout.title, of_fabric, epochs, WATCHED_METHOD)
        self._publisher.publish("page", page)

    def progressed(self, what: str, share: float) -> None:
        """Show the phase, at most a few times a second, and the links' counters while packets
        flow."""
        if what != self._doing or time.perf_counter() >= self._again:
            self._doing, self._again = what, time.perf_counter() + _OFTEN_S
            self._publisher.publish("doing", {"what": what, "share": round(share, 4)})
        if self._counters is not None:
            self._counters.publish_if_due()

    def network_up(self, emulation: Emulation) -> None:
        """Start to read the counters of the network."""
        network, n_links = emulation.network, emulation.topology.n_links
        faults = [fault for fault in emulation.plan.faults if fault.link < n_links]

        def active() -> list[tuple[int, float]]:
            """Return the link and the drop rate, 0 to 1, of each fault that is active now."""
            now = network.now_ns / 1e9
            return [
                (fault.link, fault.rate)
                for fault in faults
                if not fault.schedule or any(begin <= now < end for begin, end in fault.schedule)
            ]

        self._counters = Counters(self._publisher, network, active, _SHARE_OF_RUN)

    def epoch_ended(self, epoch: Epoch) -> None:
        """Show the packets sent and lost in the epoch and a verdict on all epochs so far."""
        inputs, method = epoch.emulation.inputs, make_method(WATCHED_METHOD)
        reads, there = views_of([method]), {each.view for each in inputs.measurements}
        if reads is None or reads - there:
            return
        counts = read_segments(epoch.record(inputs.config))
        self._sent.append(counts.sent[-1])
        self._lost.append(counts.lost[-1])
        sent, lost = (int(each[-1].sum()) for each in (self._sent, self._lost))
        entry = {"number": epoch.number + 1, "sent": sent, "lost": lost}
        counts = SegmentCounts(counts.segments, np.stack(self._sent), np.stack(self._lost))
        telemetry = Telemetry(inputs.fabric, inputs.monitors, counts)

        def diagnose() -> None:
            """Publish the counts of the epoch with the ids of the links that the method blames."""
            flagged = method.localize(telemetry).flagged
            self._publisher.publish("epoch", entry | {"flagged": flagged.tolist()})

        self._diagnosing.submit(diagnose)

    def network_ended(self) -> None:
        """Show the final counters of the network."""
        if self._counters is not None:
            self._counters.publish_if_due(anyway=True)
            self._counters = None

    def close(self) -> None:
        """Wait for the diagnosis that is running, and start no other."""
        self._diagnosing.shutdown(cancel_futures=True)


_LOOKING_S, _SHARE = 0.2, 0.03


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
            """Return the link and the drop rate, 0 to 1, of each fault that is injected now."""
            return [(fault.link, fault.rate) for fault in live.faults]

        self._counters = Counters(self._publisher, network, faults, _SHARE)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send_counters, name="counters", daemon=True)
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
        self._publisher.publish("end", {"what": "ended: the network is down"})
        self._publisher.close()

    def _tell_troubles(self) -> None:
        """Show the network's problems if they have changed."""
        if self._network.degraded != self._troubles:
            self._troubles = list(self._network.degraded)
            self._publisher.publish("doing", {"what": "; ".join(["up", *self._troubles])})

    def _send_counters(self) -> None:
        """Send the counters to browsers a few times a second; without those that need the switches
        while another thread uses the switches."""
        while not self._over.wait(_LOOKING_S):
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
def watched_net(enabled: bool, network: Network, live: Live) -> Iterator[WatchedNet | None]:
    """Show a network in browsers during a block, if ``enabled``; else yield None."""
    if not enabled:
        yield None
        return
    watched = WatchedNet(network, live)
    try:
        print(f"watch: {watched.address}", flush=True)
        yield watched
    finally:
        watched.close()
