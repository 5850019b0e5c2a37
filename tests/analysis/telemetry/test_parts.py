# SPDX-License-Identifier: Apache-2.0
"""A part is checked as a file of observations is, whatever program wrote it."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.telemetry.parts import read_part, write_part
from testbed.fabric.clos import Fabric
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from testbed.record.schema import TableError

FABRIC: Fabric = FatTree(4)
FITS = next(
    [int(a), int(b)]
    for a in range(FABRIC.n_links)
    for b in range(FABRIC.n_links)
    if FABRIC.link_dst[a] == FABRIC.link_src[b] and FABRIC.link_src[a] != FABRIC.link_dst[b]
)
LIMIT = 10**15


def table(rows, path=pa.list_(pa.int64()), counts=pa.int64()):
    paths, sent, lost = zip(*rows, strict=True)
    return pa.table(
        {
            "path": pa.array(paths, path),
            "sent-0": pa.array(sent, counts),
            "lost-0": pa.array(lost, counts),
        }
    )


GOOD = [(FITS, 10_000, 0), (FITS[:1], 10_000, 30), (FITS[1:], 0, 0)]


def read(tmp_path, data):
    path = tmp_path / "part-000.parquet"
    pq.write_table(data, path)
    return read_part(path, FABRIC)


@pytest.mark.parametrize(
    "row",
    [
        ((FITS[::-1], 10_000, 300), "the links of a path do not join up"),
        (([0, 0], 10_000, 300), "the links of a path do not join up"),
        (([], 10_000, 300), "a path has no link"),
        ((FITS * 200, 10_000, 300), "a path has 400 links: no packet crosses more than 255"),
        (([FABRIC.n_links], 1, 0), f"link {FABRIC.n_links} is not in the fabric"),
        (([-1], 1, 0), "link -1 is not in the fabric"),
        (([2**40], 1, 0), "path: 1099511627776 does not fit into int32"),
        (([None], 1, 0), "path has a missing value in its list"),
        ((None, 1, 0), "path is missing"),
        ((FITS, None, 0), "sent-0 is missing"),
        ((FITS, 1, None), "lost-0 is missing"),
        ((FITS, -1, 0), "sent-0 is -1: 0 to 10\\^15 is needed"),
        ((FITS, 1, -1), "lost-0 is -1: 0 to 10\\^15 is needed"),
        ((FITS, LIMIT + 1, 0), "sent-0 is 1000000000000001: 0 to 10\\^15 is needed"),
        ((FITS, 2, 3), "lost-0 is 3, more than the 2 sent"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused_with_its_number(tmp_path, row):
    bad, reason = row
    with pytest.raises(TableError, match=f"part-000.parquet: row 3: .*{reason}"):
        read(tmp_path, table([*GOOD, bad]))


def test_packets_that_do_not_add_up_are_refused(tmp_path):
    with pytest.raises(TableError, match="sent-0 adds up to more than"):
        read(tmp_path, table([(FITS, LIMIT, 0)] * 2000))


@pytest.mark.parametrize(
    "kinds",
    [
        (pa.list_(pa.int64()), pa.int64()),
        (pa.large_list(pa.int64()), pa.int64()),  # polars
        (pa.large_list(pa.uint16()), pa.uint32()),
        (pa.list_(pa.int32()), pa.float64()),  # pandas, where a count was missing once
        (pa.list_(pa.float64()), pa.int16()),
    ],
)
def test_what_others_write_is_read_alike(tmp_path, kinds):
    counts = read(tmp_path, table(GOOD, *kinds))
    assert counts.segments.paths.links.tolist() == [*FITS, *FITS]
    assert counts.segments.paths.links.dtype == np.int32
    assert counts.sent.tolist() == [[10_000, 10_000, 0]]
    assert counts.lost.tolist() == [[0, 30, 0]]


def test_what_pandas_reads_and_writes_again_is_the_same(tmp_path):
    path = tmp_path / "part-000.parquet"
    ptr = np.array([0, 2, 3, 4])
    links = np.array([*FITS, *FITS], np.int32)
    sent, lost = np.arange(6).reshape(2, 3) + 10, np.arange(6).reshape(2, 3)
    write_part(path, Paths(ptr, links), sent, lost)
    pd.read_parquet(path).to_parquet(path)
    counts = read_part(path, FABRIC)
    assert (counts.sent == sent).all()
    assert (counts.lost == lost).all()
    assert counts.segments.paths.links.tolist() == links.tolist()


@pytest.mark.parametrize(
    "columns",
    [{"id": [1], "kind": ["active"]}, {"path": [[0]]}, {"path": [[0]], "sent-0": [1], "x": [0]}],
)
def test_a_folder_of_something_else_is_said(tmp_path, columns):
    with pytest.raises(TableError, match="is not a part: it needs the columns path"):
        read(tmp_path, pa.table(columns))


@pytest.mark.parametrize("column", [["a"], [[["x"]]], [1.5], [{"a": 1}]])
def test_columns_of_another_type_are_refused_in_one_line(tmp_path, column):
    for name in ("path", "sent-0"):
        data = table([(FITS[:1], 1, 0)]).to_pydict() | {name: column}
        with pytest.raises(TableError) as refused:
            read(tmp_path, pa.table(data))
        assert len(str(refused.value).splitlines()) == 1
