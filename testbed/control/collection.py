"""Reads one parity's meters of all monitor switches, and clears them for their next epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.control.switch import (
    SwitchControl,
    for_each,
    read_registers,
    reset_registers,
)

__all__ = ["COLUMNS", "clear_hashpipe", "collect", "upload_bytes"]

ROWS = 3
BUCKETS = 1024
USM, DSM = 0, 1
# Bits of a bucket as the paper counts them (its table I): what an upload would carry.
USM_BUCKET_BITS = 137
DSM_BUCKET_BITS = 169


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
    """Bytes of one epoch's upload from ``n_switches`` monitors, empty buckets included."""
    return n_switches * ROWS * buckets * (USM_BUCKET_BITS + DSM_BUCKET_BITS) // 8


_PREFIX = {USM: "CanaryEgress.usm", DSM: "CanaryIngress.dsm"}
_FIELDS = {
    USM: ("dirty", "flow_hi", "flow_lo", "count"),
    DSM: ("dirty", "flow_hi", "flow_lo", "count", "path_bfs"),
}


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
        (meter, row, {field: f"{prefix}.row{row}.{field}" for field in _FIELDS[meter]})
        for meter, prefix in _PREFIX.items()
        for row in range(ROWS)
    ]
    names = [name for _, _, fields in rows for name in fields.values()]
    registers = read_registers(control, names)
    parts = []
    for meter, row, fields in rows:
        bucket = {field: registers[name][here] for field, name in fields.items()}
        parts.append(_columns(bucket, switch, meter, row))
    reset_registers(control, names, here.start, here.stop)
    return parts


def _columns(
    bucket: dict[str, npt.NDArray[Any]], switch: int, meter: int, row: int
) -> tuple[npt.NDArray[Any], ...]:
    used = np.flatnonzero(bucket["count"])
    n = len(used)
    # The switch keeps a flow ID as two halves of 52 bits.
    hi, lo = (bucket[name][used].astype(np.uint64) for name in ("flow_hi", "flow_lo"))
    return (
        np.full(n, switch, np.int32),
        np.full(n, meter, np.int8),
        np.full(n, row, np.int8),
        used.astype(np.int16),
        bucket["dirty"][used].astype(np.bool_),
        hi >> np.uint64(12),
        hi << np.uint64(52) | lo,
        bucket["path_bfs"][used].astype(np.uint32) if meter == DSM else np.zeros(n, np.uint32),
        bucket["count"][used].astype(np.uint32),
    )


def clear_hashpipe(controls: dict[int, SwitchControl]) -> None:
    """Begin a new HashPipe interval: what is large now is what was large in this epoch."""
    names = [
        f"CanaryIngress.hashpipe.stage{stage}.{field}"
        for stage in range(3)
        for field in ("flow_id", "counts")
    ]
    for_each(controls.values(), lambda control: reset_registers(control, names))
