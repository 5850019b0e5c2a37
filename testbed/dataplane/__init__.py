# SPDX-License-Identifier: Apache-2.0
"""The one place that names the P4 program: an instance for each control block, as in `p4/include`.

Every name is looked up in what p4c made of the sources (`testbed.dataplane.program`), with the key
fields and the parameters in the order in which Python gives them. If the program changes, importing
this fails with one line.
"""

from __future__ import annotations

from pathlib import Path

from testbed.dataplane.program import CompiledProgram, DataPlaneError

__all__ = [
    "ARRIVING",
    "BUCKETS",
    "CAUSES",
    "DSM",
    "EXPIRY",
    "FAULT",
    "FLOW_ID",
    "HASHPIPE",
    "HEAVY_HITTER",
    "IDENTITY",
    "INGRESS_FAULT",
    "LEAVING",
    "P4INFO",
    "PROGRAM",
    "ROUTING",
    "ROWS",
    "SHIM_BITS",
    "USM",
    "VERDICT",
    "DataPlaneError",
    "FlowId",
    "Meter",
    "c_defines",
    "source_digests",
]

_P4 = Path(__file__).parent / "p4"  # a link in the repository, a folder where it is installed
_program = CompiledProgram(_P4, "canary")
_sizes = _program.constants("include/sizes.p4")

PROGRAM = _program.json
"""BMv2's JSON of the program."""
P4INFO = _program.p4info
"""The program's P4Info, as text."""

BUCKETS: int = _sizes["ROW_BUCKETS"]
"""Buckets of a meter's row, for each of the two epoch parities."""
ROWS = len([name for name in _program.registers("CanaryEgress.usm") if name.endswith(".count")])
"""Rows of a meter."""


def source_digests(program: Path = PROGRAM) -> dict[str, str]:
    """Return the SHA-256, in hex, of each source that a program was compiled from, by name."""
    words = (program.parent / "sources.sha256").read_text().split()
    return dict(zip(words[1::2], words[::2], strict=True))


# ---- control blocks ------------------------------------------------------------------------------


class Identity:
    """Tables with a switch's own attributes and with the parity of its current epoch."""

    def __init__(self, block: str) -> None:
        self.identity = _program.table(f"{block}.identity")
        self.identify = _program.action(
            self.identity, f"{block}.identify", "monitor", "upper_tier", "mask", "own_ip"
        )
        self.epoch = _program.table(f"{block}.epoch")
        self.set_parity = _program.action(self.epoch, f"{block}.set_parity", "parity")


class Fault:
    """The table of injected faults: drop, corruption and black hole, by port and 5-tuple."""

    def __init__(self, block: str) -> None:
        self.faults = table = _program.table(
            f"{block}.faults",
            *("port", "hdr.ipv4.src_ip", "hdr.ipv4.dst_ip", "hdr.ipv4.protocol"),
            *("src_port", "dst_port"),
        )
        self.lossy = _program.action(table, f"{block}.lossy", "threshold")
        self.corrupt = _program.action(table, f"{block}.corrupt", "threshold")
        self.blackhole = _program.action(table, f"{block}.blackhole")
        self.healthy = _program.action(table, f"{block}.healthy")
        self.dropped = _program.counter(f"{block}.dropped")
        """A counter of dropped packets by port."""


class Meter:
    """A meter: the table of the flows it counts, and its rows of buckets.

    Attributes:
        rules, monitor, skip: The table and its actions.
        capacity: Rules that the table has room for.
        rows: For each row, the register array of each field of a bucket. An array holds the
            `BUCKETS` buckets of the even epoch parity, then those of the odd one.
        bucket_bits, count_bits: Bits of a bucket, and of the count in it.
        half_bits: Bits of ``flow_lo``, the lower half of a flow ID.
    """

    def __init__(self, block: str, key: tuple[str, ...], fields: tuple[str, ...]) -> None:
        self.rules = _program.table(f"{block}.rules", *key)
        self.monitor = _program.action(self.rules, f"{block}.monitor")
        self.skip = _program.action(self.rules, f"{block}.skip")
        self.capacity = _program.capacity(self.rules)
        size = 2 * BUCKETS
        self.rows = [
            {field: _program.register(f"{block}.row{row}.{field}", size) for field in fields}
            for row in range(ROWS)
        ]
        widths = _program.registers(block)
        if others := widths.keys() - {name for row in self.rows for name in row.values()}:
            raise DataPlaneError(
                f"the collection reads none of the registers {', '.join(sorted(others))}"
            )
        self.bucket_bits = sum(widths[name] for name in self.rows[0].values())
        self.count_bits = widths[self.rows[0]["count"]]
        self.half_bits = widths[self.rows[0]["flow_lo"]]


