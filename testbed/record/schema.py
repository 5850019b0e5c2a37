"""Every table of a run, and of the files that runs are exchanged in: one schema, one version.

``python -m testbed.record.schema`` prints it as the tables of ``testbed/record/README.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "FORMAT",
    "TABLES",
    "TELEMETRY",
    "VERSION",
    "Column",
    "Schema",
    "TableError",
    "of",
    "registers",
    "render",
]

FORMAT, VERSION = "localization-telemetry", 1
"""What every file says it is. The version changes with any column that a reader needs."""

Type = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float64",
    "text",
    "path",  # a list of directed links
    "paths",  # a list of lists of links
    "node paths",  # a list of lists of switch names
]


class TableError(ValueError):
    """A file is no table of the schema: one line with the file, the row and the reason."""


@dataclass(frozen=True)
class Column:
    """A column: its type, what it holds, in which unit, and what a missing value, nan or -1 means.

    An optional column is left out where nothing is known of it.
    """

    name: str
    type: Type
    help: str
    unit: str = ""
    null: str = ""
    required: bool = True


@dataclass(frozen=True)
class Schema:
    """A table: the file ``name`` (with ``.parquet``) of a run directory, in a folder a file for
    each epoch or method. Optional tables hold what only some networks know."""

    name: str
    help: str
    columns: tuple[Column, ...]
    required: bool = True
    file: str = ""

    @property
    def header(self) -> str:
        """The first line of a CSV file."""
        return f"# {FORMAT} {self.name} {VERSION}"

    @property
    def metadata(self) -> dict[str, str]:
        """The key-value metadata of a Parquet file."""
        return {"format": FORMAT, "table": self.name, "version": str(VERSION)}

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)


# ---- the fabric and its truth ----------------------------------------------------------------

FABRIC = Schema(
    "fabric",
    "a row for each directed link between switches, both directions listed",
    (
        Column("link", "int64", "the link's number: any, no two alike; in a run the row's"),
        Column("src", "text", "name of the switch it leads from"),
        Column("dst", "text", "name of the switch it leads to"),
        Column(
            "src_tier",
            "int8",
            "0 for the switches where paths begin and end, rising upwards",
            null="derived: the distance from the nearest switch of tier 0",
            required=False,
        ),
        Column("dst_tier", "int8", "likewise", null="likewise", required=False),
    ),
)

LINKS = Schema(
    "links",
    "the truth about each link of the fabric, in its order: no method may read it",
    (
        Column("name", "text", "`src->dst`, with `#2` for a second link between the same switches"),
        Column("faulty", "bool", "whether a fault was injected"),
        Column(
            "rate",
            "float64",
            "loss rate: on packets that of its worst fault, without packets the mean of the epochs "
            "with noise",
        ),
        Column("packets", "int64", "packets that began to cross it", "packets"),
        Column("fault_drops", "int64", "lost by faults and noise", "packets"),
        Column("queue_drops", "int64", "lost by full queues", "packets"),
    ),
)

# ---- what hosts see --------------------------------------------------------------------------

FLOWS = Schema(
    "flows",
    "the traffic's flows as the end hosts count them",
    (
        Column("src_host", "int32", "sender", required=False),
        Column("dst_host", "int32", "receiver", required=False),
        Column("src_port", "uint16", "sender's port", required=False),
        Column("dst_port", "uint16", "receiver's port", required=False),
        Column("protocol", "uint8", "IP protocol", required=False),
        Column("src_tor", "int32", "sender's ToR"),
        Column("dst_tor", "int32", "receiver's ToR"),
        Column("sent", "int64", "sent, repetitions included", "packets"),
        Column("lost", "int64", "lost; with TCP: sent again", "packets"),
        Column("path", "path", "the links it took, where the fabric tells (INT)", required=False),
    ),
)

PROBE_PATHS = Schema(
    "probe_paths",
    "the paths that are probed",
    (
        Column("plan", "text", "whose: `netbouncer` (up and back) or `detector` (one way)"),
        Column("path", "path", "the links of the path in order"),
    ),
)

PROBE_COUNTS = Schema(
    "probe_counts",
    "a row for each path and pair of hosts that probe it",
    (
        Column("path", "int32", "row of `probe_paths`"),
        Column("src_host", "int32", "sender", null="-1: no host in particular"),
        Column(
            "dst_host", "int32", "receiver; the sender where the path leads back", null="likewise"
        ),
        Column("sent", "int64", "probes sent", "packets"),
        Column("lost", "int64", "of them lost", "packets"),
    ),
)

CONNECTIONS = Schema(
    "connections",
    "flows that lost packets and were traced (007), in order of flows",
    (
        Column("flow", "int32", "row of `flows`"),
        Column("path", "path", "the links that the trace found, from the first on"),
        Column("complete", "bool", "whether that is the whole path"),
    ),
)

# ---- Canary's meters -------------------------------------------------------------------------

SEGMENTS = Schema(
    "segments",
    "what the meters at both ends of a segment counted; where registers are recorded, made of them",
    (
        Column("epoch", "int32", "measurement epoch, from 0"),
        Column("segment", "int32", "as `testbed.fabric.segments` numbers those of the fabric"),
        Column("sent", "int64", "counted at the upstream", "packets"),
        Column("lost", "int64", "of them not at the downstream", "packets"),
    ),
    required=False,
)

REGISTERS = Schema(
    "registers",
    "the non-empty buckets of all monitors' meters after an epoch",
    (
        Column("switch", "int32", "the monitor, numbered as in `switches`"),
        Column("meter", "int8", "0: upstream (USM), 1: downstream (DSM)"),
        Column("row", "int8", "row of the meter"),
        Column("bucket", "int16", "bucket of the row"),
        Column("dirty", "bool", "whether several flows met in it"),
        Column("flow_hi", "uint64", "upper 40 bits of the flow ID"),
        Column("flow_lo", "uint64", "lower 64 bits"),
        Column("path_bf", "uint32", "pathBF of the packets; 0 in a USM"),
        Column("count", "uint32", "counted", "packets"),
    ),
    required=False,
    file="registers/epoch-NNN",
)

RULES = Schema(
    "rules",
    "the flows monitored in each epoch",
    (
        Column("epoch", "int32", "measurement epoch"),
        Column("flow_hi", "uint64", "upper 40 bits of the flow ID"),
        Column("flow_lo", "uint64", "lower 64 bits"),
        Column("segment", "int32", "where it is monitored"),
    ),
    required=False,
)

SWITCHES = Schema(
    "switches",
    "the switches of a network of packets",
    (
        Column("name", "text", "its name in `fabric`"),
        Column("id", "uint64", "48-bit ID"),
        Column("mask", "uint32", "its bits in pathBF"),
        Column("ip", "uint32", "IPv4 address"),
        Column("monitor", "bool", "whether it has meters"),
    ),
    required=False,
)

DROPS = Schema(
    "drops",
    "the network's own record of every lost packet of the traffic: truth, for tests",
    (
        Column("time_ns", "uint64", "when", "ns"),
        Column("flow", "int32", "row of `flows`"),
        Column("link", "int32", "where"),
        Column("cause", "text", "`fault`, `corrupt` or `queue`"),
        Column("counted", "bool", "whether the upstream had counted it"),
        Column("epoch", "int32", "epoch it was counted in", null="-1: not counted"),
    ),
    required=False,
)

# ---- what methods say ------------------------------------------------------------------------

DIAGNOSIS = Schema(
    "diagnosis",
    "a method's verdict on each link of the fabric, in its order",
    (
        Column("link", "text", "the link's name"),
        Column("flagged", "bool", "whether it is blamed"),
        Column("success", "float64", "estimated share of packets that cross it", null="nan: none"),
        Column("score", "float64", "how suspicious it is"),
        Column("rank", "int32", "1 for the most suspicious"),
        Column("stage", "int32", "stage that blamed it, from 1", null="0: none"),
    ),
    required=False,
    file="diagnoses/METHOD",
)

CAUSES = Schema(
    "causes",
    "a method's verdict on each traced connection",
    (
        Column("flow", "int32", "row of `flows`"),
        Column("cause", "int32", "the link it blames", null="-1: noise"),
    ),
    required=False,
    file="diagnoses/METHOD-connections",
)

# ---- what is exchanged -----------------------------------------------------------------------

OBSERVATIONS = Schema(
    "observations",
    "all that methods may know, a row for each path probed, flow or connection seen, and segment "
    "metered in an epoch: not in a run, `canary export` makes it of one",
    (
        Column("id", "int64", "the row's number: any, no two alike"),
        Column("kind", "text", "`active`, `passive`, `segment` or `connection`"),
        Column(
            "plan",
            "text",
            "`active` only: `netbouncer` or `detector`, whose probe it is",
            null="any method's",
            required=False,
        ),
        Column("epoch", "int64", "`segment` only: measurement epoch", null="0", required=False),
        Column("src", "text", "switch of tier 0", null="as its paths say", required=False),
        Column("dst", "text", "switch of tier 0", null="as its paths say", required=False),
        Column(
            "paths",
            "paths",
            "possible paths, each the numbers of its links in order",
            null="unknown, or in `nodes`",
            required=False,
        ),
        Column(
            "nodes",
            "node paths",
            "the same as names of switches instead of links",
            null="unknown, or in `paths`",
            required=False,
        ),
        Column(
            "sent",
            "int64",
            "sent, repetitions included",
            "packets",
            null="`connection` only: not known",
            required=False,
        ),
        Column(
            "lost",
            "int64",
            "lost",
            "packets",
            null="in `retransmissions`",
            required=False,
        ),
        Column(
            "retransmissions",
            "int64",
            "sent again: what hosts know in place of `lost`",
            "packets",
            null="in `lost`",
            required=False,
        ),
        Column(
            "rtt_ms",
            "float64",
            "`passive` only: round-trip time, of all such rows or of none",
            "ms",
            null="not measured",
            required=False,
        ),
    ),
    required=False,
    file="",
)

PLANS = ("netbouncer", "detector")
KINDS = ("active", "passive", "segment", "connection")
COUNT_LIMIT = 10**15
"""More packets than a row can mean; sums of rows stay exact."""

TELEMETRY = ("A1", "A2", "P", "INT")
"""What methods may know of probes and flows, in the words of Flock's section 6.2, joined by ``+``:
probes of known paths; traced flows that lost packets; all flows with their possible paths; all
flows with the path each took, and A1."""

TABLES = (
    FABRIC,
    LINKS,
    FLOWS,
    PROBE_PATHS,
    PROBE_COUNTS,
    CONNECTIONS,
    SEGMENTS,
    REGISTERS,
    RULES,
    SWITCHES,
    DROPS,
    DIAGNOSIS,
    CAUSES,
    OBSERVATIONS,
)


def registers(epoch: int) -> str:
    """The name of an epoch's table of registers."""
    return f"registers/epoch-{epoch:03d}"


def of(name: str) -> Schema:
    """The schema of the file ``name`` (without suffix) of a run directory.

    Raises:
        KeyError: A run has no such table.
    """
    folder, _, file = name.rpartition("/")
    if folder == "registers":
        return REGISTERS
    if folder == "diagnoses":
        return CAUSES if file.endswith("-connections") else DIAGNOSIS
    return {table.name: table for table in TABLES if table is not OBSERVATIONS}[name]


def render() -> str:
    """The schema as Markdown: a table for each table."""
    parts = [f"Format `{FORMAT}`, version {VERSION}."]
    for table in TABLES:
        file = "" if table is OBSERVATIONS else f" (`{table.file or table.name}.parquet`)"
        optional = "" if table.required or table is OBSERVATIONS else " Optional."
        parts.append(f"### {table.name}{file}\n\n{_sentence(table.help)}{optional}")
        lines = [
            "| column | type | unit | | missing, nan or -1 |",
            "| --- | --- | --- | --- | --- |",
        ]
        for column in table.columns:
            kind = column.type + ("" if column.required else ", optional")
            cells = f"`{column.name}`", kind, column.unit, column.help, column.null
            lines.append("| " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


if __name__ == "__main__":
    print(render(), end="")
