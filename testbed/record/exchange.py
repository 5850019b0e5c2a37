# SPDX-License-Identifier: Apache-2.0
"""The table in which runs and telemetry from elsewhere are exchanged, beside that of the fabric."""

from __future__ import annotations

from testbed.record.run_tables import PLANS
from testbed.record.schema import COUNT_LIMIT, Column, Schema

KINDS = ("active", "passive", "segment", "connection", "roundtrip", "counter")

OBSERVATIONS = Schema(
    "observations",
    "all telemetry that methods may read: a row for each probed path, each flow or connection, "
    "each segment and epoch, each pair of pinging ToRs, and each poll of a link's counters; "
    "`canary export` makes this table from a run, `canary import` from other files",
    (
        Column("id", "int64", "number of the row: any distinct numbers"),
        Column("kind", "text", "the kind of observation", words=KINDS),
        Column(
            "plan",
            "text",
            "`active` only: the plan that the probe belongs to",
            null="no plan: every method may read it",
            required=False,
            words=PLANS,
        ),
        Column(
            "epoch",
            "int64",
            "`segment` only: measurement epoch",
            null="epoch 0",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
        Column("src", "text", "switch of tier 0", null="the start of its paths", required=False),
        Column("dst", "text", "switch of tier 0", null="the end of its paths", required=False),
        Column(
            "paths",
            "paths",
            "possible paths, each as the numbers of its links in order",
            null="unknown, or in `nodes`",
            required=False,
        ),
        Column(
            "nodes",
            "node paths",
            "possible paths, each as the names of its switches in order; `*` for a hop that did "
            "not answer (`connection` only)",
            null="unknown, or in `paths`",
            required=False,
        ),
        Column(
            "sent",
            "int64",
            "packets sent, including retransmissions",
            "packets",
            null="unknown; `connection` only",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
        Column(
            "lost",
            "int64",
            "packets lost",
            "packets",
            null="in `retransmissions` or `arrived`",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
        Column(
            "retransmissions",
            "int64",
            "packets retransmitted, which hosts know instead of `lost`",
            "packets",
            null="in `lost`",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
        Column(
            "arrived",
            "int64",
            "`counter` only: packets that the far end counted, which may be more than `sent` if "
            "both ends were read at different times",
            "packets",
            null="in `lost`",
            required=False,
            low=0,
            high=COUNT_LIMIT,
        ),
        Column(
            "rtt_ms",
            "float64",
            "`passive` only: round-trip time; given for all such rows or for none",
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