class HashPipe:
    """The stages that find large flows; each has a register array of flow IDs and one of counts."""

    def __init__(self, block: str) -> None:
        self.entries = _sizes["STAGE_ENTRIES"]
        names = _program.registers(block)
        self.stages = [
            {
                field: _program.register(f"{block}.stage{stage}.{field}", self.entries)
                for field in ("flow_id", "counts")
            }
            for stage in range(len(names) // 2)
        ]


class HeavyHitter:
    """The table of segments that need more flows, and the digest that reports a large flow."""

    def __init__(self, block: str) -> None:
        self.segments = _program.table(
            f"{block}.segments", "hdr.shim.path_bf", "meta.hashpipe_count"
        )
        self.report = _program.action(self.segments, f"{block}.report")
        self.capacity = _program.capacity(self.segments)
        self.digest = _program.digest(
            "heavy_hitter_t", "src_ip", "dst_ip", "src_port", "dst_port", "protocol", "path_bf"
        )


class Expiry:
    """ICMP messages about packets that expired: ``{window:24, messages in it:8}``.

    Attributes:
        icmp_window: The register.
        window_shift: A window takes 2**``window_shift`` us.
        messages: How many messages a window may have.
    """

    def __init__(self, block: str) -> None:
        self.icmp_window = _program.register(f"{block}.icmp_window", 1)
        self.window_shift = _sizes["ICMP_WINDOW_SHIFT"]
        self.messages = _sizes["ICMP_PER_WINDOW"]


class Routing:
    """The table of routes (longest-prefix match) and the ECMP group of uplinks."""

    def __init__(self, block: str) -> None:
        self.routes = _program.table(f"{block}.routes", "hdr.ipv4.dst_ip")
        self.forward = _program.action(self.routes, f"{block}.forward", "port", "mac")
        self.deliver = _program.action(self.routes, f"{block}.deliver", "port", "mac")
        self.up = _program.action(self.routes, f"{block}.up")
        self.local = _program.action(self.routes, f"{block}.local")
        self.unroutable = _program.action(self.routes, f"{block}.unroutable")
        self.capacity = _program.capacity(self.routes)
        self.uplinks = _program.table(f"{block}.uplinks", "upward")
        self.selector = _program.profile(f"{block}.uplink_selector")


_BUCKET = ("dirty", "flow_hi", "flow_lo", "count")

IDENTITY = Identity("CanaryIngress.identity")
DSM = Meter("CanaryIngress.dsm", ("meta.flow_id", "hdr.shim.path_bf"), (*_BUCKET, "path_bfs"))
USM = Meter("CanaryEgress.usm", ("meta.flow_id",), _BUCKET)
HASHPIPE = HashPipe("CanaryIngress.hashpipe")
HEAVY_HITTER = HeavyHitter("CanaryIngress.heavy_hitter")
EXPIRY = Expiry("CanaryIngress.expiry")
ROUTING_BLOCK = "CanaryIngress.routing"
"""The control block that a program of another routing has in its place."""
ROUTING = Routing(ROUTING_BLOCK)
FAULT = Fault("CanaryEgress.fault")
INGRESS_FAULT = Fault("CanaryIngress.fault")


ARRIVING, LEAVING = "CanaryIngress.arriving", "CanaryEgress.leaving"
"""The control blocks of a measurement, in the programs that have some."""


# ---- words that are put together of fields -------------------------------------------------------


class FlowId:
    """The layout of the 104-bit flow ID, which is a 5-tuple packed into an integer."""

    def __init__(self) -> None:
        bits = _program.joined(
            "include/flow.p4", "flow_id", "src_ip", "dst_ip", "src_port", "dst_port", "protocol"
        )
        self._shifts = tuple(field.shift for field in bits.values())

    def of(self, src_ip: int, dst_ip: int, src_port: int, dst_port: int, protocol: int) -> int:
        """Return the flow ID of a 5-tuple: IPv4 addresses, ports and protocol as integers."""
        a, b, c, d, e = self._shifts
        return src_ip << a | dst_ip << b | src_port << c | dst_port << d | protocol << e


class Verdict:
    """Why a packet ended (one of `CAUSES`), whether it expired, and its marks in the shim.

    ``field`` is what a soft switch has to observe (`canary_softswitch.Program.load`).
    """

    def __init__(self) -> None:
        self.field = _program.metadata("verdict")
        parts = ("cause", "expired", "counted", "parity")
        self.fields = bits = _program.joined("include/metadata.p4", "verdict", *parts)
        self.cause = bits["cause"]
        self.expired = bits["expired"]
        self.counted = bits["counted"]
        self.parity = bits["parity"]


FLOW_ID = FlowId()
VERDICT = Verdict()
CAUSES = {
    name.removeprefix("CAUSE_").lower(): value
    for name, value in _program.constants("include/metadata.p4").items()
    if name.startswith("CAUSE_")
}
"""Why packets end, by name; ``none`` is 0."""
if missing := {"none", "fault", "corrupt", "ttl"} - CAUSES.keys():
    raise DataPlaneError(f"metadata.p4 has no cause {', '.join(sorted(missing))}")

SHIM_BITS = sum(_program.header("shim").values())
"""Bits of the header between Ethernet and IPv4 on fabric links."""


def c_defines() -> str:
    """Return C macros of the verdict's fields, as ``VERDICT_CAUSE(word)``, of `CAUSES`, as
    ``CAUSE_FAULT``, and of the shim's EtherType.
    """
    fields = [
        f"#define VERDICT_{name.upper()}(word) ((word) >> {bits.shift} & {(1 << bits.width) - 1})"
        for name, bits in VERDICT.fields.items()
    ]
    causes = [f"#define CAUSE_{name.upper()} {number}" for name, number in CAUSES.items()]
    shim = _program.constants("include/headers.p4")["ETHERTYPE_SHIM"]
    return "\n".join([*fields, *causes, f"#define ETHERTYPE_SHIM {shim:#x}", ""])
