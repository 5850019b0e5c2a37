# SPDX-License-Identifier: Apache-2.0
"""What a run's summary says of its methods."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from analysis.evaluation.columns import cells, columns
from analysis.evaluation.report import figures, headline
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.registry import build
from analysis.telemetry.telemetry import Probes, SegmentCounts, Telemetry
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths

FABRIC = FatTree(4)
NONE = np.zeros(0, np.int64)
TITLES = [column.title for column in columns({})]
NO_PATHS = Paths(np.zeros(1, np.int64), np.zeros(0, np.int32))
SEGMENTS = FABRIC.segments()
UNSEEN = np.zeros((1, len(SEGMENTS)), np.int64)
TELEMETRY = Telemetry(
    FABRIC, "tor+core", SegmentCounts(SEGMENTS, UNSEEN, UNSEEN), probes=Probes(NO_PATHS, NONE, NONE)
)


def verdict(name: str, *blamed: int) -> Diagnosis:
    success = np.ones(FABRIC.n_links)
    return Diagnosis(name, "directed", np.array(blamed, np.int32), success, 1 - success, 0.0)


def summary(*verdicts: Diagnosis) -> dict:
    every = {verdict.method: verdict for verdict in verdicts}
    return {"methods": figures(every, map(build, every), TELEMETRY, np.array([3]))}


def test_methods_are_in_the_order_of_their_benches() -> None:
    found = summary(verdict("canary-mle", 3), verdict("netbouncer", 3), verdict("canary", 3))
    benches = {name: entry["bench"] for name, entry in found["methods"].items()}
    assert list(benches.items()) == [
        ("netbouncer", "published"),
        ("canary", "published"),
        ("canary-mle", "project"),
    ]
    names = {heading: [row[0].text for row in rows] for heading, rows in cells(found).items()}
    assert names == {"as published": ["netbouncer", "canary"], "this project's": ["canary-mle"]}


@pytest.mark.parametrize(
    ("blamed", "precision", "shown"), [((), None, "–"), ((4,), 0.0, "0.00"), ((3,), 1.0, "1.00")]
)
def test_the_precision_of_nothing_is_undefined(
    blamed: tuple[int, ...], precision: float | None, shown: str
) -> None:
    found = json.loads(json.dumps(summary(verdict("canary", *blamed)), allow_nan=False))
    assert found["methods"]["canary"]["directed"]["precision"] == precision
    ((row,),) = cells(found).values()
    assert (row[1].text, row[1].value) == (shown, precision)


def test_a_degraded_run_shows_f1_beside_f1_against_what_was_lost() -> None:
    every = {"canary": verdict("canary", 3, 5)}
    lost, truth = np.array([3, 5]), np.array([3])
    found = {"methods": figures(every, map(build, every), TELEMETRY, truth, lost)}
    found |= {"lost_links": ["a", "b"], "degraded": []}
    assert [column.title for column in columns(found)][-1] == "F1l"
    assert list(cells(found)) == ["as published"]
    found["degraded"] = ["the controller was 9.9 s late"]
    titles = [column.title for column in columns(found)]
    assert titles[3:5] == ["F1", "F1l"] and len(titles) == len(set(titles))
    (heading, (row,)), *_ = cells(found).items()
    assert heading == "as published, degraded run"
    assert [row[3].text, row[4].text] == ["0.667", "1.00"] and row[3].good is None
    assert row[titles.index("F1u")].text == "0.67"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.004, "0.00"), (9.994, "9.99"), (9.996, "10.0"), (99.94, "99.9"), (99.96, "100")],
)
def test_a_time_takes_at_most_four_characters(seconds: float, shown: str) -> None:
    found = summary(replace(verdict("canary", 3), seconds=seconds))
    ((row,),) = cells(found).values()
    assert row[TITLES.index("sec")].text == shown


def test_the_headline_says_which_devices_failed_and_how() -> None:
    summary = {"k": 4, "seed": 1, "backend": "flow", "faulty_links": ["a", "b", "c"]}
    summary |= {"packet_hops": 1, "wall_seconds": 1.0}
    kinds = ("sent", "fault_drops", "queue_drops", "ttl_drops")
    summary["conservation"] = dict.fromkeys(kinds, 0)
    rates = {"agg0_1": (1.0, 1.0), "core0": (0.05, 0.05), "tor0_0": (0.001, 1.0)}
    assert headline(summary)[0].endswith(": 3 faulty directed links")
    shown = ", failed agg0_1 (dead), core0 (5 %), tor0_0 (0.1 to 100 %)"
    assert headline(summary | {"failed_devices": rates})[0].endswith(
        f"3 faulty directed links{shown}"
    )
