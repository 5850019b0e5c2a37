# SPDX-License-Identifier: Apache-2.0
"""One line on the sizes of the flows of a run: mean, median, largest, and how many have one packet.

Of a workload or a file of sizes the line is about the distribution, of a list about its flows, and
of a capture or a collective about the packets that are sent, as a run may cut off longer flows.
"""

from __future__ import annotations

import numpy as np

from testbed.arrays import FloatArray, LongArray
from testbed.traffic.collectives import collective
from testbed.traffic.demand import capture_file, flow_file, workload
from testbed.traffic.distributions import FlowSizes, flow_sizes
from testbed.traffic.flow_list import read_bytes

PACKET = 1460
"""Bytes that a full packet carries."""

_GRID = (np.arange(100_000) + 0.5) / 100_000


def describe(traffic: str, packets: LongArray) -> str:
    """Return the line for the setting TRAFFIC.

    Args:
        traffic: The setting.
        packets: The packets that each flow of the run sent, int64[F]; for captures and collectives.

    Raises:
        ValueError: The file cannot be read (one line).
    """
    if (path := flow_file(traffic)) is not None:
        return _of_bytes(read_bytes(path))
    if capture_file(traffic) is not None or collective(traffic) is not None:
        sent = packets[packets > 0]
        if not len(sent):
            return "no flow"
        share = float((sent == 1).mean())
        return (
            f"flows: mean {sent.mean():,.3g} packets, median {np.median(sent):,.0f}, "
            f"largest {sent.max():,}; {_percent(share)} have one packet"
        )
    named = workload(traffic)
    if named is None:
        return ""
    return _of_distribution(flow_sizes(named[0]))


def _of_distribution(sizes: FlowSizes) -> str:
    largest = float(sizes.quantile(np.array([1 - 1e-9]))[0])
    grid = sizes.quantile(_GRID)
    one = float(np.searchsorted(grid, PACKET, side="right")) / len(grid)
    return _words(sizes.mean, float(np.median(grid)), largest, one)


def _of_bytes(sizes: FloatArray) -> str:
    one = float((sizes <= PACKET).mean())
    return _words(float(sizes.mean()), float(np.median(sizes)), float(sizes.max()), one)


def _words(mean: float, median: float, largest: float, one: float) -> str:
    return (
        f"flows: mean {_bytes(mean)}, median {_bytes(median)}, largest {_bytes(largest)}; "
        f"{_percent(one)} have one packet"
    )


def _bytes(size: float) -> str:
    """Return a size in bytes with three digits.

    >>> _bytes(1711250.0), _bytes(53), _bytes(134854)
    ('1.71 MB', '53 B', '135 kB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
