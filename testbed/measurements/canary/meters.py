# SPDX-License-Identifier: Apache-2.0
"""Canary's meters: how they are read from all monitor switches and cleared after an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.control.switch import SwitchControl, for_each
from testbed.dataplane import BUCKETS, HASHPIPE, HEAVY_HITTER, ROWS
from testbed.dataplane import DSM as DOWNSTREAM
from testbed.dataplane import USM as UPSTREAM
from testbed.record.run_tables import DSM, REGISTERS, USM

_METERS = {USM: UPSTREAM, DSM: DOWNSTREAM}


def upload_bytes(n_switches: int, buckets: int = BUCKETS) -> int:
    """Return the bytes that ``n_switches`` monitors upload in an epoch, empty buckets included.

    The width of a bucket is the one that the paper counts (Canary, table I).
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
        """Return how many entry counters were read, of the DSM's and the USM's tables."""
        return self.dsm_counters + self.usm_counters

    @property
    def bytes(self) -> int:
        """Return the bytes of all digests, entries and counters, counting only their fields.

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

    The caller must wait until the packets of that parity have left the network. Remote switches
    are read in parallel.

    Returns:
        The non-empty buckets, as the columns of `testbed.record.run_tables.REGISTERS`.
    """
    numbers = {id(control): switch for switch, control in controls.items()}
    parts = for_each(
        controls.values(), lambda control: _read_switch(control, numbers[id(control)], parity)
    )
    every = [part for switch in parts for part in switch]
    return {
        column.name: np.concatenate([part[column.name] for part in every]).astype(column.type)
        for column in REGISTERS.columns
    }


def _read_switch(
    control: SwitchControl, switch: int, parity: int
) -> list[dict[str, npt.NDArray[Any]]]:
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
) -> dict[str, npt.NDArray[Any]]:
    used = np.flatnonzero(bucket["count"])
    # The switch keeps a flow ID as two halves of as many bits.
    half = np.uint64(_METERS[meter].half_bits)
    hi, lo = (bucket[name][used].astype(np.uint64) for name in ("flow_hi", "flow_lo"))
    return {
        "switch": np.full(len(used), switch),
        "meter": np.full(len(used), meter),
        "row": np.full(len(used), row),
        "bucket": used,
        "dirty": bucket["dirty"][used],
        "flow_hi": hi >> np.uint64(64) - half,
        "flow_lo": hi << half | lo,
        "path_bf": bucket["path_bfs"][used] if meter == DSM else np.zeros(len(used), np.uint32),
        "count": bucket["count"][used],
    }


def clear_hashpipe(controls: dict[int, SwitchControl]) -> None:
    """Set the HashPipe registers of all switches to zero, which begins a new interval.

    A flow then counts as large only for the packets that it sends from now on.
    """
    names = [name for stage in HASHPIPE.stages for name in stage.values()]
    for_each(controls.values(), lambda control: control.reset_registers(names))
