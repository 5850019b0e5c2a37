# SPDX-License-Identifier: Apache-2.0
"""Method files: a class in a Python file is a method, and what it does wrong is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.evaluation.parameter_sets import choose_methods, read_set
from analysis.methods.registry import build, find_methods, make_method
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry

WORST = '''\
import numpy as np

from analysis.methods.base import Localizer, Method
from analysis.methods.diagnosis import Diagnosis


class Worst(Method):
    """Blames the links of segments that lose more than a share."""

    name = "worst-segments"
    reads = "segments"

    def __init__(self, *, limit: float = 0.1) -> None:
        if limit > 1:
            raise ValueError("limit is a share")
        self.limit = limit

    def infer(self, counts, fabric):
        sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
        bad = np.flatnonzero(lost > self.limit * sent)
        return self.diagnosis(fabric, counts.segments.paths.take(bad).links)
'''

OTHER = """\
class Other:
    name = "other"

    def localize(self, telemetry):
        {body}

    def telemetry_bytes(self, telemetry):
        return 0

    def probe_packets(self, telemetry):
        return 0
"""


@pytest.fixture
def world(synthetic: Any) -> Any:
    return synthetic.make_world(k=4, seed=2)


def written(folder: Path, text: str, name: str = "worst.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_file_is_a_method_like_others(tmp_path: Path, world: Any) -> None:
    file = written(tmp_path, WORST)
    found, chosen = choose_methods(f"{file}:limit=0.2,canary-mle,{file}")
    names = ["worst.py:limit=0.2", "canary-mle", "worst.py"]
    assert [each.name for each in found] == names
    assert [each.name for each in find_methods(",".join(names), chosen)] == names
    built = found[0]
    method: Any = built.method
    assert method.name == "worst-segments" and method.limit == 0.2
    assert len(method.localize(world.telemetry).flagged) > 0
    assert method.telemetry_bytes(world.telemetry) == world.telemetry.canary_bytes
    assert (built.parameters, built.origin) == ("limit=0.2", "default, as named")
    assert built.bench == "other"
    with pytest.raises(MissingTelemetry, match="worst-segments needs"):
        method.localize(Telemetry(world.topology, "tor"))


def test_a_set_of_parameters_may_have_some_for_a_file_that_was_named(tmp_path: Path) -> None:
    file, mine = written(tmp_path, WORST), tmp_path / "mine.yaml"
    mine.write_text("methods: {worst.py: {parameters: {limit: 0.3}}}")
    _, chosen = choose_methods(file, str(mine))
    assert make_method("worst.py", chosen).limit == 0.3  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["worst.py", "{folder}/worst.py", "./worst.py"])
def test_what_the_user_did_not_name_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A file of parameters and the record of a run come from others."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, f"open({str(tmp_path / 'run')!r}, 'w')\n{WORST}")
    name = name.format(folder=tmp_path)
    (tmp_path / "theirs.yaml").write_text(f"methods: {{{name}: {{parameters: {{limit: 1}}}}}}")
    message = "worst.py: a method file runs only if METHODS= names it"
    for use in (make_method, find_methods, build):
        with pytest.raises(ValueError, match=message):
            use(name)
    for methods in (None, "canary"):
        with pytest.raises(ValueError, match=message):
            choose_methods(methods, "theirs.yaml")
    with pytest.raises(ValueError, match=message):
        read_set("theirs.yaml")
    assert not (tmp_path / "run").exists()


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    file = written(tmp_path, WORST)
    _, chosen = choose_methods(file)
    assert make_method("worst.py", chosen).limit == 0.1  # type: ignore[attr-defined]
    written(tmp_path, WORST.replace("= 0.1", "= 0.7"))
    assert make_method("worst.py", chosen).limit == 0.7  # type: ignore[attr-defined]


def test_of_several_methods_the_file_says_which(tmp_path: Path) -> None:
    both = WORST + OTHER.format(body="pass")
    with pytest.raises(
        ValueError, match=r"has the methods Worst, Other: choose one with METHOD = Worst"
    ):
        choose_methods(written(tmp_path, both))
    (found,), _ = choose_methods(written(tmp_path, f"{both}\nMETHOD = Other\n", "two.py"))
    assert found.method.name == "other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "worst.py has no method: write a class with localize, telemetry_bytes, probe_packets"),
        ("METHOD = dict", "METHOD of .*worst.py must be a class with localize, telemetry_by"),
        ("x = 1\ndef broken(:\n", "method file .*worst.py line 2: SyntaxError"),
        ("import nothing_like_it", "method file .*worst.py line 1: ModuleNotFoundError"),
        ("import sys\nsys.exit(1)", "method file .*worst.py line 2: calls sys.exit"),
    ],
)
def test_a_file_that_is_no_method_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        choose_methods(written(tmp_path, text))
    assert "\n" not in str(error.value)


def test_parameters_of_a_file_are_checked(tmp_path: Path) -> None:
    file = written(tmp_path, WORST)
    for words, message in (
        ("limit=much", "worst.py:limit=much: it should be a valid number"),
        ("limti=1", "worst.py has no parameter limti: did you mean limit?"),
        ("limit=2", r"method file .*worst.py line 15: ValueError: limit is a share"),
    ):
        with pytest.raises(ValueError, match=message):
            choose_methods(f"{file}:{words}")
    with pytest.raises(ValueError, match=r"no method file .*gone.py: check METHOD"):
        choose_methods(str(tmp_path / "gone.py"))
    (tmp_path / "more").mkdir()
    other = written(tmp_path / "more", WORST)
    with pytest.raises(ValueError, match=r"worst.py and .*worst.py: rename one"):
        choose_methods(f"{file},{other}")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 / 0", "line 5: ZeroDivisionError"),
        ("raise SystemExit", "line 5: calls sys.exit"),
        ("return telemetry.nothing", "line 5: AttributeError"),
        ("return None", r"line 4: localize\(\) returns None: return a Diagnosis"),
        ("import numpy; numpy.zeros(3)[7]", "line 5: IndexError"),
    ],
)
def test_what_goes_wrong_in_localize_is_one_line(
    tmp_path: Path, world: Any, body: str, message: str
) -> None:
    (found,), _ = choose_methods(written(tmp_path, OTHER.format(body=body), "other.py"))
    with pytest.raises(ValueError, match=f"^method file .*other.py {message}") as error:
        found.method.localize(world.telemetry)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("flagged=np.array([64])", "flagged must be link numbers from 0 to 63, ascending"),
        ("flagged=np.array([3, 1])", "flagged must be link numbers from 0 to 63, ascending"),
        ("flagged=np.array([0.5])", "flagged must be a list of link numbers"),
        ("native='both'", "native='both': use 'directed' or 'undirected'"),
        ("score=np.zeros(3)", r"score has the shape \(3,\): 64 links need one each"),
    ],
)
def test_a_diagnosis_that_makes_no_sense_is_one_line(
    tmp_path: Path, world: Any, change: str, message: str
) -> None:
    body = (
        "import numpy as np; from dataclasses import replace; from analysis.methods.canary import "
        "Canary; return replace(Canary().localize(telemetry), " + change + ")"
    )
    (found,), _ = choose_methods(written(tmp_path, OTHER.format(body=body), "other.py"))
    with pytest.raises(ValueError, match=f"method file .*other.py line 4: {message}"):
        found.method.localize(world.telemetry)
