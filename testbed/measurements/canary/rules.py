# SPDX-License-Identifier: Apache-2.0
"""The rules of Canary's meters as arrays: the flows that are monitored on each segment.

A rule is a flow on a segment. It has an entry of its own in the DSM's table at the segment's
downstream switch. Rules of a flow whose segments begin at the same upstream switch share an entry
of the USM's table there, as the key of that table is the flow alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, IntArray, LongArray, WordArray
from testbed.fabric.segments import Segments
from testbed.kernels import Bound, Kernels

_KERNELS = Kernels.beside(__file__)
_FEW = 64

NONE = -1


@dataclass(frozen=True)
class Flows:
    """Flows by the upper 40 and the lower 64 bits of their IDs, uint64[N] each."""

    hi: WordArray
    lo: WordArray

    def __len__(self) -> int:
        return len(self.lo)

    def __getitem__(self, rows: slice | npt.NDArray[Any]) -> Flows:
        """Return some of the flows."""
        return Flows(self.hi[rows], self.lo[rows])

    @property
    def column(self) -> WordArray:
        """Return them as a field of matches, see `Entries.add`: uint64[N, 2]."""
        return np.stack((self.lo, self.hi), axis=1)


class FlowsAt:
    """Flows at places, in the order in which they came, with numbers beside them.

    Args:
        numbers: The names of the numbers, and what they are at first.
    """

    def __init__(self, **numbers: int) -> None:
        self._first = numbers
        self._n = 0
        self._columns: dict[str, npt.NDArray[Any]] = {
            "hi": np.zeros(_FEW, np.uint64),
            "lo": np.zeros(_FEW, np.uint64),
            "place": np.zeros(_FEW, np.int32),
            **{name: np.full(_FEW, value, np.int64) for name, value in numbers.items()},
        }
        self._index: Bound | None = None

    def __len__(self) -> int:
        return self._n

    @property
    def flows(self) -> Flows:
        """Return a view of the flows."""
        return Flows(self._columns["hi"][: self._n], self._columns["lo"][: self._n])

    @property
    def place(self) -> IntArray:
        """Return a view of the places, int32[n]."""
        return self._columns["place"][: self._n]

    def __getitem__(self, name: str) -> LongArray:
        """Return a view of some of the numbers, int64[n]."""
        return self._columns[name][: self._n]

    def whole(self, name: str) -> LongArray:
        """Return some of the numbers with those of rows that are not in use."""
        return self._columns[name]

    def keep(self, kept: BoolArray) -> None:
        """Drop all others, bool[n]."""
        n = int(kept.sum())
        for column in self._columns.values():
            column[:n] = column[: self._n][kept]
        self._n = n
        self._index = None

    def reserve(self, more: int) -> Bound:
        """Make room for more flows, and return the arrays for the kernels, with their index."""
        room = len(self._columns["hi"])
        if self._n + more > room:
            room = max(self._n + more, 2 * room)
            for name, column in self._columns.items():
                grown = np.empty(room, column.dtype)
                grown[: self._n] = self._columns[name][: self._n]
                self._columns[name] = grown
            self._index = None
        for name, value in self._first.items():
            self._columns[name][self._n : self._n + more] = value
        if self._index is None:
            hi, lo, place = (self._columns[name] for name in ("hi", "lo", "place"))
            slots = np.empty(1 << (2 * room).bit_length(), np.int32)
            self._index = _KERNELS.bound("FlowsAt", _FlowsAt(hi, lo, place, len(slots), slots))
            _KERNELS.index_flows(flows=self._index, n=self._n)
        return self._index

    def extend(self, n: int) -> slice:
        """Note that a kernel has put flows behind the last, up to row n; return the new rows."""
        new = slice(self._n, n)
        self._n = n
        return new


class _FlowsAt(NamedTuple):
    """`FlowsAt` for the kernels."""

    hi: WordArray
    lo: WordArray
    place: IntArray
    n_slots: int
    slots: IntArray


class _Demand(NamedTuple):
    """What is asked for and what the tables take, for the kernel ``admit``."""

    upstream: IntArray
    downstream: IntArray
    wanted: LongArray
    load: LongArray
    room: LongArray
    n_switches: int


ADMITTED, REFUSED = 1, 2


@dataclass(frozen=True)
class Admission:
    """What becomes of reported flows, int8[N]: `ADMITTED`, `REFUSED` by a full table, or 0; and the
    rows of the new rules and of the new entries of USMs."""

    outcome: npt.NDArray[np.int8]
    rules: slice
    entries: slice


class Monitored:
    """The rules and what they take of the switches' tables.

    Attributes:
        rules: Flows at segments, with the handle of the DSM's entry, the row of the USM's in
            ``entries``, the packets that arrived when they were last read, -1 before, and whether
            the rule is ``leaving``: it is no longer in force, and its ``entry`` is -1.
        entries: Flows at upstream switches, with the handle of the USM's entry, the number of rules
            that share it, and the packets when they were last read, -1 before.
        wanted: How many flows are still asked for on each segment, int64[S].
        load: Entries in each switch's tables, the DSM's and the USM's, int64[2, n_switches].
        room: The most entries of each, int64[2].
    """

    def __init__(self, segments: Segments, room: tuple[int, int]) -> None:
        self.rules = FlowsAt(handle=NONE, entry=NONE, arrived=NONE, leaving=0)
        self.entries = FlowsAt(handle=NONE, shares=0, packets=NONE)
        self.wanted = np.zeros(len(segments), np.int64)
        ends = segments.upstream, segments.downstream
        n = int(max(each.max(initial=-1) for each in ends)) + 1
        upstream, downstream = (np.ascontiguousarray(each, np.int32) for each in ends)
        self._ends = upstream, downstream
        self.load, self.room = np.zeros((2, n), np.int64), np.array(room)
        demand = _Demand(*self._ends, self.wanted, self.load, self.room, n)
        self._demand = _KERNELS.bound("Demand", demand)

    def admit(self, flows: Flows, segment: IntArray) -> Admission:
        """Make rules of those reported flows, in their order, that are asked for and fit; the
        segments are int32[N]."""
        n = len(flows)
        rules, entries = self.rules.reserve(n), self.entries.reserve(n)
        outcome, rows = np.zeros(n, np.int8), np.array([len(self.rules), len(self.entries)])
        _KERNELS.admit(
            hi=np.ascontiguousarray(flows.hi),
            lo=np.ascontiguousarray(flows.lo),
            segment=np.ascontiguousarray(segment),
            outcome=outcome,
            demand=self._demand,
            rules=rules,
            entries=entries,
            entry=self.rules.whole("entry"),
            shares=self.entries.whole("shares"),
            rows=rows,
        )
        n_rules, n_entries = rows.tolist()
        return Admission(outcome, self.rules.extend(n_rules), self.entries.extend(n_entries))

    def retire(self, quiet: BoolArray) -> BoolArray:
        """Let rules leave, bool[R]; return the entries that no rule uses any more, bool[N], which
        `drop_entries` drops."""
        entry, shares = self.rules["entry"], self.entries["shares"]
        shares -= np.bincount(entry[quiet], minlength=len(shares))
        entry[quiet] = NONE
        self.rules["leaving"][quiet] = 1
        return shares == 0

    def drop_entries(self, unused: BoolArray) -> None:
        """Drop entries of USMs that no rule uses, bool[N]."""
        row = np.append(np.cumsum(~unused) - 1, NONE)
        entry = self.rules["entry"]
        entry[:] = row[entry]
        np.subtract.at(self.load[1], self.entries.place[unused], 1)
        self.entries.keep(~unused)

    def drop_leaving(self) -> None:
        """Drop the rules that are leaving."""
        leaving = self.rules["leaving"] > 0
        np.subtract.at(self.load[0], self._ends[1][self.rules.place[leaving]], 1)
        self.rules.keep(~leaving)
