# SPDX-License-Identifier: Apache-2.0
"""Tables as other programs write them: read with a receipt, or refused with the way out."""

from __future__ import annotations

import codecs
import gzip
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import Telemetry
from analysis.telemetry.writing import write_observations
from scenarios import localize
from testbed.record.fabric_file import read_fabric
from testbed.record.foreign import Receipt
from testbed.record.schema import TableError
from tests.analysis.telemetry.conftest import FABRIC, OBSERVATIONS

HEAD, NAMES, *ROWS = OBSERVATIONS.splitlines()
TEXT = "\n".join([NAMES, *ROWS]) + "\n"
TABLE = pd.read_csv(io.StringIO(TEXT))
METHODS = ("flock", "netbouncer", "007", "canary-mle", "mle", "detector")


def frame() -> pd.DataFrame:
    """The observations with lists in Python, as a notebook makes them."""
    made = TABLE.copy()
    made["paths"] = [
        [[int(link) for link in path.split()] for path in text.split("|")]
        if isinstance(text, str)
        else None
        for text in TABLE["paths"]
    ]
    made["nodes"] = [[text.split()] if isinstance(text, str) else None for text in TABLE["nodes"]]
    return made


def parquet(data: pd.DataFrame, **options: Any) -> bytes:
    out = io.BytesIO()
    data.to_parquet(out, **options)
    return out.getvalue()


def csv(data: pd.DataFrame, **options: Any) -> bytes:
    return data.to_csv(**options).encode()


def of_r(data: pd.DataFrame, separator: str, names: bool) -> bytes:
    """As R's write.csv (a name "" over the row names) or write.table (no name) writes."""
    text = data.to_csv(sep=separator, na_rep="NA", index_label="", quoting=2)
    head, *rows = text.splitlines()
    head = head if names else head.partition(separator)[2]
    rows = [re.sub(r"^(\d+)", r'"\1"', row) for row in rows]
    return "\n".join([head, *rows, ""]).encode()


def replaced(*pairs: tuple[str, str]) -> bytes:
    text = TEXT
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text.encode()


def lines(change: Callable[[list[str]], list[str]]) -> bytes:
    all_lines: list[str] = [*TEXT.splitlines()]
    return "\n".join([*change(all_lines), ""]).encode()


def polars_like(data: pd.DataFrame) -> bytes:
    """Long texts and lists, as polars writes Parquet."""
    out, table = io.BytesIO(), pa.Table.from_pandas(data, preserve_index=False)
    for i, field in enumerate(table.schema):
        kind = field.type
        if pa.types.is_string(kind):
            table = table.set_column(i, field.name, table.column(i).cast(pa.large_string()))
        elif pa.types.is_list(kind):
            inner = pa.large_string() if field.name == "nodes" else pa.int64()
            large = pa.large_list(pa.large_list(inner))
            table = table.set_column(i, field.name, table.column(i).cast(large))
    pq.write_table(table.replace_schema_metadata(None), out)
    return out.getvalue()


def typed(**types: str) -> pd.DataFrame:
    return frame().astype(types)


LINK = {10: "leaf0->spine0", 11: "spine0->leaf0", 20: "leaf1->spine0", 21: "spine0->leaf1",
        30: "leaf0->spine1", 31: "spine1->leaf0", 40: "leaf1->spine1",
        41: "spine1->leaf1"}  # fmt: skip


def by_name(text: object) -> object:
    if not isinstance(text, str):
        return text
    return re.sub(r"\d+", lambda number: LINK[int(number[0])], text)


def joined(text: object, mark: str) -> object:
    return text.replace(" ", mark) if isinstance(text, str) else text


