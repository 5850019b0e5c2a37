# SPDX-License-Identifier: Apache-2.0
"""Each published method says when a run is outside of what its paper evaluates."""

from __future__ import annotations

from analysis.methods.domain import Domain, World
from analysis.methods.flock.flock import Flock
from analysis.methods.registry import METHODS, make_method

BIG = World(links=5000, faulty=4, healthy_loss=1e-6)


def test_a_run_inside_says_nothing() -> None:
    for name in METHODS:
        domain = getattr(make_method(name), "domain", None)
        if domain is not None and not name.startswith("canary"):
            assert domain.outside(BIG) == "", name


def test_what_is_outside_is_said_in_one_line() -> None:
    domain = Domain("X, 6", faulty=0.01, healthy_loss=1e-5, links=1000, devices=False, packets=100)
    line = domain.outside(World(64, 6, 1e-4, devices=1), packets=30.0)
    assert line == (
        "outside what X, 6 evaluates: 9.4% of the links are faulty (it: 0.01); healthy links lose "
        "up to 0.0001 (it: 1e-05); 64 links (it: 1,000 or more); 30 packets an observation (it: "
        "100 or more); a device failed, and it looks for links alone"
    )
    assert "\n" not in line


def test_flock_names_the_variant_for_many_faulty_links() -> None:
    assert Flock.domain and "see flock+links" in Flock.domain.outside(World(64, 6))
