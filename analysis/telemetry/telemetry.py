# SPDX-License-Identifier: Apache-2.0
"""The columnar observations that localization methods read.

One `Telemetry` holds everything that a run measured: Canary's segment counts, flow records of the
end hosts, probes and 007's traced connections. Each part is a set of parallel arrays, which are
checked when the part is created. A part that was not measured is ``None``, and a method that needs
it raises `MissingTelemetry`. A part with zero rows is valid: it was measured, and nothing was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, FloatArray, IntArray, LongArray
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets
from testbed.fabric.segments import Segments
from testbed.kernels import Kernels
from testbed.measurements.registry import measurement_of

_KERNELS = Kernels.beside(__file__)


class MissingTelemetry(UserError):
    """The telemetry lacks a part that a method reads; the message says which measurement makes it,
    and which option makes the measurement."""


GIVEN = "given"
"""What `Telemetry.monitors` says of telemetry from files."""


@dataclass(frozen=True)
class SegmentCounts:
    """Packets sent and lost on each of S segments in each of E epochs, from Canary's minus meters.

    ``sent`` and ``lost`` are int64[E, S]; a segment with 0 packets sent was not observed.
    ``flows``, int64[S], is the number of flows monitored on each; None if it is unknown.
    ``rules``, int64[E, S], is the number of flows with rules at the end of each epoch, and
    ``short``, bool[E, S], says where fewer flows came than the controller asked for; None if they
    are unknown.
    """

    segments: Segments
    sent: LongArray
    lost: LongArray
    flows: LongArray | None = None
    rules: LongArray | None = None
    short: BoolArray | None = None

    def __post_init__(self) -> None:
        _check_counts("segments", self.sent, self.lost, ndim=2)
        if self.sent.shape[1] != len(self.segments):
            raise UserError(
                f"segments: counts are for {self.sent.shape[1]} segments, "
                f"the topology has {len(self.segments)}"
            )


@dataclass(frozen=True)
class Flows:
    """Passive flow records of the end hosts (Flock, section 3.1).

    Flow f took one of the paths of set ``path_set[f]`` (int32[F]) of ``sets``: all equal-cost paths
    of its ToRs, or a set of one where its path is known (INT, traced flows). Many flows may share a
    set; a flow within a rack has the path of no link. ``sent`` and ``lost`` are int64[F] packets,
    ``lost`` as counted by retransmissions; ``rtt_ms``, float64[F], is each flow's round-trip time
    in milliseconds, or None if it was not measured.
    """

    sets: PathSets | PairSets
    path_set: IntArray
    sent: LongArray
    lost: LongArray
    rtt_ms: FloatArray | None = None

    def __post_init__(self) -> None:
        _check_counts("flows", self.sent, self.lost)
        _check_column("flows", "path_set", self.path_set, len(self.sent))
        outside = (self.path_set < 0) | (self.path_set >= len(self.sets))
        _refuse("flows", outside, f"path_set must be one of the {len(self.sets)} sets")
        sets = self.listed
        _check_paths("flows' path sets", sets.paths, len(sets.paths))
        _check_pointers("flows' path sets", sets.ptr, len(sets.paths))
        nth = self.path_set - (len(self.sets) - len(sets))
        width = np.append(sets.width, 1)
        _refuse("flows", width[np.where(nth >= 0, nth, -1)] == 0, "its set has no path")
        if self.rtt_ms is not None:
            if self.rtt_ms.shape != self.sent.shape or self.rtt_ms.dtype != np.float64:
                raise UserError(f"flows: rtt_ms must be float64[{len(self)}]")
            _refuse(
                "flows",
                ~(self.rtt_ms >= 0) | np.isinf(self.rtt_ms),
                "rtt_ms must be finite and not negative",
            )

    @classmethod
    def of(
        cls,
        fabric: Fabric,
        src_tor: npt.NDArray[np.integer],
        dst_tor: npt.NDArray[np.integer],
        own: BoolArray,
        sets: PathSets,
        sent: LongArray,
        lost: LongArray,
        *,
        rtt_ms: FloatArray | None = None,
    ) -> Flows:
        """Return flows between ToRs ``src_tor`` and ``dst_tor``, int[F]. Flows that are marked in
        ``own``, bool[F], have a set of their own, in order those of ``sets``; the others may have
        taken any equal-cost path of their ToRs."""
        by_pair, n_tors = ~own, fabric.n_tors
        pair = src_tor[by_pair].astype(np.int64) * n_tors + dst_tor[by_pair]
        used = np.zeros(n_tors**2, np.bool_)
        used[pair] = True
        src, dst = np.divmod(np.flatnonzero(used), n_tors)
        path_set = np.empty(len(own), np.int32)
        path_set[by_pair] = (np.cumsum(used, dtype=np.int32) - 1)[pair]
        path_set[own] = len(src) + np.arange(len(sets))
        pairs = PairSets(fabric, src.astype(np.int32), dst.astype(np.int32), sets)
        return cls(pairs, path_set, sent, lost, rtt_ms)

    def __len__(self) -> int:
        return len(self.sent)

    @property
    def records(self) -> int:
        """Return the number of records that reported the flows: one for each flow."""
        return len(self)

    @property
    def listed(self) -> PathSets:
        """Return the path sets that are listed: all sets, or those after the pairs of ToRs."""
        return self.sets.listed if isinstance(self.sets, PairSets) else self.sets


@dataclass(frozen=True)
class Probes:
    """Source-routed probes over known paths: NetBouncer's, which bounce off a core switch and
    return (section 4.3), or probes in one direction, such as those of deTector's matrix.

    ``paths`` are directed fabric links in order; ``sent`` and ``lost``, int64[P], are packets. Rows
    over the same links, for instance of the hosts of a rack, are added up when the object is
    created, in the order of their first rows, so that the division of probes into rows has no
    effect on methods. ``records`` is the number of records that reported the probes, by default the
    number of given rows; only the cost of the measurement depends on it.
    """

    paths: Paths
    sent: LongArray
    lost: LongArray
    records: int = -1

    def __post_init__(self) -> None:
        _check_counts("probes", self.sent, self.lost)
        _check_paths("probes", self.paths, len(self.sent))
        if self.records < 0:
            object.__setattr__(self, "records", len(self.sent))
        if (same := _same_links(self.paths)) is not None:
            first, number = same
            object.__setattr__(self, "paths", self.paths.take(first))
            for name in ("sent", "lost"):
                cells = np.zeros(len(first), np.int64)
                np.add.at(cells, number, getattr(self, name))
                object.__setattr__(self, name, cells)

    def __len__(self) -> int:
        return len(self.sent)

    @cached_property
    def bounced(self) -> bool:
        """Return True if every path has all its links in both directions, so that the probes do not
        tell the directions of a link apart."""
        return _KERNELS.go_both_ways(ptr=self.paths.ptr, links=self.paths.links)


@dataclass(frozen=True)
class Connections:
    """C connections that lost packets, with the path that a traceroute found (007, section 4).

    ``src_tor`` and ``dst_tor`` are int32[C]; ``lost``, int64[C], counts retransmissions. ``paths``
    are the traced directed fabric links in order; where ``complete``, bool[C], is False, only the
    first links were found. ``traceroute_packets`` is the number of packets that tracing sent.
    ``watched`` are the pairs of ToRs between which hosts watched connections, with or without loss;
    None if they are unknown.
    """

    src_tor: IntArray
    dst_tor: IntArray
    lost: LongArray
    paths: Paths
    complete: BoolArray
    traceroute_packets: int
    watched: PairSets | None = None

    def __post_init__(self) -> None:
        n = len(self.lost)
        _check_column("connections", "lost", self.lost, n)
        _check_column("connections", "src_tor", self.src_tor, n)
        _check_column("connections", "dst_tor", self.dst_tor, n)
        _check_paths("connections", self.paths, n)
        if self.complete.shape != (n,) or self.complete.dtype != np.bool_:
            raise UserError(f"connections: complete must be bool[{n}]")
        _refuse("connections", self.lost < 0, "lost is negative")
        if self.traceroute_packets < 0:
            raise UserError("connections: traceroute_packets is negative")

    def __len__(self) -> int:
        return len(self.lost)

    @property
    def records(self) -> int:
        """Return the number of records that reported the connections: one for each connection."""
        return len(self)


@dataclass(frozen=True)
class RoundTrips:
    """Pings between R pairs of ToRs, each of which took some path there and some path back.

    ``src_tor`` and ``dst_tor`` are int32[R], the two ToRs of a pair differ; ``sent`` and ``lost``,
    int64[R], are packets. The packets of a row are spread over all equal-cost paths of both ways,
    as those of Pingmesh are, whose every ping has a port of its own (SIGCOMM 2015, section 3.4).
    """

    src_tor: IntArray
    dst_tor: IntArray
    sent: LongArray
    lost: LongArray

    def __post_init__(self) -> None:
        _check_counts("roundtrips", self.sent, self.lost)
        for name in ("src_tor", "dst_tor"):
            _check_column("roundtrips", name, getattr(self, name), len(self.sent))

    def __len__(self) -> int:
        return len(self.sent)

    @property
    def records(self) -> int:
        """Return the number of records that reported the pings: one for each row."""
        return len(self)


@dataclass(frozen=True)
class Telemetry:
    """Everything that a run measured, as methods read it.

    ``monitors`` is the placement of Canary's meters, such as "tor+core". ``probes`` are those of
    NetBouncer and ``detector`` those of deTector. ``canary_bytes`` is the size in bytes of what
    Canary's controller exchanged with the switches: meters, digests, changes of rules and counters.
    ``off``, bool[n_links], marks links that were switched off, over which nothing was measured.
    ``views`` has what measurements of other packages found, by the names of their views.
    """

    topology: Fabric
    monitors: str
    segments: SegmentCounts | None = None
    flows: Flows | None = None
    probes: Probes | None = None
    connections: Connections | None = None
    detector: Probes | None = None
    canary_bytes: int = 0
    roundtrips: RoundTrips | None = None
    off: BoolArray | None = None
    views: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("connections", "roundtrips"):
            if (part := getattr(self, name)) is not None:
                for column in ("src_tor", "dst_tor"):
                    tor = getattr(part, column)
                    outside = (tor < 0) | (tor >= self.topology.n_tors)
                    _refuse(name, outside, f"{column} must be a ToR")
        if self.flows is not None:
            self._check_links("flows' path sets", self.flows.listed.paths)
        for name in ("probes", "detector", "connections"):
            part = getattr(self, name)
            if part is not None:
                self._check_links(name, part.paths)
        if self.segments is not None:
            self._check_links("segments", self.segments.segments.paths)
        if self.canary_bytes < 0:
            raise UserError("canary_bytes is negative")

    def _check_links(self, name: str, paths: Paths) -> None:
        bad = (paths.links < 0) | (paths.links >= self.topology.n_links)
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            raise UserError(
                f"{name}: row {int(paths.owner[at])} uses link {int(paths.links[at])}, but "
                f"{self.topology.title} has links 0 to {self.topology.n_links - 1}"
            )

    @overload
    def need(self, part: Literal["segments"], method: str) -> SegmentCounts: ...
    @overload
    def need(self, part: Literal["flows"], method: str) -> Flows: ...
    @overload
    def need(self, part: Literal["probes", "detector"], method: str) -> Probes: ...
    @overload
    def need(self, part: Literal["connections"], method: str) -> Connections: ...
    @overload
    def need(self, part: Literal["roundtrips"], method: str) -> RoundTrips: ...

    @overload
    def need(self, part: str, method: str) -> Any: ...

    def need(self, part: str, method: str) -> Any:
        """Return a part by its name, or the view of another package's measurement; ``method`` is
        named in the message of the error.

        Raises:
            MissingTelemetry: The part was not measured.
        """
        if (found := self.part(part)) is None:
            raise self.lacks(part, method)
        return found

    def part(self, name: str) -> Any:
        """Return a part or a view by its name; None if it was not measured."""
        return getattr(self, name) if name in PARTS else self.views.get(name)

    def lacks(self, part: str, method: str) -> MissingTelemetry:
        """Return the error that a method, by its name, needs a part that was not measured."""
        name = "" if self.monitors == GIVEN else measurement_of(part)
        hint = f": MEASURE={name} measures it in a run" if name else ": it is missing"
        return MissingTelemetry(f"{method} needs the telemetry part {part!r}{hint}")


PARTS = ("segments", "flows", "probes", "connections", "detector", "roundtrips")
"""The names of the parts that are attributes of a `Telemetry`; others are among its ``views``."""


def _same_links(paths: Paths) -> tuple[LongArray, LongArray] | None:
    """Return the index of the first path over each distinct multiset of links, ascending, int64[D],
    and the position among these of every path's multiset, int64[P]; None if no two paths have the
    same links. Multisets are compared by the sum of a scrambled number for each link."""
    key = np.zeros(len(paths), np.uint64)
    _KERNELS.sum_links(ptr=paths.ptr, links=paths.links, key=key)
    ordered = np.sort(key)  # a twentieth of the time of np.unique, which hashes
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[group.reshape(-1)]


def _refuse(name: str, bad: BoolArray, what: str) -> None:
    if bad.any():
        row = np.argwhere(bad)[0].tolist()
        at = row[0] if len(row) == 1 else tuple(row)
        raise UserError(f"{name}: row {at}: {what}")


def _check_column(name: str, column: str, values: npt.NDArray[np.integer], n: int) -> None:
    if values.shape != (n,) or values.dtype.kind not in "iu":
        raise UserError(f"{name}: {column} must be an integer array of {n} rows")


def _check_counts(name: str, sent: LongArray, lost: LongArray, ndim: int = 1) -> None:
    if sent.shape != lost.shape or sent.ndim != ndim:
        raise UserError(
            f"{name}: sent has shape {sent.shape} and lost {lost.shape}: "
            f"both must be equal and of {ndim} dimension{'s' if ndim > 1 else ''}"
        )
    if sent.dtype.kind not in "iu" or lost.dtype.kind not in "iu":
        raise UserError(f"{name}: sent and lost must be integers")
    _refuse(name, lost < 0, "lost is negative")
    _refuse(name, lost > sent, "more packets lost than sent")


def _check_paths(name: str, paths: Paths, n: int) -> None:
    if len(paths) != n:
        raise UserError(f"{name}: {len(paths)} paths for {n} rows")
    _check_pointers(name, paths.ptr, len(paths.links))


def _check_pointers(name: str, ptr: LongArray, n: int) -> None:
    if ptr[0] != 0 or ptr[-1] != n:
        raise UserError(f"{name}: the path pointers do not match the links")
    _refuse(name, np.diff(ptr) < 0, "the path pointers must not decrease")
