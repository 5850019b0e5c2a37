# SPDX-License-Identifier: Apache-2.0
"""NetBouncer's probes, and those of deTector's matrix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.telemetry.telemetry import MissingTelemetry, Probes
from analysis.telemetry.views.source import Source
from analysis.telemetry.views.view import unobserved
from testbed.measurements.registry import budget
from testbed.record.documents import Measured, Use
from testbed.record.run import Record
from testbed.record.run_tables import PLANS


def probes(source: Source) -> Probes | None:
    """Return NetBouncer's probes, if the kinds report probes; each host reports its own
    (NetBouncer, sections 2 and 4.3), which determines the number of records."""
    if not {"A1", "INT"} & set(source.kinds):
        return None
    found, reports = _planned(PLANS[0], source)
    return replace(found, records=reports)


def detector(source: Source) -> Probes:
    """Return the probes of deTector's matrix, summed over the hosts that probe a path."""
    return _planned(PLANS[1], source)[0]


def _planned(plan: str, source: Source) -> tuple[Probes, int]:
    """Return the probes of a plan, summed over the hosts that probe the same path (whose links are
    a part of it, if they are looked at), and the number of rows that were summed."""
    probe_paths, counts = source.probe_paths, source.probe_counts
    of_plan = np.array([name == plan for name in probe_paths["plan"]], np.bool_)
    row = np.flatnonzero(of_plan[counts["path"]])
    path = counts["path"][row]
    if source.hosts is not None:
        src, dst = (counts[end][row] for end in ("src_host", "dst_host"))
        if len(row) and min(src.min(), dst.min()) < 0:
            raise MissingTelemetry("links of hosts were faulty, but probes name no hosts")
        paths = source.hosts.around(probe_paths["path"].take(path), src, dst)
        return Probes(paths, counts["sent"][row], counts["lost"][row]), len(row)
    probed = np.flatnonzero(np.bincount(path))
    sums = np.zeros((2, len(of_plan)), np.int64)
    for cells, name in zip(sums, ("sent", "lost"), strict=True):
        np.add.at(cells, path, counts[name][row])
    return Probes(probe_paths["path"].take(probed), *sums[:, probed]), len(row)


def used(record: Record, part: Probes) -> Measured:
    """Return how many of NetBouncer's probes were sent, of those that were asked for."""
    return _used(record, part, PLANS[0])


def used_by_detector(record: Record, part: Probes) -> Measured:
    """Return how many of deTector's probes were sent, of those that its budget allows."""
    return _used(record, part, PLANS[1])


def _used(record: Record, part: Probes, plan: str) -> Measured:
    sent = int(part.sent.sum())
    budgets: dict[str, Use] = {}
    if "probes" in record.config:
        plans = np.array(record.table("probe_paths")["plan"])
        rows = int((plans[record.table("probe_counts")["path"]] == plan).sum())
        name, each = "probes", record.config["probes"]
        if plan != PLANS[0]:
            name = "matrix probes"
            each = budget(name).probes_each(record.fabric, rows, each)
        budgets[name] = {"asked": each * rows, "got": sent}
    return {"budgets": budgets, "packets": sent, "links_unobserved": unobserved(record, part)}


def unseen(part: Probes, advice: str) -> str:
    """Return why links were not observed; see `View.unseen`."""
    return advice if part.sent.any() else f"no probe was sent: {advice}"