VARIANTS: dict[str, tuple[str, bytes, str]] = {
    # name: suffix, content, a part of the receipt
    "to_parquet": (".parquet", parquet(frame(), index=False), "does not say which table"),
    "to_parquet with its index": (".parquet", parquet(frame(), index=True), "index of the rows"),
    "to_parquet, an index by name": (
        ".parquet", parquet(frame().set_index("id")), "does not say"),
    "to_parquet, shuffled": (".parquet", parquet(frame().sample(frac=1, random_state=1)), "index"),
    "paths as text": (".parquet", parquet(TABLE, index=False), "does not say"),
    ".pq": (".pq", parquet(frame(), index=False), "does not say"),
    ".parq": (".parq", parquet(frame(), index=False), "does not say"),
    "polars": (".parquet", polars_like(frame()), "does not say"),
    "categories": (".parquet", parquet(typed(kind="category", src="category")), "does not say"),
    "numbers as text": (
        ".parquet", parquet(frame().assign(sent=TABLE["sent"].astype(str)), index=False), "nan"),
    "floats": (".parquet", parquet(typed(sent="float64", id="float64")), "does not say"),
    "int8 and uint64": (".parquet", parquet(typed(id="uint64"), compression="gzip"), ""),
    "nullable integers": (".parquet", parquet(typed(sent="Int64", lost="Int64")), ""),
    "Arrow's texts": (".parquet", parquet(typed(kind="string", src="string")), ""),
    "extra columns": (
        ".parquet", parquet(frame().assign(host="h1", when=pd.Timestamp(0))), "'host', 'when'"),
    "no id": (".parquet", parquet(frame().drop(columns="id")), "ids numbered from 0"),
    "one list a path": (
        ".parquet",
        parquet(frame()[lambda f: f["kind"] == "segment"].assign(
            paths=lambda f: [row[0] for row in f["paths"]])),
        "a list in paths is one path"),
    "empty lists": (
        ".parquet",
        parquet(frame().assign(nodes=[row or [] for row in frame()["nodes"]])),
        "empty lists in nodes read as missing"),
    "to_csv": (".csv", csv(TABLE), "the index of the rows left out"),
    "to_csv, no index": (".csv", csv(TABLE, index=False), ""),
    "to_csv, NA": (".csv", csv(TABLE, index=False, na_rep="NA"), "NA and the like in sent"),
    "to_csv, NaN": (".csv", csv(TABLE, index=False, na_rep="NaN"), "read as missing"),
    "to_csv, <NA>": (".csv", csv(TABLE, index=False, na_rep="<NA>"), "read as missing"),
    "to_csv, null": (".csv", csv(TABLE, index=False, na_rep="null"), "read as missing"),
    "to_csv, None": (".csv", csv(TABLE, index=False, na_rep="None"), "read as missing"),
    "to_csv, N": (".csv", csv(TABLE, index=False, na_rep="\\N"), "read as missing"),
    "to_csv of lists": (".csv", csv(frame(), index=False), "paths read from lists in text"),
    "to_csv of arrays": (
        ".csv",
        csv(frame().assign(paths=[r and [np.array(p) for p in r] for r in frame()["paths"]])),
        "paths read from lists in text"),
    "to_csv, quoted": (".csv", csv(TABLE, index=False, quoting=1), ""),
    "to_csv, floats": (".csv", csv(TABLE.astype({"id": float}), index=False), ""),
    "R's write.csv": (".csv", of_r(TABLE, ",", True), "the index of the rows left out"),
    "R's write.table, commas": (".csv", of_r(TABLE, ",", False), "index of the rows left out"),
    "R's write.table": (".txt", of_r(TABLE, " ", False), "blanks separate the columns"),
    "R's write.csv2": (".csv", of_r(TABLE, ";", True), "semicolons separate the columns"),
    "tabs": (".tsv", csv(TABLE, index=False, sep="\t"), "tabs separate the columns"),
    "tabs in .csv": (".csv", csv(TABLE, index=False, sep="\t"), "tabs separate the columns"),
    ".tab": (".tab", csv(TABLE, sep="\t"), "tabs separate the columns"),
    "bars": (".csv", csv(TABLE, index=False, sep="|"), "bars separate the columns"),
    "Excel's Unicode text": (
        ".txt", csv(TABLE, index=False, sep="\t").decode().encode("utf-16"), "UTF-16 read"),
    "a byte-order mark": (".csv", codecs.BOM_UTF8 + TEXT.encode(), ""),
    "a first line with commas": (
        ".csv", lines(lambda all: [HEAD + "," * 9, *all]).replace(b"\n", b"\r\n"), ""),
    "CRLF": (".csv", TEXT.replace("\n", "\r\n").encode(), ""),
    "a blank line at the end": (".csv", (TEXT + "\n").encode(), ""),
    "blank lines between": (".csv", TEXT.replace("\n", "\n\n").encode(), ""),
    "a comment first": (".csv", ("# made on Tuesday\n" + TEXT).encode(), ""),
    "NumPy's comment of names": (".csv", ("# " + TEXT).encode(), ""),
    "gzip": (".csv.gz", gzip.compress(TEXT.encode()), ""),
    "tabs and gzip": (".tsv.gz", gzip.compress(csv(TABLE, index=False, sep="\t")), "tabs"),
    "capital names": (".csv", replaced((NAMES, NAMES.title())), "column 'Kind' is kind"),
    "blanks in names": (".csv", replaced((NAMES, NAMES.replace(",", ", "))), "column ' kind'"),
    "blanks around values": (".csv", replaced((",active,", ", Active ,"), ("100,", " 100 ,")), ""),
    "rows in another order": (
        ".csv", lines(lambda all: [all[0], *all[:0:-1]]), ""),
    "columns in another order": (".csv", csv(TABLE.loc[:, ::-1], index=False), ""),
    "names of links": (".csv", csv(TABLE.assign(paths=TABLE["paths"].map(by_name))), "index"),
    "names of links in lists": (
        ".parquet",
        parquet(frame().assign(
            paths=[r and [[LINK[n] for n in p] for p in r] for r in frame()["paths"]])),
        "does not say"),
    "arrows between nodes": (
        ".csv", csv(TABLE.assign(nodes=TABLE["nodes"].map(lambda t: joined(t, "->")))), "index"),
    "links as nodes": (
        ".csv",
        replaced(("leaf1 spine1 leaf1", "leaf1->spine1 spine1->leaf1")),
        ""),
    "a few empty columns": (".csv", lines(lambda all: [line + ",," for line in all]), "left out"),
}  # fmt: skip


