# SPDX-License-Identifier: Apache-2.0
"""The path of one flow's packets through the switches, and what the meters counted of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.telemetry.views.segments import FlowCounts
from testbed.arrays import LongArray
from testbed.fabric.packet_fabric import PacketFabric
from testbed.record.flow_ids import FiveTuples, flow_ids
from testbed.record.run import RunDirectory

_SHOWN = 8
_PROTOCOLS = {6: "TCP", 17: "UDP"}


def example_flows(
    run: RunDirectory, drops: Mapping[str, Any], metered: FlowCounts | None
) -> list[dict[str, Any]]:
    """Return up to eight example flows for the page: flows that Canary's meters counted and whose
    path 007 traced, each with another set of lossy links.

    Args:
        run: The run's record.
        drops: Its table of lost packets.
        metered: What its meters counted of flows; None if the registers were not recorded.

    Returns:
        For each flow its ends, and the packets ``sent`` and ``lost``; the ``switches`` and
        ``links`` of its path; ``drops``, the packets that it really lost on each link; ``path_bf``,
        the pathBF after each switch in hexadecimal; and ``meters``, for each segment the positions
        of its ends on the path and what Canary's meters counted there in all epochs. The list is
        empty if no meter, no lost packet or no trace is recorded.
    """
    fabric = run.fabric
    known = len(drops) and run.has("connections")
    if metered is None or not known or not isinstance(fabric, PacketFabric):
        return []
    flows, traces = run.table("flows"), run.table("connections")
    traced = np.unique(traces["flow"][traces["complete"]])
    numbers = _flow_numbers(fabric, flows, traced, metered)
    counted = np.isin(traces["flow"], numbers[numbers >= 0])
    fit = np.flatnonzero(traces["complete"] & counted)
    length = traces["path"].length[fit]
    fit = fit[np.lexsort((-flows["lost"][traces["flow"][fit]], -length))]
    switches, found, seen = run.table("switches"), [], set()
    for row in fit.tolist():
        links = traces["path"].take(np.array([row])).links
        own = drops["link"][drops["flow"] == traces["flow"][row]]
        lossy = tuple(np.unique(own).tolist())
        if not len(links) or lossy in seen:
            continue
        seen.add(lossy)
        flow = int(traces["flow"][row])
        entry = _ends(fabric, flows, flow) | _path(fabric, switches, links)
        entry["drops"] = [int((own == link).sum()) for link in links]
        entry["meters"] = _meters(run, metered, numbers == flow, entry["switches"])
        hosts = run.whole.n_switches - fabric.n_switches  # they come first in the drawing
        entry["switches"] = [switch + hosts for switch in entry["switches"]]
        found.append(entry)
        if len(found) == _SHOWN:
            break
    return found


def _flow_numbers(
    fabric: PacketFabric,
    flows: Mapping[str, Any],
    wanted: npt.NDArray[np.integer],
    metered: FlowCounts,
) -> LongArray:
    """Return, for each row of ``metered``, the row of its flow in the table ``flows``, or -1 if
    that row is not in ``wanted``: int64[N]."""
    flows = {name: column[wanted] for name, column in flows.items()}
    src, dst = (fabric.host_ip[flows[end]] for end in ("src_host", "dst_host"))
    ports = flows["src_port"], flows["dst_port"]
    hi, lo = flow_ids(FiveTuples(src, dst, *ports, flows["protocol"]))
    number = dict(zip(zip(hi.tolist(), lo.tolist(), strict=True), wanted.tolist(), strict=True))
    rows = np.full(len(metered), -1)
    at = np.flatnonzero(np.isin(metered.flow_lo, lo))
    pairs = zip(metered.flow_hi[at].tolist(), metered.flow_lo[at].tolist(), strict=True)
    rows[at] = [number.get(pair, -1) for pair in pairs]
    return rows


def _ends(fabric: PacketFabric, flows: Mapping[str, Any], flow: int) -> dict[str, Any]:
    host = fabric.host_names
    protocol = int(flows["protocol"][flow])
    return {
        "src": f"{host[flows['src_host'][flow]]}:{flows['src_port'][flow]}",
        "dst": f"{host[flows['dst_host'][flow]]}:{flows['dst_port'][flow]}",
        "protocol": _PROTOCOLS.get(protocol, f"protocol {protocol}"),
        "sent": int(flows["sent"][flow]),
        "lost": int(flows["lost"][flow]),
    }


def _path(
    fabric: PacketFabric, switches: dict[str, Any], links: npt.NDArray[np.integer]
) -> dict[str, Any]:
    path = [*fabric.link_src[links].tolist(), int(fabric.link_dst[links[-1]])]
    bits, value = [], 0
    for switch in path:
        value = int(switches["mask"][switch]) | (0 if switches["monitor"][switch] else value)
        bits.append(f"{value:08x}")
    monitor = [bool(switches["monitor"][switch]) for switch in path]
    return {"switches": path, "links": links.tolist(), "path_bf": bits, "monitor": monitor}


def _meters(
    run: RunDirectory, metered: FlowCounts, own: npt.NDArray[np.bool_], path: list[int]
) -> list[dict[str, int]]:
    """Return the packets of a flow, whose rows of ``metered`` are ``own``, counted and lost on each
    segment of its path, summed over all epochs, and in how many epochs a meter held the flow."""
    parts, sums = run.segments, {}
    for row in np.flatnonzero(own).tolist():
        at = sums.setdefault(int(metered.segment[row]), [0, 0, 0])
        at[0] += int(metered.sent[row])
        at[1] += int(metered.lost[row])
        at[2] += 1
    return [
        {
            "from": path.index(int(parts.upstream[segment])),
            "to": path.index(int(parts.downstream[segment])),
            "sent": sent,
            "lost": lost,
            "epochs": n,
        }
        for segment, (sent, lost, n) in sorted(sums.items())
        if {int(parts.upstream[segment]), int(parts.downstream[segment])} <= set(path)
    ]
