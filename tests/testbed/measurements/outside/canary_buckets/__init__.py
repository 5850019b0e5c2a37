# SPDX-License-Identifier: Apache-2.0
"""A measurement and a method of another package: what each link lost in each bucket of flows.

The switches count the packets that leave and arrive at every port, in buckets of the flow hash. The
method blames a link for the loss of its worst bucket, so that a fault that hits few flows shows.
"""

from pathlib import Path

import numpy as np

from analysis.methods.base import Method
from analysis.telemetry.telemetry import Probes
from testbed.control.switch import for_each
from testbed.dataplane import ARRIVING, LEAVING
from testbed.fabric.paths import Paths
from testbed.measurements.measurement import Measurement, Running
from testbed.record.schema import Column, Schema

BUCKETS = 16  # as in measurement.p4

TABLE = Schema(
    "buckets",
    "packets of a link, a row for each link and bucket of the flow hash",
    (
        Column("link", "int32", "the directed link", numbers="links"),
        Column("bucket", "int8", "bucket of the flow hash", low=0, high=BUCKETS - 1),
        Column("sent", "int64", "packets that left", "packets", low=0),
        Column("lost", "int64", "packets that did not arrive", "packets", low=0),
    ),
    required=False,
    key=("link", "bucket"),
)


class Buckets(Measurement):
    """Packets that leave and arrive at both ends of each link, by bucket of the flow hash."""

    name = "buckets"
    view = "buckets"
    help = "packets at both ends of each link, by bucket of the flow hash"
    tables = (TABLE,)
    program = Path(__file__).parent / "build" / "canary.json"

    def start(self, run):
        """Begin with the counters as they are: 0."""
        return BucketRun(run)


class BucketRun(Running):
    """The counters in a run with packets, which are only read."""

    def __init__(self, run) -> None:
        self._run, self._ended = run, {0: np.zeros((), np.int64)}

    def now(self):
        """Return the packets that left and arrived so far, int64[2, n_links, BUCKETS]."""
        fabric, found = self._run.fabric, []
        ends = (fabric.link_src, fabric.link_src_port), (fabric.link_dst, fabric.link_dst_port)
        for block, (switch, port) in zip((LEAVING, ARRIVING), ends, strict=True):
            name, at = f"{block}.count.buckets", port[:, None] * BUCKETS + np.arange(BUCKETS)
            read = for_each(self._run.controls, lambda each, name=name: each.counter(name))
            found.append(np.stack([each["packets"] for each in read])[switch[:, None], at])
        return np.array(found, np.int64)

    def end_epoch(self, number, rerouted, write):
        """Note the counters, which the record of a later epoch begins with; return them."""
        self._ended[number + 1] = now = self.now()
        return now

    def tables(self, counts):
        """Return the packets sent and lost since the first epoch of the record."""
        sent, arrived = self.now() - self._ended[counts.first]
        link, bucket = np.indices(sent.shape).reshape(2, -1)
        lost = np.maximum(sent - arrived, 0)  # packets may be under way
        return {
            "buckets": {"link": link, "bucket": bucket, "sent": sent.ravel(), "lost": lost.ravel()}
        }


class WorstBucket(Method):
    """Blame links that lose 1 % or more of a bucket's packets, of 100 at least."""

    base = "worst-bucket"
    views = ("buckets",)  # type: ignore[assignment]

    def data(self, telemetry):
        """Return the counts as probes over one link each, a row for each bucket."""
        found = telemetry.need("buckets", self.name)["buckets"]
        self.share = np.zeros(telemetry.topology.n_links)
        np.maximum.at(self.share, found["link"], found["lost"] / np.maximum(found["sent"], 100))
        paths = Paths(np.arange(len(found["link"]) + 1), found["link"].astype(np.int32))
        return Probes(paths, found["sent"], found["lost"])

    def infer(self, data, fabric):
        """Return the diagnosis; a link's score is the loss of its worst bucket."""
        return self.diagnosis(fabric, np.flatnonzero(self.share >= 0.01), score=self.share)

    def measurements(self, telemetry):
        """Return the name of what the method reads."""
        return self.views

    def telemetry_bytes(self, telemetry):
        """Return the bytes of all counters: 8 at both ends."""
        return 16 * len(telemetry.need("buckets", self.name)["buckets"]["sent"])

    def probe_packets(self, telemetry):
        """Return 0: the switches count the hosts' own packets."""
        return 0
