# SPDX-License-Identifier: Apache-2.0
"""Scores of classes of links that nothing tells apart, and of links that nothing observed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.evaluation.columns import cells, columns
from analysis.evaluation.metrics import Score, score
from analysis.evaluation.report import figures
from analysis.methods.classes import with_classes
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.registry import build
from analysis.telemetry.identifiability import Identifiability
from analysis.telemetry.telemetry import Probes, SegmentCounts, Telemetry
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths

FABRIC = FatTree(4)
N = FABRIC.n_links


def tells(*classes: tuple[int, ...], unseen: tuple[int, ...] = ()) -> Identifiability:
    found = Identifiability.everything(N)
    for own in classes:
        found.classes[list(own)] = min(own)
    found.observed[list(unseen)] = False
    return found


def scored(flagged: list[int], truth: list[int], known: Identifiability | None = None) -> Score:
    return score(np.array(flagged, int), np.array(truth, int), FABRIC, known)["directed"]


def test_a_class_is_found_if_the_faulty_link_is_in_it() -> None:
    own = scored([4, 8, 20], [8, 20], tells((4, 8)))
    assert own.f1 == pytest.approx(0.8) and own.class_f1 == 1.0
    assert (own.true_positives, own.false_positives, own.classes) == (2, 1, 2) and own.tied


def test_several_faulty_links_of_a_class_are_one_faulty_class() -> None:
    own = scored([30], [4, 8], tells((4, 8, 12)))
    assert own.class_f1 == 0.0 and own.false_negatives == 2
    both = scored([4, 8, 12, 30], [4, 8], tells((4, 8, 12)))
    assert both.class_f1 == pytest.approx(2 * 1 / (2 + 1)), "one class found, one wrong"


def test_where_nothing_is_tied_both_are_the_same() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        flagged, truth = (rng.choice(N, rng.integers(0, 9), replace=False) for _ in range(2))
        own = scored(flagged.tolist(), truth.tolist())
        assert own.class_f1 == own.f1 and own.classes == len(flagged) and not own.tied


def test_what_was_not_observed_is_no_miss() -> None:
    own = scored([3], [3, 7, 9], tells(unseen=(7, 11)))
    assert own.missed == (9,) and own.unobserved == (7,)
    assert own.recall == 0.5 and own.f1 == pytest.approx(2 / 3)
    assert own.accuracy == pytest.approx(1 - 1 / (N - 2))
    blamed = scored([7], [7], tells(unseen=(7,)))
    assert blamed.f1 == 1.0 and not blamed.unobserved, "as one of a failed device"


@pytest.mark.parametrize("truth", [[], [5]])
def test_nothing_observed_is_no_verdict(truth: list[int]) -> None:
    own = scored([], truth, Identifiability.nothing(N))
    assert all(math.isnan(x) for x in (own.precision, own.recall, own.f1, own.accuracy))
    assert own.unobserved == tuple(truth) and not own.missed


def test_only_what_is_faulty_was_not_observed() -> None:
    own = scored([], [5], tells(unseen=(5,)))
    assert math.isnan(own.f1) and math.isnan(own.recall) and own.accuracy == 1.0
    assert scored([6], [5], tells(unseen=(5,))).f1 == 0.0


def verdict(flagged: list[int], known: Identifiability) -> Diagnosis:
    score_ = np.linspace(0, 1, N)
    found = Diagnosis("canary", "directed", np.array(flagged, np.int32), 1 - score_, score_, 0.0)
    return with_classes(found, known, FABRIC)


def test_all_of_a_class_is_blamed_with_one_score() -> None:
    found = verdict([4, 20], tells((4, 8, 12), unseen=(20, 21)))
    assert found.flagged.tolist() == [4, 8, 12, 20]
    assert len({found.score[link] for link in (4, 8, 12)}) == 1
    assert found.score[4] == np.linspace(0, 1, N)[12] and found.ties == [[4, 8, 12]]
    state = found.state
    assert (state[4], state[20], state[21], state[22]) == (
        "faulty",
        "faulty",
        "not observed",
        "healthy",
    )


def test_tables_show_classes_only_where_there_are_some() -> None:
    nothing = np.zeros((1, len(FABRIC.segments())), np.int64)
    telemetry = Telemetry(FABRIC, "tor+core", SegmentCounts(FABRIC.segments(), nothing, nothing))
    made = [
        {"methods": figures({"canary": found}, [build("canary")], telemetry, np.array([8, 9]))}
        for found in (
            verdict([8], tells()),
            verdict([8], tells((4, 8), unseen=(9,))),
            verdict([], Identifiability.nothing(N)),
        )
    ]
    titles = [[column.title for column in columns(each)] for each in made]
    assert ["F1c" in own for own in titles] == [False, True, False]
    rows = [
        dict(zip(own, next(iter(cells(each).values()))[0], strict=True))
        for own, each in zip(titles, made, strict=True)
    ]
    assert (rows[1]["F1"].text, rows[1]["F1c"].text, rows[1]["miss"].text) == ("0.667", "1.00", "0")
    assert [rows[2][name].text for name in ("prec", "rec", "F1", "best")] == ["–"] * 4
    entry = made[1]["methods"]["canary"]
    assert entry["directed"]["unobserved"] == [FABRIC.link_names[9]]
    assert entry["ties"] == [[FABRIC.link_names[4], FABRIC.link_names[8]]]


def test_methods_say_what_they_did_not_observe() -> None:
    """A row of probes over two links, and the rest of the fabric in the dark."""
    paths = Paths(np.array([0, 2]), np.array([3, 8], np.int32))
    for sent, message in ((1000, "62 of 64 links"), (0, "nothing was measured")):
        probes = Probes(paths, np.array([sent]), np.array([sent // 10]))
        found = build("netscope").method.localize(Telemetry(FABRIC, "tor+core", probes=probes))
        (remark,) = found.remarks
        assert message in remark and "PROBES" in remark
        assert found.state.count("not observed") == (62 if sent else 64)


def test_a_fault_that_no_packet_met_is_no_miss() -> None:
    """Neither of a method that tells directions apart, nor of one that does not."""
    nothing = np.ones((1, len(FABRIC.segments())), np.int64)
    telemetry = Telemetry(FABRIC, "tor+core", SegmentCounts(FABRIC.segments(), nothing, nothing))
    truth, unmet = np.array([8, 20, 21]), np.array([8, 20])
    found = figures(
        {"canary": verdict([], tells())}, [build("canary")], telemetry, truth, unmet=unmet
    )["canary"]
    names = FABRIC.link_names
    assert found["directed"]["unobserved"] == [names[8], names[20]]
    assert found["directed"]["missed"] == [names[21]]
    assert found["undirected"]["unobserved"] == [names[8].replace("->", "--")]
    assert found["undirected"]["missed"] == [names[20].replace("->", "--")]
