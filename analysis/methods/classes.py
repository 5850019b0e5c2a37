# SPDX-License-Identifier: Apache-2.0
"""Diagnoses over classes of links that the telemetry tells apart, and what it did not observe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.telemetry.identifiability import Identifiability
from analysis.telemetry.silence import scarce_links, silent_links
from analysis.telemetry.telemetry import Telemetry
from analysis.telemetry.unseen import why_unseen
from testbed.arrays import IntArray
from testbed.fabric.clos import Fabric
from testbed.fabric.names import some_of

Diagnosis = Any
"""`analysis.methods.diagnosis.Diagnosis`; that module imports this one."""


def with_classes(diagnosis: Diagnosis, tells: Identifiability, fabric: Fabric) -> Diagnosis:
    """Return a diagnosis in which all links of a class are blamed if one is, and all have the
    class's highest score and lowest success probability.

    Links that are blamed as a part of a blamed device are no reason to blame others: which device
    failed is known, and they are tied with links of healthy devices only if they are all dead.
    """
    classes = (tells.undirected if diagnosis.native == "undirected" else tells).classes
    if diagnosis.native == "undirected":
        classes = (2 * classes).repeat(2)
    if (classes == np.arange(len(classes))).all():
        return replace(diagnosis, tells=tells)

    ends = np.stack((fabric.link_src, fabric.link_dst))
    of_device = np.asarray(np.isin(ends, diagnosis.devices).any(axis=0))

    def whole(links: IntArray) -> IntArray:
        """Return ``links`` and all links of the classes that those of no blamed device belong to:
        ascending ids, int32[]."""
        found = np.isin(classes, classes[links[~of_device[links]]])
        found[links] = True
        return np.flatnonzero(found).astype(np.int32)

    score = np.full(len(classes), -np.inf)
    np.maximum.at(score, classes, diagnosis.score)
    success = np.full(len(classes), np.nan)
    np.fmin.at(success, classes, diagnosis.success)
    return replace(
        diagnosis,
        flagged=whole(diagnosis.flagged),
        score=score[classes],
        success=success[classes],
        stages=tuple(whole(stage) for stage in diagnosis.stages),
        tells=tells,
    )


def with_unseen(diagnosis: Diagnosis, telemetry: Telemetry, reads: Sequence[str]) -> Diagnosis:
    """Return a diagnosis with remarks on the links that the measurements ``reads`` did not observe,
    on those of them that are silent, and on links that are silent in part
    (`analysis.telemetry.silence`). Published algorithms do not use them."""
    assert diagnosis.tells is not None
    fabric, counts = telemetry.topology, telemetry.segments
    unseen = not diagnosis.tells.observed.all()
    notes = [why_unseen(diagnosis.tells, telemetry, reads) if unseen else ""]
    if "segments" in reads and counts is not None:
        scarce = scarce_links(counts, fabric)
        if len(scarce.links):
            names = some_of([fabric.link_names[link] for link in scarce.links.tolist()])
            notes.append(
                f"silent in part: segments over {names} count {scarce.share.min():.0%} of the "
                "flows that ECMP sends over them, or little more; a black hole may take the others"
            )
    if notes[0] and "segments" in reads and counts is not None:
        silent = silent_links(counts, fabric)
        silent = silent[~diagnosis.tells.observed[silent]]
        if len(silent):
            names = some_of([fabric.link_names[link] for link in silent.tolist()])
            notes.append(
                f"silent: by ECMP the segments over {names} should count packets, but count "
                "none; a link or switch may lose all of them"
            )
    return replace(diagnosis, remarks=(*diagnosis.remarks, *filter(None, notes)))
