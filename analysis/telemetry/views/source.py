# SPDX-License-Identifier: Apache-2.0
"""The record that views are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.telemetry.switched_off import SwitchedOff
from analysis.telemetry.telemetry import Flows, MissingTelemetry
from testbed.arrays import BoolArray, IntArray
from testbed.fabric.host_links import HostFabric
from testbed.fabric.paths import Paths, PathSets
from testbed.record.run import Record, whole_fabric


@dataclass(frozen=True)
class Source:
    """The record that views are made of, without what was switched off.

    Attributes:
        record: The run's record.
        kinds: The kinds of telemetry, see `analysis.telemetry.observations`.
    """

    record: Record
    kinds: Sequence[str]

    @property
    def sprayed(self) -> bool:
        """Return True if the packets of a flow took many paths."""
        return was_sprayed(self.record)

    @cached_property
    def off(self) -> SwitchedOff:
        """Return what was switched off at some time of the run."""
        return SwitchedOff(self.record)

    @property
    def off_links(self) -> BoolArray | None:
        """Return which links were switched off at some time, bool[n_links]; None if none was."""
        if not self.off.any:
            return None
        of_hosts = whole_fabric(self.record).n_links - len(self.off.links)
        return np.append(self.off.links, np.zeros(of_hosts, np.bool_))

    @cached_property
    def hosts(self) -> HostFabric | None:
        """Return the fabric with its hosts, if a link of a host was faulty; else None."""
        whole = whole_fabric(self.record)
        return whole if isinstance(whole, HostFabric) else None

    @cached_property
    def flows(self) -> Mapping[str, Any]:
        """Return the table of flows.

        Raises:
            MissingTelemetry: Links of hosts were faulty, but flows have no hosts.
        """
        flows = self.off.flows(self.record.table("flows"))
        if self.hosts is not None and not {"src_host", "dst_host"} <= set(flows):
            raise MissingTelemetry("links of hosts were faulty, but this run recorded no hosts")
        return flows

    def ends(self, flow: npt.NDArray[np.integer]) -> tuple[IntArray, IntArray]:
        """Return where the paths of some flows begin and end, int32[] each: at hosts, if their
        links are looked at, else at ToRs."""
        kind = "tor" if self.hosts is None else "host"
        return self.flows[f"src_{kind}"][flow], self.flows[f"dst_{kind}"][flow]

    def between(
        self,
        paths: Paths,
        flow: npt.NDArray[np.integer],
        whole: BoolArray | None = None,
    ) -> Paths:
        """Return paths of some flows, with the links of their hosts if these are looked at; see
        `testbed.fabric.host_links.HostFabric.around`."""
        return paths if self.hosts is None else self.hosts.around(paths, *self.ends(flow), whole)

    def reported(self, rows: BoolArray, own: BoolArray, sets: PathSets) -> Flows:
        """Return the records of some flows, bool[F]; those in ``own`` have a set of ``sets`` each,
        in order, and the others all equal-cost paths."""
        row = np.flatnonzero(rows)
        src, dst = self.ends(row)
        sent, lost = (self.flows[name][row] for name in ("sent", "lost"))
        return Flows.of(whole_fabric(self.record), src, dst, own[row], sets, sent, lost)

    @cached_property
    def traces(self) -> Mapping[str, Any] | None:
        """Return the table of traced connections; None if none were traced."""
        if not self.record.has("connections"):
            return None
        return self.off.connections(self.record.table("connections"), self.flows)

    @cached_property
    def probe_paths(self) -> Mapping[str, Any]:
        """Return the table of probed paths."""
        return self.record.table("probe_paths")

    @cached_property
    def probe_counts(self) -> Mapping[str, Any]:
        """Return the table of probes."""
        counts = self.record.table("probe_counts")
        return self.off.probe_counts(counts, self.probe_paths["path"])


def was_sprayed(record: Record) -> bool:
    """Return True if the switches of a run chose no uplink for a whole flow."""
    return record.config.get("routing", "ecmp") != "ecmp"
