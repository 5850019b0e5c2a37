# SPDX-License-Identifier: Apache-2.0
"""Sets of parameters: the papers', and files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from analysis.evaluation.parameter_sets import (
    PAPER,
    Calibrated,
    Entry,
    choose_methods,
    read_set,
    write_set,
)
from analysis.methods import registry
from analysis.methods.registry import build, make_method, method_names


def test_each_value_of_a_paper_says_where_it_is_printed() -> None:
    content = Calibrated.model_validate(yaml.safe_load(PAPER.read_text()))
    assert set(content.methods) <= set(method_names())
    for entry in content.methods.values():
        assert entry.sources is not None and entry.sources.keys() == entry.parameters.keys()
    paper = read_set("paper")
    built = build("canary", paper)
    assert (built.parameters, built.origin) == (build("canary").parameters, "paper")
    vigil = make_method("007", paper)
    assert (vigil.threshold, vigil.chance) == (0.01, float("inf"))  # type: ignore[attr-defined]
    assert build("canary-mle", paper).origin == "default"


def test_a_set_is_written_and_read_again(tmp_path: Path) -> None:
    entry = Entry(parameters={"p_bad": 1e-5, "p_good": 1e-6, "refine": False}, recall=0.5)
    for name in ("a.yaml", "b.yaml"):
        write_set(tmp_path / name, Calibrated(methods={"flock": entry}))
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()
    (built, vigil), _ = choose_methods("flock,007", str(tmp_path / "a.yaml"), 0.01)
    assert (built.name, vigil.name) == ("flock", "007")
    values, origin = built.parameters, built.origin
    assert values.startswith("p_bad=1e-05,p_good=1e-06,") and "refine=false" in values
    assert origin == "a.yaml"
    assert vigil.origin == "default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("methods: {flok: {parameters: {}}}", "there is no method 'flok': did you mean flock"),
        ("methods: {flock: {parameters: {p_bda: 1}}}", "no parameter p_bda: did you mean p_bad"),
        ("methods: {flock: {parameters: {p_bad: x}}}", "p_bad=x: it should be a valid number"),
        ("methods: {flock: {parameters: {p_bad: 2}}}", "flock:p_bad=2: it should be less than 1"),
        ("methods: {flock: {}}", "methods.flock.parameters: field required"),
        ("methods: {flock: {parameters: {p_bad: {a: 1}}}}", "methods.flock.parameters.p_bad"),
        ("methods: {}\nmethods: {}", "line 2: the key 'methods' is given twice"),
        ("[" * 1000, "not valid YAML"),  # deeper than Python's calls may be
        ("methods: {a: 2026-99-99}", "not valid YAML"),
        ("colour: red", "methods: field required"),
        ("[1, 2]", "has no parameters"),
        ("methods: {flock: [", "line 1: not valid YAML"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "set.yaml"
    file.write_text(text)
    with pytest.raises(ValueError) as error:
        choose_methods(None, str(file))
    assert message in str(error.value) and "\n" not in str(error.value)
    assert str(error.value).startswith(str(file))


def test_no_such_file() -> None:
    with pytest.raises(ValueError, match="PARAMETERS=papr: no such file: use default, paper"):
        read_set("papr")


def test_methods_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, construct = [], registry._constructed
    monkeypatch.setattr(
        registry, "_constructed", lambda *given: (made.append(1), construct(*given))[1]
    )
    built, vigil = choose_methods("flock:p_bad=0.02,vigil")[0]
    assert vigil.name == "007" and len(made) == 2
    assert (built.name, built.bench) == ("flock:p_bad=0.02", "published")
    assert built.parameters.startswith("p_bad=0.02,") and built.origin == "default, as named"