def read(path: Path, folder: Path) -> tuple[Telemetry, list[str]]:
    (folder / "own.csv").write_text(FABRIC)
    receipt = Receipt()
    return read_observations(path, read_fabric(folder / "own.csv"), receipt), receipt.lines()


def content(telemetry: Telemetry, path: Path) -> str:
    """The observations, sorted: order and numbers of rows do not count."""
    write_observations(path, telemetry)
    head, names, *rows = path.read_text().splitlines()
    return "\n".join([head, names, *sorted(row.partition(",")[2] for row in rows)])


@pytest.mark.parametrize("name", VARIANTS)
def test_a_table_of_another_program_is_read_with_a_receipt(name: str, tmp_path: Path) -> None:
    suffix, data, noted = VARIANTS[name]
    path = tmp_path / f"theirs{suffix}"
    path.write_bytes(data)
    if name == "one list a path":
        telemetry, receipt = read(path, tmp_path)
        assert telemetry.segments is not None and telemetry.segments.sent.sum() == 2900
    else:
        telemetry, receipt = read(path, tmp_path)
        (tmp_path / "whole.csv").write_text(OBSERVATIONS)
        whole, nothing = read(tmp_path / "whole.csv", tmp_path)
        assert content(telemetry, tmp_path / "a.csv") == content(whole, tmp_path / "b.csv")
        assert not nothing  # a table of ours takes nothing
    message = " ".join(receipt)
    assert noted.replace("nan", "") in message and len(receipt) <= 1 and message.isprintable()
    if noted:
        assert message.startswith(f"theirs{suffix}: ")


