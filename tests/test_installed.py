# SPDX-License-Identifier: Apache-2.0
"""What users import and install: the package `canary`, beside files of theirs, and the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import canary
import scenarios

ROOT = Path(__file__).parents[1]
PACKAGES = ("analysis", "canary", "scenarios", "testbed")
OF_A_WHEEL = (*PACKAGES, "p4/", "pyproject", "README", "LICENSE")


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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from what git has of this folder."""
    if not (ROOT / ".git").exists():
        pytest.skip("a wheel is made of what git has, and this is no clone")
    made = tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in os.fsdecode(listed.stdout).split("\0"):
        source = ROOT / name
        if source.exists() and name.startswith(
            (*PACKAGES, "p4/", "pyproject", "README", "LICENSE")
        ):
            (made / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, made / "source" / name, follow_symlinks=False)
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    python(made / "source", "-P", "-c", build).check_returncode()
    return next(made.glob("*.whl"))


def test_the_wheel_has_every_file(wheel: Path) -> None:
    source = wheel.parent / "source"
    with zipfile.ZipFile(wheel) as file:
        held = {name: file.read(name) for name in file.namelist()}
    expected = {
        str(path.relative_to(source)): path.read_bytes()
        for package in PACKAGES
        for path in (source / package).rglob("*")
        if path.is_file()
    }
    scripts = {name for name in expected if not Path(name).suffix and "p4" not in name}
    expected |= {
        f"testbed/dataplane/{path.relative_to(source)}": path.read_bytes()
        for path in (source / "p4").rglob("*")
        if path.is_file() and path.name != ".gitignore"
    }
    missing = {name for name in expected.keys() - scripts if held.get(name) != expected[name]}
    assert not missing
    assert {Path(name).name for name in held if "/scripts/" in name} == {
        Path(name).name for name in scripts
    }


def test_the_wheel_runs_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """Unpacked before all else on the path: its own code, P4 program, C and tables are used."""
    installed, here = tmp_path / "installed", tmp_path / "here"
    here.mkdir()
    with zipfile.ZipFile(wheel) as file:
        file.extractall(installed)
    code = "import testbed.dataplane as it; print(it.PROGRAM)"
    path = {"PYTHONPATH": str(installed)}
    assert python(here, "-P", "-c", code, **path).stdout.startswith(str(installed))
    small = ["--epochs", "1", "--load", "0.005", "--run", "a", "--backend", "virtual"]
    for words in (["run", *small], ["page", "a"], ["show", "a"], ["reproduce"], ["--version"]):
        done = python(here, "-P", "-m", "scenarios", *words, **path)
        assert done.returncode == 0, done.stderr
    assert (here / "a" / "index.html").is_file()
