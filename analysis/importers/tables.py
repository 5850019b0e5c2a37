# SPDX-License-Identifier: Apache-2.0
"""Makes checked tables of a fabric and of observations from the rows that a reader yields."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from analysis.importers.places import HostRule, Places
from analysis.importers.reader import Importer, Row
from analysis.importers.registry import IMPORTERS
from analysis.importers.sources import ImportFileError, Source
from analysis.telemetry.reading import read_observations
from testbed.errors import UserError
from testbed.fabric.names import some_of
from testbed.record.exchange import OBSERVATIONS
from testbed.record.fabric_file import NumberedFabric, read_fabric
from testbed.record.foreign import PARQUET, TEXT, Receipt, table_in
from testbed.record.messages import first_line, shown
from testbed.record.schema import TableError

MOST_ROWS = 5_000_000
PLACES = "places.json"
"""The file beside an imported fabric that has the ToR of each host and the other end of each
interface."""

_TOR = re.compile(r"(leaf|tor|edge|access|rack)", re.IGNORECASE)
_HOST = re.compile(r"(host|server|srv|client|node|vm|pc|h)[-_]?\d", re.IGNORECASE)
_ENDINGS = {
    ".yml": ("clab",),
    ".yaml": ("clab",),
    ".json": ("batfish", "nodelink"),
    ".dot": ("dot",),
    ".gv": ("dot",),
    ".graphml": ("graphml",),
    ".gml": ("gml",),
    ".topo": ("htsim",),
    ".edgelist": ("edgelist",),
    ".edges": ("edgelist",),
}


@dataclass(frozen=True)
class Imported:
    """What an import made.

    Attributes:
        numbered: The fabric.
        links: The table of its links.
        places: What `PLACES` has, of an imported fabric.
        observations: The table of observations; None of a fabric alone.
        notes: What was left out or decided, a line each.
    """

    numbered: NumberedFabric
    links: pa.Table
    places: Mapping[str, Any]
    observations: pa.Table | None
    notes: Sequence[str]


def import_files(
    reader: Importer,
    files: Sequence[Path],
    topology: Path | None = None,
    hosts: str | None = None,
    tors: str | None = None,
) -> Imported:
    """Return the tables that a reader makes of files.

    Args:
        reader: The reader.
        files: The files of its format; of one for observations also the JSON file with the switch
            and the neighbour of each address.
        topology: The fabric of observations: a table, the folder of an import, or a file of one of
            the formats of fabrics, by its name's end.
        hosts: The rule from addresses to ToRs (`HostRule`), or a CSV or JSON file of both.
        tors: A pattern for the names of ToRs of a fabric, such as ``leaf*``.

    Raises:
        UserError: A file is not of the format (one line).
    """
    if reader.makes == "fabric":
        if topology is not None:
            raise UserError(f"{reader.name} is a format of fabrics: leave --topology out")
        return _fabric(reader, files, tors)
    if topology is None:
        raise UserError(f"{reader.name} has observations: name their fabric with --topology")
    fabric = read_topology(topology, tors)
    addresses: dict[str, tuple[str, str]] = {}
    kept = []
    for path in files:
        found = _addresses(path)
        addresses |= found
        kept += [] if found else [path]
    rule, of_hosts = _hosts(hosts)
    places = Places(
        fabric.numbered.fabric,
        rule,
        dict(fabric.places.get("hosts", {})) | of_hosts,
        fabric.places.get("interfaces", {}),
        addresses,
    )
    source = Source(kept)
    columns: dict[str, list[Any]] = {column.name: [] for column in OBSERVATIONS.columns[1:]}
    where: list[str] = []
    for row in _rows(reader, source, places):
        path = row.get("path")
        values = dict(row) | ({} if path is None else {"paths": _ids(path, fabric.numbered)})
        if (nodes := row.get("nodes")) is not None:
            values["nodes"] = [list(nodes)] if nodes else None
        for name, column in columns.items():
            column.append(values.get(name))
        where.append(source.where())
    if not where:
        raise ImportFileError(f"{_names(files)}: no {reader.name} rows in it")
    table = _table(columns)
    receipt = Receipt()
    try:
        read_observations(table, fabric.numbered, receipt)
    except TableError as error:
        message = re.sub(
            r"^observations: row (\d+)(?: \(id \d+\))?",
            lambda row: where[int(row[1])],
            str(error),
        )
        raise ImportFileError(message) from None
    notes = [note for note in receipt.entries.get("observations", ()) if "numbered" not in note]
    return Imported(fabric.numbered, fabric.links, fabric.places, table, [*fabric.notes, *notes])


def _rows(reader: Importer, source: Source, places: Places | None) -> Iterator[Row]:
    """Yield the rows of a reader; what it cannot read of a file is an error with the place."""
    rows = 0
    try:
        for row in reader.read(source, places):  # pyright: ignore[reportArgumentType]
            rows += 1
            if rows > MOST_ROWS:
                raise ImportFileError(f"{source.where()}: more than {MOST_ROWS:,} rows")
            yield row
    except ImportFileError:
        raise
    except UserError as error:
        raise ImportFileError(f"{source.where()}: {error}") from None
    except KeyError as error:
        raise ImportFileError(
            f"{source.where()}: {shown(error.args[0])} is missing: is it a file of the format "
            f"{reader.name}?"
        ) from None
    except (ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ImportFileError(
            f"{source.where()}: not as the format {reader.name} has it ({first_line(error)})"
        ) from None


def _ids(path: Sequence[int], numbered: NumberedFabric) -> list[list[int]]:
    """Return a path by columns of a matrix, which are the links by ascending number, as one by
    numbers of links."""
    order = sorted(numbered.link_ids.tolist())
    return [[order[column] for column in path]]


def _table(columns: Mapping[str, list[Any]]) -> pa.Table:
    kinds = {
        "text": pa.string(),
        "paths": pa.list_(pa.list_(pa.int64())),
        "node paths": pa.list_(pa.list_(pa.string())),
        "float64": pa.float64(),
    }
    made = {}
    for name, values in columns.items():
        if any(value is not None for value in values):
            made[name] = pa.array(values, kinds.get(OBSERVATIONS.column(name).type, pa.int64()))
    return pa.table(made).add_column(0, "id", pa.array(range(len(columns["kind"])), pa.int64()))


# ---- fabrics -------------------------------------------------------------------------------------


def read_topology(path: Path, tors: str | None) -> Imported:
    """Return the fabric of a table, of the folder of an import, or of a file of one of the formats
    of fabrics, by its name's end.

    Args:
        path: The file or the folder.
        tors: A pattern for the names of ToRs, such as ``leaf*``, where the format says no tiers.

    Raises:
        UserError: It is no fabric (one line).
    """
    table = table_in(path, "fabric")
    name = table.name.lower().removesuffix(".gz")
    if table.is_dir() or name.endswith((*PARQUET, *TEXT)):
        receipt = Receipt()
        numbered = read_fabric(table, receipt)
        known: Any = {}
        if (beside := path / PLACES).is_file():
            try:
                known = next(Source([beside]).values())
            except (ImportFileError, StopIteration):
                raise ImportFileError(f"{beside} is no JSON: import the fabric again") from None
        return Imported(numbered, _links(numbered), known, None, receipt.lines())
    formats = _ENDINGS.get(table.suffix.lower(), ())
    errors = []
    for each in formats:
        try:
            return _fabric(IMPORTERS[each], [table], tors)
        except UserError as error:
            errors.append(str(error))
    if errors:
        raise ImportFileError(errors[0])
    raise UserError(
        f"{path}: no fabric by its name: give a table, the folder of an import, or a file that "
        f"ends in {', '.join(_ENDINGS)}"
    )


def fabric_of_telemetry(source: Path | pa.Table, receipt: Receipt | None) -> NumberedFabric:
    """Return the fabric of observations: of a table, or, with a ``receipt``, of a file of one of
    the formats of fabrics, too, by its name's end.

    Raises:
        UserError: It is no fabric (one line).
    """
    if receipt is None or isinstance(source, pa.Table) or source.suffix.lower() not in _ENDINGS:
        return read_fabric(source, receipt)
    imported = read_topology(source, None)
    for note in imported.notes:
        receipt.note(source.name, note)
    return imported.numbered


def _fabric(reader: Importer, files: Sequence[Path], tors: str | None) -> Imported:
    """Return the fabric of a reader's cables."""
    cables = list(_rows(reader, Source(files), None))
    if not cables:
        raise ImportFileError(f"{_names(files)}: no {reader.name} links in it")
    roles: dict[str, str] = {}
    for cable in cables:
        for end in ("src", "dst"):
            if (role := cable[f"{end}_role"]) is not None:
                roles[cable[end]] = str(role)
    names = dict.fromkeys(cable[end] for cable in cables for end in ("src", "dst"))
    beside: dict[str, set[str]] = {name: set() for name in names}
    for cable in cables:
        beside[cable["src"]].add(cable["dst"])
        beside[cable["dst"]].add(cable["src"])
    chosen = _tors(names, beside, roles, tors, files)
    ends = {
        name
        for name in names
        if name not in chosen and len(beside[name]) == 1 and beside[name] <= chosen
    }
    others = {_word(name) for name in names if name not in ends}
    above = any(name not in chosen and name not in ends for name in names)
    hosts = {
        name: next(iter(beside[name]))
        for name in names
        if name in ends
        and (_is_host(name, roles) or (above and name not in roles and _word(name) not in others))
    }
    columns: dict[str, list[Any]] = {n: [] for n in ("src", "dst", "src_tier", "dst_tier")}
    interfaces: dict[str, dict[str, str]] = {}
    for cable in cables:
        a, b = cable["src"], cable["dst"]
        if a in hosts or b in hosts:
            continue
        for (src, dst), port in (((a, b), cable["src_port"]), ((b, a), cable["dst_port"])):
            for column, value in zip(
                columns.values(),
                (src, dst, 0 if src in chosen else None, 0 if dst in chosen else None),
                strict=True,
            ):
                column.append(value)
            if port is not None:
                interfaces.setdefault(src, {})[port] = dst
    if not columns["src"]:
        raise ImportFileError(f"{_names(files)}: no link between switches")
    numbered = _read_links(columns, files)
    notes = [f"tier 0: {some_of(sorted(chosen))}"]
    if hosts:
        notes.append(f"{len(hosts):,} hosts left out: {some_of(sorted(hosts))}")
    return Imported(
        numbered, _links(numbered), {"hosts": hosts, "interfaces": interfaces}, None, notes
    )


