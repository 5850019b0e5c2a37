# SPDX-License-Identifier: Apache-2.0
"""Constraints of parameters are declared once, and hold in words and in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt

from analysis.methods.base import Method
from analysis.methods.constraints import Count, Share, declared
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.registry import METHODS, ON_REQUEST, make_method
from testbed.errors import UserError
from testbed.fabric.clos import Fabric

EVERY = METHODS | ON_REQUEST


def outside() -> Iterator[tuple[str, str, float]]:
    """A method, a parameter of it, and a number outside of what is declared of that."""
    for name, constructor in EVERY.items():
        for parameter, (annotation, _) in declared(constructor).items():
            for each in (annotation, *get_args(annotation)):
                if get_origin(each) is Annotated:
                    for bound in each.__metadata__:
                        if isinstance(bound, Ge | Gt):
                            yield name, parameter, -1
                        if isinstance(bound, Le | Lt):
                            yield name, parameter, 2


@pytest.mark.parametrize(("name", "parameter", "value"), sorted(set(outside())))
def test_what_is_outside_is_refused(name: str, parameter: str, value: float) -> None:
    with pytest.raises(UserError, match=f"{parameter}={value}: it should be"):
        EVERY[name](**{parameter: value})
    with pytest.raises(
        UserError, match=f"{name}:{parameter}={value}: it should be".replace("+", ".")
    ):
        make_method(f"{name}:{parameter}={value}")


def test_methods_that_count_declare_it() -> None:
    assert {parameter for _, parameter, _ in outside()} >= {
        *("fault_rate", "p_bad", "severe_p_bad", "penalty", "lossy_share", "hit_ratio"),
        *("link_threshold", "threads", "max_failures", "enough", "threshold", "omega"),
    }


class Parent(Method):
    base = "parent"
    reads = "probes"

    def __init__(self, *, share: Share = 0.5, most: Count | None = None) -> None:
        self.share, self.most = share, most

    def infer(self, data: Any, fabric: Fabric, /) -> Diagnosis:
        raise AssertionError("it is only built")


class Child(Parent):
    def __init__(self, *, share: Share = 0.1) -> None:
        super().__init__(share=share)


@pytest.mark.parametrize("given", [{"share": 1}, {"share": 0.0}, {"most": 3}, {"most": None}, {}])
def test_what_is_inside_is_taken_as_it_is(given: dict[str, float]) -> None:
    made = vars(Parent(**given))  # type: ignore[arg-type]
    assert all(made[name] is value for name, value in given.items())


@pytest.mark.parametrize("make", [Parent, Child])
def test_a_subclass_is_checked_too(make: Callable[..., Method]) -> None:
    with pytest.raises(UserError, match=r"share=1\.5: it should be less than or equal to 1"):
        make(share=1.5)
