# SPDX-License-Identifier: Apache-2.0
"""What the Tofino profile does otherwise than the v1model program gives the same measurement.

No software model of the chip is run here, and no chip. Two things stand in for it: the v1model
program built with Tofino's hashes (p4/build/tofino_choices.json), and a plain model of the
profile's arrays, each of which a packet may touch once and only in order.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary_softswitch import Program, Switch
from testbed.dataplane import DSM, HASHPIPE, HEAVY_HITTER, USM, VERDICT, Meter

from .conftest import P4
from .fabric import Bucket, Fabric, bucket, monitor_dsm, monitor_usm
from .frames import TCP, UDP, Flow, checksum, crc16, frame, ipv4, shimmed

STAGES, ENTRIES = 3, 32


@pytest.fixture(scope="module")
def tofino_choices() -> Program:
    """The v1model program with the Tofino profile's hashes."""
    return Program.load(P4 / "build" / "tofino_choices.json", observe=VERDICT.field)


# ---- the profile's arrays ------------------------------------------------------------------------


class Array:
    """A register array of the target: one access a packet, no earlier than the one before."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.values: dict[int, tuple[int, ...]] = {}
        self._pipeline = pipeline
        self._number = pipeline.arrays
        pipeline.arrays += 1

    def execute(
        self, at: int, width: int, action: Callable[[tuple[int, ...]], tuple[tuple[int, ...], Any]]
    ) -> Any:
        """Run an action, from the value to the new value and a result, on one element."""
        assert self._number > self._pipeline.reached, "a packet cannot go back to an array"
        self._pipeline.reached = self._number
        self.values[at], result = action(self.values.get(at, (0,) * width))
        return result


@dataclass
class Pipeline:
    """How far the packet came."""

    arrays: int = 0
    reached: int = -1

    def packet(self) -> None:
        self.reached = -1


class Row:
    """A meter row as in p4/tofino/include/dsm.p4 and usm.p4 (whose pathBF is always 0, and which
    expects all flows that it counts)."""

    def __init__(self) -> None:
        self.pipeline = Pipeline()
        arrays = [Array(self.pipeline) for _ in range(4)]
        self.count, self.addresses, self.ports_and_path, self.protocol_and_dirty = arrays

    def packet(self, flow: Flow, path_bf: int, at: int, expected: bool = True) -> None:
        self.pipeline.packet()
        addresses, ports = (flow.src, flow.dst), (flow.src_port << 16 | flow.dst_port, path_bf)
        if self.count.execute(at, 1, lambda v: ((v[0] + 1,), v[0])) == 0:
            self.addresses.execute(at, 2, lambda _: (addresses, None))
            self.ports_and_path.execute(at, 2, lambda _: (ports, None))
            self.protocol_and_dirty.execute(
                at, 2, lambda v: ((flow.protocol, v[1] if expected else 1), None)
            )
            return
        same = self.addresses.execute(at, 2, lambda v: (v, v == addresses))
        same_too = self.ports_and_path.execute(at, 2, lambda v: (v, v == ports))
        if same and same_too and expected:
            self.protocol_and_dirty.execute(
                at, 2, lambda v: ((v[0], v[1] | (v[0] != flow.protocol)), None)
            )
        else:
            self.protocol_and_dirty.execute(at, 2, lambda v: ((v[0], 1), None))

    def bucket(self, at: int) -> Bucket:
        (src, dst), (ports, path_bf) = self.addresses.values[at], self.ports_and_path.values[at]
        protocol, dirty = self.protocol_and_dirty.values[at]
        flow_id = src << 72 | dst << 40 | ports << 8 | protocol
        return Bucket(flow_id, self.count.values[at][0], bool(dirty), path_bf)


def crowd(n: int) -> list[Flow]:
    """Flows which meet in buckets of row 0, and each its twin of the other protocol."""
    flows: list[Flow] = []
    at: set[int] = set()
    for port in range(1, 65536):
        flow = Flow(0x0A000002, 0x0A030103, port, 80, UDP)
        if flow.bucket(0) in at or len(at) < n:
            at.add(flow.bucket(0))
            flows += [flow, Flow(flow.src, flow.dst, port, 80, TCP)]
        if len(flows) >= 6 * n:
            return flows
    raise AssertionError("too few flows")


CROWD = crowd(4)
EXPECTED = (0x21, 0x84)
PATHS = (*EXPECTED, 0x48)  # the flows have rules on all but the last
journeys = st.lists(
    st.tuples(
        st.integers(0, len(CROWD) - 1), st.sampled_from([0, 0, 0, 1, 1, 2]), st.integers(0, 1)
    ),
    min_size=1,
    max_size=80,
)


def clear(switch: Switch, meter: Meter) -> None:
    for row in meter.rows:
        for name in row.values():
            switch.register(name)[:] = 0


def run_both(
    switch: Switch, meter: Meter, sequence: list[tuple[int, int, int]], rows: list[Row]
) -> None:
    for number, path, parity in sequence:
        flow, path_bf = CROWD[number], PATHS[path] if meter == DSM else 0
        if meter == DSM:
            switch.process(1, shimmed(frame(flow), path_bf, counted=1, parity=parity))
        else:
            parity = path = 0
            switch.process(1, frame(flow))
        for i, row in enumerate(rows):
            row.packet(flow, path_bf, flow.bucket(i, parity), path < len(EXPECTED))


@pytest.mark.parametrize("meter", [DSM, USM])
def test_arrays_touched_once_and_in_order_make_the_buckets_of_v1model(
    tofino_choices: Program, meter: Meter
) -> None:
    switch = Fabric(tofino_choices).switches[0]
    for flow in CROWD:
        for path_bf in EXPECTED if meter == DSM else ():
            monitor_dsm(switch, flow.id, path_bf)
        if meter == USM:
            monitor_usm(switch, flow.id)

    @settings(max_examples=60, deadline=None)
    @given(sequence=journeys)
    def check(sequence: list[tuple[int, int, int]]) -> None:
        clear(switch, meter)
        rows = [Row() for _ in range(3)]
        run_both(switch, meter, sequence, rows)
        for i, row in enumerate(rows):
            used = np.flatnonzero(switch.register(meter.rows[i]["count"]))
            assert used.tolist() == sorted(row.count.values)
            for at in used.tolist():
                assert row.bucket(at) == bucket(switch, meter, i, at)

    check()


@dataclass
class HashPipe:
    """p4/tofino/include/hashpipe.p4: a later stage has its counts twice, in two arrays."""

    pipeline: Pipeline = field(default_factory=Pipeline)

    def __post_init__(self) -> None:
        self.arrays = [Array(self.pipeline) for _ in range(2 * STAGES)]

    def insert(self, flow: int) -> int:
        """Count one packet of the flow of this CRC32; the count that the packet learns."""
        self.pipeline.packet()
        at = flow & ENTRIES - 1
        ids, counts = self.arrays[:2]
        carried = ids.execute(at, 1, lambda v: ((flow,), v[0]))
        if carried == flow:
            learned = counts.execute(at, 1, lambda v: ((v[0] + 1,), v[0] + 1))
            for stage in (1, 2):
                learned = self._add_up(stage, flow, learned)
            return learned
        weight = counts.execute(at, 1, lambda v: ((1,), v[0]))
        for stage in (1, 2):
            if weight:
                carried, weight = self._push(stage, carried, weight)
        return 1

    def _add_up(self, stage: int, flow: int, learned: int) -> int:
        """What the stages up to this one hold of a flow, of what those before it hold."""
        at = flow >> 5 * stage & ENTRIES - 1
        if self.arrays[2 * stage].execute(at, 2, lambda v: (v, v[0])) != flow:
            return learned
        return self.arrays[2 * stage + 1].execute(at, 1, lambda v: (v, v[0] + learned))

    def _push(self, stage: int, carried: int, weight: int) -> tuple[int, int]:
        """What goes on to the next stage."""
        at = carried >> 5 * stage & ENTRIES - 1

        def keep_larger(v: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
            if v[0] == carried:
                return (v[0], v[1] + weight), v[0]
            return ((carried, weight) if v[1] < weight else v), v[0]

        found = self.arrays[2 * stage].execute(at, 2, keep_larger)
        counts = self.arrays[2 * stage + 1]
        if found == carried:
            counts.execute(at, 1, lambda v: ((v[0] + weight,), None))
            return carried, 0
        evicted = counts.execute(at, 1, lambda v: ((weight,), v[0]) if v[0] < weight else (v, 0))
        if evicted:
            return found, evicted
        return carried, weight if found else 0

    def entries(self, stage: int) -> dict[int, tuple[int, int]]:
        first, second = self.arrays[2 * stage].values, self.arrays[2 * stage + 1].values
        if stage:
            copies = [{at: v[-1] for at, v in each.items() if v[-1]} for each in (first, second)]
            assert copies[0] == copies[1], "the copies of the counts differ"
        return {at: (first[at][0], count) for at, (count,) in second.items() if count}


def pipe_entries(switch: Switch, stage: int) -> dict[int, tuple[int, int]]:
    """Entry to (flow, count) of one HashPipe stage; a flow is a CRC32 or a whole ID."""
    ids = switch.register(HASHPIPE.stages[stage]["flow_id"])
    counts = switch.register(HASHPIPE.stages[stage]["counts"])
    whole = ids.dtype.names is not None
    return {
        int(at): (int(ids[at]["hi"]) << 64 | int(ids[at]["lo"]) if whole else int(ids[at]), int(n))
        for at, n in enumerate(counts)
        if n
    }


def skewed(seed: int, length: int, n_flows: int = 150) -> list[Flow]:
    """Packets of flows of which few are large, so that entries grow and are pushed out."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, 1 << 32, n_flows)
    draws = np.minimum(rng.geometric(0.04, length) - 1, n_flows - 1)
    return [Flow(int(src[i]), 0x0A030103, 1000 + int(i), 80) for i in draws]


