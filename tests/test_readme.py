# SPDX-License-Identifier: Apache-2.0
"""What the README teaches works as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest
from typer.main import get_command

from analysis.methods.registry import find_methods
from scenarios.command import options
from scenarios.command.cli import app
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import load_scenario, make_request, scenario_names
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Setting, described
from testbed.fabric.topologies import make_fabric
from testbed.record.run import RunDirectory
from tests.conftest import SMALL

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
SCENARIO = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "do" / "scenario.md").read_text(), re.DOTALL
)


def test_the_example_scenario_runs(tmp_path: Path) -> None:
    file = tmp_path / "my_failure.py"
    file.write_text(SCENARIO[0])
    scenario = load_scenario(str(file))
    summary = run_experiment(layout_of(SMALL, scenario, str(file)), tmp_path / "run")
    assert summary["scenario"] == "my_failure"
    assert len(summary["faulty_links"]) == 8
    assert set(RunDirectory(tmp_path / "run").table("drops")["cause"]) == {"corrupt"}


def help_lines(setting: Setting) -> list[str]:
    """The lines about a setting in `make help-options`, at most 100 columns wide."""
    default, bounds = options._default(setting).partition(";")[0], options._bounds(setting)
    return textwrap.wrap(
        options._plain(setting.meaning) + bounds,
        width=100,
        initial_indent=f"  {f'{setting.name.upper()}={default}':<18} ",
        subsequent_indent=" " * 21,
        break_on_hyphens=False,
        break_long_words=False,
    )


@pytest.fixture
def _own_make(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS"):
        monkeypatch.delenv(name, raising=False)  # of the make that runs these tests


@pytest.mark.usefixtures("_own_make")
def test_what_make_lists_is_that_of_the_settings() -> None:
    scenario, *listed, config, run = (
        (ROOT / "scenarios" / "command" / "options.txt").read_text().splitlines()
    )
    assert listed == [line for setting in described() for line in help_lines(setting)]
    assert all(name in scenario for name in scenario_names())
    assert config.strip().startswith("CONFIG=") and run.strip().startswith("RUN=")
    command = ["make", "help-options"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(line in done.stdout for line in (scenario, *listed, config, run))


@pytest.mark.usefixtures("_own_make")
def test_make_passes_on_whatever_it_is_given() -> None:
    given = ["SCENARIO=flap", "EPOCH_MS=50", "FAULTS=6links, none", "COLOUR=re'd", "k=8"]
    command = ["make", "--no-print-directory", "--dry-run", "scenario", *given]
    message = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert sorted(shlex.split(message.splitlines()[-1])[2:]) == sorted(given)


CANARY = ".venv/bin/canary"


def commands(file: Path) -> list[list[str]]:
    """The words of each command of make or canary that a page teaches."""
    blocks = re.findall(r"```sh\n(.*?)```", file.read_text(), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    words = [line[1:] if line[:1] == ["sudo"] else line for line in words]
    return [line for line in words if line[:1] in (["make"], [CANARY])]


TAUGHT = [page for page in (ROOT / "README.md", *PAGES) if commands(page)]


@pytest.mark.parametrize("page", TAUGHT, ids=lambda page: page.stem)
def test_the_commands_taught_are_understood(page: Path) -> None:
    taught = commands(page)
    targets = set(
        re.findall(r"^([a-z-]+)(?= .*:|:)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    targets |= {"analyze", "show"}
    own = {*options.OF_COMMANDS}
    for program, command, *words in taught:
        if program == CANARY:
            known = get_command(app).commands[command]  # type: ignore[attr-defined]
            known.make_context(command, words)  # an option that does not exist is refused
            continue
        if command == "-C":  # make -C p4 has targets of its own
            continue
        assert command in targets, command
        given = dict(word.split("=", 1) for word in words)
        if command in ("scenario", "compare", "net"):
            settings = {
                name.lower(): value
                for name, value in given.items()
                if name not in own and ".pcap" not in value  # a file of the reader's
            }
            request = make_request(given.get("SCENARIO"), settings)
            made = request.settings()
            request.scenario.faults(make_fabric(made.topology, made.k, made.seed), made)
            methods = given.get("METHODS", "all").split(",")
            find_methods(",".join(name for name in methods if not name.startswith("worst.py")))


def test_the_readme_is_one_screen() -> None:
    assert len(README.encode()) < 8000
