# SPDX-License-Identifier: Apache-2.0
"""A measurement and a method of another package: pings between racks, and which links may have lost
them.

The first host of every rack sends UDP packets to the first host of every other rack, from several
ports, so that ECMP spreads them over the paths. Who lost how many is a table of the record; the
method blames the links that are on too many of the paths that lost packets.
"""

from dataclasses import dataclass

import numpy as np

from analysis.methods.base import Method
from analysis.telemetry.telemetry import Flows
from testbed.fabric.paths import Paths, PathSets
from testbed.measurements.measurement import Measurement, Running, Simulated
from testbed.network.flow import send
from testbed.network.schedules import Rounds
from testbed.network.sources import Source
from testbed.record.schema import Column, Schema
from testbed.traffic.flows import UDP
from testbed.traffic.packets import ETHERNET, IPV4, put_ethernet, put_ipv4, put_udp

PORTS, PACKETS, FRAME = 8, 20, 64  # of each pair of racks; packets of each port; bytes
TTL = 15  # switches count no packet with a smaller TTL than 16 in their meters

PINGS = Schema(
    "pings",
    "pings between racks, a row for each pair of racks and port",
    (
        Column("src_tor", "int32", "the rack that sends", numbers="tors"),
        Column("dst_tor", "int32", "the rack that receives", numbers="tors"),
        Column("sent", "int64", "pings sent", "packets", low=0),
        Column("lost", "int64", "pings lost", "packets", low=0),
    ),
    required=False,
)


@dataclass(frozen=True)
class PingCounts:
    """What methods read: for each pair of racks and port, int[N] each."""

    src_tor: np.ndarray
    dst_tor: np.ndarray
    sent: np.ndarray
    lost: np.ndarray


class Pings(Measurement):
    """Pings between all pairs of racks."""

    name = "pings"
    view = "pings"
    help = "pings between the first hosts of all racks"
    tables = (PINGS,)

    def start(self, run):
        """Add the pings to a network of packets."""
        return PingRun(run)

    def simulate(self, run, plan):
        """Send the same pings over links that lose packets."""
        src, dst = pairs(run.fabric)
        paths = run.ecmp.draw(src, dst, run.rng(100))
        carried = send(run.loss, paths, np.full(len(src), PACKETS), run.rng(101))
        table = columns(src, dst, np.full(len(src), PACKETS), carried.lost)
        return Simulated({"pings": table}, carried=carried, sent=len(src) * PACKETS)

    def read(self, tables):
        """Return, for each pair of ToRs, the pings sent and lost."""
        return PingCounts(**tables["pings"])  # type: ignore[arg-type]


class PingRun(Running):
    """The pings of a run with packets."""

    def __init__(self, run) -> None:
        fabric, self._tors = run.fabric, pairs(run.fabric)
        src, dst = (tor * fabric.hosts_per_tor for tor in self._tors)  # the first host of each
        frames = np.zeros((len(src), FRAME), np.uint8)
        port = 40_000 + np.arange(len(src)) % PORTS, np.full(len(src), 7)
        addresses = fabric.host_ip[src], fabric.host_ip[dst]
        put_ethernet(frames, fabric, src)
        put_ipv4(frames, ETHERNET, *addresses, UDP, TTL, length=FRAME - ETHERNET)
        put_udp(frames, ETHERNET + IPV4, *port, length=FRAME - ETHERNET - IPV4)
        phase = (np.arange(len(src)) + 0.5) / len(src)
        order, each_ns = np.arange(len(src), dtype=np.uint32), run.duration_s * 1e9 / PACKETS
        when, length = Rounds(order, phase, PACKETS, each_ns), np.full(len(src), FRAME, np.uint16)
        hosts = src.astype(np.int32), dst.astype(np.int32)
        self.sending = (run.add_source(Source(when, frames, length, *hosts)),)

    def tables(self, counts):
        """Return the pings sent and lost until now."""
        number = self.sending[0].number
        return {"pings": columns(*self._tors, counts.sent[number], counts.lost[number])}


def pairs(fabric):
    """Return the racks of each ping, int32[N]: all pairs, each `PORTS` times."""
    src, dst = np.divmod(np.arange(fabric.n_tors**2, dtype=np.int32), fabric.n_tors)
    return src[src != dst].repeat(PORTS), dst[src != dst].repeat(PORTS)


def columns(src_tor, dst_tor, sent, lost):
    """Return the columns of the table."""
    return {"src_tor": src_tor, "dst_tor": dst_tor, "sent": sent, "lost": lost}


class PingShare(Method):
    """Blame links whose possible paths lose far more pings than those of the median link."""

    base = "ping-share"
    views = ("pings",)  # type: ignore[assignment]

    def data(self, telemetry):
        """Return the pings as flows that may have taken any path between their racks."""
        pings, fabric = telemetry.need("pings", self.name), telemetry.topology
        hidden, counts = np.zeros(len(pings.sent), np.bool_), (pings.sent, pings.lost)
        none = PathSets.known(Paths(np.zeros(1, np.int64), np.zeros(0, np.int32)))
        return Flows.of(fabric, pings.src_tor, pings.dst_tor, hidden, none, *counts)

    def infer(self, flows, fabric):
        """Return the diagnosis; a link's score is the share of the pings that may have crossed it
        and were lost."""
        sets = flows.sets.expanded()
        links, owner = sets.paths.links, sets.owner[sets.paths.owner]
        sent, lost = (
            np.bincount(links, np.bincount(flows.path_set, each)[owner], fabric.n_links)
            for each in (flows.sent, flows.lost)
        )
        score = lost / np.maximum(sent, 1)
        return self.diagnosis(fabric, np.flatnonzero(score > 4 * np.median(score)), score=score)

    def measurements(self, telemetry):
        """Return the name of what the method reads."""
        return self.views

    def telemetry_bytes(self, telemetry):
        """Return the bytes of all counts."""
        return 16 * len(telemetry.need("pings", self.name).sent)

    def probe_packets(self, telemetry):
        """Return the number of pings."""
        return int(telemetry.need("pings", self.name).sent.sum())
