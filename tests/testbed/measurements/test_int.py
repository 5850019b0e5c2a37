# SPDX-License-Identifier: Apache-2.0
"""INT on packets: a flow's path is where its packets went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.methods.flock.flock import Flock
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import Flows, MissingTelemetry, Telemetry
from canary import run
from canary_softswitch import Program, Switch
from scenarios.experiment import run as run_module
from testbed.control.forwarding import install_forwarding
from testbed.dataplane import ARRIVING, LEAVING, VERDICT
from testbed.errors import UserError
from testbed.fabric.clos import Fabric, clos, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.measurements.int.paths import link_codes, paths_of_codes
from testbed.measurements.registry import find_measurement
from testbed.record.run import RunDirectory
from tests.p4.frames import UDP, Flow, ethernet, ipv4, l4

SMALL: dict[str, Any] = {"epochs": 2, "epoch_ms": 200, "load": 0.3, "faults": "10pct", "seed": 3}
METHODS = "flock:inputs=int,007"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    path = tmp_path_factory.mktemp("int") / "run"
    run(path=path, methods=METHODS, k=4, **SMALL)
    return RunDirectory(path)


def by_flow(table: Any) -> dict[int, list[int]]:
    """The path of each flow that has one."""
    return {flow: table["path"][n].tolist() for n, flow in enumerate(table["flow"].tolist())}


def test_the_path_of_a_flow_is_where_its_packets_were(record: RunDirectory) -> None:
    table, flows = record.table("int_paths"), record.table("flows")
    paths = by_flow(table)
    assert len(paths) == len(table["flow"])  # one each, as routes did not change
    apart = flows["src_tor"] != flows["dst_tor"]
    arrived = np.flatnonzero(apart & (flows["sent"] > flows["lost"]))
    assert len(arrived) > 200
    assert np.isin(arrived, table["flow"]).mean() > 0.99  # the others came when the run ended
    drops = record.table("drops")
    inside = drops["link"] < record.fabric.n_links
    lost = zip(drops["flow"][inside].tolist(), drops["link"][inside].tolist(), strict=True)
    assert all(link in paths[flow] for flow, link in lost if flow in paths)
    traced = record.table("connections")
    whole = {f: p for f, p in by_flow(traced).items() if traced["complete"][traced["flow"] == f]}
    both = whole.keys() & paths.keys()
    assert len(both) > 50 and all(whole[flow] == paths[flow] for flow in both)


def test_flock_reads_the_flows_with_their_paths_and_the_probes(record: RunDirectory) -> None:
    telemetry = read_telemetry(record)
    flows = telemetry.need("int", "flock")
    assert isinstance(flows, Flows)
    known = flows.path_set >= len(flows.sets) - len(flows.listed)
    assert (flows.listed.width == 1).all() and known.mean() > 0.9
    assert telemetry.probes is not None
    verdict = record.table("diagnoses/flock:inputs=int")
    sent, dropped = (record.table("links")[name] for name in ("packets", "fault_drops"))
    plainly = (dropped > 50) & (dropped > 0.01 * sent)
    assert plainly.any() and np.asarray(verdict["flagged"])[plainly].all()


def test_switches_count_and_drop_as_without_it(record: RunDirectory, tmp_path: Path) -> None:
    run(path=tmp_path / "alone", methods="flock,007", k=4, **SMALL)
    alone = RunDirectory(tmp_path / "alone")
    for name in ("flows", "links", "drops", "connections"):
        for column, values in alone.table(name).items():
            if column == "path":
                values, other = values.links, record.table(name)[column].links
            else:
                other = record.table(name)[column]
            assert np.array_equal(values, other), (name, column)


def test_without_packets_the_same_is_known(tmp_path: Path) -> None:
    run(path=tmp_path / "run", methods="flock:inputs=int", backend="flow", k=4, **SMALL)
    found = RunDirectory(tmp_path / "run")
    flows, table = found.table("flows"), found.table("int_paths")
    assert (flows["sent"] > flows["lost"])[table["flow"]].all()
    paths, own = flows["path"].take(table["flow"]), table["path"]
    assert np.array_equal(paths.ptr, own.ptr) and np.array_equal(paths.links, own.links)


@pytest.mark.parametrize(
    "fabric", [FatTree(4), FatTree(8), leaf_spine(5, 3), clos(2, 3, 2, 2)], ids=lambda f: f.title
)
def test_each_path_of_two_tors_has_a_code_of_its_own(fabric: Fabric) -> None:
    codes = link_codes(fabric)
    src, dst = np.nonzero(~np.eye(fabric.n_tors, dtype=np.bool_))
    sets = fabric.path_sets(src, dst)
    code = np.zeros(len(sets.paths), np.int64)
    np.bitwise_or.at(code, sets.paths.owner, codes[sets.paths.links])
    row, paths = paths_of_codes(fabric, codes, src[sets.owner], dst[sets.owner], code)
    assert len(row) == len(sets.paths)
    assert np.array_equal(paths.links, sets.paths.links)
    wrong, _ = paths_of_codes(fabric, codes, src[:1], dst[:1], np.array([63]))
    assert not len(wrong)


def test_a_tor_reports_each_flow_and_path_once() -> None:
    fabric, measurement = FatTree(4), find_measurement("int")
    assert measurement.program is not None
    program = Program.load(measurement.program, observe=VERDICT.field)
    tor, above = Switch(program), Switch(program)
    for switch, number in ((tor, 0), (above, fabric.switch("agg0_0"))):
        install_forwarding(fabric, number, switch, mask=1, monitor=False)
        for port in range(1, 5):
            code = port << (3 if switch is above else 0)
            switch.table(f"{LEAVING}.uplinks").add([port], f"{LEAVING}.choose", (code,))
    near, far = (int(fabric.host_ip[host]) for host in (0, 2))  # of two racks of a pod
    flow = Flow(near, far, 5, 80, UDP)
    down = Flow(far, near, 7, 80, UDP)
    tor.table(f"{ARRIVING}.racks").add([(near & ~0xFF, 24)], "NoAction")
    [(_, up)] = tor.process(1, ethernet(ipv4(near, far, UDP, l4(flow))))
    [(port, on)] = above.process(1, up)
    assert on[18] & 0x3F == up[18] & 0x3F | port << 3  # each adds its own bits
    short = ipv4(far, near, UDP, l4(down), ttl=15)
    for code in (0b001001, 0b001001, 0b010010, 0b100100):  # the third has no room left
        shim = bytes([0, 0, 0, 0, code]) + b"\x08\x00"
        for packet in (ipv4(far, near, UDP, l4(down)), short):
            frame = ethernet(packet)
            tor.process(3, frame[:12] + b"\x88\xb5" + shim + frame[14:])
    found = [int(row[row > 0][0]) for row in reports(tor, "lo")]
    assert [word & 0xFF for word in found] == [0b001001, 0b010010]
    halves = zip((int(row.sum()) for row in reports(tor, "hi")), found, strict=True)
    assert [hi << 48 | lo >> 8 for hi, lo in halves] == [down.id, down.id]


def reports(switch: Switch, half: str) -> list[np.ndarray]:
    return [switch.register(f"{ARRIVING}.row{row}.{half}") for row in range(2)]


def test_a_fabric_is_refused_before_anything_is_made_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "make_traffic", lambda *_: pytest.fail("traffic was made"))
    with pytest.raises(UserError, match="int has 6 bits in a packet for its path, and .* needs 8"):
        run(path=tmp_path / "r", k=24, measure="int", backend="virtual")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_reported_is_one_line() -> None:
    with pytest.raises(UserError, match="int has 6 bits in a packet for its path, and .* needs 7"):
        link_codes(leaf_spine(2, 65))
    with pytest.raises(MissingTelemetry, match="'int': MEASURE=int measures it"):
        Flock(inputs="int").localize(Telemetry(FatTree(4), "tor"))
