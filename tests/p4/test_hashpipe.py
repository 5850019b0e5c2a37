# SPDX-License-Identifier: Apache-2.0
"""HashPipe in the switch against the model of any size, `scenarios.papers.sketches.hashpipe`."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary_softswitch import Program
from scenarios.papers.sketches.hashpipe import HashPipe
from testbed.dataplane import HASHPIPE, HEAVY_HITTER

from .fabric import Fabric
from .frames import Flow, frame, shimmed

STAGES, ENTRIES = 3, 32
FLOWS = [Flow(0x0A000002, 0x0A030103, 1000 + 37 * i, 80, 6 if i % 2 else 17) for i in range(120)]


PLACES = np.array(
    [[zlib.crc32(flow.key) >> 5 * stage & ENTRIES - 1 for stage in range(STAGES)] for flow in FLOWS]
)
NUMBER = {flow.id: number for number, flow in enumerate(FLOWS)}


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
    model = HashPipe(PLACES, ENTRIES)
    model.add(np.array(sequence))
    data = b"".join(shimmed(frame(FLOWS[flow]), 0x77) for flow in sequence)
    lengths = [len(shimmed(frame(FLOWS[flow]))) for flow in sequence]
    switch.process_batch(
        np.full(len(sequence), 1, np.uint16),
        np.frombuffer(data, np.uint8),
        np.cumsum([0, *lengths]).astype(np.uint64),
    )
    for stage, (flow_id, counts) in enumerate(registers):
        held = np.flatnonzero(counts)
        ids = [int(flow_id[i]["hi"]) << 64 | int(flow_id[i]["lo"]) for i in held]
        owner = np.full(ENTRIES, -1)
        owner[held] = [NUMBER[each] for each in ids]
        assert owner.tolist() == model.flow[stage].tolist()
        assert counts.tolist() == model.count[stage].tolist()


def test_stages_hold_what_the_published_algorithm_holds(program: Program) -> None:
    check_against_the_model(Fabric(program))


@pytest.mark.parametrize("seed", range(3))
def test_a_flow_is_reported_when_all_stages_together_hold_more_than_eta_packets(
    program: Program, seed: int
) -> None:
    """Most packets of a flow of middle size find it in a later stage."""
    eta = 6
    fabric = Fabric(program)
    switch = fabric.switches[fabric.topology.core(0)]
    switch.table(HEAVY_HITTER.segments).add(
        [0x77, (eta + 1, 0xFFFFFFFF)], HEAVY_HITTER.report, priority=1
    )
    model = HashPipe(PLACES, ENTRIES)
    rng = np.random.default_rng(seed)
    reported = later = 0
    for flow in np.minimum(rng.geometric(0.03, 3000) - 1, len(FLOWS) - 1).tolist():
        [count] = model.add(np.array([flow]))
        switch.process(1, shimmed(frame(FLOWS[flow]), 0x77))
        [samples] = switch.digests().values()
        assert len(samples) == (count > eta)
        reported += len(samples)
        later += len(samples) and model.count[0, PLACES[flow, 0]] <= eta
    assert reported > 100
    assert later > reported / 2  # the first stage alone would not have told
