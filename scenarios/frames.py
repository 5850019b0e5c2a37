# SPDX-License-Identifier: Apache-2.0
"""Frames of pandas with one key: ``link``, the name of a directed link, beside its switches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.fabric.clos import Fabric
from testbed.record.run import RunDirectory

if TYPE_CHECKING:
    from pandas import DataFrame

KEY = ("link", "src", "dst", "tier")
"""The first columns of the frames of links: the link's name, its switches, and the tier of the
lower one, 0 for links of ToRs."""


def key_of(fabric: Fabric) -> dict[str, Any]:
    """Return the columns of `KEY`, with a row for each directed link of a fabric."""
    names = np.array(fabric.switch_names, object)
    tier = np.minimum(fabric.tier[fabric.link_src], fabric.tier[fabric.link_dst])
    return {
        "link": np.array(fabric.link_names, object),
        "src": names[fabric.link_src],
        "dst": names[fabric.link_dst],
        "tier": tier,
    }


def links_frame(run: RunDirectory) -> DataFrame:
    """Return a row for each directed link: `KEY`, whether it is ``faulty``, its loss ``rate``, and
    its packets and drops."""
    from pandas import DataFrame

    truth = run.table("links")
    columns = ("faulty", "rate", "packets", "fault_drops", "queue_drops")
    return DataFrame(key_of(run.fabric) | {name: truth[name] for name in columns if name in truth})


def verdicts_frame(run: RunDirectory, methods: Mapping[str, Any]) -> DataFrame:
    """Return a row for each method and directed link: ``method``, `KEY`, whether the link is
    ``faulty``, and what the method says of it: ``blamed``, ``state``, ``score``, ``success`` and
    ``rank``.

    Args:
        run: The run.
        methods: The methods, the keys of ``summary.json``'s ``methods``.
    """
    from pandas import DataFrame, concat

    faulty, parts = run.table("links")["faulty"], []
    for name in methods:
        found = run.table(f"diagnoses/{name}")
        said = {"blamed": found["flagged"]}
        said |= {column: found[column] for column in ("state", "score", "success", "rank")}
        frame = DataFrame(key_of(run.fabric) | {"faulty": faulty} | said)
        frame.insert(0, "method", name)
        parts.append(frame)
    return concat(parts, ignore_index=True) if parts else DataFrame()


def flows_frame(run: RunDirectory) -> DataFrame:
    """Return a row for each flow: its ToRs as ``src`` and ``dst``, by name, and the columns of the
    table ``flows``."""
    from pandas import DataFrame

    names = np.array(run.fabric.switch_names, object)
    columns = dict(run.table("flows"))
    ends = {
        end: names[np.asarray(columns[f"{end}_tor"])]
        for end in ("src", "dst")
        if f"{end}_tor" in columns
    }
    return DataFrame(ends | columns)
