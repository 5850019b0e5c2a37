# SPDX-License-Identifier: Apache-2.0
"""The tables of a run: for each column its type, unit, range, and what a missing value means."""

from __future__ import annotations

import re

from testbed.record.schema import COUNT_LIMIT, Column, Schema, TableError

PLANS = ("netbouncer", "detector")
"""The methods whose plans of probes a run may send."""


def _packets(name: str, help: str) -> Column:
    return Column(name, "int64", help, "packets", low=0, high=COUNT_LIMIT)


# ---- the fabric and its truth ----------------------------------------------------------------

FABRIC = Schema(
    "fabric",
    "a row for each directed link between switches, both directions listed",
    (
        Column(
            "link",
            "int64",
            "number of the link: any distinct numbers; in a run, the number of the row",
        ),
        Column("src", "text", "name of the switch where the link begins"),
        Column("dst", "text", "name of the switch where the link ends"),
        Column(
            "src_tier",
            "int8",
            "tier of `src`: 0 for the switches where paths begin and end, higher upwards",
            null="the distance from the nearest switch of tier 0 is used",
            required=False,
            low=0,
            high=100,
        ),
        Column(
            "dst_tier", "int8", "tier of `dst`", null="likewise", required=False, low=0, high=100
        ),
    ),
    key=("link",),
)

LINKS = Schema(
    "links",
    "the truth about each link, in the order of `fabric`, then, if `host_links`, of each host's up "
    "and down; no method may read it",
    (
        Column("name", "text", "`src->dst`, with `#2` for a second link between the same switches"),
        Column("faulty", "bool", "whether a fault was injected"),
        Column(
            "rate",
            "float64",
            "loss rate: with packets, of its worst fault; without packets, the mean over the "
            "epochs, noise included",
            low=0,
            high=1,
        ),
        _packets("packets", "packets that were sent over it, including those in `fault_drops`"),
        _packets("fault_drops", "lost by faults and noise"),
        _packets("queue_drops", "lost by full queues"),
    ),
    row_of="every link",
)

EMULATOR_DROPS = Schema(
    "emulator_drops",
    "packets that real switches, hosts and cables lost without a fault, a row for each place; no "
    "method may read it",
    (
        Column(
            "link",
            "int32",
            "the directed link",
            null="-1: the cable of a host, or unknown",
            numbers="links",
        ),
        Column("place", "text", "the cable, `agg0_1->core2` or `h0_0_0->tor0_0`, or the switch"),
        Column(
            "where",
            "text",
            "`cable`: the other end of the cable refused them; `socket`: the socket buffer of the "
            "switch was full; `host`: the socket buffer of the host was full; `port`: the switch "
            "where the link begins could not send them; `dead`: the switch there had died; "
            "`restart`: a switch lost them while it restarted, until its entries were restored; "
            "`switch`: no counter has them, and the switch did not begin to process them; "
            "`queues`: no counter has them, and the switch neither sent them nor dropped them",
            words=("cable", "socket", "host", "port", "switch", "dead", "queues", "restart"),
        ),
        _packets("packets", "packets lost there"),
    ),
    required=False,
)

# ---- what hosts see --------------------------------------------------------------------------

FLOWS = Schema(
    "flows",
    "the traffic's flows as the end hosts count them",
    (
        Column("src_host", "int32", "sender", required=False, numbers="hosts"),
        Column("dst_host", "int32", "receiver", required=False, numbers="hosts"),
        Column("src_port", "uint16", "sender's port", required=False),
        Column("dst_port", "uint16", "receiver's port", required=False),
        Column("protocol", "uint8", "IP protocol", required=False),
        Column("src_tor", "int32", "sender's ToR", numbers="tors"),
        Column("dst_tor", "int32", "receiver's ToR", numbers="tors"),
        _packets("sent", "packets sent, including retransmissions"),
        _packets("lost", "packets lost; for real TCP: retransmitted"),
        Column(
            "path",
            "path",
            "the links that it crossed, if the fabric reports them (INT)",
            required=False,
            numbers="links",
        ),
    ),
)

