# SPDX-License-Identifier: Apache-2.0
"""The hosts' records of their flows, with the paths that are known."""

from __future__ import annotations

import numpy as np

from analysis.telemetry.telemetry import Flows, MissingTelemetry
from analysis.telemetry.views.source import Source
from testbed.fabric.paths import Paths, PathSets
from testbed.record.documents import Measured
from testbed.record.run import Record
from testbed.record.run_tables import INT_PATHS


def flows(source: Source) -> Flows | None:
    """Return the flows that the kinds report, with their own path where the kinds tell it and all
    equal-cost paths otherwise; None if no kind reports flows."""
    kinds, flows, traces = source.kinds, source.flows, source.traces
    if not {"A2", "P", "INT"} & set(kinds):
        return None
    used = flows["sent"] > 0
    known, paths = np.zeros(0, np.int64), Paths(np.zeros(1, np.int64), np.zeros(0, np.int32))
    if "INT" in kinds:
        if "path" not in flows:
            raise MissingTelemetry("INT needs the path of every flow, but this run recorded none")
        known = np.flatnonzero(used)
        paths = source.between(flows["path"].take(known), known)
    elif "A2" in kinds and traces is not None and not source.sprayed:
        whole = traces["complete"] & (traces["path"].length > 0) & used[traces["flow"]]
        known, paths = traces["flow"][whole], traces["path"].take(np.flatnonzero(whole))
        paths = source.between(paths, known)
    own = np.zeros(len(used), np.bool_)
    own[known] = True
    return source.reported(used if "P" in kinds else own, own, PathSets.known(paths))


def int_flows(source: Source) -> Flows:
    """Return all flows, each with the path that its packets carried, or the paths if routes
    changed; those of which no packet arrived have all equal-cost paths of their ToRs."""
    used, table = source.flows["sent"] > 0, source.record.table(INT_PATHS.name)
    row = np.flatnonzero(used[table["flow"]])
    flow = table["flow"][row]
    paths = source.between(table["path"].take(row), flow)
    known, first = np.unique(flow, return_index=True)
    own = np.zeros(len(used), np.bool_)
    own[known] = True
    return source.reported(used, own, PathSets(np.append(first, len(flow)), paths))


def used(record: Record, part: Flows) -> Measured:
    """Return how many records were kept, of all flows."""
    del part
    flows = record.table("flows")
    got = len(flows["sent"])
    asked = round(got / max(record.network.get("flows_recorded", 1.0), 1e-9))
    return {
        "budgets": {"flow records": {"asked": asked, "got": got}},
        "packets": int(flows["sent"].sum()),
    }


def unseen(part: Flows, advice: str) -> str:
    """Return why links were not observed; see `View.unseen`."""
    return advice if part.sent.any() else f"no flow was reported: {advice}"
