"""HashPipe in the switch against a plain model of the published algorithm."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.dataplane import HASHPIPE, HEAVY_HITTER
from testbed.softswitch import Program

from .fabric import Fabric
from .frames import Flow, frame, shimmed

STAGES, ENTRIES = 3, 32
FLOWS = [Flow(0x0A000002, 0x0A030103, 1000 + 37 * i, 80, 6 if i % 2 else 17) for i in range(120)]


@dataclass
class HashPipe:
    """Algorithm 1 of "Heavy-Hitter Detection Entirely in the Data Plane" (SOSR 2017)."""

    stages: list[dict[int, tuple[bytes, int]]] = field(
        default_factory=lambda: [{} for _ in range(STAGES)]
    )

    @staticmethod
    def entry(key: bytes, stage: int) -> int:
        return zlib.crc32(key) >> 5 * stage & ENTRIES - 1

    def insert(self, key: bytes) -> int:
        """Count one packet; returns what the first stage then holds of its flow."""
        first = self.stages[0]
        at = self.entry(key, 0)
        held = first.get(at)
        if held is not None and held[0] == key:
            first[at] = (key, held[1] + 1)
            return held[1] + 1
        first[at] = (key, 1)  # always insert
        carried = held
        for number, stage in enumerate(self.stages[1:], 1):
            if carried is None:
                break
            at = self.entry(carried[0], number)
            held = stage.get(at)
            if held is None:
                stage[at] = carried
                break
            if held[0] == carried[0]:
                stage[at] = (held[0], held[1] + carried[1])
                break
            if held[1] < carried[1]:  # keep the larger, carry the smaller on
                stage[at], carried = carried, held
        return 1


def skewed(seed: int, length: int, skew: float) -> list[int]:
    """Many packets, most of them of few flows, so that entries grow and are pushed out."""
    draws = np.random.default_rng(seed).geometric(skew, length) - 1
    return np.minimum(draws, len(FLOWS) - 1).tolist()


packets = st.one_of(
    st.lists(st.integers(0, len(FLOWS) - 1), min_size=1, max_size=60),
    st.builds(skewed, st.integers(0, 1 << 32), st.integers(500, 3000), st.floats(0.005, 0.2)),
)


@settings(max_examples=100, deadline=None)
@given(sequence=packets)
def check_against_the_model(fabric: Fabric, sequence: list[int]) -> None:
    switch = fabric.switches[fabric.topology.core(0)]
    registers = [
        (switch.register(stage["flow_id"]), switch.register(stage["counts"]))
        for stage in HASHPIPE.stages
    ]
    for flow_id, counts in registers:
        flow_id[:] = 0
        counts[:] = 0
    model = HashPipe()
    for flow in sequence:
        model.insert(FLOWS[flow].key)
    data = b"".join(shimmed(frame(FLOWS[flow]), 0x77) for flow in sequence)
    lengths = [len(shimmed(frame(FLOWS[flow]))) for flow in sequence]
    switch.process_batch(
        np.full(len(sequence), 1, np.uint16),
        np.frombuffer(data, np.uint8),
        np.cumsum([0, *lengths]).astype(np.uint64),
    )
    for stage, (flow_id, counts) in zip(model.stages, registers, strict=True):
        got = {
            i: ((int(flow_id[i]["hi"]) << 64 | int(flow_id[i]["lo"])).to_bytes(13, "big"), int(n))
            for i, n in enumerate(counts)
            if n
        }
        assert got == stage


def test_stages_hold_what_the_published_algorithm_holds(program: Program) -> None:
    check_against_the_model(Fabric(program))


def test_flows_are_reported_when_the_model_counts_eta_packets(program: Program) -> None:
    eta = 4
    fabric = Fabric(program)
    switch = fabric.switches[fabric.topology.core(0)]
    switch.table(HEAVY_HITTER.segments).add(
        [0x77, (eta, 0xFFFFFFFF)], HEAVY_HITTER.report, priority=1
    )
    model = HashPipe()
    rng = np.random.default_rng(11)
    reported = 0
    for flow in np.minimum(rng.geometric(0.05, 3000) - 1, len(FLOWS) - 1):
        count = model.insert(FLOWS[flow].key)
        switch.process(1, shimmed(frame(FLOWS[flow]), 0x77))
        [samples] = switch.digests().values()
        assert len(samples) == (count >= eta)
        reported += len(samples)
    assert reported > 100