def test_there_are_fifty_variants() -> None:
    assert len(VARIANTS) >= 50


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.xlsx", b"PK\x03\x04", "save the table as CSV or Parquet"),
        ("a.feather", b"ARROW1", "save the table as CSV or Parquet"),
        ("a.json", b"[]", "save the table as CSV or Parquet"),
        ("a.csv", TEXT.encode()[:-1], "if it is not, add one"),
        ("a.csv", TEXT.encode().replace(b"leaf1", "läf1".encode("latin-1")), "in UTF-8"),
        ("a.csv", TEXT.partition("\n")[2].encode(), "column kind is missing: its columns are"),
        ("a.csv", b"\n\n", "no line names the columns"),
        ("a.csv", b"# localization-telemetry fabric 1\n" + TEXT.encode(), "'observations' is"),
        ("a.csv", b"# localization-telemetry observations 2\n" + TEXT.encode(), "version 1 is"),
        ("a.csv", replaced(("100,40", "100,NA")), "row 0 (id 1): lost is missing"),
        ("a.csv", replaced(("100,40", "1 00,40")), "a whole number is needed"),
        ("a.csv", replaced(("100,40", "100,400")), "lost is 400, more than the 100 sent"),
        ("a.csv", replaced(("\n2,", "\n1,")), "row 0 has the same id"),
        ("a.csv", replaced((NAMES, NAMES.replace("epoch", "Kind"))), "column kind is given twice"),
        ("a.csv", replaced(("10 11,", "leaf0->spine7,")), "link 'leaf0->spine7' is not in the"),
        ("a.csv", replaced(("leaf1 spine1 leaf1", "leaf1 spine1#2 leaf1")), "no link leads from"),
        ("a.csv", replaced(("\n3,", "\n3,,,")), "Expected 10 columns, got 12"),
        ("a.parquet", parquet(frame().drop(columns="kind")), "column kind is missing"),
        ("a.parquet", parquet(frame())[:-9], "cut off or damaged"),
    ],
)
def test_what_would_change_a_row_is_refused(
    name: str, data: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(TableError) as raised:
        read(path, tmp_path)
    message = str(raised.value)
    assert message.startswith(str(path)) and reason in message
    assert message.isprintable() and len(message) < 500


class Stream:
    """What polars, DuckDB and others have: columns behind Arrow's stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested: object = None) -> object:
        return self._table.__arrow_c_stream__(requested)


def blamed(fabric: Any, observations: Any) -> dict[str, list[str]]:
    return {name: localize(fabric, observations, name).blamed for name in METHODS}


def test_verdicts_do_not_depend_on_the_container(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(FABRIC)
    (tmp_path / "o.csv").write_text(OBSERVATIONS)
    fabric = pd.read_csv(tmp_path / "f.csv", skiprows=1)
    lists, texts = frame(), TABLE
    arrow = pa.Table.from_pandas(lists, preserve_index=False)
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(3):
        TABLE.iloc[i::3].to_csv(folder / f"part-{i}.csv", index=False)
    mixed = tmp_path / "typed"
    mixed.mkdir()
    frame().iloc[:5].to_parquet(mixed / "a.parquet", index=False)
    frame().iloc[5:].to_parquet(mixed / "b.parquet")
    wanted = blamed(tmp_path / "f.csv", tmp_path / "o.csv")
    assert wanted["flock"] == ["leaf0->spine0"] or wanted["flock"]
    for observations in (
        lists, texts, arrow, Stream(arrow), arrow.to_batches()[0], arrow.to_pydict(),
        arrow.to_pylist(), lists.set_index("id"), folder, mixed, of_views(arrow),
    ):  # fmt: skip
        assert blamed(fabric, observations) == wanted
    for links in (fabric.set_index("link"), Stream(pa.Table.from_pandas(fabric))):
        assert blamed(links, lists) == wanted


def of_views(table: pa.Table) -> pa.Table:
    """A table whose kinds are categories of text views, as polars hands them over."""
    codes = table.column("kind").combine_chunks().dictionary_encode()
    kinds = pa.DictionaryArray.from_arrays(codes.indices, codes.dictionary.cast(pa.string_view()))
    return table.set_column(table.column_names.index("kind"), "kind", kinds)


def test_frames_and_files_of_polars_give_the_verdicts(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    (tmp_path / "f.csv").write_text(FABRIC)
    (tmp_path / "o.csv").write_text(OBSERVATIONS)
    wanted = blamed(tmp_path / "f.csv", tmp_path / "o.csv")
    fabric = pl.read_csv(tmp_path / "f.csv", skip_rows=1)
    texts, lists = pl.read_csv(tmp_path / "o.csv", skip_rows=1), pl.from_pandas(frame())
    kinds = ["kind", "src", "dst"]
    frames = {
        "texts": texts,
        "lists": lists,
        "categories": lists.with_columns(pl.col(kinds).cast(pl.Categorical)),
        "small integers": lists.with_columns(pl.col(["epoch", "sent", "lost"]).cast(pl.UInt16)),
        "decimals": lists.with_columns(pl.col("sent").cast(pl.Decimal(10, 2))),
        "a row index": lists.with_row_index(),
        "two chunks": pl.concat([lists[:3], lists[3:]], rechunk=False),
    }
    for name, each in frames.items():
        assert blamed(fabric, each) == wanted, name
        each.write_parquet(tmp_path / "o.parquet")
        assert blamed(fabric, tmp_path / "o.parquet") == wanted, name
    for options in ({}, {"null_value": "NA"}, {"separator": "\t"}, {"quote_style": "always"}):
        texts.write_csv(tmp_path / "theirs.csv", **options)
        assert blamed(fabric, tmp_path / "theirs.csv") == wanted, options
    lists.with_columns(pl.col("sent").cast(pl.Int128)).write_parquet(tmp_path / "wide.parquet")
    with pytest.raises(ValueError, match="type that cannot be read .*as 64-bit integers"):
        localize(fabric, tmp_path / "wide.parquet", "flock")
    with pytest.raises(ValueError, match="'LazyFrame': .* collect it first"):
        localize(fabric, texts.lazy(), "flock")


def test_a_lazy_frame_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(FABRIC)
    with pytest.raises(ValueError, match="'LazyFrame': .* collect it first"):
        localize(tmp_path / "f.csv", type("LazyFrame", (), {})(), "flock")
    with pytest.raises(ValueError, match="^observations: "):
        localize(tmp_path / "f.csv", pd.DataFrame({"id": [1, "x"]}), "flock")


def test_links_between_the_same_switches_have_names(tmp_path: Path) -> None:
    cables = [("leaf0", "spine0"), ("leaf0", "spine0"), ("leaf1", "spine0")]
    rows = [f"{a},{b},{x},{y}" for a, b in cables for a, b, x, y in ((a, b, 0, 1), (b, a, 1, 0))]
    (tmp_path / "f.csv").write_text("src,dst,src_tier,dst_tier\n" + "\n".join(rows) + "\n")
    receipt = Receipt()
    fabric = read_fabric(tmp_path / "f.csv", receipt)
    assert receipt.lines() == ["f.csv: links numbered from 0 by their rows"]
    for column, way in (
        ("paths", "leaf0->spine0#2 spine0->leaf1"),
        ("nodes", "leaf0 spine0#2 leaf1"),
        ("nodes", "leaf0->spine0#2->leaf1"),
        ("nodes", "leaf0->spine0#2 spine0->leaf1"),
    ):
        (tmp_path / "o.csv").write_text(f"kind,{column},sent,lost\nactive,{way},9,1\n")
        probes = read_observations(tmp_path / "o.csv", fabric, Receipt()).probes
        assert probes is not None
        names = [fabric.fabric.link_names[link] for link in probes.paths.links]
        assert names == ["leaf0->spine0#2", "spine0->leaf1"]
    (tmp_path / "o.csv").write_text("kind,nodes,sent,lost\nactive,leaf0 spine0 leaf1,9,1\n")
    with pytest.raises(TableError, match=r"several links lead .* or spine0#2 for the second"):
        read_observations(tmp_path / "o.csv", fabric, Receipt())
