"""The table in which runs and telemetry from elsewhere are exchanged, beside that of the fabric."""

from __future__ import annotations

from testbed.record.run_tables import PLANS
from testbed.record.schema import COUNT_LIMIT, Column, Schema

KINDS = ("active", "passive", "segment", "connection")

OBSERVATIONS = Schema(
    "observations",
    "all that methods may know, a row for each path probed, flow or connection seen, and segment "
    "metered in an epoch: not in a run, `canary export` makes it of one",
    (
        Column("id", "int64", "the row's number: any, no two alike"),
        Column("kind", "text", "what the row tells of", words=KINDS),
        Column(
            "plan",
            "text",
            "`active` only: whose probe it is",
            null="any method's",
            required=False,
            words=PLANS,
        ),
        Column(
            "epoch",
            "int64",
            "`segment` only: measurement epoch",
            null="0",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
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
            low=0,
            high=COUNT_LIMIT,
        ),
        Column(
            "lost",
            "int64",
            "lost",
            "packets",
            null="in `retransmissions`",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
        Column(
            "retransmissions",
            "int64",
            "sent again: what hosts know in place of `lost`",
            "packets",
            null="in `lost`",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
        Column(
            "rtt_ms",
            "float64",
            "`passive` only: round-trip time, of all such rows or of none",
            "ms",
            null="not measured",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
    ),
    required=False,
    key=("id",),
)
