# SPDX-License-Identifier: Apache-2.0
"""`canary page`, and the page that every run ends with."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from analysis.methods.registry import find_methods
from scenarios.command.show import again, make_page, offer_page
from scenarios.experiment.request import make_request
from scenarios.experiment.run import analyze, run_config
from scenarios.experiment.settings import Settings, make_settings
from testbed.record.manifest import MANIFEST, PAGE
from testbed.record.run import RunDirectory
from tests.conftest import quiet


@pytest.fixture
def copy(run_path: Path, tmp_path: Path) -> Path:
    shutil.copytree(run_path, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_page_is_no_part_of_the_run(copy: Path) -> None:
    before = (copy / MANIFEST).read_text()
    assert make_page(copy) == copy / PAGE
    RunDirectory(copy)
    analyze(copy, quiet, methods=find_methods("canary"))
    assert make_page(copy).is_file()
    (copy / PAGE).write_text("of an older version")
    run = RunDirectory(copy)
    assert list(run.summary["methods"]) == ["canary"]
    assert PAGE not in (copy / MANIFEST).read_text() + before


def test_the_page_follows_the_record(copy: Path) -> None:
    first = make_page(copy).read_text()
    assert make_page(copy).read_text() == first
    assert "netbouncer" in first
    analyze(copy, quiet, methods=find_methods("canary"))
    assert "netbouncer" not in make_page(copy).read_text()


def test_an_interrupted_run_has_a_page_once_it_is_analyzed(copy: Path) -> None:
    left = copy.with_name("left.partial")
    copy.rename(left)
    (left / MANIFEST).unlink()
    for _ in range(2):
        analyze(left, quiet, methods=find_methods("canary"))
        assert offer_page(left) == f"page: {left / PAGE}"


def test_a_run_without_its_page_is_a_run(copy: Path) -> None:
    (copy / PAGE).mkdir()  # in its way
    message = offer_page(copy)
    assert message.startswith("no page: ") and "\n" not in message
    RunDirectory(copy)


def test_what_was_changed_is_shown_on_trust_only(copy: Path) -> None:
    (copy / "truth.yaml").write_text("faults: []\n")
    with pytest.raises(ValueError, match="changed after the run"):
        make_page(copy)
    assert make_page(copy, trust=True).is_file()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"backend": "flow", "k": 16, "faults": "device:agg0_1, 1%", "noise": "0..0.0001"},
        {"backend": "flow", "topology": "leaf-spine:8:4:3:irregular=5pct", "epochs": 3},
        {"backend": "softswitch", "tcp": 0, "injector": "nft"},
        {"traffic": "websearch:skewed", "load": 0.25, "seed": 7},
    ],
)
def test_the_command_makes_the_run_again(settings: dict) -> None:
    made = make_settings({"backend": "virtual"} | settings, {})
    command = shlex.split(again(run_config(made.as_dict() | {"scenario": "faulty_links"}), {}))
    given = dict(word.split("=", 1) for word in command[2:])
    assert command[:2] == ["make", "scenario"]
    request = make_request(given.pop("SCENARIO"), {name.lower(): v for name, v in given.items()})
    assert request.settings() == made


def test_the_command_names_what_methods_had() -> None:
    entry = {"parameters": "p_bad=0.01", "parameters_from": "mine.yaml"}
    result = again(
        run_config(Settings().as_dict() | {"scenario": "faulty_links"}), {"flock": entry, "007": {}}
    )
    assert "METHODS=flock:p_bad=0.01,007" in result
