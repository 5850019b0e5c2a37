"""The search in components is the search of the whole, on any number of threads."""

import os

import numpy as np
import pytest

from analysis.methods.mle import search
from analysis.methods.mle.components import Components
from analysis.methods.mle.mle import Mle
from analysis.methods.mle.problem import Rows


@pytest.mark.parametrize("kinds", ["segments", "segments+A1", "detector"])
def test_components_and_threads_change_nothing(synthetic, monkeypatch, kinds):
    rng = np.random.default_rng(4)
    loss = rng.uniform(0, 1e-4, 256)
    loss[rng.choice(256, 25, replace=False)] = rng.uniform(2e-3, 0.5, 25)
    telemetry = synthetic.make_world(k=6, seed=4, loss=np.resize(loss, 216)).telemetry
    whole = Mle(kinds=kinds).localize(telemetry)
    monkeypatch.setattr(search, "FEW", 0)
    split = Mle(kinds=kinds).localize(telemetry)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(5))
    threads = Mle(kinds=kinds).localize(telemetry)
    assert np.array_equal(split.flagged, whole.flagged) and split.flagged.size
    assert split.success == pytest.approx(whole.success, rel=0.01, nan_ok=True)
    for name in ("flagged", "success", "score"):
        assert np.array_equal(getattr(split, name), getattr(threads, name), equal_nan=True)


def test_each_component_has_rows_of_its_own():
    """Rows {0, 3}, {3, 4} and {1, 2}; nothing is known of unit 5."""
    rows = Rows(
        ptr=np.array([0, 2, 4, 6]),
        units=np.array([0, 3, 1, 2, 3, 4], np.int32),
        unit_ptr=np.array([0, 1, 2, 3, 5, 6, 6]),
        rows=np.array([0, 1, 1, 0, 2, 2], np.int32),
        lost=np.array([1.0, 2.0, 3.0]),
        arrived=np.arange(6.0),
    )
    parts = Components.of(rows)
    found = [
        (set(parts.unit[w.units].tolist()), set(rows.lost[parts.row[w.rows]].tolist()))
        for w in parts.windows
    ]
    assert found == [({0, 3, 4}, {1.0, 3.0}), ({1, 2}, {2.0}), ({5}, set())]
    assert parts.rows.arrived.tolist() == parts.unit.tolist()