def _read_links(columns: Mapping[str, list[Any]], files: Sequence[Path]) -> NumberedFabric:
    kinds = {"src": pa.string(), "dst": pa.string()}
    table = pa.table({n: pa.array(v, kinds.get(n, pa.int64())) for n, v in columns.items()})
    try:
        return read_fabric(table, Receipt())
    except TableError as error:
        reason = re.sub(r"^fabric: (row \d+ \(link \d+\): )?", "", str(error))
        raise ImportFileError(f"{_names(files)}: {reason}") from None


def _links(numbered: NumberedFabric) -> pa.Table:
    """Return the table of a fabric's links, in the order of their numbers."""
    fabric = numbered.fabric
    names = fabric.switch_names
    rows = sorted(range(fabric.n_links), key=lambda link: int(numbered.link_ids[link]))
    ends = [fabric.link_src.tolist(), fabric.link_dst.tolist()]
    return pa.table(
        {
            "link": pa.array([int(numbered.link_ids[row]) for row in rows], pa.int64()),
            "src": [names[ends[0][row]] for row in rows],
            "dst": [names[ends[1][row]] for row in rows],
            "src_tier": pa.array([int(fabric.tier[ends[0][row]]) for row in rows], pa.int8()),
            "dst_tier": pa.array([int(fabric.tier[ends[1][row]]) for row in rows], pa.int8()),
        }
    )


