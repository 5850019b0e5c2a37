"""The network of Canary's sections IV-C and IV-G: two monitor switches and a link between them, as
a run of the testbed, and as the switches' own program alone."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scenarios.experiment.backends import open_backend
from scenarios.experiment.loop import run
from scenarios.experiment.observer import Observer
from scenarios.experiment.run import run_config
from scenarios.experiment.settings import make_settings
from scenarios.experiment.setup import set_up
from scenarios.papers.heavy_hitters import EPOCHS, Trace
from testbed.control.forwarding import install_forwarding
from testbed.control.local import LocalSwitch
from testbed.dataplane import FLOW_ID, PROGRAM, VERDICT
from testbed.fabric.pathbf import SegmentDecoder, bloom_mask, switch_ids
from testbed.fabric.two_switches import TwoSwitches
from testbed.faults.plan import FaultPlan
from testbed.network.schedules import Packets
from testbed.network.virtual import LinkModel
from testbed.record.run import RunDirectory, RunWriter
from testbed.softswitch import Program, Switch
from testbed.traffic.flows import MIN_FRAME, UDP, Traffic
from testbed.traffic.packets import ETHERNET, IPV4, put, put_ipv4, put_udp

EPOCH_MS = 100
LENGTH = 46
HOST_PORT, LINK_PORT = 1, 2
UP = 0  # the segment from the first switch to the second

LongArray = npt.NDArray[np.int64]
Frames = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Seen:
    """Of each epoch: ``packets`` counted and flows ``active`` in the meters, and flows for which
    rules were ``installed``; int64[EPOCHS]."""

    packets: LongArray
    active: LongArray
    installed: LongArray


def traffic_of(flow: LongArray, time_ns: npt.NDArray[np.uint64], flows: int, seed: int) -> Traffic:
    """Packets from the first switch's host to the second's, at these times, in order, of so many
    flows; which ports a flow has is drawn."""
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


def watch(trace: Trace, eta: int, alpha: int, seed: int) -> Seen:
    """A run of a trace through two switches that lose nothing: what its record says of epochs."""
    given = {"topology": "two-switch", "faults": "none", "noise": "0", "eta": eta, "alpha": alpha}
    settings = make_settings(given | {"seed": seed, "epochs": EPOCHS, "epoch_ms": EPOCH_MS})
    time_ns = (trace.when * settings.epoch_ns).astype(np.uint64)
    traffic = traffic_of(trace.flow, time_ns, len(trace.size), seed)
    with tempfile.TemporaryDirectory() as folder:
        writer = RunWriter(Path(folder) / "run")
        writer.config(run_config("two-switch", settings))
        with open_backend(settings, TwoSwitches(), LinkModel(), Path(folder)) as backend:
            emulation = set_up(settings, FaultPlan(), traffic, backend)
            run(emulation, writer, Observer())
        table = RunDirectory(writer.partial, finished=False).table("selection")
        writer.abandon()
    here = table["segment"] == UP
    seen = np.zeros((3, EPOCHS), np.int64)
    for row, name in enumerate(("packets", "flows", "installed")):
        seen[row, table["epoch"][here]] = table[name][here]
    return Seen(*seen)


@dataclass(frozen=True)
class Pair:
    """The switches themselves, with nothing around them: ``lower`` sends to ``upper``."""

    lower: Switch
    upper: Switch
    decoder: SegmentDecoder

    @classmethod
    def make(cls, monitor: bool = True) -> Pair:
        """With the program's meters at work, or forwarding alone."""
        fabric = TwoSwitches()
        segments = fabric.segments()
        ids = switch_ids(fabric, segments, 1)
        program = Program.load(PROGRAM, observe=VERDICT.field)
        lower, upper = Switch(program, seed=1), Switch(program, seed=1)
        for index, mask in enumerate(bloom_mask(ids).tolist()):
            control = LocalSwitch((lower, upper)[index])
            install_forwarding(fabric, index, control, mask, monitor)
        return cls(lower, upper, SegmentDecoder(fabric, segments, ids))

    def send(self, frames: Frames, now_us: npt.NDArray[np.uint64]) -> int:
        """Pass a host's frames uint8[n, length] through both switches; how many come out."""
        offsets = frames.shape[1] * np.arange(len(frames) + 1, dtype=np.uint64)
        ports = np.full(len(frames), HOST_PORT, np.uint16)
        out = self.lower.process_batch(ports, frames.reshape(-1), offsets, now_us)
        ports = np.full(len(out.ports), LINK_PORT, np.uint16)
        return len(self.upper.process_batch(ports, out.data, out.offsets, now_us[out.source]).ports)


def frames_of(flows: int, seed: int) -> tuple[Frames, list[int]]:
    """A frame of each of so many flows to the second switch's host, uint8[flows, LENGTH], and the
    flows' IDs."""
    none, (src, dst) = np.zeros(0, np.int64), TwoSwitches().host_ip.tolist()
    traffic = traffic_of(none, none.astype(np.uint64), flows, seed)
    ports = traffic.src_port, traffic.dst_port
    frames = np.zeros((flows, LENGTH), np.uint8)
    put(frames, 12, 0x0800, 2)
    put_ipv4(frames, ETHERNET, src, dst, UDP, ttl=64, length=LENGTH - ETHERNET)
    put_udp(frames, ETHERNET + IPV4, *ports, length=LENGTH - ETHERNET - IPV4)
    pairs = zip(*(port.tolist() for port in ports), strict=True)
    return frames, [FLOW_ID.of(src, dst, near, far, UDP) for near, far in pairs]
