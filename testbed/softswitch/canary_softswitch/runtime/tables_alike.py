# SPDX-License-Identifier: Apache-2.0
"""Control of the same table of many switches, of many entries at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from canary_softswitch.runtime.encoding import Column
from canary_softswitch.runtime.tables import Table

Longs = NDArray[np.int64]


class TablesAlike:
    """The same table of switches that run one program; entry i is in the table ``which[i]``.

    Args:
        tables: The tables, at least one. Those of switches that restart are others then.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self._lib, self._i = tables[0]._lib, tables[0]._i
        self._switches = np.array([table._sw for table in tables], np.uint64)

    def words_of(self, columns: Sequence[Column]) -> NDArray[np.uint64]:
        """Return n matches in the form that `add` takes, uint64[n, words].

        Args:
            columns: The matches, field by field: of an exact one the values, unsigned[n], or
                uint64[n, words] where it has more than 64 bits, low word first; of a ternary one
                (values, masks), of a range (lows, highs), arrays or single numbers.

        Raises:
            TableError: A value does not fit, or the table has lpm or optional keys.
        """
        return self._tables[0]._keys.encode_columns(columns)

    def add(
        self,
        which: Longs,
        words: NDArray[np.uint64],
        action: str,
        priority: int | None = None,
    ) -> Longs:
        """Add entries whose action has no parameters; return their handles, int64[n].

        Args:
            which: The table of each, int64[n].
            words: The matches, as `words_of` returns them.
            action: The action of all.
            priority: The priority of all, if the table needs one.

        Raises:
            TableError: As of ``Table.add``; the entries before the wrong one were added.
        """
        first = self._tables[0]
        meta, packed = first._reference(action, ())
        handles, rank = np.empty(len(which), np.int64), first._priority(priority)
        words = np.ascontiguousarray(words)
        added = self._call("ss_many_add", which, words.ctypes.data, rank, meta, packed, handles)
        if added < len(handles):
            raise self._tables[which[added]]._refusal(int(handles[added]))
        return handles

    def delete(self, which: Longs, handles: Longs) -> None:
        """Remove the entries with these handles, int64[n]; TableError if there is none of one."""
        handles = np.ascontiguousarray(handles, np.int64)
        self._check(self._call("ss_many_delete", which, handles), which, handles)

    def counters(self, which: Longs, handles: Longs) -> NDArray[np.uint64]:
        """Return (packets, bytes) that hit each entry, uint64[n, 2], as ``Table.counters``."""
        first = self._tables[0]
        if not first.definition.counters:
            return first.counters([])  # raises
        handles, out = np.ascontiguousarray(handles, np.int64), np.empty((len(which), 2), np.uint64)
        self._check(self._call("ss_many_counters", which, handles, out), which, handles)
        return out

    def _call(self, name: str, which: Longs, *arguments: Any) -> int:
        """Call a function of the C library; return how many entries it took care of."""
        which = np.ascontiguousarray(which, np.int64)
        if len(which) and not 0 <= which.min() <= which.max() < len(self._tables):
            raise IndexError(f"there are {len(self._tables)} tables, not {which.max() + 1}")
        if name != "ss_many_counters":
            self._tables[0]._mutable()
            for table in self._tables:
                table.changes += 1
        given = [each.ctypes.data if isinstance(each, np.ndarray) else each for each in arguments]
        switches = self._switches.ctypes.data
        call = getattr(self._lib, name)
        return call(switches, self._i, which.ctypes.data, len(which), *given)

    def _check(self, done: int, which: Longs, handles: Longs) -> None:
        if done < len(handles):
            self._tables[which[done]]._check(-4, int(handles[done]))