def send_all(switch: Switch, packets: list[Flow], path_bf: int = 0x77) -> None:
    frames = [shimmed(frame(flow), path_bf) for flow in packets]
    switch.process_batch(
        np.full(len(frames), 1, np.uint16),
        np.frombuffer(b"".join(frames), np.uint8),
        np.cumsum([0, *map(len, frames)]).astype(np.uint64),
    )


def reported(switch: Switch) -> set[int]:
    """Source addresses of the flows that it reported; each once, as digests are learned."""
    [samples] = switch.digests().values()
    return {row[0] for row in samples.tolist()}


def core_of(program: Program) -> Switch:
    fabric = Fabric(program)
    return fabric.switches[fabric.topology.core(0)]


@pytest.mark.parametrize("seed", range(8))
def test_hashpipe_of_arrays_touched_once_holds_what_v1model_holds(
    program: Program, tofino_choices: Program, seed: int
) -> None:
    packets, eta = skewed(seed, 4000), 8
    switch, exact, model = core_of(tofino_choices), core_of(program), HashPipe()
    for each in (switch, exact):
        ask = [0x77, (eta + 1, 0xFFFF)]
        each.table(HEAVY_HITTER.segments).add(ask, HEAVY_HITTER.report, priority=1)
        send_all(each, packets)
    large = {flow.src for flow in packets if model.insert(zlib.crc32(flow.key)) > eta}
    assert large == reported(switch) == reported(exact)
    assert 20 < len(large) < 100
    for stage in range(STAGES):
        assert model.entries(stage) == pipe_entries(switch, stage)
        # Whole IDs lie where their CRC32 do, with the same counts.
        assert pipe_entries(switch, stage) == {
            at: (zlib.crc32(flow.to_bytes(13, "big")), count)
            for at, (flow, count) in pipe_entries(exact, stage).items()
        }


