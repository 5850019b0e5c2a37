"""Reads one parity's meters of all monitor switches, and clears them for their next epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.control.switch import SwitchControl, for_each
from testbed.dataplane import BUCKETS, HASHPIPE, HEAVY_HITTER, ROWS
from testbed.dataplane import DSM as DOWNSTREAM
from testbed.dataplane import USM as UPSTREAM

USM, DSM = 0, 1
_METERS = {USM: UPSTREAM, DSM: DOWNSTREAM}

COLUMNS = (
    "switch",  # int32
    "meter",  # int8, USM or DSM
    "row",  # int8
    "bucket",  # int16
    "dirty",  # bool
    "flow_hi",  # uint64, the upper 40 bits of the flow ID
    "flow_lo",  # uint64
    "path_bf",  # uint32, 0 in a USM bucket
    "count",  # uint32
)


def upload_bytes(n_switches: int, buckets: int = BUCKETS) -> int:
    """Bytes of one epoch's upload from ``n_switches`` monitors, empty buckets included.

    A bucket has the bits that the paper counts (Canary, table I).
    """
    return n_switches * ROWS * buckets * sum(meter.bucket_bits for meter in _METERS.values()) // 8


@dataclass
class Exchanged:
    """What the selection of flows exchanged with the switches so far.

    Attributes:
        digests: Reports of large flows.
        dsm_changes, usm_changes: Entries that were written to a table or removed from it. A rule
            has an entry of its own in the DSM's; rules of a flow may share one of the USM's.
        dsm_counters, usm_counters: Counters of such entries that were read.
    """

    digests: int = 0
    dsm_changes: int = 0
    usm_changes: int = 0
    dsm_counters: int = 0
    usm_counters: int = 0

    @property
    def counters(self) -> int:
        """Counters that were read, of both tables."""
        return self.dsm_counters + self.usm_counters

    @property
    def bytes(self) -> int:
        """Bytes of all, as the fields they carry.

        A digest and an entry of the DSM carry flow ID and pathBF, an entry of the USM the flow ID.
        A counter comes with the fields of its entry, and is as wide as the count of a bucket.
        """
        fields = HEAVY_HITTER.digest.fields
        usm = sum(fields.values()) - fields["path_bf"]
        dsm = usm + fields["path_bf"]
        bits = self.digests * dsm + self.dsm_changes * dsm + self.usm_changes * usm
        bits += self.dsm_counters * (dsm + DOWNSTREAM.count_bits)
        bits += self.usm_counters * (usm + UPSTREAM.count_bits)
        return bits // 8


def collect(controls: dict[int, SwitchControl], parity: int) -> dict[str, npt.NDArray[Any]]:
    """Read and clear the instance of ``parity`` on every monitor switch.

    Only sound after the packets of that parity have drained: the caller waits. Switches over the
    wire are read all at once.

    Returns:
        The non-empty buckets, as equally long columns (`COLUMNS`).
    """
    numbers = {id(control): switch for switch, control in controls.items()}
    parts = for_each(
        controls.values(), lambda control: _read_switch(control, numbers[id(control)], parity)
    )
    every = [part for switch in parts for part in switch]
    columns = [np.concatenate(column) for column in zip(*every, strict=True)]
    return dict(zip(COLUMNS, columns, strict=True))


def _read_switch(
    control: SwitchControl, switch: int, parity: int
) -> list[tuple[npt.NDArray[Any], ...]]:
    here = slice(parity * BUCKETS, (parity + 1) * BUCKETS)
    rows = [
        (m, row, fields) for m, meter in _METERS.items() for row, fields in enumerate(meter.rows)
    ]
    names = [name for _, _, fields in rows for name in fields.values()]
    registers = control.read_registers(names)
    parts = []
    for meter, row, fields in rows:
        bucket = {field: registers[name][here] for field, name in fields.items()}
        parts.append(_columns(bucket, switch, meter, row))
    control.reset_registers(names, here.start, here.stop)
    return parts


def _columns(
    bucket: dict[str, npt.NDArray[Any]], switch: int, meter: int, row: int
) -> tuple[npt.NDArray[Any], ...]:
    used = np.flatnonzero(bucket["count"])
    n = len(used)
    # The switch keeps a flow ID as two halves of as many bits.
    half = np.uint64(_METERS[meter].half_bits)
    hi, lo = (bucket[name][used].astype(np.uint64) for name in ("flow_hi", "flow_lo"))
    return (
        np.full(n, switch, np.int32),
        np.full(n, meter, np.int8),
        np.full(n, row, np.int8),
        used.astype(np.int16),
        bucket["dirty"][used].astype(np.bool_),
        hi >> np.uint64(64) - half,
        hi << half | lo,
        bucket["path_bfs"][used].astype(np.uint32) if meter == DSM else np.zeros(n, np.uint32),
        bucket["count"][used].astype(np.uint32),
    )


def clear_hashpipe(controls: dict[int, SwitchControl]) -> None:
    """Begin a new HashPipe interval: what is large now is what was large in this epoch."""
    names = [name for stage in HASHPIPE.stages for name in stage.values()]
    for_each(controls.values(), lambda control: control.reset_registers(names))
