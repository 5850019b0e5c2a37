"""Reads one parity's meters of all monitor switches, and clears them for their next epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.control.switch import SwitchControl

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


def upload_bytes(n_switches: int) -> int:
    """Bytes of one epoch's upload from ``n_switches`` monitors, empty buckets included."""
    return n_switches * ROWS * BUCKETS * (USM_BUCKET_BITS + DSM_BUCKET_BITS) // 8


_PREFIX = {USM: "CanaryEgress.usm", DSM: "CanaryIngress.dsm"}


def collect(controls: dict[int, SwitchControl], parity: int) -> dict[str, npt.NDArray[Any]]:
    """Read and clear the instance of ``parity`` on every monitor switch.

    Only sound after the packets of that parity have drained: the caller waits.

    Returns:
        The non-empty buckets, as equally long columns (`COLUMNS`).
    """
    here = slice(parity * BUCKETS, (parity + 1) * BUCKETS)
    parts: list[tuple[npt.NDArray, ...]] = []
    for switch, control in controls.items():
        for meter, prefix in _PREFIX.items():
            for row in range(ROWS):
                parts.append(_read_row(control, f"{prefix}.row{row}", switch, meter, row, here))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return dict(zip(COLUMNS, columns, strict=True))


def _read_row(
    control: SwitchControl, prefix: str, switch: int, meter: int, row: int, here: slice
) -> tuple[npt.NDArray, ...]:
    registers = {"dirty": control.register(f"{prefix}.dirty")[here]}
    registers["flow_hi"] = control.register(f"{prefix}.flow_hi")[here]
    registers["flow_lo"] = control.register(f"{prefix}.flow_lo")[here]
    registers["count"] = control.register(f"{prefix}.count")[here]
    if meter == DSM:
        registers["path_bf"] = control.register(f"{prefix}.path_bfs")[here]
    used = np.flatnonzero(registers["count"])
    n = len(used)
    # The switch keeps a flow ID as two halves of 52 bits.
    hi, lo = (registers[name][used].astype(np.uint64) for name in ("flow_hi", "flow_lo"))
    columns = (
        np.full(n, switch, np.int32),
        np.full(n, meter, np.int8),
        np.full(n, row, np.int8),
        used.astype(np.int16),
        registers["dirty"][used].astype(np.bool_),
        hi >> np.uint64(12),
        hi << np.uint64(52) | lo,
        registers["path_bf"][used].astype(np.uint32) if meter == DSM else np.zeros(n, np.uint32),
        registers["count"][used].astype(np.uint32),
    )
    for register in registers.values():
        register[:] = 0
    return columns


def clear_hashpipe(controls: dict[int, SwitchControl]) -> None:
    """Begin a new HashPipe interval: what is large now is what was large in this epoch."""
    for control in controls.values():
        for stage in range(3):
            prefix = f"CanaryIngress.hashpipe.stage{stage}"
            control.register(f"{prefix}.flow_id")[:] = 0
            control.register(f"{prefix}.counts")[:] = 0
