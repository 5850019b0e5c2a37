# SPDX-License-Identifier: Apache-2.0
"""Meters at both ends of links, on packets: what they decode is what the network lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.methods.per_link_loss import PerLinkLoss
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry
from canary import run
from canary_softswitch import Program, Switch
from testbed.control.epochs import set_parity
from testbed.control.forwarding import install_forwarding
from testbed.dataplane import ARRIVING, FLOW_ID, LEAVING, PROGRAM, VERDICT
from testbed.errors import UserError
from testbed.fabric.fat_tree import FatTree
from testbed.measurements.link_meters import LinkLosses, LinkMeters
from testbed.measurements.measurement import Measurement
from testbed.measurements.programs import switch_program
from testbed.measurements.registry import chosen, find_measurement
from testbed.measurements.sketches.fermat import FermatSketch
from testbed.measurements.sketches.hashing import SWITCH
from testbed.measurements.sketches.loss_radar import LossRadar, signatures
from testbed.record.run import RunDirectory
from tests.p4.frames import TCP, UDP, Flow, ethernet, ipv4, l4

METERS = "loss_radar", "fermat"
PLANES = (*METERS, "flow_radar")
SMALL: dict[str, Any] = {"k": 4, "epochs": 2, "epoch_ms": 200, "load": 0.3, "noise": "0..0.001"}
K4 = FatTree(4)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with each of the meters, all of the same seed."""
    folder = tmp_path_factory.mktemp("meters")
    for meter in PLANES:
        methods = f"per-link-loss:meter={meter},canary"
        run(path=folder / meter, methods=methods, faults="10pct", seed=3, **SMALL)
    return {meter: folder / meter for meter in PLANES}


def decoded(record: RunDirectory) -> Counter[tuple[int, int]]:
    """The packets of each flow that each link lost, by flow ID, as the measurement says."""
    found: Counter[tuple[int, int]] = Counter()
    table = record.table("link_losses")
    columns = (table[name].tolist() for name in ("link", "flow_hi", "flow_lo", "lost"))
    for link, hi, lo, packets in zip(*columns, strict=True):
        found[link, hi << 64 | lo] += packets
    return found


def lost(record: RunDirectory, until_ns: int = 10**12) -> Counter[tuple[int, int]]:
    """The packets of each flow that each fabric link lost, by flow ID, as the network knows."""
    flows, drops = record.table("flows"), record.table("drops")
    ends = [flows[name].tolist() for name in ("src_host", "dst_host")]
    ips = [record.fabric.host_ip[end].tolist() for end in ends]  # type: ignore[union-attr]
    rest = [flows[name].tolist() for name in ("src_port", "dst_port", "protocol")]
    ids = [FLOW_ID.of(*five) for five in zip(*ips, *rest, strict=True)]
    inside = (drops["link"] < record.fabric.n_links) & (drops["time_ns"] < until_ns)
    pairs = zip(drops["link"][inside].tolist(), drops["flow"][inside].tolist(), strict=True)
    return Counter((link, ids[flow]) for link, flow in pairs)


@pytest.mark.parametrize("meter", METERS)
def test_every_lost_packet_is_decoded_with_its_flow_and_link(
    meter: str, runs: dict[str, Path]
) -> None:
    record = RunDirectory(runs[meter])
    found = decoded(record)
    end_ns = SMALL["epochs"] * SMALL["epoch_ms"] * 10**6  # what is on its way then is not read
    assert lost(record, end_ns - 5 * 10**6) <= found <= lost(record)
    assert found.total() > 500
    counts = record.table("link_counts")
    assert counts["decoded"].tolist() == counts["lost"].tolist()
    assert len(counts["link"]) == SMALL["epochs"] * record.fabric.n_links
    assert counts["sent"].sum() > 0.9 * record.table("links")["packets"].sum()


def test_flow_radar_finds_what_flows_lost_that_both_switches_have(runs: dict[str, Path]) -> None:
    """A flow of which no packet came to the next switch is missing, and no loss is made up."""
    record = RunDirectory(runs["flow_radar"])
    found, truth = decoded(record), lost(record)
    assert found <= truth
    assert found.total() > 0.9 * truth.total() > 500
    counts, links = record.table("link_counts"), record.table("links")
    assert counts["sent"].sum() > 0.9 * links["packets"].sum()
    assert len(counts["link"]) == SMALL["epochs"] * record.fabric.n_links


def test_meters_are_no_load_and_change_no_packet(runs: dict[str, Path], tmp_path: Path) -> None:
    """Canary measures the same beside them as alone."""
    run(path=tmp_path / "alone", methods="canary", faults="10pct", seed=3, **SMALL)
    alone = RunDirectory(tmp_path / "alone")
    for meter in PLANES:
        beside = RunDirectory(runs[meter])
        for name in ("flows", "links", "drops", "rules", "segments"):
            one, other = alone.table(name), beside.table(name)
            for column in one:
                assert np.array_equal(one[column], other[column]), (meter, name, column)


@pytest.mark.parametrize("meter", PLANES)
def test_its_method_finds_the_faulty_links(meter: str, runs: dict[str, Path]) -> None:
    record = RunDirectory(runs[meter])
    verdict = record.table(f"diagnoses/per-link-loss:meter={meter}")
    sent, dropped = (record.table("links")[name] for name in ("packets", "fault_drops"))
    plainly = (dropped > 20) & (dropped > 0.005 * sent)
    assert plainly.any() and np.asarray(verdict["flagged"])[plainly].all()


WIDTH = 33


