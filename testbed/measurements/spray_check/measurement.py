# SPDX-License-Identifier: Apache-2.0
"""The measurement ``spray_check``: what each leaf received of each other leaf by each spine.

SprayCheck (arXiv 2605.03702) counts this flow by flow. Here the flows of a pair of leaves are
counted together: they are sprayed alike, and only their sum is compared with their shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.arrays import LongArray
from testbed.control.routings import PROGRAMS
from testbed.control.switch import batch, for_each
from testbed.errors import UserError
from testbed.measurements.measurement import Counts, Measurement, Running, Write
from testbed.record.run_tables import SPRAY_COUNTS
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.dataplane.program import CompiledProgram
    from testbed.fabric.clos import Fabric
    from testbed.fabric.packet_fabric import PacketFabric
    from testbed.measurements.measurement import PacketRun

_RACK = 24
"""The bits of a prefix that the addresses of a rack share."""

_HASHES = 256
"""The values of the 8-bit hash whose remainder chooses an uplink."""


class SprayCheck(Measurement):
    """The packets that came to each leaf, by the leaf that they are from and the spine that they
    crossed."""

    name = "spray_check"
    view = "spray_check"
    help = "with another ROUTING than ecmp, what each leaf received by each spine"
    unseen = "more LOAD lets packets cross every link"
    tables = (SPRAY_COUNTS,)
    program = PROGRAMS["spray"]

    def need(self, fabric: Fabric) -> None:
        """Raise UserError if the fabric is no leaf-spine, or has too many ways (one line)."""
        need_leaf_spine(fabric)
        room = self._compiled().constants("measurement.p4")["WAYS"]
        needed = fabric.n_tors * (fabric.n_switches - fabric.n_tors)
        if needed > room:
            raise UserError(
                f"spray_check has {room:,} counters at a leaf, and {fabric.title} needs "
                f"{needed:,}: use fewer leaves or spines"
            )

    def start(self, run: PacketRun) -> Running:
        """Install the counters' entries, and begin with counters of 0."""
        return SprayRun(run, self._compiled())

    def _compiled(self) -> CompiledProgram:
        """Return the program with the counters."""
        from testbed.dataplane.program import CompiledProgram

        program = PROGRAMS["spray"]
        return CompiledProgram(program.parents[1], program.stem)


class SprayRun(Running):
    """The counters in a run with packets, which are only read."""

    def __init__(self, run: PacketRun, compiled: CompiledProgram) -> None:
        from testbed.dataplane import ARRIVING

        self._run, self._ways = run, _Ways(run.fabric)
        self._counter = compiled.counter(f"{ARRIVING}.ways")
        self._void = np.zeros(run.fabric.n_switches, np.bool_)
        self._install(compiled, ARRIVING)
        self._ended = {0: np.zeros(len(self._ways.spine), np.int64)}

    def _install(self, compiled: Any, block: str) -> None:
        """Install where the counters of each rack and of each port to a spine are."""
        fabric, n_spines = self._run.fabric, self._ways.n_spines
        racks = compiled.table(f"{block}.racks", "hdr.ipv4.src_ip")
        begin = compiled.action(racks, f"{block}.begin", "first")
        spines = compiled.table(f"{block}.spines", "std.ingress_port")
        count = compiled.action(spines, f"{block}.count", "spine")
        address = (fabric.switch_ip[: fabric.n_tors] >> 32 - _RACK << 32 - _RACK).tolist()
        leaves = self._run.controls[: fabric.n_tors]
        ports = self._ways.ports.tolist()
        with batch(leaves):
            for leaf, control in enumerate(leaves):
                for other in (each for each in range(fabric.n_tors) if each != leaf):
                    control.table(racks).add([(address[other], _RACK)], begin, (other * n_spines,))
                for spine, port in enumerate(ports[leaf]):
                    control.table(spines).add([port], count, (spine,))

    def _now(self) -> LongArray:
        """Return what was counted of each way so far, int64[R]."""
        n = self._ways.n_counters
        leaves = self._run.controls[: self._run.fabric.n_tors]
        read = for_each(leaves, lambda each: each.counter(self._counter, range(n)))
        found = np.stack([each["packets"][:n] for each in read]).astype(np.int64)
        return found[self._ways.dst, self._ways.cell]

    def restarted(self, switch: int) -> None:
        """Leave out the ways through a switch that restarted, whose counters begin at 0 again."""
        self._void[switch] = True

    def end_epoch(self, number: int, rerouted: Sequence[int], write: Write) -> LongArray:
        """Note the counters, with which the record of a later epoch begins; return them."""
        del write
        self._void[list(rerouted)] = True
        self._ended[number + 1] = now = self._now()
        return now

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return the packets since the first epoch of the record, of every way whose switches
        kept their routes: how the packets of others were spread is not known."""
        ways, packets = self._ways, self._now() - self._ended[counts.first]
        ends = ways.src, ways.dst, ways.spine
        kept = ~np.any([self._void[each] for each in ends], axis=0)
        columns = {
            "src_tor": ways.src,
            "dst_tor": ways.dst,
            "spine": ways.spine,
            "share": ways.share,
            "packets": packets,
        }
        return {SPRAY_COUNTS.name: {name: column[kept] for name, column in columns.items()}}


class _Ways:
    """The ways from each leaf over each spine to each other leaf of a fabric.

    Attributes:
        n_spines: The number of spines.
        n_counters: The counters of a leaf.
        ports: The port of each leaf to each spine, int32[leaves, spines].
        src, dst, spine: The switches of each way, int32[R].
        cell: The counter of each way at its receiving leaf, int64[R].
        share: The share of a pair's packets that the leaf sprays over each way, float64[R].
    """

    def __init__(self, fabric: PacketFabric) -> None:
        leaves, spines = fabric.n_tors, fabric.n_switches - fabric.n_tors
        self.n_spines, self.n_counters = spines, leaves * spines
        up = np.arange(0, fabric.n_links, 2)
        self.ports = np.zeros((leaves, spines), np.int32)
        self.ports[fabric.link_src[up], fabric.link_dst[up] - leaves] = fabric.link_src_port[up]
        # An uplink is the member of its group whose place is the remainder of the hash.
        place = np.argsort(np.argsort(self.ports, axis=1), axis=1)
        share = np.bincount(np.arange(_HASHES) % spines, minlength=spines) / _HASHES
        src, dst, spine = (
            each.reshape(-1) for each in np.indices((leaves, leaves, spines), np.int32)
        )
        other = src != dst
        src, dst, spine = src[other], dst[other], spine[other]
        self.src, self.dst, self.spine = src, dst, spine + np.int32(leaves)
        self.cell = src.astype(np.int64) * spines + spine
        self.share = share[place[src, spine]]


def need_leaf_spine(fabric: Fabric) -> None:
    """Raise UserError unless every leaf of a fabric of two tiers is linked to every spine."""
    spines = fabric.n_switches - fabric.n_tors
    if fabric.tier.max() != 1 or fabric.n_links != 2 * fabric.n_tors * spines:
        raise UserError(
            f"spray_check needs a leaf-spine in which every leaf is linked to every spine, not "
            f"{fabric.title}: use TOPOLOGY=leaf-spine:LEAVES:SPINES"
        )
