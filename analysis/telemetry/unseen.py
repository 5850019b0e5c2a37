# SPDX-License-Identifier: Apache-2.0
"""Why links were not observed, from what happened, and what would observe them.

The words are those of the caller: settings for a run, rows for telemetry from files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.telemetry.identifiability import Identifiability
from analysis.telemetry.telemetry import GIVEN, Telemetry
from analysis.telemetry.views.registry import VIEWS
from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.fabric.host_links import HostFabric
from testbed.fabric.names import some_of
from testbed.measurements.registry import unseen_of

ROWS: Mapping[str, str] = {
    "segments": "segment (or counter)",
    "probes": "active",
    "detector": "active",
    "connections": "connection",
    "flows": "passive",
    "roundtrips": "roundtrip",
}
"""The kinds of rows that make up each measurement in a file."""


def why_unseen(tells: Identifiability, telemetry: Telemetry, reads: Sequence[str]) -> str:
    """Return a sentence that says which links the measurements read did not observe, for which
    cause, and what would observe them; empty if all were observed."""
    fabric = telemetry.topology
    missing = ~tells.observed
    if not missing.any():
        return ""
    if telemetry.off is not None and (missing & telemetry.off).any():
        return _with_off(missing, telemetry, reads)
    if telemetry.monitors == GIVEN:
        why = _of_rows(telemetry, reads, whole=bool(missing.all()))
    else:
        why = _of_run(telemetry, reads)
    if missing.all():
        return f"nothing was measured, so there is no verdict: {why}"
    said = "not observed, so neither healthy nor faulty: "
    if isinstance(fabric, HostFabric) and list(reads) == ["segments"]:
        said += "all links of hosts, as the meters are in switches"
        missing &= np.arange(fabric.n_links) < fabric.switches_only.n_links
        if not missing.any():
            return said
        said += "; "
    return f"{said}{_which(missing, fabric)}: {why}"


def _which(missing: BoolArray, fabric: Fabric) -> str:
    """Return the number of the links that are missing, and the names of some."""
    names = [fabric.link_names[link] for link in np.flatnonzero(missing).tolist()]
    dark = _dark_switches(missing, fabric)
    whose = f", all links of {some_of(dark)}: dead, or nothing goes there" if dark else ""
    return f"{len(names)} of {fabric.n_links} links ({some_of(names)}{whose})"


def _with_off(missing: BoolArray, telemetry: Telemetry, reads: Sequence[str]) -> str:
    """Return a sentence on links that were switched off, and on those that nothing observed for
    another reason."""
    assert telemetry.off is not None
    names = telemetry.topology.link_names
    off, others = (
        some_of([names[link] for link in np.flatnonzero(which).tolist()])
        for which in (missing & telemetry.off, missing & ~telemetry.off)
    )
    line = f"not a fault: switched off, so not observed: {off}"
    if (missing & ~telemetry.off).any():
        line += f"; not observed beside them: {others}: {_of_run(telemetry, reads)}"
    return line


def _of_rows(telemetry: Telemetry, reads: Sequence[str], whole: bool) -> str:
    """Return what would observe links in telemetry from files: rows, or packets in them."""
    causes: list[str] = []
    for kind in dict.fromkeys(ROWS.get(name, name) for name in reads):
        parts = [telemetry.part(name) for name in reads if ROWS.get(name, name) == kind]
        there = [part for part in parts if part is not None]
        counts = [part.lost if not hasattr(part, "sent") else part.sent for part in there]
        if there and not sum(each.size for each in counts):
            causes.append(f"there are no {kind} rows")
        elif there and not any(each.any() for each in counts):
            causes.append(f"all {kind} rows have 0 packets")
        elif there and whole:
            causes.append(f"no {kind} row crosses a link between switches")
        else:
            causes.append(f"no {kind} row with packets crosses them: add such rows")
    return "; ".join(causes)


def _of_run(telemetry: Telemetry, reads: Sequence[str]) -> str:
    """Return what happened in a run, or the settings that would observe more."""
    causes: list[str] = []
    for name in reads:
        part, why = telemetry.part(name), unseen_of(name)
        if part is not None and name in VIEWS:
            why = VIEWS[name].unseen(part, why)
        causes.append(why)
    return "; ".join(dict.fromkeys(causes))


def _dark_switches(missing: BoolArray, fabric: Fabric) -> list[str]:
    """Return the names of the switches of whose links none was observed."""
    seen = np.zeros(fabric.n_switches, np.bool_)
    for ends in (fabric.link_src, fabric.link_dst):
        seen[ends[~missing]] = True
    linked = np.zeros(fabric.n_switches, np.bool_)
    linked[fabric.link_src] = True
    linked[: fabric.n_tors] &= not isinstance(fabric, HostFabric)
    return [fabric.switch_names[each] for each in np.flatnonzero(linked & ~seen).tolist()]
