# SPDX-License-Identifier: Apache-2.0
"""Canary's meters of any width, `scenarios.papers.sketches.meters`, against those of the switch."""

from __future__ import annotations

import numpy as np
import pytest

from canary_softswitch import Program, Switch
from scenarios.papers.sketches.meters import FlowMeter, minus
from testbed.dataplane import BUCKETS, DSM, ROWS, USM, Meter

from .fabric import Fabric, monitor_dsm, monitor_usm
from .frames import Flow, frame, shimmed
from .test_theorem2 import random_flows


def count_in_the_switch(
    program: Program, meter: Meter, flows: list[Flow], sequence: np.ndarray
) -> Switch:
    """A switch whose meter saw these packets of these flows."""
    switch = Fabric(program).switches[0]
    for flow in flows:
        if meter == USM:
            monitor_usm(switch, flow.id)
        else:
            monitor_dsm(switch, flow.id, 1)
    frames = [frame(flow) if meter == USM else shimmed(frame(flow), 1, 1) for flow in flows]
    offsets = np.cumsum([0] + [len(frames[flow]) for flow in sequence]).astype(np.uint64)
    data = np.frombuffer(b"".join(frames[flow] for flow in sequence), np.uint8)
    switch.process_batch(np.full(len(sequence), 1, np.uint16), data, offsets)
    return switch


def model_of(flows: list[Flow], sequence: np.ndarray) -> FlowMeter:
    places = np.array([[flow.bucket(row) for row in range(ROWS)] for flow in flows], np.int32)
    model = FlowMeter(places, BUCKETS)
    model.add(sequence, np.ones(len(sequence), np.int64))
    return model


@pytest.mark.parametrize("meter", [USM, DSM])
def test_buckets_are_those_of_the_switch(program: Program, meter: Meter) -> None:
    rng = np.random.default_rng(3)
    flows = random_flows(rng, 400)
    sequence = np.minimum(rng.geometric(0.01, 4000) - 1, len(flows) - 1)
    switch = count_in_the_switch(program, meter, flows, sequence)
    model = model_of(flows, sequence)
    ids = np.array([flow.id & (1 << USM.half_bits) - 1 for flow in flows], np.uint64)
    for row in range(ROWS):
        fields = {name: switch.register(field) for name, field in meter.rows[row].items()}
        used = model.owner[row] >= 0
        assert model.count[row].tolist() == fields["count"][:BUCKETS].tolist()
        assert model.dirty[row].tolist() == (fields["dirty"][:BUCKETS] != 0).tolist()
        assert (fields["flow_lo"][:BUCKETS][used] == ids[model.owner[row][used]]).all()
    assert model.dirty.any()


def test_what_the_switches_say_of_losses_the_models_say(program: Program) -> None:
    """Both ends, of which one saw fewer packets: the same flows are clean, with the same counts."""
    rng = np.random.default_rng(4)
    flows = random_flows(rng, 300)
    sequence = rng.integers(0, len(flows), 3000)
    arrived = sequence[rng.random(len(sequence)) > 0.1]
    sent, lost, known = minus(model_of(flows, sequence), model_of(flows, arrived))
    up = count_in_the_switch(program, USM, flows, sequence)
    down = count_in_the_switch(program, DSM, flows, arrived)
    for number in np.flatnonzero(known):
        rows = [
            row
            for row in range(ROWS)
            if not up.register(USM.rows[row]["dirty"])[flows[number].bucket(row)]
            and not down.register(DSM.rows[row]["dirty"])[flows[number].bucket(row)]
        ]
        at = flows[number].bucket(rows[0])
        counts = [
            int(switch.register(meter.rows[rows[0]]["count"])[at])
            for switch, meter in ((up, USM), (down, DSM))
        ]
        assert counts == [sent[number], sent[number] - lost[number]]
    assert known.sum() > 250 and lost.sum() > 200
