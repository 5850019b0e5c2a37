# SPDX-License-Identifier: Apache-2.0
"""What carries out the image's steps without Docker knows each of them, and passes over none."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bare import image

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "vagrant" / "Dockerfile").read_text()
DEV = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that the image's steps run, of which none is carried out."""
    commands: list[str] = []

    def run(self: Any, command: str, values: Any) -> None:
        commands.append(image.filled(command, values))

    monkeypatch.setattr(image.Image, "_run", run)
    monkeypatch.setattr(image.Image, "_copy", lambda self, source, target: None)
    assert image.main(str(ROOT), str(tmp_path), "canary", "doctor") == 0
    return commands


def test_all_steps_are_known(ran: list[str]) -> None:
    provision, set_up, command = ran
    assert provision.startswith("/tmp/provision.sh ") and "apt-get install" in provision
    assert set_up == "make -C /opt/canary setup"
    assert command == "canary doctor"


@pytest.mark.parametrize(
    "step", ["USER canary", "RUN", "FROM other", "COPY --chown=x a b", "ADD a b", "WORKDIR /"]
)
def test_a_step_that_is_not_known_is_refused(
    tmp_path: Path, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "vagrant").mkdir()
    (tmp_path / "vagrant" / "Dockerfile").write_text(f"ARG BASE=one\nFROM $BASE\n{step}\n")
    assert image.main(str(tmp_path), str(tmp_path)) == 1
    assert "image: " in capsys.readouterr().err


def test_files_are_copied_and_variables_filled(tmp_path: Path) -> None:
    context, root = tmp_path / "context", tmp_path / "root"
    (context / "vagrant").mkdir(parents=True)
    (context / "vagrant" / "a.sh").write_text("a")
    made = image.Image(context, root, ["one"])
    for name, rest in image.steps(
        "ARG X=1\n# no step\nFROM one AS two\nFROM two\nCOPY vagrant/a.sh /tmp/b.sh\n"
        'COPY . /opt/x\nENV PATH=/opt/$X:$PATH\nCMD ["a",\\\n "b"]\n'
    ):
        made.carry_out(name, rest)
    assert (root / "tmp" / "b.sh").read_text() == "a"
    assert (root / "opt" / "x" / "vagrant" / "a.sh").exists()
    assert made.environment["PATH"] == f"/opt/1:{image.PATH}"
    assert made.command == ["a", "b"]


def test_the_dev_container_is_a_stage_of_the_image() -> None:
    build = DEV["build"]
    assert (ROOT / ".devcontainer" / build["dockerfile"]).samefile(ROOT / "vagrant" / "Dockerfile")
    assert (ROOT / ".devcontainer" / build["context"]).samefile(ROOT)
    stage = DOCKERFILE.partition(f" AS {build['target']}\n")[2].partition("\nFROM ")[0]
    assert f" {DEV['remoteUser']}\n" in f"{stage}\n", "the user is made in this stage"


def test_the_image_is_what_labs_are_told_to_build() -> None:
    built = re.findall(r"docker build .*-f (\S+)", (ROOT / "docs" / "do" / "labs.md").read_text())
    assert set(built) == {"vagrant/Dockerfile"}


def test_a_night_carries_the_steps_out() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]
    assert any("tests/bare/run -i" in step.get("run", "") for step in jobs["image"]["steps"])
    assert os.access(ROOT / "tests" / "bare" / "run", os.X_OK)
