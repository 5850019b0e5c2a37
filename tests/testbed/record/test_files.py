# SPDX-License-Identifier: Apache-2.0
"""CSV as spreadsheets and others write it, and files that cannot be written."""

from __future__ import annotations

import codecs
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from analysis.telemetry.reading import read_observations
from scenarios.command.localize import export
from scenarios.command.plan import write_plan
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.probe_matrix.matrix import probe_matrix
from testbed.record.fabric_file import read_fabric
from testbed.record.files import read_columns, write_columns
from testbed.record.schema import TableError
from tests.analysis.telemetry.conftest import FABRIC, OBSERVATIONS, Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def as_excel(text: str) -> bytes:
    """As Excel saves "CSV UTF-8": a byte-order mark, CRLF, the first line filled up."""
    head, *lines = text.splitlines()
    head += "," * lines[0].count(",")
    return codecs.BOM_UTF8 + "\r\n".join([head, *lines, ""]).encode()


def test_csv_as_a_spreadsheet_saves_it_is_read(files: Files) -> None:
    before = files.read()
    files.fabric.write_bytes(as_excel(FABRIC))
    files.observations.write_bytes(as_excel(OBSERVATIONS))
    after = files.read()
    assert after.topology.link_names == before.topology.link_names
    for part, columns in (
        ("probes", ("sent", "lost")),
        ("flows", ("path_set", "sent", "lost")),
        ("segments", ("sent", "lost")),
        ("connections", ("src_tor", "lost", "complete")),
    ):
        for column in columns:
            a, b = (getattr(getattr(t, part), column) for t in (before, after))
            assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.encode("utf-16"), "is in UTF-16: save it as CSV in UTF-8"),
        (lambda text: text.replace(",", ";").encode(), "semicolons separate the columns: commas"),
        (lambda text: text.replace("leaf1", "läf1").encode("latin-1"), "it is not in UTF-8"),
        (lambda text: text.replace("kind", "känd").encode("latin-1"), "the second line must"),
        (lambda text: text.replace("kind", "k" * 10**6).encode(), "is unknown: known are"),
        (lambda text: text.replace("kind", "\x1b[31m").encode(), r"column '\x1b[31m' is unknown"),
        (lambda text: text.replace("active", "a" * 6_000_000, 1).encode(), "none of active"),
        (lambda text: text.replace("10 11", "9" * 6_000_000, 1).encode(), "a whole number is"),
        (lambda text: text.replace("leaf1,,", "b" * 70_000 + ",,", 1).encode(), "is not a switch"),
        (lambda text: text.replace(" 1\n", " " + "1" * 9999 + "\n", 1).encode(), "is of version"),
        (lambda text: text.encode() + b"\0" * 5000 + b"\n", "Expected"),
    ],
)
def test_a_csv_that_is_none_says_so_in_a_short_line(
    files: Files, change: Callable[[str], bytes], reason: str
) -> None:
    files.observations.write_bytes(change(OBSERVATIONS))
    with pytest.raises(TableError) as raised:
        files.read()
    message = str(raised.value)
    assert message.startswith(str(files.observations)) and reason in message
    assert message.isprintable() and len(message) < 500


def test_a_long_field_is_read(files: Files) -> None:
    """A row of many possible paths is longer than what is read at a time."""
    bounces = np.array(["10 11 ", "30 31 "])[np.arange(2**16)[:, None] >> np.arange(16) & 1]
    paths = "|".join("".join(bounce) + "10 21" for bounce in bounces)
    assert len(paths) > 6_000_000
    files.observations.write_text(OBSERVATIONS + f"99,passive,,,,{paths},,400,90,\n")
    flows = files.read().flows
    assert flows is not None and isinstance(flows.sets, PairSets)
    assert flows.sets.expanded().width[flows.path_set[-1]] == 2**16


def test_a_path_that_no_packet_can_take_is_refused(files: Files) -> None:
    path = "10 11 " * 1_000_000 + "10 21"
    files.observations.write_text(OBSERVATIONS + f"99,passive,,,,{path},,400,90,\n")
    message = r"row 14 \(id 99\): a path has 2,000,002 links: no packet crosses more than 255"
    with pytest.raises(TableError, match=message):
        files.read()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can have more than a few bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_export_to_a_full_disk_names_the_file_and_leaves_none(
    run_path: Path, tmp_path: Path, suffix: str
) -> None:
    message = f"cannot write .*/out/fabric{suffix}: File too large"
    with full_disk(), pytest.raises(TableError, match=message):
        export(run_path, tmp_path / "out", suffix)
    assert not list((tmp_path / "out").iterdir())


def test_results_on_a_full_disk_name_the_file_and_keep_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "ranking.parquet"
    write_columns(path, {"link": np.arange(3)})
    before = path.read_bytes()
    with full_disk(), pytest.raises(TableError, match=f"cannot write {path}: File too large"):
        write_columns(path, {"link": np.arange(1000)})
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    matrix = probe_matrix(FatTree(4), 1, 1)
    with full_disk(), pytest.raises(TableError, match=f"cannot write {tmp_path}/plan.parquet"):
        write_plan(matrix, tmp_path / "plan.parquet")


def test_damaged_results_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "seed-1.parquet"
    write_columns(
        path, {"seed": np.ones(150, np.int64), "f1": np.random.default_rng(1).random(150)}
    )
    whole = path.read_bytes()
    refused = 0
    for at in range(4, len(whole), 37):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            read_columns(path)
        except TableError as error:
            assert str(error) == f"{path} is not readable Parquet"
            refused += 1
    assert refused > 40


def test_a_fabric_says_what_is_wrong_in_a_spreadsheets_file(files: Files) -> None:
    files.fabric.write_bytes(as_excel(FABRIC.replace("fabric 1", "fabric 2")))
    with pytest.raises(TableError, match="is of version '2'"):
        read_fabric(files.fabric)
    files.fabric.write_text(FABRIC)
    files.observations.write_bytes(codecs.BOM_UTF8)
    with pytest.raises(TableError, match="the first line must be"):
        read_observations(files.observations, read_fabric(files.fabric))
