"""The columns of the two tables, and the version of both."""

from __future__ import annotations

from testbed.record.tables import Column, Schema

__all__ = ["COUNT_LIMIT", "FABRIC", "KINDS", "OBSERVATIONS", "PLANS"]

FORMAT, VERSION = "localization-telemetry", 1

FABRIC = Schema(
    FORMAT,
    "fabric",
    VERSION,
    (
        Column("link", "integer", required=True),
        Column("src", "text", required=True),
        Column("dst", "text", required=True),
        Column("src_tier", "integer"),
        Column("dst_tier", "integer"),
    ),
)

OBSERVATIONS = Schema(
    FORMAT,
    "observations",
    VERSION,
    (
        Column("id", "integer", required=True),
        Column("kind", "text", required=True),
        Column("plan", "text"),
        Column("epoch", "integer"),
        Column("src", "text"),
        Column("dst", "text"),
        Column("paths", "integer lists"),
        Column("nodes", "text lists"),
        Column("sent", "integer"),
        Column("lost", "integer"),
        Column("retransmissions", "integer"),
        Column("rtt_ms", "number"),
    ),
)

PLANS = ("netbouncer", "detector")
KINDS = ("active", "passive", "segment", "connection")
COUNT_LIMIT = 10**15
"""More packets than a row can mean; sums of rows stay exact."""
