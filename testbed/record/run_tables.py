"""The tables of a run: for each column its type, unit, range, and what a missing value means."""

from __future__ import annotations

from testbed.record.schema import COUNT_LIMIT, Column, Schema

PLANS = ("netbouncer", "detector")
"""The methods whose plans of probes a run may send."""


def _packets(name: str, help: str) -> Column:
    return Column(name, "int64", help, "packets", low=0, high=COUNT_LIMIT)


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
            low=0,
            high=100,
        ),
        Column("dst_tier", "int8", "likewise", null="likewise", required=False, low=0, high=100),
    ),
    key=("link",),
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
            low=0,
            high=1,
        ),
        _packets("packets", "packets that began to cross it: with those in `fault_drops`"),
        _packets("fault_drops", "lost by faults and noise"),
        _packets("queue_drops", "lost by full queues"),
    ),
    row_of="links",
)

EMULATOR_DROPS = Schema(
    "emulator_drops",
    "packets that real switches, hosts and cables lost and no fault took, a row for each place "
    "that lost some: truth, no method may read it",
    (
        Column(
            "link",
            "int32",
            "the directed link",
            null="-1: a host's cable, or not known",
            numbers="links",
        ),
        Column("place", "text", "the cable, `agg0_1->core2` or `h0_0_0->tor0_0`, or the switch"),
        Column(
            "where",
            "text",
            "`cable`: its other end refused them; `socket`: they did not fit into the buffer of "
            "the switch there; `host`: of the host; `switch`: the switch there did not begin to "
            "process them; `queues`: a switch began to, and neither sent nor dropped them for a "
            "fault",
            words=("cable", "socket", "host", "switch", "queues"),
        ),
        _packets("packets", "lost"),
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
        _packets("sent", "sent, repetitions included"),
        _packets("lost", "lost; with TCP: sent again"),
        Column(
            "path",
            "path",
            "the links it took, where the fabric tells (INT)",
            required=False,
            numbers="links",
        ),
    ),
)

PROBE_PATHS = Schema(
    "probe_paths",
    "the paths that are probed",
    (
        Column(
            "plan", "text", "whose: `netbouncer` (up and back) or `detector` (one way)", words=PLANS
        ),
        Column("path", "path", "the links of the path in order", numbers="links", low=1),
    ),
)

PROBE_COUNTS = Schema(
    "probe_counts",
    "a row for each path and pair of hosts that probe it",
    (
        Column("path", "int32", "the path", numbers="probe_paths"),
        Column("src_host", "int32", "sender", null="-1: no host in particular", numbers="hosts"),
        Column(
            "dst_host",
            "int32",
            "receiver; the sender where the path leads back",
            null="-1: likewise",
            numbers="hosts",
        ),
        _packets("sent", "probes sent"),
        _packets("lost", "of them lost"),
    ),
)

CONNECTIONS = Schema(
    "connections",
    "flows that lost packets and were traced (007), in order of flows",
    (
        Column("flow", "int32", "the flow", numbers="flows"),
        Column("path", "path", "the links that the trace found, in order", numbers="links"),
        Column("complete", "bool", "whether that is the whole path: else it may have gaps"),
    ),
    key=("flow",),
)

# ---- Canary's meters -------------------------------------------------------------------------

SEGMENTS = Schema(
    "segments",
    "what the meters at both ends of a segment counted; where registers are recorded, made of them",
    (
        Column("epoch", "int32", "measurement epoch, from 0", numbers="epochs"),
        Column(
            "segment",
            "int32",
            "as `testbed.fabric.segments` numbers those of the fabric",
            numbers="segments",
        ),
        _packets("sent", "counted at the upstream"),
        _packets("lost", "of them not at the downstream"),
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
        Column("dirty", "bool", "whether several flows met in it"),
        Column("flow_hi", "uint64", "upper 40 bits of the flow ID", high=2**40 - 1),
        Column("flow_lo", "uint64", "lower 64 bits"),
        Column("path_bf", "uint32", "pathBF of the packets; 0 in a USM"),
        Column("count", "uint32", "counted", "packets"),
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
        Column("flow_lo", "uint64", "lower 64 bits"),
        Column("segment", "int32", "where it is monitored", numbers="segments"),
    ),
    required=False,
)

SELECTION = Schema(
    "selection",
    "what the controller selected and the meters counted, a row for each epoch and segment with a "
    "number that is not 0",
    (
        Column("epoch", "int32", "measurement epoch", numbers="epochs"),
        Column("segment", "int32", "where", numbers="segments"),
        _packets("packets", "counted at the upstream, of flows that have a bucket of their own"),
        Column("flows", "int64", "of these flows, those with packets in this epoch", low=0),
        Column("rules", "int64", "flows with rules at the epoch's end", low=0),
        Column("installed", "int64", "flows that got rules in this epoch", low=0),
        Column("removed", "int64", "flows whose rules its end removed, as they were quiet", low=0),
    ),
    required=False,
    key=("epoch", "segment"),
)

SWITCHES = Schema(
    "switches",
    "the switches of a network of packets",
    (
        Column("name", "text", "its name in `fabric`"),
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
    "the network's own record of every lost packet of the traffic: truth, for tests",
    (
        Column("time_ns", "uint64", "when", "ns"),
        Column("flow", "int32", "the flow", numbers="flows"),
        Column(
            "link",
            "int32",
            "where: links of the fabric, then those of hosts",
            null="-1: in a switch that had restarted",
            low=-1,
        ),
        Column("cause", "text", "`fault`, `corrupt`, `queue` or `no_route`"),
        Column("counted", "bool", "whether the upstream had counted it"),
        Column("epoch", "int32", "epoch it was counted in", null="-1: not counted", low=-1),
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
            "the lowest of the links that no observation tells from it: itself, if all do",
            required=False,
            numbers="links",
        ),
        Column(
            "success",
            "float64",
            "estimated share of packets that cross it",
            null="nan: none",
            low=0,
            high=1,
        ),
        Column("score", "float64", "how suspicious it is"),
        Column("rank", "int32", "1 for the most suspicious", low=1),
        Column("stage", "int32", "stage that blamed it, from 1", null="0: none", low=0),
    ),
    required=False,
    file="diagnoses/METHOD",
    row_of="links",
)

CAUSES = Schema(
    "causes",
    "a method's verdict on each traced connection",
    (
        Column("flow", "int32", "the flow", numbers="flows"),
        Column("cause", "int32", "the link it blames", null="-1: noise", numbers="links"),
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
    DIAGNOSIS,
    CAUSES,
)


def registers(epoch: int) -> str:
    """Return the name of the table of registers of an epoch, without suffix."""
    return f"registers/epoch-{epoch:03d}"


def of(name: str) -> Schema:
    """Return the schema of the file ``name`` (without suffix) of a run directory.

    Raises:
        KeyError: A run has no such table.
    """
    folder, _, file = name.rpartition("/")
    if folder == "registers":
        return REGISTERS
    if folder == "diagnoses":
        return CAUSES if file.endswith("-connections") else DIAGNOSIS
    return {table.name: table for table in TABLES if not table.file}[name]