def _tors(
    names: Mapping[str, Any],
    beside: Mapping[str, set[str]],
    roles: Mapping[str, str],
    pattern: str | None,
    files: Sequence[Path],
) -> set[str]:
    """Return the ToRs: those that the user names; else by their roles, by their names, or as the
    neighbours of hosts."""
    if pattern is not None:
        found = {name for name in names if fnmatch.fnmatchcase(name, pattern)}
        if not found:
            some = some_of([shown(name) for name in names])
            raise UserError(f"--tors {shown(pattern)} names none of {some}")
        return found
    found = {name for name, role in roles.items() if _TOR.match(role) or role == "0"}
    found = found or {name for name in names if _TOR.match(name)}
    hosts = [name for name in names if _is_host(name, roles)]
    found = found or {tor for host in hosts for tor in beside[host]}
    if not found:
        raise UserError(
            f"{_names(files)} does not say which switches are ToRs: name them, as in --tors 'leaf*'"
        )
    return found


def _is_host(name: str, roles: Mapping[str, str]) -> bool:
    return bool(_HOST.match(roles.get(name, "")) or _HOST.match(name)) or (
        roles.get(name) in ("host", "server", "client")
    )


def _word(name: str) -> str:
    """Return the word that a name begins with, which nodes of a kind have in common."""
    return re.split(r"[^a-z]", name.lower(), maxsplit=1)[0]


# ---- hosts ---------------------------------------------------------------------------------------


def _addresses(path: Path) -> dict[str, tuple[str, str]]:
    """Return the switch and its neighbour of each address in a JSON file of these; {} for any other
    file."""
    if path.suffix.lower() != ".json":
        return {}
    try:
        found = next(Source([path]).values())
    except (ImportFileError, StopIteration):
        return {}
    pairs = isinstance(found, dict) and all(
        isinstance(each, list) and len(each) == 2 and all(isinstance(e, str) for e in each)
        for each in found.values()
    )
    return {name: (each[0], each[1]) for name, each in found.items()} if pairs else {}


def _hosts(text: str | None) -> tuple[HostRule | None, dict[str, str]]:
    """Return the rule, and the ToR of each host in a file."""
    if text is None:
        return None, {}
    path = Path(text)
    if not text.lower().endswith((".csv", ".json", ".tsv", ".txt")):
        return HostRule(text), {}
    source, found = Source([path]), dict[str, str]()
    for record in source.records():
        values = [str(value) for value in record.values()]
        if len(values) == 2:  # host, ToR
            found[values[0]] = values[1]
        else:  # an object of ToRs by host
            found |= {str(host): str(tor) for host, tor in record.items()}
    return None, found


def _names(files: Sequence[Path]) -> str:
    return some_of([str(path) for path in files])
