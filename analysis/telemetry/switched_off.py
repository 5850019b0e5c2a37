# SPDX-License-Identifier: Apache-2.0
"""Leaves out of a run's record what was measured over links and hosts that were switched off.

A link that somebody took down, or whose switch was stopped, loses all packets without a fault. So
everything in which its loss shows is left out, and the link is neither healthy nor faulty: it is
not observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from testbed.arrays import BoolArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths
from testbed.record.run import Record, whole_fabric
from testbed.record.tables import Columns


class SwitchedOff:
    """What was switched off at some time of a run.

    Attributes:
        links: Which directed links, also those of hosts if they get a verdict, bool[n_links].
        any: Whether something was.
    """

    def __init__(self, record: Record) -> None:
        network, fabric = record.network, record.fabric
        self._fabric: Fabric = fabric
        self._hosts = np.array(network.get("hosts_off", ()), np.int64)
        every = np.arange(whole_fabric(record).n_links)
        self.links: BoolArray = np.isin(every, network.get("links_off", ()))
        self.any = bool(len(self._hosts) or self.links.any())

    def crossed_by(self, paths: Paths) -> BoolArray:
        """Return which paths cross a link that was off, bool[len(paths)]."""
        crossed = np.zeros(len(paths), np.bool_)
        crossed[paths.owner[self.links[paths.links]]] = True
        return crossed

    def flows(self, table: Mapping[str, Any]) -> Columns:
        """Return a copy of the table ``flows`` in which a flow has sent and lost nothing if a host
        of it was off, or one of the paths that it may have taken."""
        if not self.any:
            return table
        fabric = self._fabric
        src, dst = table["src_tor"].astype(np.int64), table["dst_tor"].astype(np.int64)
        pair, each = np.unique(src * fabric.n_tors + dst, return_inverse=True)
        tors = (tor.astype(np.int32) for tor in np.divmod(pair, fabric.n_tors))
        sets = fabric.path_sets(*tors)
        hidden = np.bincount(sets.owner, self.crossed_by(sets.paths), len(pair)) > 0
        return _emptied(table, hidden[each] | self._at_hosts(table))

    def connections(self, table: Mapping[str, Any], flows: Mapping[str, Any]) -> Columns:
        """Return the rows of the table ``connections`` of flows that have sent packets.

        Args:
            flows: What `flows` returned.
        """
        if not self.any:
            return table
        rows = np.flatnonzero(flows["sent"][table["flow"]] > 0)
        return {
            name: column.take(rows) if isinstance(column, Paths) else column[rows]
            for name, column in table.items()
        }

    def probe_counts(self, table: Mapping[str, Any], paths: Paths) -> Columns:
        """Return a copy of the table ``probe_counts`` in which probes of hosts that were off, and
        over links that were, have sent and lost nothing; ``paths`` are those of the plans."""
        if not self.any:
            return table
        return _emptied(table, self.crossed_by(paths)[table["path"]] | self._at_hosts(table))

    def _at_hosts(self, table: Mapping[str, Any]) -> BoolArray:
        ends = ("src_host", "dst_host")
        return np.logical_or(*(np.isin(table[end], self._hosts) for end in ends))


def _emptied(table: Mapping[str, Any], rows: BoolArray) -> Columns:
    """Return a table without packets in some rows."""
    return {**table, **{name: np.where(rows, 0, table[name]) for name in ("sent", "lost")}}
