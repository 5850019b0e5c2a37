# SPDX-License-Identifier: Apache-2.0
"""Faults are checked where they are made, whoever makes them."""

import numpy as np
import pytest

from testbed.fabric.fat_tree import FatTree
from testbed.faults.plan import Fault, FaultError, FaultPlan, FlowMatch, Ternary

K4 = FatTree(4)
WEB = FlowMatch(dst_port=Ternary(80, 0xFFFF))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"link": -1}, "link is -1: use a whole number of at least 0"),
        ({"link": 1.5}, "link is 1.5"),
        ({"link": True}, "link is True"),
        ({"link": "tor0_0->agg0_0"}, "link is 'tor0_0->agg0_0'"),
        ({"rate": 7.0}, r"rate 7 is outside \(0, 1\]"),
        ({"rate": 0}, "rate 0 is outside"),
        ({"rate": -0.1}, "rate -0.1 is outside"),
        ({"rate": float("nan")}, "rate nan is outside"),
        ({"rate": float("inf")}, "rate inf is outside"),
        ({"rate": "0.5"}, "rate '0.5' is outside"),
        ({"rate": None}, "rate None is outside"),
        ({"rate": True}, "rate True is outside"),
        ({"kind": "zap"}, "kind 'zap' is unknown: use drop, blackhole, corrupt"),
        ({"kind": "blackhole"}, "a blackhole drops everything, not 0.5"),
        ({"match": 80}, "give a FlowMatch"),
        ({"schedule": ((0.3, 0.1),)}, "ascending and disjoint"),
        ({"schedule": ((-1, 0.1),)}, "not negative"),
        ({"schedule": ((0.1, float("inf")),)}, "in seconds"),
        ({"schedule": ((float("nan"), 0.1),)}, "in seconds"),
        ({"schedule": ((0.1, 0.2), (0.15, 0.3))}, "ascending and disjoint"),
        ({"schedule": (0.1, 0.2)}, r"\(start, end\) pairs"),
        ({"schedule": 3}, r"\(start, end\) pairs"),
        ({"schedule": ((True, 2),)}, r"\(start, end\) pairs"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(values, message):
    with pytest.raises(FaultError, match=message) as error:
        Fault(**({"link": 3, "rate": 0.5} | values))
    assert "\n" not in str(error.value)


def test_numbers_of_numpy_are_plain_in_a_fault():
    fault = Fault(
        np.int64(3),  # pyright: ignore[reportArgumentType]
        np.float32(0.5),  # pyright: ignore[reportArgumentType]
        schedule=np.array([[0.25, 0.5]]),  # pyright: ignore[reportArgumentType]
    )
    assert fault == Fault(3, 0.5, schedule=((0.25, 0.5),))
    assert "tor" in FaultPlan([fault]).to_yaml(K4)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ternary(4, 3), "0x4/0x3 can never match"),
        (lambda: Ternary(-1, 3), "value is -1"),
        (lambda: Ternary(0, 1.5), "mask is 1.5"),  # pyright: ignore[reportArgumentType]
        (lambda: FlowMatch(dst_port=Ternary(1, 0x1FFFF)), "dst_port: 0x1ffff does not fit 16"),
        (lambda: FlowMatch(dst_port=80), "dst_port=80: give a Ternary"),  # pyright: ignore[reportArgumentType]
        (lambda: FlowMatch(), "match is empty: give one of src_ip"),
    ],
)
def test_a_match_that_nothing_can_meet_is_refused(make, message):
    with pytest.raises(FaultError, match=message):
        make()


@pytest.mark.parametrize(
    "same",
    [
        (Fault(3, 0.5), Fault(3, 0.5)),
        (Fault(3, 0.5), Fault(3, 0.1, "corrupt")),
        (Fault(3, 0.5, match=WEB), Fault(3, 0.1, match=WEB)),
        (Fault(3, 0.5), Fault(3, 0.1, schedule=((1, 2),))),
        (Fault(3, 0.5, schedule=((0, 1.5),)), Fault(3, 0.1, schedule=((1, 2),))),
    ],
)
def test_two_faults_of_the_same_packets_are_refused(same):
    with pytest.raises(FaultError, match="two faults affect the same flows of link 3"):
        FaultPlan((Fault(2, 0.1), *same))


def test_faults_of_a_link_may_take_turns_or_differ_in_flows():
    FaultPlan((Fault(3, 0.5), Fault(3, 0.1, match=WEB), Fault(4, 0.5)))
    FaultPlan((Fault(3, 0.5, schedule=((0, 1),)), Fault(3, 0.1, schedule=((1, 2),))))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda: FaultPlan("none"), "FaultPlan must contain Faults, not str"),  # pyright: ignore[reportArgumentType]
        (lambda: FaultPlan(3), "faults of a FaultPlan must be a tuple"),  # pyright: ignore[reportArgumentType]
        (lambda: FaultPlan((), (-1,)), "a failed device is -1"),
        (lambda: FaultPlan((), ("core0",)), "a failed device is 'core0'"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_plan_of_something_else_is_refused(plan, message):
    with pytest.raises(FaultError, match=message):
        plan()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (FaultPlan((Fault(96, 0.5),)), "no link 96 in a K=4 fat-tree: they are 0 to 95"),
        (FaultPlan((Fault(95, 0.5, "corrupt"),)), "tor3_1->h3_1_1 corrupts packets, but"),
        (FaultPlan((), (20,)), "no switch 20 in a K=4 fat-tree: they are 0 to 19"),
        (
            FaultPlan((Fault(0, 0.5, schedule=((0.1, 0.2), (1.0, 3))),)),
            "scheduled for 1 to 3 s, but the run ends at 1 s: schedule it earlier, or use more",
        ),
    ],
)
def test_a_plan_that_cannot_happen_is_refused(plan, message):
    with pytest.raises(FaultError, match=message):
        plan.check(K4, 1.0)
    FaultPlan((Fault(95, 0.5, schedule=((0.9, 3),)),), (19,)).check(K4, 1.0)
