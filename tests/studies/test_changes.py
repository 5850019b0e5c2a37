# SPDX-License-Identifier: Apache-2.0
"""The changes of published methods: named, off by default, and without false alarms."""

from typing import Any

import pytest

from analysis.methods.registry import METHODS, make_method
from analysis.methods.variants import split
from tests.studies.changes import changes, measured, observed

OURS = "this project"


def test_every_change_is_named_and_off_in_the_published_method() -> None:
    for name, change in changes():
        published, changed = make_method(name), make_method(f"{name}+{change.name}")
        assert published.name == name and changed.name == f"{name}+{change.name}"
        assert getattr(published, change.parameter) != getattr(changed, change.parameter)


@pytest.mark.parametrize("fabric", [{"k": 4}, {"topology": "leaf-spine:8:4"}], ids=["K=4", "ls"])
def test_a_variant_of_ours_blames_no_more_healthy_links_than_its_method(fabric: Any) -> None:
    """Where nothing is faulty and every link loses 1e-4; larger fabrics: the study ``healthy``."""
    names = [f"{name}+{change.name}" for name, change in measured() if change.whose == OURS]
    names += [name for name in METHODS if "+" in name]
    blamed = dict.fromkeys(names, 0)
    for seed in range(1, 6):
        seen, _ = observed(faults="none", noise="0.0001", seed=seed, **fabric)
        for name in names:
            ours, published = (make_method(n).localize(seen) for n in (name, split(name)[0]))
            blamed[name] += len(ours.flagged) - len(published.flagged)
    assert all(more <= 0 for more in blamed.values()), blamed
