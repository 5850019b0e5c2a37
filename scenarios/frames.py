# SPDX-License-Identifier: Apache-2.0
"""Frames of pandas with one key: ``link``, the name of a directed link, beside its switches."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.names import nearest
from testbed.fabric.paths import Paths
from testbed.record.files import to_arrow
from testbed.record.run import RunDirectory

if TYPE_CHECKING:
    from pandas import DataFrame

FRAMES = ("links", "verdicts", "flows", "figures")
"""The properties of a run that are frames."""
KEY = ("link", "src", "dst", "tier")
"""The first columns of the frames of links: the link's name, its switches, and the tier of the
lower one: 0 for links of ToRs, or of hosts where these have a verdict, too."""


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


def frame_of(columns: Mapping[str, Any]) -> DataFrame:
    """Return columns as a frame; each entry of a `Paths` column is a list of link numbers."""
    from pandas import DataFrame

    lists = {name: to_arrow(v).to_pandas() for name, v in columns.items() if isinstance(v, Paths)}
    return DataFrame(dict(columns) | lists)


def links_frame(run: RunDirectory) -> DataFrame:
    """Return a row for each directed link: `KEY`, whether it is ``faulty``, its loss ``rate``, and
    its packets and drops."""
    from pandas import DataFrame

    truth = run.table("links")
    columns = ("faulty", "rate", "packets", "fault_drops", "queue_drops")
    return DataFrame(key_of(run.whole) | {name: truth[name] for name in columns if name in truth})


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
        frame = DataFrame(key_of(run.whole) | {"faulty": faulty} | said)
        frame.insert(0, "method", name)
        parts.append(frame)
    return concat(parts, ignore_index=True) if parts else DataFrame()


def flows_frame(run: RunDirectory) -> DataFrame:
    """Return a row for each flow: its ToRs as ``src`` and ``dst``, by name, and the columns of the
    table ``flows``; ``path``, if there is one, has the numbers of the links that it crossed."""
    names = np.array(run.fabric.switch_names, object)
    columns = dict(run.table("flows"))
    ends = {
        end: names[np.asarray(columns[f"{end}_tor"])]
        for end in ("src", "dst")
        if f"{end}_tor" in columns
    }
    return frame_of(ends | columns)


def to_polars(frame: DataFrame) -> Any:
    """Return a frame of pandas as a ``polars.DataFrame``.

    Raises:
        UserError: polars is not installed (one line).
    """
    from pyarrow import Table

    named = frame.index.name is not None
    return _package("polars").from_arrow(Table.from_pandas(frame, preserve_index=named))


def to_networkx(fabric: Fabric, links: DataFrame, verdicts: DataFrame, method: str | None) -> Any:
    """Return a fabric as a ``networkx.DiGraph``, see `scenarios.api.Run.to_networkx`.

    Raises:
        UserError: networkx is not installed, or there is no such method (one line).
    """
    graph = _package("networkx").DiGraph()
    edges = links.to_dict("records")
    if method is not None:
        known = list(dict.fromkeys(verdicts["method"])) if len(verdicts) else []
        if method not in known:
            raise UserError(f"the run has no method {method}: {nearest(method, known)}")
        said = verdicts.loc[verdicts["method"] == method, ["blamed", "success"]]
        pairs = zip(edges, said["blamed"].tolist(), said["success"].tolist(), strict=True)
        edges = [row | {"blamed": blamed, "success": success} for row, blamed, success in pairs]
    for node, name in enumerate(fabric.switch_names):
        graph.add_node(name, tier=int(fabric.tier[node]), pod=int(fabric.pod[node]))
    for row in edges:
        graph.add_edge(row["src"], row["dst"], **{str(name): row[name] for name in row})
    return graph


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise UserError(f"{name} is not installed: pip install {name}") from None