def model(meter: str, ids: Sequence[int], packets: Sequence[int]) -> dict[str, np.ndarray]:
    """The cells of a link with the hash of the switches, as the measurement names its fields."""
    hi, lo = (np.array([i >> s & 2**64 - 1 for i in ids], np.uint64) for s in (64, 0))
    counts = np.array(packets)
    if meter == "fermat":
        sketch = FermatSketch(WIDTH, seed=SWITCH)
        sketch.add(hi, lo, counts)
        return {"count": sketch.count} | {f"id{n}": sketch.id_sum[..., n] for n in range(4)}
    own = LossRadar(WIDTH, seed=SWITCH)
    own.add(*signatures(hi, lo, counts)[:2])
    above, below = own.xor_sum
    upper = above << np.uint64(4) | below >> np.uint64(60)
    return {"count": own.count, "xor_hi": upper, "xor_lo": below & np.uint64(2**60 - 1)}


@pytest.mark.parametrize("meter", METERS)
@pytest.mark.parametrize("parity", [0, 1])
def test_both_ends_count_what_the_model_counts_with_their_hash(meter: str, parity: int) -> None:
    measurement = find_measurement(meter)
    assert isinstance(measurement, LinkMeters) and measurement.program is not None
    program = Program.load(measurement.program, observe=VERDICT.field)
    tor, above = Switch(program), Switch(program)
    install_forwarding(K4, 0, tor, mask=1, monitor=False)
    set_parity(tor, parity)
    links = [link for link in range(K4.n_links) if K4.link_src[link] == 0]
    ports = {int(K4.link_src_port[link]): n for n, link in enumerate(links)}
    for switch, block in ((tor, LEAVING), (above, ARRIVING)):
        for port, n in ports.items():
            share = f"{block}.meter.cells.share"
            switch.table(f"{block}.meter.cells.links").add([port], share, (100 * n, WIDTH))
    rng = random.Random(5)
    far, near = int(K4.host_ip[12]), int(K4.host_ip[0])
    flows = [Flow(near, far, rng.randrange(2**16), 80, rng.choice([TCP, UDP])) for _ in range(40)]
    sent: dict[int, dict[int, int]] = {port: {} for port in ports}
    for number in range(25):
        for flow in flows[number:]:
            data = ipv4(near, far, flow.protocol, l4(flow), identification=number)
            [(port, out)] = tor.process(int(K4.host_port[0]), ethernet(data))
            counted = sent[port].get(flow.id, 0)
            sent[port][flow.id] = counted + 1
            above.process(port, out)
        for flow in (flows[0], flows[-1]):  # packets that may expire on their way are not counted
            short = ipv4(near, far, flow.protocol, l4(flow), ttl=15, identification=number)
            above.process(1, tor.process(int(K4.host_port[0]), ethernet(short))[0][1])
    for port, n in ports.items():
        assert sent[port]
        first = 100 * n + parity * len(tor.register(f"{LEAVING}.meter.row0.count")) // 2
        expected = model(meter, list(sent[port]), list(sent[port].values()))
        for switch, block in ((tor, LEAVING), (above, ARRIVING)):
            for field in measurement.fields:
                rows = [switch.register(f"{block}.meter.row{row}.{field}") for row in range(3)]
                found = np.stack([row[first : first + WIDTH] for row in rows])
                assert np.array_equal(found, expected[field]), (block, field)


def losses(**counts: list[int]) -> Telemetry:
    columns = {name: np.array(values) for name, values in counts.items()}
    return Telemetry(K4, "tor", views={"loss_radar": LinkLosses(columns, {})})


def test_a_link_is_blamed_for_more_losses_than_a_healthy_one_may_have() -> None:
    few = losses(link=[3, 8], sent=[10**6, 1000], lost=[110, 1])
    assert not PerLinkLoss().localize(few).flagged.size
    assert PerLinkLoss(noise=1e-6).localize(few).flagged.tolist() == [3]
    epochs = losses(link=[3, 8, 3], sent=[2000, 2000, 2000], lost=[4, 0, 5])
    verdict = PerLinkLoss().localize(epochs)
    assert verdict.flagged.tolist() == [3]
    assert verdict.success[3] == 1 - 9 / 4000 and np.isnan(verdict.success[5])
    with pytest.raises(MissingTelemetry, match="'fermat': MEASURE=fermat measures it"):
        PerLinkLoss(meter="fermat").localize(epochs)


def test_a_switch_runs_the_program_of_one_measurement() -> None:
    both = chosen({"loss_radar"}, "fermat")
    with pytest.raises(UserError, match="loss_radar and fermat have a switch program each"):
        switch_program(both)
    assert switch_program(chosen(None)) == PROGRAM
    assert switch_program(chosen(None, "fermat")) == find_measurement("fermat").program


def test_a_program_of_other_sources_is_refused(tmp_path: Path) -> None:
    class Old(Measurement):
        name = "old"
        program = tmp_path / "canary.json"

    with pytest.raises(UserError, match="the switch program of old cannot be read"):
        switch_program([Old()])
    lines = (PROGRAM.parent / "sources.sha256").read_text()
    (tmp_path / "sources.sha256").write_text(lines + "0a  measurement.p4\n")
    assert switch_program([Old()]) == Old.program
    (tmp_path / "sources.sha256").write_text("0a  canary.p4\n" + lines.split("\n", 1)[1])
    with pytest.raises(UserError, match="old was compiled with another Canary program: compile"):
        switch_program([Old()])


def test_what_cannot_be_measured_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="loss_radar needs packets"):
        run(path=tmp_path / "a", methods="per-link-loss", backend="flow", **SMALL)
    with pytest.raises(UserError, match="have a switch program each"):
        run(path=tmp_path / "b", methods="per-link-loss", measure="fermat", **SMALL)
    assert not list(tmp_path.iterdir())
