# SPDX-License-Identifier: Apache-2.0
"""What a file means, and what each mistake in one says."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import Telemetry
from testbed.fabric.pair_sets import PairSets
from testbed.record.fabric_file import read_fabric
from testbed.record.schema import TableError
from tests.analysis.telemetry.conftest import FABRIC, OBSERVATIONS, Files, spark_folder

META = {"format": "localization-telemetry", "table": "observations", "version": "1"}


def names(telemetry, links) -> list[str]:
    return [telemetry.topology.link_names[link] for link in links]


def test_every_kind_of_row_is_read(files: Files) -> None:
    t = files.read()
    probes, flows, segments, traced = t.probes, t.flows, t.segments, t.connections
    assert probes and flows and segments and traced
    assert names(t, probes.paths[0]) == ["leaf0->spine0", "spine0->leaf0"]
    assert names(t, probes.paths[3]) == ["leaf1->spine1", "spine1->leaf1"]
    assert probes.sent.tolist() == [100] * 4 and probes.lost.tolist() == [40, 0, 0, 0]

    assert isinstance(flows.sets, PairSets)
    sets = flows.sets.expanded()
    chosen = [sets[s] for s in flows.path_set]
    as_names = [sorted(names(t, paths[p])[0] for p in range(len(paths))) for paths in chosen[:3]]
    both = ["leaf0->spine0", "leaf0->spine1"]
    assert as_names == [both, both, ["leaf1->spine1"]]
    assert chosen[3].ptr.tolist() == [0, 0]  # within a rack
    assert flows.lost.tolist() == [900, 90, 0, 0]

    assert segments.sent.tolist() == [[1000, 900], [1000, 0]]
    assert segments.lost.tolist() == [[400, 0], [380, 0]]
    assert segments.segments.subproblem.tolist() == [0, 1]  # they share no link
    assert t.topology.switch_names[segments.segments.upstream[0]] == "leaf0"

    assert traced.complete.tolist() == [True, False, False]
    assert traced.lost.tolist() == [9, 3, 1]
    assert traced.paths.length.tolist() == [2, 1, 0]


def test_segments_of_the_same_path_and_epoch_add_up(files: Files) -> None:
    files.observations.write_text(OBSERVATIONS + "15,segment,1,,,,leaf0 spine0 leaf1,10,1,\n")
    segments = files.read().segments
    assert segments and segments.sent[1].tolist() == [1010, 0]


def test_a_trace_may_have_gaps(files: Files, tmp_path: Path) -> None:
    """Only the way down answered: a trace, but no complete one."""
    text = OBSERVATIONS.replace("12,connection,,leaf0,leaf1,10 21", "12,connection,,leaf0,leaf1,21")
    files.observations.write_text(text)
    traced = files.read().connections
    assert traced and traced.complete.tolist() == [False, False, False]
    assert traced.paths.length.tolist() == [1, 1, 0]


def test_tiers_are_derived_from_tier_0(files: Files) -> None:
    told = read_fabric(files.fabric).fabric
    bare = re.sub(r",1$", ",", FABRIC, flags=re.M).replace(",1,0", ",,0")
    files.fabric.write_text(bare)
    derived = read_fabric(files.fabric).fabric
    assert derived.tier.tolist() == told.tier.tolist() == [0, 0, 1, 1]
    assert derived.link_names == told.link_names


def test_link_numbers_are_the_files_own(files: Files) -> None:
    numbered = read_fabric(files.fabric)
    assert numbered.link_ids.tolist() == [10, 11, 30, 31, 20, 21, 40, 41]  # by switches
    text = FABRIC.replace("10,leaf0", "-7,leaf0").replace("41,spine1", "999999999999,spine1")
    files.fabric.write_text(text)
    numbered = read_fabric(files.fabric)
    assert numbered.link_ids[0] == -7 and numbered.link_ids[-1] == 999999999999


def test_parallel_links_are_told_apart(files: Files) -> None:
    files.fabric.write_text(FABRIC + "50,leaf0,spine0,0,1\n51,spine0,leaf0,1,0\n")
    files.observations.write_text(OBSERVATIONS + "15,active,,,,50 51,,10,0,\n")
    t = files.read()
    assert t.probes and names(t, t.probes.paths[4]) == ["leaf0->spine0#2", "spine0->leaf0#2"]
    files.observations.write_text(OBSERVATIONS + "15,active,,,,,leaf0 spine0 leaf0,10,0,\n")
    with pytest.raises(TableError, match="row 14 .id 15.: several links lead from leaf0 to spine0"):
        files.read()


def test_round_trip_times_are_of_all_passive_rows(files: Files) -> None:
    lines = OBSERVATIONS.splitlines()
    lines[1] += ",rtt_ms"

    def read(times: dict[int, str]) -> Telemetry:
        rows = [f"{line},{times.get(i, '')}" for i, line in enumerate(lines[2:])]
        files.observations.write_text("\n".join([*lines[:2], *rows]) + "\n")
        return files.read()

    flows = read({4: "1.5", 5: "2", 6: "1e-3", 7: "0"}).flows
    assert flows and flows.rtt_ms is not None and flows.rtt_ms.tolist() == [1.5, 2, 0.001, 0]
    no_times = read({}).flows
    assert no_times and no_times.rtt_ms is None
    for times, reason in (
        ({4: "1.5"}, "row 5 .id 6.: rtt_ms is missing"),
        ({4: "1", 5: "1", 6: "1", 7: "-1"}, "row 7 .id 8.: rtt_ms is -1.0: 0 to 10.15 is needed"),
        ({4: "nan"}, "row 4 .id 5.: rtt_ms is 'nan': a number is needed"),
        ({4: "1e999"}, "row 4 .id 5.: rtt_ms is inf: 0 to 10.15 is needed"),
        ({0: "1.5"}, "row 0 .id 1.: only passive rows"),
    ):
        with pytest.raises(TableError, match=reason):
            read(times)


def test_probes_of_a_plan_are_that_methods(files: Files) -> None:
    lines = OBSERVATIONS.splitlines()
    lines[1] += ",plan"
    plans = {0: "netbouncer", 1: "detector", 2: "netbouncer"}
    rows = [f"{line},{plans.get(i, '')}" for i, line in enumerate(lines[2:])]
    files.observations.write_text("\n".join([*lines[:2], *rows]) + "\n")
    t = files.read()
    assert t.probes and t.detector
    assert t.probes.paths.links[::2].tolist() == [0, 4, 6]
    assert t.detector.paths.links[::2].tolist() == [2, 6]
    for number, plan, reason in (
        (0, "pingmesh", "plan is 'pingmesh': none of"),
        (4, "detector", "only active rows have a plan"),
    ):
        broken = [*rows[:number], f"{lines[2 + number]},{plan}", *rows[number + 1 :]]
        files.observations.write_text("\n".join([*lines[:2], *broken]) + "\n")
        with pytest.raises(TableError, match=f"row {number} .id {number + 1}.: {reason}"):
            files.read()


def row(number: int, text: str) -> str:
    """The observations with row ``number`` replaced."""
    lines: list[str] = [*OBSERVATIONS.splitlines()]
    lines[2 + number] = text
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("number", "text", "reason"),
    [
        (0, "1,active,,,,10 11,,100,-4,", "lost is -4: 0 to 10^15 is needed"),
        (0, "1,active,,,,10 11,,-100,0,", "sent is -100: 0 to 10^15 is needed"),
        (4, "5,passive,,leaf0,leaf1,,,50,,-1", "retransmissions is -1: 0 to 10^15 is needed"),
        (0, "1,active,,,,10 11,,100,101,", "lost is 101, more than the 100 sent"),
        (4, "5,passive,,leaf0,leaf1,,,5,,6", "retransmissions is 6, more than the 5 sent"),
        (0, "1,active,,,,10 12,,100,4,", "link 12 is not in the fabric"),
        (0, "1,active,,,,10 21|,,100,4,", "paths is '': a whole number is needed"),
        (0, "1,active,,,,10  21,,100,4,", "paths is '': a whole number is needed"),
        (0, "1,active,,,,,leaf0,100,4,", "a path has no link"),
        (0, "1,active,,,,,leaf0 leaf1,100,4,", "no link leads from leaf0 to leaf1"),
        (0, "1,active,,,,,leaf0 spine9,100,4,", "node 'spine9' is not a switch"),
        (0, "1,active,,,,10 41,,100,4,", "the links of a path do not join up"),
        (0, "1,active,,,,10 21|30 41,,100,4,", "only passive rows may have several paths"),
        (0, "1,active,,leaf0,leaf1,,,100,4,", "paths or nodes are missing"),
        (0, "1,active,,,,10 11,leaf0 spine0,100,4,", "both paths and nodes are given"),
        (0, "1,active,3,,,10 11,,100,4,", "only segment rows have an epoch"),
        (0, "1,active,,,,10 11,,100,,", "lost is missing"),
        (0, "1,active,,,,10 11,,,4,", "sent is missing"),
        (0, "1,active,,,,10 11,,100,,4", "only hosts observe retransmissions"),
        (5, "6,passive,,,,10 21|30 41,,400,90,90", "both lost and retransmissions"),
        (5, "6,passive,,,,10 21|30 41,,400,,", "neither lost nor retransmissions"),
        (5, "6,passive,,,,10 21|30 41|10 21,,400,90,", "a path is listed twice"),
        (5, "6,passive,,leaf0,,,,400,90,", "neither paths, nodes nor both src and dst"),
        (6, "7,passive,,leaf0,leaf1,40 31,,1000,,0", "a path does not begin at src"),
        (6, "7,passive,,leaf1,leaf1,40 31,,1000,,0", "a path does not end at dst"),
        (6, "7,passive,,leaf9,leaf1,40 31,,1000,,0", "src 'leaf9' is not a switch"),
        (6, "7,passive,,spine0,leaf1,,,1000,,0", "src 'spine0' is not a ToR"),
        (8, "9,segment,-1,,,10 21,,1000,400,", "epoch is -1: 0 to 10^15 is needed"),
        (11, "12,connection,,leaf0,,10 21,,,,9", "a connection needs src and dst"),
        (3, "1,active,,,,20 21,,100,0,", "row 0 has the same id"),
        (3, ",active,,,,20 21,,100,0,", "id is missing"),
        (3, "4,aktive,,,,20 21,,100,0,", "kind is 'aktive': none of active, passive, segment"),
        (3, "4,,,,,20 21,,100,0,", "kind is missing"),
        (3, "4,active,,,,20 21,,nan,0,", "sent is 'nan': a whole number is needed"),
        (3, "4,active,,,,20 21,,1e-3,0,", "sent is 0.001: a whole number is needed"),
        (3, "4,active,,,,20 21,,99.5,0,", "sent is 99.5: a whole number is needed"),
        (3, "4,active,,,,20 21,,99999999999999999999,0,", "too large for a float to be exact"),
        (
            3,
            "4,active,,,,20 21,,9999999999999999,0,",
            ": 0 to 10^15 is needed",
        ),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".csv", ".csv.gz"])
def test_a_wrong_row_is_named(
    files: Files, number: int, text: str, reason: str, suffix: str
) -> None:
    """In one file, and with the file and its own row in a folder of parts."""
    files.observations.write_text(row(number, text))
    file, at = files.observations, number
    if suffix:
        file, at = files.split(4, suffix)[number // 4], number % 4
    with pytest.raises(TableError) as raised:
        files.read()
    message = str(raised.value)
    assert message.startswith(f"{file}: row {at}") and reason in message
    assert "\n" not in message


def test_compressed_files_take_the_memory_of_their_content(files: Files) -> None:
    """The 4 GiB that one may have were taken for each: too much for a machine that has no more."""
    files.split(4, ".csv.gz")
    tracemalloc.start()
    try:
        files.read()
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("31,spine1,leaf0,1,0\n", ""), "row 4 (link 30): a link in the opposite direction"),
        (("20,leaf1", "10,leaf1"), "row 2 (link 10): row 0 has the same link"),
        (("20,leaf1,spine0,0,1", "20,leaf1,leaf1,0,1"), "row 2 (link 20): the link leads back"),
        (("20,leaf1,spine0,0,1", "20,leaf1,spine0,0,0"), "a different tier in another row"),
        (("30,leaf0,spine1,0,1", "30,,spine1,0,1"), "row 4 (link 30): src is missing"),
        (("10,leaf0,spine0,0,1", "10,leaf0,spine0,-1,1"), "src_tier is -1: 0 to 100 is needed"),
        (("link,src,dst,", "link,from,dst,"), "column 'from' is unknown: known are link, src"),
        (("link,src,dst,", "link,src,src,"), "column src is given twice"),
        (("fabric 1", "fabric 2"), "is of version '2': version 1 is needed"),
        (("fabric 1", "observations 1"), "says 'localization-telemetry' 'observations': "),
        (("# localization", "# localisation"), "'localization-telemetry' 'fabric' is needed"),
        (("# localization-telemetry fabric 1\n", ""), "the first line must be"),
        (
            ("41,spine1,leaf1,1,0\n", "41,spine1,leaf1"),
            "the last line has no line break: it may",
        ),
        (("41,spine1,leaf1,1,0\n", "41,spine1,leaf1\n"), "Expected 5 columns, got 3"),
    ],
)
def test_a_wrong_fabric_is_named(files: Files, change: tuple[str, str], reason: str) -> None:
    assert change[0] in FABRIC
    files.fabric.write_text(FABRIC.replace(*change))
    with pytest.raises(TableError) as raised:
        read_fabric(files.fabric)
    assert str(raised.value).startswith(str(files.fabric)) and reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_fabric_that_is_no_clos_or_falls_apart(files: Files) -> None:
    files.fabric.write_text(FABRIC + "50,leaf0,leaf1,0,0\n51,leaf1,leaf0,0,0\n")
    with pytest.raises(TableError, match="row 8 .link 50.: both ends have the same tier"):
        read_fabric(files.fabric)
    files.fabric.write_text(FABRIC + "50,a,b,0,1\n51,b,a,1,0\n")
    with pytest.raises(TableError, match="row 8 .link 50.: no path leads from a to leaf0"):
        read_fabric(files.fabric)
    no_tiers = [line.split(",")[:3] for line in FABRIC.splitlines()[1:]]
    text = FABRIC.splitlines()[0] + "\n" + "".join(",".join(row) + "\n" for row in no_tiers)
    files.fabric.write_text(text)
    with pytest.raises(TableError, match="no switch has tier 0: give the ToRs"):
        read_fabric(files.fabric)


def test_two_tors_without_an_up_down_path(files: Files) -> None:
    """A fabric that hangs together, but only by way of another ToR."""
    cables = [("a", "s"), ("b", "s"), ("b", "t"), ("c", "t")]
    lines = [
        f"{2 * i + way},{ends[way]},{ends[1 - way]},{way},{1 - way}"
        for i, ends in enumerate(cables)
        for way in (0, 1)
    ]
    files.fabric.write_text("\n".join([*FABRIC.splitlines()[:2], *lines]) + "\n")
    head = "\n".join(OBSERVATIONS.splitlines()[:2])
    files.observations.write_text(head + "\n7,passive,,a,b,,,9,,0\n8,passive,,a,c,,,9,,0\n")
    with pytest.raises(TableError, match="row 1 .id 8.: no path goes up and then down from a to c"):
        files.read()


def test_files_that_are_none(files: Files, tmp_path: Path) -> None:
    cases = {
        "empty.csv": (b"", "is empty"),
        "empty.parquet": (b"", "is empty"),
        "text.parquet": (b"this is no Parquet" * 20, "is not a readable Parquet file"),
        "bytes.csv": (b"# localization-telemetry observations 1\nid,kind\n\xff\xfe,\x00\n", ""),
        "other.json": (b"{}", "must end in .parquet or .csv"),
    }
    fabric = read_fabric(files.fabric)
    for name, (content, reason) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(TableError) as raised:
            read_observations(path, fabric)
        assert name in str(raised.value) and reason in str(raised.value)
    for path, reason in ((tmp_path / "nowhere.csv", "No such file"), (tmp_path, "is no part")):
        with pytest.raises(TableError, match=reason):
            read_observations(path, fabric)
    files.observations.write_text("\n".join(OBSERVATIONS.splitlines()[:2]) + "\n")
    with pytest.raises(TableError, match="has no rows"):
        files.read()


def parquet(path: Path, columns: dict, metadata: dict = META) -> Path:
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    return path


GOOD = {"id": [1, 2], "kind": ["active", "active"], "paths": [[[10, 11]], [[30, 31]]],
        "sent": [9, 9], "lost": [0, 1]}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"sent": [9.0, float("nan")]}, "row 1 (id 2): sent is nan: a whole number is needed"),
        ({"sent": [9.5, 9.0]}, "row 0 (id 1): sent is 9.5: a whole number is needed"),
        ({"sent": [9.0, 2.0**60]}, "row 1 (id 2): sent is 1.152921504606847e+18: too large"),
        ({"sent": ["9", "9"]}, "column sent has the type string: whole numbers are needed"),
        (
            {"sent": pa.array([9, 2**63], pa.uint64())},
            "9223372036854775808: 0 to 10^15",
        ),
        ({"sent": [9, None]}, "row 1 (id 2): sent is missing"),
        ({"paths": [[10, 11], [30, 31]]}, "lists of lists of whole numbers are needed"),
        ({"paths": [[[10, 11]], [[30, None]]]}, "row 1 (id 2): paths has a missing value"),
        ({"paths": [[[10, 11]], [None]]}, "row 1 (id 2): paths has a missing value"),
        ({"paths": [[[10, 11]], []]}, "row 1 (id 2): the list of paths is empty"),
        ({"paths": [[[10, 11]], [[]]]}, "row 1 (id 2): a path has no link"),
        ({"kind": [1, 2]}, "column kind has the type int64: texts are needed"),
        ({"weight": [1, 2]}, "column 'weight' is unknown"),
        ({"id": None}, "column id is missing"),
    ],
)
@pytest.mark.parametrize("in_parts", [False, True])
def test_wrong_parquet_columns(files: Files, columns: dict, reason: str, in_parts: bool) -> None:
    made = {name: column for name, column in (GOOD | columns).items() if column is not None}
    given = path = parquet(files.observations.with_suffix(".parquet"), made)
    if in_parts:
        given = files.observations.with_suffix("")
        good = parquet(files.observations.with_suffix(".good"), GOOD | {"id": [3, 4]})
        _, path = spark_folder(given, [good.read_bytes(), path.read_bytes()], ".parquet")
    with pytest.raises(TableError) as raised:
        read_observations(given, read_fabric(files.fabric))
    assert str(raised.value).startswith(str(path)) and reason in str(raised.value)


def test_parquet_as_others_write_it(files: Files) -> None:
    """Narrow and unsigned integers, large and dictionary-encoded texts, chunks, no metadata."""
    path = files.observations.with_suffix(".parquet")
    fabric = read_fabric(files.fabric)
    text = pa.chunked_array([["active"], ["active"]]).dictionary_encode()
    lists = pa.array(GOOD["paths"], pa.large_list(pa.large_list(pa.uint8())))
    columns = {"id": pa.array([1, 2], pa.uint64()), "kind": text, "paths": lists,
               "sent": pa.array([9, 9], pa.int8()), "lost": pa.array([0, 1], pa.uint16()),
               "epoch": pa.nulls(2), "nodes": pa.nulls(2), "src": pa.nulls(2, pa.large_string()),
               "retransmissions": pa.nulls(2, pa.int32())}  # fmt: skip
    probes = read_observations(parquet(path, columns), fabric).probes
    assert probes and probes.lost.tolist() == [0, 1] and probes.paths.links.tolist() == [0, 1, 2, 3]
    with pytest.raises(TableError, match="does not name its format"):
        read_observations(parquet(path, columns, {}), fabric)
    whole = parquet(path, columns).read_bytes()
    for size in (8, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(TableError, match="cut off or damaged"):
            read_observations(path, fabric)


def test_the_example_of_the_documentation_reads(tmp_path: Path) -> None:
    document = (Path(__file__).parents[3] / "docs" / "reference" / "record.md").read_text()
    fabric, observations = re.findall(r"```\n(# localization.*?)```", document, re.DOTALL)
    (tmp_path / "fabric.csv").write_text(fabric)
    (tmp_path / "observations.csv").write_text(observations)
    t = read_observations(tmp_path / "observations.csv", read_fabric(tmp_path / "fabric.csv"))
    assert t.probes and t.flows and t.connections and t.segments is None
    assert t.topology.tier.tolist() == [0, 0, 1]
    assert t.connections.complete.tolist() == [True]
    assert np.array_equal(t.flows.lost, [12, 0])
