# SPDX-License-Identifier: Apache-2.0
"""How soon a method finds a fault that it is asked for after each epoch, and how often it blames a
link without one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from testbed.arrays import IntArray
from testbed.record.documents import ByEpoch


class Fault(NamedTuple):
    """A directed link that loses packets from ``begin_s`` to ``end_s``, in seconds of the run."""

    link: int
    begin_s: float
    end_s: float


def by_epoch(
    flagged: Sequence[IntArray],
    faults: Iterable[Fault],
    epoch_s: float,
    *,
    undirected: bool,
    window: int = 1,
) -> ByEpoch:
    """Return how soon the verdicts after each epoch name each fault, and their false alarms.

    A fault is found at the end of the first epoch after which its link is blamed, if it was active
    in one of the epochs that the verdict is of. A link that is blamed though none of its faults was
    active in these is a false alarm.

    Args:
        flagged: The directed links that are blamed after each epoch, int[] each.
        faults: All faults of the run.
        epoch_s: The length of an epoch in seconds.
        undirected: Whether a blamed link stands for both of its directions.
        window: The number of epochs that a verdict is of, the last before it.
    """
    shift = int(undirected)
    begins: dict[int, float] = {}
    active: list[set[int]] = [set() for _ in flagged]
    for fault in faults:
        link = fault.link >> shift
        for epoch, links in enumerate(active):
            first = max(epoch + 1 - window, 0)
            if fault.begin_s < (epoch + 1) * epoch_s and fault.end_s > first * epoch_s:
                links.add(link)
                begins[link] = min(begins.get(link, np.inf), fault.begin_s)
    delays: dict[int, float] = {}
    alarms = 0
    for epoch, blamed in enumerate(flagged):
        links = set((np.asarray(blamed) >> shift).tolist())
        alarms += len(links - active[epoch])
        for link in links & active[epoch]:
            delays.setdefault(link, (epoch + 1) * epoch_s - begins[link])
    return {
        "faults": len(begins),
        "found": len(delays),
        "seconds_to_detect": round(float(np.mean(list(delays.values()))), 6) if delays else None,
        "false_alarms": round(alarms / max(len(flagged), 1), 6),
    }


def by_epoch_line(found: ByEpoch) -> str:
    """Return the same as a sentence."""
    delay = found["seconds_to_detect"]
    when = "" if delay is None else f", {delay:.3g} s after they began on average"
    return (
        f"asked after each epoch: found {found['found']} of {found['faults']} faulty links{when}; "
        f"{found['false_alarms']:.3g} false alarms an epoch"
    )
