# SPDX-License-Identifier: Apache-2.0
"""Scenario files: whatever their code does wrong is one line with the file and the line."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import scenarios
from scenarios.experiment.request import load_scenario, scenario_names
from scenarios.experiment.settings import Settings, SettingsError
from testbed.fabric.fat_tree import FatTree
from testbed.faults.plan import FaultError, FaultPlan

K4 = FatTree(4)
BEGIN = """\
from scenarios.experiment.request import Scenario
from testbed.faults.plan import Fault, FaultPlan
"""  # two lines
END = "\nSCENARIO = Scenario(make_faults=faults)\n"


def plan_of(tmp_path: Path, code: str, name: str = "mine.py", **settings: object) -> FaultPlan:
    path = tmp_path / name
    path.write_text(code)
    return load_scenario(str(path)).faults(K4, Settings(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", scenario_names())
@pytest.mark.parametrize(("epochs", "epoch_ms"), [(1, 20), (1, 60), (10, 100)])
def test_what_is_shipped_can_happen_in_runs_of_any_length(
    name: str, epochs: int, epoch_ms: int
) -> None:
    found = load_scenario(name)
    for seed in range(5):
        given = {"epochs": epochs, "epoch_ms": epoch_ms, "seed": seed}
        settings = Settings(**(dict(found.defaults) | given))  # type: ignore[arg-type]
        plan = found.faults(K4, settings)
        ends = [span for fault in plan.faults for span in fault.schedule]
        assert all(start < settings.duration_s for start, _ in ends)
        assert name != "flap" or all(fault.schedule for fault in plan.faults)


def test_the_faults_are_those_that_the_file_makes(tmp_path: Path) -> None:
    code = BEGIN + "def faults(topology, settings):\n    return FaultPlan((Fault(5, 0.5),))" + END
    assert plan_of(tmp_path, code).links.tolist() == [5]


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("raise RuntimeError('no\\nluck')", 4, "RuntimeError: no luck"),
        ("pass", 3, "make_faults returns nothing: it must return a FaultPlan"),
        ("return [Fault(1, 0.5)]", 3, r"make_faults returns \[Fault\(.*: it must return a Fault"),
        ("exit(3)", 4, "calls sys.exit"),
        ("return FaultPlan((Fault(-1, 0.5),))", 4, "a fault's link is -1"),
        ("return FaultPlan((Fault(1, 7.0),))", 4, "rate 7 is outside"),
        ("return FaultPlan((Fault(1, 1.0, 'zap'),))", 4, "kind 'zap' is unknown"),
        ("return FaultPlan((Fault(1, .1), Fault(1, .2)))", 4, "two faults affect"),
        ("return FaultPlan((Fault(99, 0.5),))", 3, "no link 99 in a K=4 fat-tree"),
        ("return FaultPlan((Fault(1, .5, schedule=((15, 19),)),))", 3, "the run ends at 10 s"),
        ("return FaultPlan((Fault(topology.link('tor9->agg9'), 1),))", 4, "no switch 'tor9'"),
        ("return faults(topology, settings)", 4, "RecursionError"),
        ("return 1 / 0", 4, "ZeroDivisionError"),
    ],
)
def test_what_goes_wrong_in_make_faults_is_one_line(
    tmp_path: Path, body: str, line: int, message: str
) -> None:
    code = BEGIN + f"def faults(topology, settings):\n    {body}\n" + END
    with pytest.raises(SettingsError) as error:
        plan_of(tmp_path, code)
    text = str(error.value)
    assert re.match(rf"scenario file {tmp_path}/mine.py line {line}: .*{message}", text), text


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("def faults():", r"line 3: make_faults must take two arguments: def faults\(topology"),
        ("def faults(topology):", "line 3: make_faults must take two arguments"),
        ("def faults(topology, settings, more):", "line 3: make_faults must take two arguments"),
        ("def faults(topology, *, settings):", "line 3: make_faults must take two arguments"),
    ],
)
def test_another_signature_is_one_line(tmp_path: Path, head: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        plan_of(tmp_path, f"{BEGIN}{head}\n    return FaultPlan()\n{END}")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", "defines no SCENARIO"),
        ("SCENARIO = 5", "defines no SCENARIO"),
        ("import nothing_of_that_name", "line 1: ModuleNotFoundError: .*nothing_of_that_name"),
        ("x = 1\ndef broken(:\n", "line 2: SyntaxError"),
        ("\x00", "mine.py.*: .*null bytes"),
        ("import sys\nsys.exit('bye')", "line 2: calls sys.exit"),
        ("raise SystemExit", "line 1: calls sys.exit"),
        (
            BEGIN + "SCENARIO = Scenario(defaults={'fault': 'none'})",
            "line 3: FAULT is not a setting",
        ),
        (BEGIN + "SCENARIO = Scenario(defaults=['k'])", "line 3: defaults of a Scenario must be"),
        (BEGIN + "SCENARIO = Scenario(make_faults=FaultPlan())", "line 3: make_faults of a Scen"),
        (BEGIN + "SCENARIO = Scenario(links=1)", "line 3: links of a Scenario must be"),
        (BEGIN + "SCENARIO = Scenario(colour='red')", "line 3: TypeError: .*colour"),
    ],
)
def test_a_file_that_does_not_load_is_one_line(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        plan_of(tmp_path, code)
    assert "\n" not in str(error.value) and "mine.py" in str(error.value)


def test_a_file_in_this_folder_has_lines_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for code, line in (("\nraise GeneratorExit", 2), ("\n\nreturn)", 3)):
        (tmp_path / "mine.py").write_text(code)
        with pytest.raises(SettingsError, match=f"^scenario file mine.py line {line}: [A-Z]"):
            load_scenario("mine.py")


def test_a_files_name_hides_no_module(tmp_path: Path) -> None:
    before = sys.modules["json"]
    plan_of(tmp_path, BEGIN + "SCENARIO = Scenario()", name="json.py")
    assert sys.modules["json"] is before


def test_what_settings_say_wrong_is_told_as_theirs(tmp_path: Path) -> None:
    with pytest.raises(FaultError) as error:
        plan_of(tmp_path, BEGIN + "SCENARIO = Scenario()", faults="10pxt")
    assert str(error.value).startswith("FAULTS item '10pxt' is unknown")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's job in the background ignores Ctrl-C, and so do the tests that it runs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_file_that_loops(tmp_path: Path) -> None:
    threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,)).start()
    with pytest.raises(KeyboardInterrupt):
        plan_of(tmp_path, "while True: pass")
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_threads_may_load_scenarios_too(tmp_path: Path) -> None:
    found: list[object] = []
    code = BEGIN + "SCENARIO = Scenario()"
    thread = threading.Thread(target=lambda: found.append(plan_of(tmp_path, code)))
    thread.start()
    thread.join()
    assert isinstance(found[0], FaultPlan)


def test_the_former_places_of_scenario_and_settings_work_with_a_warning(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from scenarios.scenario import Scenario\n"
        "from scenarios.settings import Settings, make_settings\n"
        "SCENARIO = Scenario()\n"
    )
    with pytest.warns(DeprecationWarning, match="from canary import S"):
        found = load_scenario(str(mine))
    assert type(found) is scenarios.Scenario
