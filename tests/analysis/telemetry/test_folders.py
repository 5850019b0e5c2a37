# SPDX-License-Identifier: Apache-2.0
"""Observations in a folder of files, as Spark, Dask and polars write a table."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import Telemetry
from analysis.telemetry.writing import write_observations
from testbed.record.fabric_file import read_fabric, write_fabric
from testbed.record.schema import TableError
from tests.analysis.telemetry.conftest import FABRIC, Files, spark_folder

SUFFIXES = [".csv", ".csv.gz", ".snappy.parquet"]


@pytest.fixture
def whole(files: Files) -> Telemetry:
    return files.read()


def parts_of(telemetry: Telemetry, folder: Path, n: int, suffix: str, stated: bool) -> list[bytes]:
    """The observations in ``n`` files; ``stated``: each says what it is."""
    folder.mkdir(exist_ok=True)
    whole, part = folder / f"whole{suffix}".replace(".gz", ""), folder / "part"
    write_observations(whole, telemetry)
    if whole.suffix == ".parquet":
        table = pq.read_table(whole)
        made: list[bytes] = []
        for i in range(n):
            rows = table.slice(len(table) * i // n, len(table) * (i + 1) // n - len(table) * i // n)
            pq.write_table(rows if stated else rows.replace_schema_metadata(None), part)
            made.append(part.read_bytes())
        return made
    first, names, *lines = whole.read_text().splitlines()
    made = []
    for i in range(n):
        rows = lines[len(lines) * i // n : len(lines) * (i + 1) // n]
        data = ("\n".join([*[first] * stated, names, *rows]) + "\n").encode()
        made.append(gzip.compress(data) if suffix == ".csv.gz" else data)
    return made


def as_csv(telemetry: Telemetry, path: Path) -> str:
    write_observations(path, telemetry)
    return path.read_text()


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_is_read_as_the_one_file_is(
    whole: Telemetry, tmp_path: Path, suffix: str, n: int, stated: bool
) -> None:
    write_fabric(tmp_path / "numbered.csv", whole.topology)
    spark_folder(
        tmp_path / "folder", parts_of(whole, tmp_path / "parts", n, suffix, stated), suffix
    )
    found = read_observations(tmp_path / "folder", read_fabric(tmp_path / "numbered.csv"))
    assert as_csv(found, tmp_path / "found.csv") == as_csv(whole, tmp_path / "whole.csv")


def test_one_compressed_file_is_read_as_well(
    files: Files, whole: Telemetry, tmp_path: Path
) -> None:
    path = tmp_path / "observations.csv.gz"
    path.write_bytes(gzip.compress(files.observations.read_bytes()))
    found = read_observations(path, read_fabric(files.fabric))
    assert as_csv(found, tmp_path / "found.csv") == as_csv(whole, tmp_path / "whole.csv")


def test_a_fabric_may_be_a_folder_too(files: Files) -> None:
    _, names, *rows = FABRIC.splitlines()
    data = ["\n".join([names, *rows[at : at + 3]]).encode() + b"\n" for at in (0, 3, 6)]
    one = read_fabric(files.fabric)
    spark_folder(files.fabric.with_suffix(""), data, ".csv")
    several = read_fabric(files.fabric.with_suffix(""))
    assert (one.link_ids == several.link_ids).all()
    assert one.fabric.switch_names == several.fabric.switch_names


def test_parts_of_several_types_are_one_table(files: Files, tmp_path: Path) -> None:
    """A part in which nothing is missing has integers, another floats, one without rows none."""
    several = [
        {"id": pa.array([1], pa.int8()), "kind": ["active"], "paths": [[[10, 11]]], "sent": [9],
         "lost": pa.array([1.0])},
        {"kind": pa.array(["active"]).dictionary_encode(), "id": [2], "sent": pa.array([9.0]),
         "paths": pa.array([[[30, 31]]], pa.large_list(pa.large_list(pa.int32()))), "lost": [0]},
        {"id": pa.array([], pa.int64()), "kind": pa.nulls(0)},
    ]  # fmt: skip
    data: list[bytes] = []
    for columns in several:
        pq.write_table(pa.table(columns), tmp_path / "part")
        data.append((tmp_path / "part").read_bytes())
    spark_folder(tmp_path / "folder", data, ".parquet")
    probes = read_observations(tmp_path / "folder", read_fabric(files.fabric)).probes
    assert probes and probes.sent.tolist() == [9, 9] and probes.lost.tolist() == [1, 0]


def test_a_number_used_in_two_parts(files: Files) -> None:
    files.observations.write_text(files.observations.read_text().replace("\n14,", "\n2,"))
    _, _, last = files.split(5)
    with pytest.raises(TableError) as raised:
        files.read()
    assert (
        str(raised.value)
        == f"{last}: row 3 (id 2): row 1 of part-00000-8a2f-c000.csv has the same id"
    )


Change = Callable[[Path], object]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f: (f / "year=2026").mkdir(), "year=2026 is a folder of one value of a column"),
        (lambda f: (f / "more").mkdir(), "more is no part"),
        (lambda f: (f / "notes.txt").write_text("x"), "notes.txt is no part"),
        (lambda f: (f / "_temporary").mkdir(), "is not finished: it holds the folder _temporary"),
        (lambda f: (f / "part-9.parquet").write_bytes(b"PAR1"), "has CSV and Parquet files"),
        (lambda f: [p.unlink() for p in f.glob("part*")], "has no .parquet, .csv or .csv.gz file"),
        (lambda f: (f / "part-9.csv").write_bytes(b""), "part-9.csv is empty"),
        (
            lambda f: (f / "part-9.csv").write_text("id,kind"),
            "part-9.csv: the last line has no line break",
        ),
        (lambda f: (f / "part-9.csv").write_text("id;kind\n"), "part-9.csv: semicolons separate"),
        (lambda f: (f / "part-9.csv").write_text("id,what\n"), "part-9.csv: column 'what' is unk"),
        (lambda f: (f / "part-9.csv").write_text("id\n15\n"), "part-9.csv: column kind is missing"),
        (
            lambda f: (f / "part-9.csv").write_text("15,active,,\n"),
            "part-9.csv: column '15' is unk",
        ),
        (
            lambda f: (f / "part-9.csv").write_text("# localization-telemetry fabric 1\nid,kind\n"),
            "part-9.csv says 'localization-telemetry' 'fabric'",
        ),
        (
            lambda f: (f / "part-9.csv").write_text(
                "# localization-telemetry observations 7\nid,kind\n"
            ),
            "part-9.csv is of version '7'",
        ),
        (lambda f: (f / "part-9.csv.gz").write_bytes(b"no gzip"), "is no readable gzip file"),
        (
            lambda f: (f / "part-9.csv.gz").write_bytes(gzip.compress(b"id,kind\n" * 99)[:-9]),
            "part-9.csv.gz is no readable gzip file: cut off or damaged?",
        ),
        (lambda f: (f / "part-9.csv.gz").write_bytes(gzip.compress(b"")), "part-9.csv.gz is empty"),
    ],
)
def test_a_folder_that_is_no_table(files: Files, change: Change, reason: str) -> None:
    files.split(5)
    change(files.observations)
    with pytest.raises(TableError) as raised:
        files.read()
    assert reason in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("size", [8, -1, 0.5])
def test_a_parquet_part_that_is_cut_off(
    files: Files, whole: Telemetry, tmp_path: Path, size: float
) -> None:
    parts = parts_of(whole, tmp_path / "parts", 3, ".parquet", stated=False)
    parts[1] = parts[1][: int(size if size != 0.5 else len(parts[1]) / 2)]
    _, damaged, _ = spark_folder(tmp_path / "folder", parts, ".parquet")
    with pytest.raises(TableError) as raised:
        read_observations(tmp_path / "folder", read_fabric(files.fabric))
    assert (
        str(raised.value)
        == f"{damaged} is not a readable Parquet file: it may be cut off or damaged"
    )
