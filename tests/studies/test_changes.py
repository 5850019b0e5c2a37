# SPDX-License-Identifier: Apache-2.0
"""The changes of published methods: named, off by default, and without false alarms."""

from typing import Any

import pytest

from analysis.methods.base import split
from analysis.methods.registry import METHODS, make_method
from tests.studies.changes import changes, observed

OURS = "this project"


def test_every_change_is_named_and_off_in_the_published_method() -> None:
    for name, change in changes():
        published, changed = make_method(name), make_method(f"{name}+{change.name}")
        assert published.name == name and changed.name == f"{name}+{change.name}"
        assert getattr(published, change.parameter) != getattr(changed, change.parameter)


@pytest.mark.parametrize("fabric", [{"k": 4}, {"topology": "leaf-spine:8:4"}], ids=["K=4", "ls"])
def test_a_variant_of_ours_blames_no_more_healthy_links_than_its_method(fabric: Any) -> None:
    """Where nothing is faulty and every link loses 1e-4; larger fabrics: the study ``healthy``."""
    names = [f"{name}+{change.name}" for name, change in changes() if change.whose == OURS]
    names += [name for name in METHODS if "+" in name]
    for seed in range(1, 6):
        seen, _ = observed(faults="none", noise="0.0001", seed=seed, **fabric)
        for name in names:
            ours, published = (make_method(n).localize(seen) for n in (name, split(name)[0]))
            assert len(ours.flagged) <= len(published.flagged), (name, seed)


def test_the_seed_at_which_a_wide_prior_blamed_a_healthy_link() -> None:
    seen, _ = observed(k=8, faults="none", noise="0.0001", seed=48)
    name = "flock+refine+conditional+severe"
    assert not len(make_method(name).localize(seen).flagged)
    assert len(make_method(f"{name}:link_prior=-5").localize(seen).flagged)
