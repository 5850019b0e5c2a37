# SPDX-License-Identifier: Apache-2.0
"""A damaged or made-up file is refused in one line or gives a finite diagnosis; nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.methods.registry import METHODS
from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry
from analysis.telemetry.writing import write_observations
from testbed.record.fabric_file import read_fabric, write_fabric
from testbed.record.schema import TableError
from tests.analysis.telemetry.conftest import FABRIC, OBSERVATIONS, Files
from tests.analysis.telemetry.test_reading import parquet

hostile = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

CELLS = st.sampled_from(
    ["", "0", "-1", "1", "10", "11", "30 41", "10 21|30 41", "10 11 10 11", "|", " ", "nan", "1e9",
     "999999999999999", "1000000000000000", "9223372036854775807", "99999999999999999999", "0x10",
     "leaf0", "leaf1", "spine0", "leaf0 spine1 leaf1", "leaf0 leaf1", "active", "passive",
     "segment", "connection", "Ä\u0000\"", '"', "'; drop", "1.5", "true", "\ufeff", "+5", "٣"]
)  # fmt: skip


def check(make) -> None:
    """What ``make`` reads, every method diagnoses, or it is refused in a line."""
    try:
        telemetry: Telemetry = make()
    except TableError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
        return
    n = telemetry.topology.n_links
    for name, method in METHODS.items():
        try:
            result = method().localize(telemetry)
        except MissingTelemetry:
            continue
        assert np.isfinite(result.score).all(), name
        known = result.success[~np.isnan(result.success)]
        assert ((known >= 0) & (known <= 1)).all(), name
        assert len(result.score) == n
        assert ((result.flagged >= 0) & (result.flagged < n)).all()


@hostile
@given(
    changes=st.lists(
        st.tuples(st.booleans(), st.integers(0, 19), st.integers(0, 10), CELLS),
        min_size=1,
        max_size=4,
    )
)
def test_cells_replaced(files: Files, changes: list[tuple[bool, int, int, str]]) -> None:
    tables = {
        path: text.splitlines()
        for path, text in ((files.fabric, FABRIC), (files.observations, OBSERVATIONS))
    }
    for in_fabric, line, column, cell in changes:
        lines = tables[files.fabric if in_fabric else files.observations]
        cells = lines[line % len(lines)].split(",")
        cells[column % len(cells)] = cell
        lines[line % len(lines)] = ",".join(cells)
    for path, lines in tables.items():
        path.write_text("\n".join(lines) + "\n")
    check(files.read)


@hostile
@given(
    at=st.integers(0, 10**6),
    bytes_=st.binary(max_size=6),
    gone=st.integers(0, 40),
    fabric=st.booleans(),
)
def test_bytes_of_csv_replaced(
    files: Files, at: int, bytes_: bytes, gone: int, fabric: bool
) -> None:
    for path, text in ((files.fabric, FABRIC), (files.observations, OBSERVATIONS)):
        content = text.encode()
        if fabric == (path == files.fabric):
            at %= len(content)
            content = content[:at] + bytes_ + content[at + gone :]
        path.write_bytes(content)
    check(files.read)


@hostile
@given(
    sent=st.lists(st.integers(0, 10**15), min_size=8, max_size=8),
    share=st.lists(st.floats(0, 1), min_size=8, max_size=8),
)
def test_any_counts_give_a_finite_diagnosis(
    files: Files, sent: list[int], share: list[float]
) -> None:
    """From nothing at all to 10^15 packets, none to all of them lost."""
    lost = [int(s * r) for s, r in zip(sent, share, strict=True)]
    kinds = ["active", "active", "passive", "passive", "segment", "segment", "connection", "active"]
    paths = ["10 11", "30 31", "10 21", "", "10 21", "30 41", "10", "20 21"]
    rows = ["id,kind,src,dst,paths,sent,lost"]
    for i, (kind, path) in enumerate(zip(kinds, paths, strict=True)):
        ends = "leaf0,leaf1" if kind in ("connection", "passive") else ","
        rows.append(f"{i},{kind},{ends},{path},{sent[i]},{lost[i]}")
    files.observations.write_text("\n".join([OBSERVATIONS.splitlines()[0], *rows]) + "\n")
    telemetry = files.read()
    check(lambda: telemetry)


@pytest.fixture(scope="module")
def parquet_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, bytes]:
    folder = tmp_path_factory.mktemp("parquet")
    files = Files(folder)
    telemetry = files.read()
    write_fabric(folder / "fabric.parquet", telemetry.topology)
    write_observations(folder / "observations.parquet", telemetry)
    return folder, *(
        (folder / f"{name}.parquet").read_bytes() for name in ("fabric", "observations")
    )  # pyright: ignore


@hostile
@given(data=st.data())
def test_bytes_of_parquet_replaced(
    parquet_files: tuple[Path, bytes, bytes], data: st.DataObject
) -> None:
    folder, fabric, observations = parquet_files
    fabric_path, path = folder / "fabric.parquet", folder / "observations.parquet"
    broken = bytearray(data.draw(st.sampled_from([fabric, observations])))
    is_fabric = bytes(broken) == fabric
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    fabric_path.write_bytes(bytes(broken) if is_fabric else fabric)
    path.write_bytes(observations if is_fabric else bytes(broken))
    check(lambda: read_observations(path, read_fabric(fabric_path)))


VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-2, 50), st.floats(),
    st.text(max_size=5), st.booleans(), st.binary(max_size=3),
    st.sampled_from(["active", "passive", "segment", "connection", "leaf0", "leaf1"]),
    st.lists(st.lists(st.integers(-1, 50), max_size=3), max_size=3),
    st.lists(st.lists(st.sampled_from(["leaf0", "spine0", "leaf1", "x"]), max_size=4), max_size=2),
)  # fmt: skip


@hostile
@given(data=st.data())
def test_columns_of_parquet_replaced(files: Files, data: st.DataObject) -> None:
    """Whole columns of whatever type in place of the right ones."""
    text = "\n".join(OBSERVATIONS.splitlines()[1:]).encode()
    good = pacsv.read_csv(pa.BufferReader(text))
    columns: dict = {
        "id": good.column("id"),
        "kind": good.column("kind"),
        "src": good.column("src"),
        "dst": good.column("dst"),
        "paths": [
            [[int(link) for link in path.split()] for path in cell.split("|")] if cell else None
            for cell in good.column("paths").to_pylist()
        ],
        "sent": good.column("sent"),
        "lost": good.column("lost"),
        "retransmissions": good.column("retransmissions"),
    }
    for name in data.draw(st.sets(st.sampled_from(sorted(columns)), min_size=1, max_size=2)):
        value = data.draw(VALUES)
        made = [value] * good.num_rows
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**60:
            made = [value + i for i in range(good.num_rows)]
        columns[name] = made
    path = parquet(files.observations.with_suffix(".parquet"), columns)
    fabric = read_fabric(files.fabric)
    check(lambda: read_observations(path, fabric))


def test_the_check_itself_notices(files: Files) -> None:
    """A reader that lets another error out, or a line break in it, fails `check`."""
    with pytest.raises(KeyError):
        check(lambda: {}["nothing"])
    with pytest.raises(AssertionError):
        check(lambda: (_ for _ in ()).throw(TableError("two\nlines")))
    check(files.read)
