# SPDX-License-Identifier: Apache-2.0
"""What users import and install: the package `canary`, beside files of theirs, and both wheels."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import canary
import scenarios
from tests.distributions import build, environment

ROOT = Path(__file__).parents[1]
PACKAGES = ("analysis", "canary", "scenarios", "testbed")
SMALL = ("--epochs", "1", "--load", "0.005", "--run", "a", "--backend", "virtual")


def python(
    folder: Path, *words: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, as a user does."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=kept | environment, capture_output=True, text=True
    )


def test_every_name_is_there_and_from_scenarios_still_is() -> None:
    for name in canary.__all__:
        assert getattr(canary, name) is getattr(scenarios, name)
    assert dir(canary) == canary.__all__ == sorted(canary.__all__)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = canary.nothing_like_it


@pytest.mark.parametrize("name", ["analysis.py", "scenarios/__init__.py", "testbed/__init__.py"])
def test_a_file_that_hides_a_package_is_named_and_not_run(name: str, tmp_path: Path) -> None:
    hiding = tmp_path / name
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("raise SystemExit('theirs ran')\n")
    (tmp_path / "mine.py").write_text("import canary\nprint(canary.run.__name__)\n")
    done = python(tmp_path, "mine.py")
    *_, last = done.stderr.splitlines()
    hidden = tmp_path / name.partition("/")[0]
    assert done.returncode == 1 and not done.stdout
    assert last.startswith(f"ImportError: {hidden} hides the package {hidden.stem!r} of canary: ")
    assert python(tmp_path, "-P", "mine.py").stdout == "run\n", "as the line advises"


def test_a_module_of_that_name_that_was_imported_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "analysis.py").write_text("x = 1\n")
    (tmp_path / "mine.py").write_text("import analysis\nimport canary\n")
    assert "analysis.py hides the package 'analysis'" in python(tmp_path, "mine.py").stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels and the source distributions, made of what git has."""
    if not (ROOT / ".git").exists():
        pytest.skip("distributions are made of what git has, and this is no clone")
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


def contents(made: Path, name: str) -> dict[str, bytes]:
    """Every file of a wheel."""
    [path] = made.glob(f"{name}-*.whl")
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def tracked(folder: Path, below: str) -> dict[str, bytes]:
    """Every file that git has below a folder, by its name from there."""
    command = ["git", "ls-files", "-z", below]
    listed = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    names = os.fsdecode(listed.stdout).split("\0")[:-1]
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def test_the_wheels_have_every_file(made: Path) -> None:
    expected = {name: text for each in PACKAGES for name, text in tracked(ROOT, each).items()}
    expected = {
        name: text for name, text in expected.items() if not name.startswith("testbed/softswitch/")
    }
    expected |= {
        f"testbed/dataplane/{name}": text
        for name, text in tracked(ROOT, "p4").items()
        if Path(name).name != ".gitignore"
    }
    check(expected, contents(made, "canary_testbed"))
    soft = tracked(ROOT / "testbed" / "softswitch", "canary_softswitch")
    check(soft, contents(made, "canary_softswitch"))


def check(expected: dict[str, bytes], held: dict[str, bytes]) -> None:
    """Check that a wheel holds these files and their commands, and no other module."""
    scripts = {
        name for name in expected if not Path(name).suffix and expected[name].startswith(b"#!")
    }
    assert not {name for name in expected.keys() - scripts if held.get(name) != expected[name]}
    assert {Path(name).name for name in held if "/scripts/" in name} == {
        Path(name).name for name in scripts
    }
    assert not {name for name in held if name.endswith(".py")} - expected.keys()


def test_the_testbed_asks_for_its_own_soft_switch(made: Path) -> None:
    [soft] = made.glob("canary_softswitch-*.whl")
    metadata = contents(made, "canary_testbed")
    [text] = [text.decode() for name, text in metadata.items() if name.endswith("/METADATA")]
    assert f"Requires-Dist: canary-softswitch=={soft.name.split('-')[1]}\n" in text


@pytest.fixture(scope="module")
def installed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which both wheels are installed, beside the packages here."""
    return environment(made, tmp_path_factory.mktemp("installed") / "venv")


def run(python: Path, folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program of an environment in a folder."""
    drop = ("PYTHONSAFEPATH", "PYTHONPATH", "HOME")
    kept = {name: value for name, value in os.environ.items() if name not in drop}
    command = [python.with_name(str(words[0])), *words[1:]]
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True)


def test_the_wheels_run_from_a_hostile_folder(installed: Path, tmp_path: Path) -> None:
    """Their own code, P4 program, C and tables are used, and no file that lies there."""
    for name in ("analysis.py", "canary_softswitch.py", "scenarios/__init__.py", "numpy.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('theirs ran')\n")
    code = "import canary_softswitch, testbed.dataplane as it; print(it.PROGRAM, canary_softswitch)"
    own = run(installed, tmp_path, "python", "-P", "-c", code)
    assert own.stdout.count(str(installed.parents[1])) == 2, own.stderr
    for words in (["run", *SMALL], ["page", "a"], ["show", "a"], ["reproduce"], ["--version"]):
        done = run(installed, tmp_path, "canary", *words)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "a" / "index.html").is_file()
    shown = run(installed, tmp_path, "canary", "show", "a").stdout
    assert "canary run " in shown and "make " not in shown, "there is no Makefile"
    switch = run(installed, tmp_path, "canary-switch", "--version")
    assert switch.returncode == 0, switch.stderr