# ---- the checksum --------------------------------------------------------------------------------


def test_checksum_updated_for_the_ttl_is_the_checksum_computed_anew() -> None:
    seen = set()
    for identification in range(1 << 16):  # so every checksum there is
        before = bytearray(ipv4(0x0A000002, 0x0A030103, UDP, ttl=64, identification=identification))
        old = int.from_bytes(before[10:12], "big")
        # p4/tofino/include/expiry.p4
        new = old + (0x101 if old >= 0xFEFF else 0x100) & 0xFFFF
        before[8] -= 1
        before[10:12] = b"\0\0"
        assert checksum(bytes(before[:20])) == new
        seen.add(old)
    assert len(seen) == 0xFFFF


# ---- CRC32 in place of the flow ID, in HashPipe only ---------------------------------------------


def test_flows_of_one_crc_are_one_flow_to_hashpipe_and_two_to_the_meters(
    program: Program, tofino_choices: Program
) -> None:
    flow = Flow(0x0A000002, 0x0A030103, 1000, 80, UDP)
    twin = twin_of(flow)
    assert twin != flow and zlib.crc32(twin.key) == zlib.crc32(flow.key)
    packets = [flow, twin, flow, twin, flow]
    merged, apart = core_of(tofino_choices), core_of(program)
    for switch in (merged, apart):
        monitor_dsm(switch, flow.id, 0x77)
        for packet in packets:
            switch.process(1, shimmed(frame(packet), 0x66))  # not this segment: to HashPipe
            switch.process(1, shimmed(frame(packet), 0x77, counted=packet == flow))
        # The meters keep whole IDs: the twin has no rule, here and at its upstream.
        assert bucket(switch, DSM, 0, flow.bucket(0)) == Bucket(flow.id, 3, False, 0x77)
    # All that HashPipe saw of both: 5 packets of the segment 0x66, 2 of the twin on 0x77.
    assert [count for _, count in pipe_entries(merged, 0).values()] == [7]
    held = Counter()
    for stage in range(STAGES):
        for flow_id, count in pipe_entries(apart, stage).values():
            held[flow_id] += count
    assert held == {flow.id: 3, twin.id: 4}