PROBE_PATHS = Schema(
    "probe_paths",
    "the probed paths",
    (
        Column(
            "plan",
            "text",
            "the plan: `netbouncer` (up and back) or `detector` (one way)",
            words=PLANS,
        ),
        Column("path", "path", "the links of the path in order", numbers="links", low=1),
    ),
    required=False,
)

PROBE_COUNTS = Schema(
    "probe_counts",
    "a row for each path and pair of hosts that probe it",
    (
        Column("path", "int32", "the path", numbers="probe_paths"),
        Column("src_host", "int32", "sender", null="-1: no single host", numbers="hosts"),
        Column(
            "dst_host",
            "int32",
            "receiver; equal to the sender if the path leads back",
            null="-1: likewise",
            numbers="hosts",
        ),
        _packets("sent", "probes sent"),
        _packets("lost", "probes lost"),
        Column(
            "travel_us",
            "float64",
            "the mean time from a probe's sending to its arrival, of a path that leads back its "
            "round-trip time; with `RATE` in virtual time",
            "us",
            null="nan: none arrived",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
    ),
    required=False,
)

CONNECTIONS = Schema(
    "connections",
    "flows that lost packets and were traced (007), ordered by flow",
    (
        Column("flow", "int32", "the flow", numbers="flows"),
        Column("path", "path", "the links that the traceroute found, in order", numbers="links"),
        Column("complete", "bool", "whether this is the whole path; if not, it may have gaps"),
    ),
    required=False,
    key=("flow",),
)

# ---- Canary's meters -------------------------------------------------------------------------

SEGMENTS = Schema(
    "segments",
    "the counts of the meters at both ends of each segment, from `registers` if these exist",
    (
        Column("epoch", "int32", "measurement epoch, from 0", numbers="epochs"),
        Column(
            "segment",
            "int32",
            "number of the segment, as `testbed.fabric.segments` numbers them",
            numbers="segments",
        ),
        _packets("sent", "counted at the upstream"),
        _packets("lost", "counted at the upstream and not at the downstream"),
    ),
    required=False,
    key=("epoch", "segment"),
)

USM, DSM = 0, 1
"""The meters of a switch, as the column ``meter`` numbers them: upstream and downstream."""

REGISTERS = Schema(
    "registers",
    "the non-empty buckets of all monitors' meters after an epoch",
    (
        Column("switch", "int32", "the monitor, numbered as in `switches`", numbers="switches"),
        Column("meter", "int8", f"{USM}: upstream (USM), {DSM}: downstream (DSM)", low=0, high=1),
        Column("row", "int8", "row of the meter", low=0),
        Column("bucket", "int16", "bucket of the row", low=0),
        Column("dirty", "bool", "whether several flows were counted in it"),
        Column("flow_hi", "uint64", "upper 40 bits of the flow ID", high=2**40 - 1),
        Column("flow_lo", "uint64", "lower 64 bits of the flow ID"),
        Column("path_bf", "uint32", "pathBF of the packets; 0 in a USM"),
        Column("count", "uint32", "packets counted", "packets"),
    ),
    required=False,
    file="registers/epoch-NNN",
    key=("switch", "meter", "row", "bucket"),
)

RULES = Schema(
    "rules",
    "the flows monitored in each epoch",
    (
        Column("epoch", "int32", "measurement epoch", numbers="epochs"),
        Column("flow_hi", "uint64", "upper 40 bits of the flow ID", high=2**40 - 1),
        Column("flow_lo", "uint64", "lower 64 bits of the flow ID"),
        Column("segment", "int32", "the segment that monitors it", numbers="segments"),
    ),
    required=False,
)

SELECTION = Schema(
    "selection",
    "the flows selected and packets counted, a row for each epoch and segment with a number other "
    "than 0",
    (
        Column("epoch", "int32", "measurement epoch", numbers="epochs"),
        Column("segment", "int32", "the segment", numbers="segments"),
        _packets("packets", "counted at the upstream for flows that are alone in a bucket"),
        Column("flows", "int64", "number of these flows with packets in this epoch", low=0),
        Column("rules", "int64", "flows with rules at the end of the epoch", low=0),
        Column("installed", "int64", "flows that got rules in this epoch", low=0),
        Column("removed", "int64", "quiet flows whose rules the end of the epoch removed", low=0),
    ),
    required=False,
    key=("epoch", "segment"),
)

SWITCHES = Schema(
    "switches",
    "the switches of a network of packets, and behind them its hosts, if they have meters",
    (
        Column("name", "text", "name, as in `fabric`, or of a host"),
        Column("id", "uint64", "48-bit ID", high=2**48 - 1),
        Column("mask", "uint32", "its bits in pathBF"),
        Column("ip", "uint32", "IPv4 address"),
        Column("monitor", "bool", "whether it has meters"),
    ),
    required=False,
    row_of="switches",
)

DROPS = Schema(
    "drops",
    "the network's own record of every lost packet; for tests, no method may read it",
    (
        Column("time_ns", "uint64", "time of the loss", "ns"),
        Column("flow", "int32", "the flow", numbers="flows"),
        Column(
            "link",
            "int32",
            "the link that lost it; links of hosts follow those of the fabric",
            null="-1: in a switch that had restarted",
            low=-1,
        ),
        Column("cause", "text", "`fault`, `corrupt`, `queue` or `no_route`"),
        Column("counted", "bool", "whether an upstream meter had counted it"),
        Column("epoch", "int32", "the epoch that counted it", null="-1: not counted", low=-1),
    ),
    required=False,
)

COUNTERS = Schema(
    "counters",
    "what the interfaces of switches counted, a row for each epoch and link",
    (
        Column("epoch", "int32", "measurement epoch", numbers="epochs"),
        Column("link", "int32", "the directed link, whose begin is the interface", numbers="links"),
        _packets("packets", "packets sent; packets that a silent fault dropped are not among them"),
        _packets("queue_drops", "packets that its full queue dropped"),
        Column(
            "queue_largest",
            "int64",
            "the most that a packet found waiting in its queue, with `RATE`",
            "bytes",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
        Column(
            "queue_mean",
            "float64",
            "the mean of what its packets found waiting",
            "bytes",
            null="nan: it sent no packet",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
    ),
    required=False,
    key=("epoch", "link"),
)

LINK_COUNTS = Schema(
    "link_counts",
    "what meters at both ends of links counted, a row for each epoch and link that was read",
    (
        Column("epoch", "int32", "measurement epoch", numbers="epochs"),
        Column("link", "int32", "the directed link", numbers="links"),
        _packets("sent", "counted at its begin"),
        _packets("lost", "counted at its begin and not at its end"),
        _packets("decoded", "of these, those whose flow was decoded, see `link_losses`"),
        Column("bytes", "int64", "size of both meters, which are read whole", "bytes", low=0),
    ),
    required=False,
    key=("epoch", "link"),
)

ITERATIONS = Schema(
    "iterations",
    "iterations of a collective whose senders react to losses",
    (
        Column("begin_ns", "int64", "when the first rank began it", "ns", low=0),
        Column(
            "end_ns", "int64", "when the last rank had sent and received all of it", "ns", low=0
        ),
    ),
    required=False,
)

SPRAY_COUNTS = Schema(
    "spray_counts",
    "what each leaf received of another leaf by each spine where `ROUTING` is not `ecmp`",
    (
        Column("src_tor", "int32", "the leaf that the packets are from", numbers="tors"),
        Column("dst_tor", "int32", "the leaf that counted them", numbers="tors"),
        Column("spine", "int32", "the spine that they crossed", numbers="switches"),
        Column("share", "float64", "of the pair's packets, sprayed that way", low=0, high=1),
        _packets("packets", "that came"),
    ),
    required=False,
    key=("src_tor", "dst_tor", "spine"),
)

INT_PATHS = Schema(
    "int_paths",
    "the path that the packets of a flow carried (INT), a row for each flow and path",
    (
        Column("flow", "int32", "the flow", numbers="flows"),
        Column("path", "path", "the links that its packets crossed, in order", numbers="links"),
    ),
    required=False,
)

LINK_LOSSES = Schema(
    "link_losses",
    "the lost packets of a flow on a link, decoded from meters at both ends",
    (
        Column("epoch", "int32", "measurement epoch", numbers="epochs"),
        Column("link", "int32", "the directed link", numbers="links"),
        Column("flow_hi", "uint64", "upper 40 bits of the flow ID", high=2**40 - 1),
        Column("flow_lo", "uint64", "lower 64 bits of the flow ID"),
        _packets("lost", "packets of the flow lost on the link"),
    ),
    required=False,
)

# ---- what methods say ------------------------------------------------------------------------

DIAGNOSIS = Schema(
    "diagnosis",
    "a method's verdict on each link, in the order of `links`",
    (
        Column("link", "text", "the link's name"),
        Column("flagged", "bool", "whether it is blamed"),
        Column(
            "state",
            "text",
            "`faulty`: blamed; `healthy`: observed, and not blamed; `not observed`: no observation "
            "that the method reads crosses it",
            required=False,
            words=("faulty", "healthy", "not observed"),
        ),
        Column(
            "class",
            "int32",
            "the lowest number among the links that no observation distinguishes from this one",
            required=False,
            numbers="every link",
        ),
        Column(
            "success",
            "float64",
            "estimated share of packets that cross it",
            null="nan: no estimate",
            low=0,
            high=1,
        ),
        Column("score", "float64", "the higher, the more suspicious"),
        Column("rank", "int32", "1 for the most suspicious link", low=1),
        Column("stage", "int32", "stage that blamed it, from 1", null="0: no stage", low=0),
    ),
    required=False,
    file="diagnoses/METHOD",
    row_of="every link",
)

VERDICTS = Schema(
    "verdicts",
    "with `DIAGNOSE=epoch`: the links that a method blamed after an epoch, from what it measured",
    (
        Column("epoch", "int32", "measurement epoch", numbers="epochs"),
        Column("method", "text", "the method"),
        Column("link", "int32", "the blamed directed link", numbers="every link"),
    ),
    required=False,
)

CAUSES = Schema(
    "causes",
    "a method's verdict on each traced connection",
    (
        Column("flow", "int32", "the flow", numbers="flows"),
        Column("cause", "int32", "the link that it blames", null="-1: noise", numbers="every link"),
    ),
    required=False,
    file="diagnoses/METHOD-connections",
    key=("flow",),
)

TABLES = (
    FABRIC,
    LINKS,
    EMULATOR_DROPS,
    FLOWS,
    PROBE_PATHS,
    PROBE_COUNTS,
    CONNECTIONS,
    SEGMENTS,
    REGISTERS,
    RULES,
    SELECTION,
    SWITCHES,
    DROPS,
    COUNTERS,
    LINK_COUNTS,
    LINK_LOSSES,
    SPRAY_COUNTS,
    INT_PATHS,
    ITERATIONS,
    DIAGNOSIS,
    CAUSES,
    VERDICTS,
)


def registers(epoch: int) -> str:
    """Return the name of the table of registers of an epoch, without suffix."""
    return f"registers/epoch-{epoch:03d}"


_DECLARED: dict[str, Schema] = {}


def declare(schema: Schema) -> None:
    """Declare a table of a measurement that is not this project's. A table of the same name must be
    equal.

    Raises:
        TableError: There is another table of this name.
    """
    own = {table.name: table for table in TABLES}
    if not re.fullmatch("[a-z][a-z0-9_]*", schema.name) or schema.file:
        raise TableError(f"table {schema.name!r}: its name must be of a-z, 0-9 and _")
    known = own.get(schema.name) or _DECLARED.setdefault(schema.name, schema)
    if known != schema:
        raise TableError(f"there are two tables {schema.name}: rename one")


def of(name: str) -> Schema:
    """Return the schema of the file ``name`` (without suffix) of a run directory.

    Raises:
        KeyError: A run has no such table.
    """
    if name in _DECLARED:
        return _DECLARED[name]
    folder, _, file = name.rpartition("/")
    if folder == "registers":
        return REGISTERS
    if folder == "diagnoses":
        return CAUSES if file.endswith("-connections") else DIAGNOSIS
    return {table.name: table for table in TABLES if not table.file}[name]
