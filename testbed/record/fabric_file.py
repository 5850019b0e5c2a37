# SPDX-License-Identifier: Apache-2.0
"""Fabric files: the directed links of a Clos, and the tiers of its switches."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from testbed.arrays import LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.components import components
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.record.foreign import Receipt
from testbed.record.messages import shown
from testbed.record.run_tables import FABRIC
from testbed.record.schema import TableError
from testbed.record.tables import Columns, Table, Texts, read_table_or_parts, write_table


@dataclass(frozen=True)
class NumberedFabric:
    """A fabric, and the number of each directed link in its file, int64[n_links]."""

    fabric: Fabric
    link_ids: LongArray


def fabric_columns(fabric: Fabric) -> Columns:
    """Return a fabric as the columns of a table; link ids are those of ``fabric``.

    Switches above tier 0 without a link are left out, as no path leads through them.
    """
    ends = {"src": fabric.link_src, "dst": fabric.link_dst}
    names = {end: Texts(switch, fabric.switch_names) for end, switch in ends.items()}
    tiers = {f"{end}_tier": fabric.tier[switch] for end, switch in ends.items()}
    return {"link": np.arange(fabric.n_links), **names, **tiers}


def write_fabric(path: Path, fabric: Fabric) -> None:
    """Write a fabric, see `fabric_columns`.

    Raises:
        TableError: The file cannot be written, or a ToR has no link, which a list of links cannot
            say.
    """
    alone = fabric.tier == 0
    alone[fabric.link_src] = False
    if alone.any():
        name = fabric.switch_names[int(np.argmax(alone))]
        raise TableError(f"cannot write {path}: switch {name} has no link")
    write_table(path, FABRIC, fabric_columns(fabric))


def read_fabric(path: Path | pa.Table, receipt: Receipt | None = None) -> NumberedFabric:
    """Return the fabric of a file; a `FatTree` or `TwoSwitches` if names and links are the same.

    With a ``receipt``, the table is read as other programs write it (`testbed.record.foreign`).

    Raises:
        TableError: The file is unreadable or no Clos fabric; one line.
    """
    table = read_table_or_parts(path, FABRIC, receipt)
    table.need_rows()
    link = table.values("link")
    (src, dst), names = _ends(table)
    table.refuse(src == dst, "the link leads back to its own switch")
    _refuse_look_alikes(table, src, dst, names)
    tier = _tiers(table, src, dst, names)

    # Switches by tier, then by name, numbers in names by their value.
    order = np.array(sorted(range(len(names)), key=lambda i: (tier[i], _natural(names[i]))))
    index = np.empty(len(order), np.int64)
    index[order] = np.arange(len(order))
    src, dst = index[src], index[dst]
    up, down = _pair(table, src, dst, tier[order])
    fabric = Fabric([names[i] for i in order], tier[order], src[up], dst[up])
    return NumberedFabric(_addressed(fabric), np.stack((link[up], link[down]), 1).reshape(-1))


def _ends(table: Table) -> tuple[tuple[LongArray, LongArray], list[str]]:
    """Return both ends of each link, int64[N] each, as indices of one list of names."""
    (src, src_names), (dst, dst_names) = table.values("src"), table.values("dst")
    known: dict[str, int] = {}
    for name in (*src_names, *dst_names):
        known.setdefault(name, len(known))
    to_common = [np.array([known[n] for n in names] + [-1]) for names in (src_names, dst_names)]
    return (to_common[0][src], to_common[1][dst]), list(known)


def _refuse_look_alikes(table: Table, src: LongArray, dst: LongArray, names: list[str]) -> None:
    """Raise TableError if two names differ only in blanks, case or Unicode form.

    Other programs may change these, and one switch would then become two.
    """
    seen: dict[str, str] = {}
    for number, name in enumerate(names):
        other = seen.setdefault(_letters(name), name)
        if other != name:
            row = int(np.argmax((src == number) | (dst == number)))
            # Two forms of a letter look alike: their numbers do not.
            look_alike = unicodedata.normalize("NFKC", name) == unicodedata.normalize("NFKC", other)
            both = (shown(ascii(each)[1:-1] if look_alike else each) for each in (name, other))
            raise table.fail(
                row,
                f"switches {' and '.join(both)} differ only in blanks, capital letters or the form "
                "of a letter: give one switch one name, and two switches different ones",
            )


def _letters(name: str) -> str:
    """Return a name without blanks and invisible characters, in one case and Unicode form."""
    visible = (
        c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c)[0] not in "ZC"
    )
    # Case may take a letter apart, which must be put together again.
    return unicodedata.normalize("NFKC", "".join(visible).casefold())


def _natural(name: str) -> list[object]:
    """Return a sort key that orders numbers in names by value: ``tor2`` before ``tor10``."""
    parts = re.split("0*([0-9]+)", name)
    return [(len(part), part) if i % 2 else part for i, part in enumerate(parts)]


def _tiers(table: Table, src: LongArray, dst: LongArray, names: list[str]) -> LongArray:
    """Return the tier of each switch: as given, else its distance from the nearest of tier 0."""
    n = len(names)
    tier = np.full(n, -1, np.int64)
    for end, switch in (("src", src), ("dst", dst)):
        name = f"{end}_tier"
        present, value = table.has_value(name), table.values(name)
        tier[switch[present]] = value[present]
    for end, switch in (("src", src), ("dst", dst)):
        present, value = table.has_value(f"{end}_tier"), table.values(f"{end}_tier")
        other = present & (value != tier[switch])
        table.refuse(other, f"{end} has a different tier in another row")
    part = components(src, dst, n)
    if part.max(initial=0):
        apart = part[src] != part[src[0]]
        row = int(np.argmax(apart))
        raise table.fail(
            row,
            f"no path leads from {names[src[row]]} to {names[src[0]]}: the fabric must be "
            "connected",
        )
    if not (tier == 0).any():
        raise TableError(
            f"{table.path}: no switch has tier 0: give the ToRs, where paths begin and end, "
            "the tier 0 in src_tier and dst_tier (the other tiers may be left out)"
        )
    if (tier < 0).any():
        from scipy.sparse import csr_array  # take long to load, and few files need them
        from scipy.sparse.csgraph import dijkstra

        graph = csr_array((np.ones(len(src)), (src, dst)), shape=(n, n))
        distance = dijkstra(
            graph, directed=False, indices=np.flatnonzero(tier == 0), unweighted=True, min_only=True
        )
        tier = np.where(tier < 0, distance, tier).astype(np.int64)
    flat = tier[src] == tier[dst]
    table.refuse(flat, "both ends have the same tier, so the fabric is not a Clos")
    return tier


def _pair(
    table: Table, src: LongArray, dst: LongArray, tier: LongArray
) -> tuple[LongArray, LongArray]:
    """Return the rows of the upward and the downward link of each cable, sorted by its switches.

    So the links are in the order of tiers, which methods that go from tier to tier need, and not in
    the order of the rows.
    """
    upward = tier[src] < tier[dst]
    low, high = np.where(upward, src, dst), np.where(upward, dst, src)
    key = low * (len(tier) + 1) + high
    order = np.lexsort((np.arange(len(key)), ~upward, key))
    # Of each key, as many rows must lead up as down; the n-th up and the n-th down are a cable.
    _, group, size = np.unique(key, return_inverse=True, return_counts=True)
    ups = np.bincount(group, upward)
    odd = (2 * ups != size)[group]
    table.refuse(odd, "a link in the opposite direction is missing: list both directions")
    return order[upward[order]], order[~upward[order]]


def _addressed(fabric: Fabric) -> Fabric:
    """Return the equal `FatTree` or `TwoSwitches`, which have addresses, if there is one."""
    k = round(fabric.n_links ** (1 / 3))
    if fabric.n_links == 2:
        known: Fabric = TwoSwitches()
    elif k < 4 or k % 2 or k > 128 or k**3 != fabric.n_links:
        return fabric
    else:
        known = FatTree(k)
    same = (
        known.switch_names == fabric.switch_names
        and np.array_equal(known.link_src, fabric.link_src)
        and np.array_equal(known.link_dst, fabric.link_dst)
        and np.array_equal(known.tier, fabric.tier)
    )
    return known if same else fabric