def twin_of(flow: Flow) -> Flow:
    """Another flow of the same CRC32, which is linear: some bits' changes cancel each other."""
    basis: list[tuple[int, int]] = []  # (change of the CRC, bits that make it), by top bit
    for bit in (1 << i for i in range(24, 104)):  # source port and both addresses
        change = zlib.crc32((flow.id ^ bit).to_bytes(13, "big")) ^ zlib.crc32(flow.key)
        for other, bits in basis:
            if change ^ other < change:
                change, bit = change ^ other, bit ^ bits
        if not change:
            twin = flow.id ^ bit
            ports = twin >> 24 & 0xFFFF, twin >> 8 & 0xFFFF
            return Flow(twin >> 72, twin >> 40 & 0xFFFFFFFF, *ports, flow.protocol)
        basis.append((change, bit))
        basis.sort(reverse=True)
    raise AssertionError("more than 32 independent changes of 32 bits")


def test_crc32_of_flows_collide_as_rarely_as_32_random_bits() -> None:
    # P = 2^-32 a pair, as docs/reference/p4.md says: 18.6 pairs of 400,000 flows.
    n = 400_000
    rng = np.random.default_rng(5)
    keys = np.zeros((n, 13), np.uint8)
    keys[:, :4] = rng.integers(0, 256, (n, 4))
    keys[:, 4:8] = (10, 3, 1, 3)
    keys[:, 8:12] = rng.integers(0, 256, (n, 4))
    keys[:, 12] = TCP
    data = keys.tobytes()
    different = {data[at : at + 13] for at in range(0, len(data), 13)}
    crc = np.sort([zlib.crc32(key) for key in different])
    expected = len(different) ** 2 / 2 / 2**32
    assert abs(int((np.diff(crc) == 0).sum()) - expected) < 4 * math.sqrt(expected)


# ---- ECMP by sums of CRCs ------------------------------------------------------------------------


def windows(flow: Flow) -> tuple[int, int]:
    """What a ToR and an aggregation switch choose by, as in p4/tofino/include/routing.p4."""
    mixed = crc16(flow.key) + (zlib.crc32(flow.key) >> 16) & 0xFFFF
    mixed = mixed + (mixed >> 5 | mixed << 11 & 0xFFFF) & 0xFFFF
    return mixed >> 8, mixed & 0xFF


def test_uplinks_are_chosen_by_the_documented_sums(tofino_choices: Program) -> None:
    fabric = Fabric(tofino_choices)
    for port in range(64):
        flow = Flow(fabric.host_ip(0), fabric.host_ip(15), 20_000 + port, 80)
        tor, agg, core, *_ = fabric.send(0, frame(flow)).switches
        at_tor, at_agg = windows(flow)
        topology = fabric.topology
        ups = [
            [
                int(d)
                for s, d in zip(topology.link_src[::2], topology.link_dst[::2], strict=True)
                if s == x
            ]
            for x in (tor, agg)
        ]
        assert agg == ups[0][at_tor % 2]
        assert core == ups[1][at_agg % 2]


@pytest.mark.parametrize("step", [(1, 0), (0, 1), (1, 1), (2, 0)])
@pytest.mark.parametrize("half", [2, 4, 8])
def test_consecutive_ports_take_all_paths_about_equally(half: int, step: tuple[int, int]) -> None:
    ratios = []
    for start in range(40):
        flows = [
            Flow(0x0A000002, 0x0A030003, 10_000 + 977 * start + step[0] * i, 5001 + step[1] * i)
            for i in range(16 * half * half)
        ]
        chosen = np.array([windows(flow) for flow in flows]) % half
        counts = np.bincount(chosen[:, 0] * half + chosen[:, 1], minlength=half * half)
        ratios.append((((counts - 16) ** 2).sum() / 16) / (half * half - 1))
        assert (counts > 0).all(), "a path is left unused"
    # Chi-square over its degrees of freedom: 1 of random choices, 16 or so of a linear hash.
    assert 0.2 < np.mean(ratios) < 2.5


def test_the_path_of_a_flow_says_nothing_about_its_buckets() -> None:
    rng = np.random.default_rng(8)
    flows = [
        Flow(int(a), int(b), int(p), int(q), TCP)
        for a, b, p, q in zip(
            rng.integers(0, 1 << 32, 40_000),
            rng.integers(0, 1 << 32, 40_000),
            *rng.integers(1024, 65536, (2, 40_000)),
            strict=True,
        )
    ]
    one_path = [flow for flow in flows if windows(flow)[0] % 4 == 1 and windows(flow)[1] % 4 == 2]
    assert len(one_path) == pytest.approx(2500, rel=0.08)
    for row in range(3):
        counts = np.bincount([flow.bucket(row) for flow in one_path], minlength=1024)
        mean = len(one_path) / 1024
        chi2 = ((counts - mean) ** 2).sum() / mean
        assert abs(chi2 - 1023) < 5 * math.sqrt(2 * 1023)
