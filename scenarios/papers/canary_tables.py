# SPDX-License-Identifier: Apache-2.0
"""Canary's tables III and IV, the methods' parameters and the resources of a Tofino that a switch
uses; and figure 12, the cost of the program for a packet in software: two monitor switches with a
link between them (section IV-G)."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.methods.canary import Canary
from analysis.methods.flock.flock import Flock
from analysis.methods.netbouncer import NetBouncer
from analysis.solvers.stages import n_stages
from canary_softswitch import Program, Switch
from scenarios.experiment.settings import Settings
from scenarios.papers.canary_localization import ALPHAS, PROBES
from scenarios.papers.experiment import Effort, Row, Task, by_draw, label
from testbed.arrays import LongArray, WordArray
from testbed.control.forwarding import install_forwarding
from testbed.control.local import LocalSwitch
from testbed.dataplane import DSM, FLOW_ID, PROGRAM, USM, VERDICT
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.fabric.pathbf import SegmentDecoder, bloom_mask, switch_ids
from testbed.network.schedules import Packets
from testbed.traffic.flows import MIN_FRAME, UDP, Traffic
from testbed.traffic.packets import ETHERNET, IPV4, put, put_ipv4, put_udp

REPORT = PROGRAM.parents[1] / "tofino" / "REPORT.md"
PARAMETER, UNITS, SHARE = "parameter", "units", "% of the chip"
NAMES = {
    "crossbar bytes": "Match crossbar",
    "gateways": "Gateway",
    "hash bits": "Hash bit",
    "stateful ALUs": "Stateful ALU",
    "SRAM": "SRAM",
    "TCAM": "TCAM",
    "logical tables": "Logical Table IDs",
}


def table_3(effort: Effort) -> Mapping[str, Task]:
    """Return the task that lists the parameters in table III."""
    return {"parameters": parameters}


def table_4(effort: Effort) -> Mapping[str, Task]:
    """Return the task that lists the resources in table IV."""
    return {"report": resources}


def parameters() -> list[Row]:
    """Return the parameters of the methods in the experiments of figures 8 and 9."""
    flock, settings = Flock.canary_table_iii(), Settings()
    prior = float(flock.link_prior or 0.0)
    ours = {
        ("NetBouncer", "probe packets"): PROBES,
        ("NetBouncer", "λ"): NetBouncer(penalty=1.0).penalty,
        ("Flock", "p_b"): flock.p_bad,
        ("Flock", "p_g"): flock.p_good,
        ("Flock", "ρ"): 1 / (1 + math.exp(-prior)),
        ("Canary", "λ"): Canary().penalty,
        ("Canary", "α, least"): min(ALPHAS),
        ("Canary", "α, most"): max(ALPHAS),
        ("Canary", "β"): settings.beta,
        ("Canary", "δ"): settings.delta,
        ("Canary", "η"): settings.eta,
        ("Canary", "groups"): n_stages(Canary().groups),
    }
    return [Row(PARAMETER, series, x, 0, float(value or 0)) for (series, x), value in ours.items()]


def resources() -> list[Row]:
    """Return the resources of each profile in the committed report, in units and in percent of the
    chip."""
    rows = []
    for line in REPORT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = NAMES.get(cells[0])
        if name is None or len(cells) != 5:
            continue
        for series, cell in zip(("transit switch", "monitor switch"), cells[1:3], strict=True):
            used, share = re.findall(r"[\d.]+", cell)
            rows.append(Row(UNITS, series, name, 0, float(used)))
            rows.append(Row(SHARE, series, name, 0, float(share)))
    return rows


LENGTH = 46
HOST_PORT, LINK_PORT = 1, 2
FLOWS = (0, 20, 400, 1000)
RATE, RATIO = "packet-hops/s of one core", "monitor / plain forwarding"
BATCH = 4096

Frames = npt.NDArray[np.uint8]


def traffic_of(flow: LongArray, time_ns: WordArray, flows: int, seed: int) -> Traffic:
    """Return packets of ``flows`` flows from the first switch's host to the second's, at the given
    times, which ascend; the flows' ports are random."""
    rng = np.random.default_rng([seed, 7])
    ports = rng.choice(1 << 32, flows, replace=False).astype(np.uint32)
    size = np.full(len(flow), MIN_FRAME, np.uint16)
    return Traffic(
        src_host=np.zeros(flows, np.int32),
        dst_host=np.ones(flows, np.int32),
        src_port=(ports >> 16).astype(np.uint16),
        dst_port=(ports & 0xFFFF).astype(np.uint16),
        protocol=np.full(flows, UDP, np.uint8),
        packets=Packets(time_ns, flow.astype(np.uint32), size),
    )


