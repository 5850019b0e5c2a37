# SPDX-License-Identifier: Apache-2.0
"""One grammar for methods and their parameters, read by the types of the constructors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.methods import registry
from analysis.methods.canary import Canary
from analysis.methods.flock.flock import Flock
from analysis.methods.parameters import FAULT_RATE, Parameters, in_words, read_names
from analysis.methods.registry import (
    METHODS,
    build,
    find_methods,
    make_method,
)


class Kinds:
    """A method with kinds of telemetry."""

    name = "kinds"

    def __init__(self, *, kinds: str = "A1", fault_rate: float = 5e-3, deep: bool = False) -> None:
        self.kinds, self.fault_rate, self.deep = kinds, fault_rate, deep

    def localize(self, telemetry): ...
    def telemetry_bytes(self, telemetry): ...
    def probe_packets(self, telemetry): ...


def names(text: str) -> list[str]:
    """Return the names of the methods of a list, as tables call them."""
    return [each.name for each in find_methods(text)]


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.METHODS, "kinds", Kinds)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("flock:p_bad=3e-3,link_prior=-15,007", ["flock:p_bad=0.003,link_prior=-15.0", "007"]),
        (" vigil : threshold = 1e-3 ,flock", ["007:threshold=0.001", "flock"]),
        ("canary:groups=1+0.1+1e-3", ["canary:groups=1.0+0.1+0.001"]),
        ("flock,flock:refine=false,flock", ["flock", "flock:refine=false"]),
        ("netscope:inputs=segments,omega=inf", ["netscope:inputs=segments,omega=inf"]),
        ("canary:groups=3,canary+acquit", ["canary:groups=3", "canary+acquit"]),
        ("canary + linear+acquit", ["canary+acquit+linear"]),
        ("canary+acquit:own_share=0.3,007", ["canary+acquit:own_share=0.3", "007"]),
    ],
)
def test_methods_with_parameters(text: str, found: list[str]) -> None:
    assert names(text) == found
    assert names(",".join(found)) == found


@pytest.mark.usefixtures("kinds")
def test_kinds_come_first() -> None:
    found = find_methods("kinds:A1+A2+P,fault_rate=0.002,deep=true,flock")
    assert [each.name for each in found] == ["kinds:A1+A2+P,fault_rate=0.002,deep=true", "flock"]
    made = found[0].method
    assert isinstance(made, Kinds)
    assert (made.kinds, made.fault_rate, made.deep) == ("A1+A2+P", 0.002, True)
    assert names("kinds:INT,007") == ["kinds:INT", "007"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flok", "there is no method 'flok': did you mean flock[?] use canary"),
        ("flock:p_bda=1", "flock has no parameter p_bda: did you mean p_bad[?]"),
        ("flock:p_bad=x", "flock:p_bad=x: it should be a valid number"),
        ("flock:p_bad=nan", "flock:p_bad=nan"),
        ("flock:p_bad=2", "flock:p_bad=2: it should be less than 1"),
        ("flock:p_bad=0.1,p_bad=0.2", "flock: p_bad is given twice"),
        ("flock:A1+A2", "flock takes no kinds"),
        ("flock:", "flock: a value is missing"),
        ("flock:p_bad=", "flock: a value is missing"),
        ("netscope:inputs=probe", "netscope:inputs=probe: it should be 'probes' or 'segments'"),
        ("flock:refine=maybe", "flock:refine=maybe: it should be a valid boolean"),
        ("007:adjust=none", "007:adjust=none"),
        ("sherlock:flock=x", "sherlock: flock cannot be given on the command line"),
        ("canary:penalty=-1", "canary:penalty=-1: it should be greater than or equal to 0"),
        ("canary:lossy_share=2", "canary:lossy_share=2: it should be less than or equal to 1"),
        ("canary:threads=0", "canary:threads=0: it should be greater than or equal to 1"),
        ("007:chance=-1", "007:chance=-1: it should be greater than or equal to 0"),
        ("detector:hit_ratio=7", "detector:hit_ratio=7: it should be less than or equal to 1"),
        ("max-coverage:a=3", "max-coverage has no parameter a: it has none"),
        ("p_bad=3", "no method 'p_bad=3'"),
        ("canary+acqit", "canary[+]acqit: there is no change [+]acqit: did you mean acquit[?]"),
        ("canary+acquit+acquit", "[+]acquit is given twice"),
        ("canary+", "there is no change [+]: choose from acquit, linear"),
        ("netscope+acquit", "there is no change [+]acquit: it has none"),
        ("canary:own_share=0.5", "own_share=0.5: use its name canary[+]acquit"),
        ("canary+acquit:own_share=0", "own_share=0.0: use its name canary"),
    ],
)
def test_what_makes_no_sense_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        find_methods(text)
    assert "\n" not in str(error.value)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["p_bad", "link_prior", "device_factor"]),
            st.floats(1e-3, 0.9, allow_subnormal=False),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda pair: pair[0],
    )
)
@settings(deadline=None, max_examples=30)
def test_values_survive_being_said(values: list[tuple[str, float]]) -> None:
    made = find_methods(f"flock:{in_words(dict(values))},007")[0].method
    assert all(getattr(made, name) == value for name, value in values)


@given(st.text(max_size=30))
@settings(deadline=None, max_examples=30)
def test_any_text_is_methods_or_one_line(text: str) -> None:
    assert read_names(text)
    try:
        find_methods(text)
    except ValueError as error:
        assert str(error)


def test_a_name_wins_over_the_fault_rate_and_that_over_the_set() -> None:
    chosen = Parameters("mine.yaml", {"netbouncer": {"penalty": 8, "link_threshold": 0.99}}, 0.002)
    built = build("netbouncer", chosen)
    values, origin = built.parameters, built.origin
    assert values.startswith("penalty=8.0,") and ",link_threshold=0.998," in values
    assert origin == "mine.yaml, fault rate 0.002"
    built = build("netbouncer:link_threshold=0.5", chosen)
    values, origin = built.parameters, built.origin
    assert "link_threshold=0.5" in values and origin.endswith(", as named")
    assert build("flock", chosen).origin == "default"
    assert build("netscope:inputs=segments").parameters == (
        "omega=0.03,link_threshold=0.999,inputs=segments"
    )
    silent = replace(chosen, fault_rate=None)
    assert ",link_threshold=0.99," in build("netbouncer", silent).parameters
    with pytest.raises(ValueError, match="FAULT_RATE=2: it should be less than 1"):
        Parameters(fault_rate=2)


@pytest.mark.usefixtures("kinds")
def test_every_method_that_asks_gets_the_fault_rate() -> None:
    chosen = Parameters(fault_rate=0.004)
    asked = {name for name in METHODS if "fault rate" in build(name, chosen).origin}
    assert asked >= {"canary-mle", "netbouncer", "netbouncer-stage", "netscope", "kinds"}
    assert not asked & {"canary", "flock", "007", "detector"}
    assert "fault_rate=0.004" in build("kinds", chosen).parameters
    assert "link_threshold=0.996" in build("netbouncer", chosen).parameters


@pytest.mark.usefixtures("kinds")
def test_a_fault_is_the_same_to_all_methods_when_nothing_is_said() -> None:
    """Also to those of packages, whatever their constructors have."""
    given = Parameters(fault_rate=FAULT_RATE)
    for name, constructor in METHODS.items():
        assert build(name).parameters == build(name, given).parameters
        if constructor is not Kinds:
            assert vars(make_method(name)) == vars(constructor())


def test_a_change_is_a_parameter() -> None:
    made = make_method("canary+acquit+linear:penalty=2")
    assert vars(made) == vars(Canary(penalty=2.0, own_share=1.0, mapping="linear"))
    assert made.name == "canary+acquit+linear"
    assert "own_share=0.0" in build("canary").parameters
    assert "own_share=0.0" not in build("canary+acquit").parameters


def test_a_variant_has_its_own_values_of_a_set_or_those_of_its_method() -> None:
    chosen = Parameters("mine.yaml", {"canary": {"penalty": 3.0}})
    assert make_method("canary+acquit", chosen).penalty == 3.0  # type: ignore[attr-defined]
    assert build("canary+acquit", chosen).origin == "mine.yaml"
    both = Parameters("mine.yaml", {**chosen.by_method, "canary+acquit": {"own_share": 0.3}})
    own = make_method("canary+acquit", both)
    assert (own.penalty, own.own_share) == (1.0, 0.3)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="own_share=0.3: use its name canary[+]acquit"):
        make_method("canary", Parameters("mine.yaml", {"canary": {"own_share": 0.3}}))


def test_nothing_said_is_the_constructor() -> None:
    made = make_method("flock")
    assert isinstance(made, Flock) and vars(made) == vars(Flock())