@dataclass(frozen=True)
class Pair:
    """Two switches without a network around them: ``lower`` sends to ``upper``."""

    lower: Switch
    upper: Switch
    decoder: SegmentDecoder

    @classmethod
    def make(cls, monitor: bool = True) -> Pair:
        """Return a pair whose meters are active, or, without ``monitor``, a pair that only
        forwards."""
        fabric = TwoSwitches()
        segments = fabric.segments()
        ids = switch_ids(fabric, segments, 1)
        program = Program.load(PROGRAM, observe=VERDICT.field)
        lower, upper = Switch(program, seed=1), Switch(program, seed=1)
        for index, mask in enumerate(bloom_mask(ids).tolist()):
            control = LocalSwitch((lower, upper)[index])
            install_forwarding(fabric, index, control, mask, monitor)
        return cls(lower, upper, SegmentDecoder(fabric, segments, ids))

    def send(self, frames: Frames, now_us: WordArray) -> int:
        """Pass a host's frames, uint8[n, length], through both switches; return how many come
        out."""
        offsets = frames.shape[1] * np.arange(len(frames) + 1, dtype=np.uint64)
        ports = np.full(len(frames), HOST_PORT, np.uint16)
        out = self.lower.process_batch(ports, frames.reshape(-1), offsets, now_us)
        ports = np.full(len(out.ports), LINK_PORT, np.uint16)
        return len(self.upper.process_batch(ports, out.data, out.offsets, now_us[out.source]).ports)


def frames_of(flows: int, seed: int) -> tuple[Frames, list[int]]:
    """Return a frame of each of ``flows`` flows to the second switch's host, uint8[flows, LENGTH],
    and the flow IDs."""
    none, (src, dst) = np.zeros(0, np.int64), TwoSwitches().host_ip.tolist()
    traffic = traffic_of(none, none.astype(np.uint64), flows, seed)
    ports = traffic.src_port, traffic.dst_port
    frames = np.zeros((flows, LENGTH), np.uint8)
    put(frames, 12, 0x0800, 2)
    put_ipv4(frames, ETHERNET, src, dst, UDP, ttl=64, length=LENGTH - ETHERNET)
    put_udp(frames, ETHERNET + IPV4, *ports, length=LENGTH - ETHERNET - IPV4)
    pairs = zip(*(port.tolist() for port in ports), strict=True)
    return frames, [FLOW_ID.of(src, dst, near, far, UDP) for near, far in pairs]


def figure_12(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 12, one for each draw."""
    return by_draw(effort, costs, 2 if effort.small else 20)


def costs(draw: int, turns: int) -> list[Row]:
    """Return the best rate of ``turns`` repetitions in packet-hops per second, with some of 4,096
    flows monitored on both switches."""
    frames, ids = frames_of(BATCH, draw)
    now, rows = np.zeros(BATCH, np.uint64), []

    def rate(pair: Pair) -> float:
        """Return the best rate of a pair of switches, in packet-hops per second of processor
        time."""
        seconds = []
        for _ in range(turns):
            begin = time.process_time()
            assert pair.send(frames, now) == BATCH
            seconds.append(time.process_time() - begin)
        return 2 * BATCH / max(min(seconds), 1e-9)

    plain, monitor = Pair.make(monitor=False), Pair.make()
    forwards = rate(plain)
    rows.append(Row(RATE, "plain forwarding", label(0), draw, forwards))
    path_bf = int(monitor.decoder.path_bf[0])
    for before, flows in zip((0, *FLOWS), FLOWS, strict=False):
        for each in ids[before:flows]:
            monitor.upper.table(DSM.rules).add([each, path_bf], DSM.monitor)
            monitor.lower.table(USM.rules).add([each], USM.monitor)
        found = rate(monitor)
        rows.append(Row(RATE, "monitor switches", label(flows), draw, found))
        rows.append(Row(RATIO, "the soft switch", label(flows), draw, found / forwards))
    return rows
