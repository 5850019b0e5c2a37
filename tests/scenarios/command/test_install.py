# SPDX-License-Identifier: Apache-2.0
"""The set-up installs its lock files and nothing else, and says early what a machine lacks."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scenarios.command.install import EXTRAS, LOCKS, install_locked
from tests.patience import PATIENCE_S
from tests.wheels import LATER, locked_versions, make_wheel

ROOT = Path(__file__).parents[3]
USERS, DEVELOPERS = (ROOT / LOCKS[kind] for kind in ("users", "developers"))

BACKEND = """
from pathlib import Path
from wheels import make_wheel

def build_editable(folder, settings=None, metadata=None):
    return make_wheel(Path(folder), "{name}", "1", script="{script}").name
"""


def requirements(lock: Path) -> list[Requirement]:
    """The packages of a lock that this machine and this Python take."""
    lines = [line for line in lock.read_text().splitlines() if not line.startswith((" ", "#"))]
    every = [Requirement(line.rstrip("\\").strip()) for line in lines]
    return [one for one in every if one.marker is None or one.marker.evaluate()]


def test_what_is_installed_is_the_lock() -> None:
    installed = {one.name: distribution(one.name).version for one in requirements(DEVELOPERS)}
    assert installed == {
        one.name: str(one.specifier).removeprefix("==") for one in requirements(DEVELOPERS)
    }
    assert LATER not in {one.version for one in distributions()}


def test_the_developers_lock_holds_all_others() -> None:
    users, developers = locked_versions(USERS), locked_versions(DEVELOPERS)
    assert users.items() < developers.items()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for extra in EXTRAS:
        added = locked_versions(ROOT / LOCKS[extra])
        assert added.items() < developers.items() and not added.keys() & users.keys()
        assert {Requirement(line).name for line in extras[extra]} <= added.keys()


def test_users_get_no_tool_of_developers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    tools = {Requirement(line).name for line in (*extras["dev"], *extras["docs"])}
    real = {Requirement(line).name for line in extras["real"]}
    assert real <= locked_versions(USERS).keys(), "a clone has all that real packets need"
    assert not tools & set(locked_versions(USERS))
    assert tools <= set(locked_versions(DEVELOPERS))


def lock_of(folder: Path, *wheels: Path) -> Path:
    """Write a lock of these wheels."""
    lock = folder / "requirements.lock"
    lines = []
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    lock.write_text("".join(lines))
    return lock


@pytest.fixture(scope="module")
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but pip, which is copied: to install it takes seconds."""
    venv = tmp_path_factory.mktemp("venv") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip = distribution("pip")
    for name in ("pip", f"pip-{pip.version}.dist-info"):
        shutil.copytree(str(pip.locate_file(name)), packages_of(venv) / name)
    return venv / "bin" / "python"


def packages_of(venv: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(venv)}))


def installed_from(python: Path, lock: Path, index: Path) -> subprocess.CompletedProcess[str]:
    """Install a lock when the index is a folder of wheels."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
    command = install_locked(str(python), lock)
    return subprocess.run(
        command, env=os.environ | offline, capture_output=True, text=True, check=False
    )


def versions(python: Path) -> str:
    found = distributions(path=[str(packages_of(python.parents[1]))])
    return "\n".join(f"{each.name}=={each.version}" for each in found)


@pytest.mark.nightly
def test_a_later_release_of_a_package_changes_nothing(
    _own_environment: Path, tmp_path: Path
) -> None:
    """Old versions of pip look an extra up again, and find the later release without a hash."""
    needing = make_wheel(tmp_path, "needing", "1.0", ["needed[extra]>=1"])
    needed = make_wheel(tmp_path, "needed", "1.0")
    lock = lock_of(tmp_path, needing, needed)
    for name in ("needing", "needed"):
        make_wheel(tmp_path, name, LATER, ["unknown"])
    done = installed_from(_own_environment, lock, tmp_path)
    assert done.returncode == 0, done.stderr
    found = versions(_own_environment)
    assert "needing==1.0" in found and "needed==1.0" in found and LATER not in found


def test_a_changed_file_is_refused(_own_environment: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "changed", "1.0")
    lock = lock_of(tmp_path, wheel)
    make_wheel(tmp_path, "changed", "1.0", ["other"])
    done = installed_from(_own_environment, lock, tmp_path)
    found = versions(_own_environment)
    assert done.returncode != 0 and "pip==" in found and "changed" not in found


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A project that is set up like this one, and has nothing in it."""
    folder = tmp_path / "tiny"
    (folder / "scenarios" / "command").mkdir(parents=True)
    for package in ("testbed/softswitch", "analysis"):
        (folder / package).mkdir(parents=True)
    install = Path("scenarios", "command", "install.py")
    shutil.copy(ROOT / install, folder / install)
    for name in ("tiny", "tiny-softswitch"):
        project = folder / ("testbed/softswitch" if name != "tiny" else "")
        shutil.copy(ROOT / "tests" / "wheels.py", project)
        (project / "backend.py").write_text(
            BACKEND.format(name=name, script=name.replace("tiny", "canary"))
        )
        (project / "pyproject.toml").write_text(
            "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
            f"[project]\nname = '{name}'\nversion = '1'\n"
        )
    wheel = make_wheel(folder, "needed", "1.0")
    shutil.copy(lock_of(folder, wheel), folder / LOCKS["developers"])
    return folder


def set_up(project: Path, kind: str = "users", **environment: str) -> subprocess.Popen[str]:
    """Begin to set a tiny project up, its compiled code being nothing."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(project), "PIP_CONFIG_FILE": os.devnull}
    command = [sys.executable, "-I", project / "scenarios" / "command" / "install.py", kind]
    return subprocess.Popen(
        command,
        env={**os.environ, **offline, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, errors


def heard(process: subprocess.Popen[str], words: str) -> None:
    """Read what a set-up prints, up to a line with these words."""
    assert process.stdout is not None
    while words not in (line := process.stdout.readline()):
        assert line, process.communicate()


def test_of_set_ups_at_once_others_wait_and_the_next_begins_again_after_a_kill(tiny: Path) -> None:
    first = set_up(tiny)
    heard(first, "setting up .venv, once:")
    first.send_signal(signal.SIGSTOP)
    # Also where Python keeps no bytecode, that of the packages is kept.
    second = set_up(tiny, PYTHONDONTWRITEBYTECODE="1")
    heard(second, "another make is setting up .venv: waiting for it")
    first.send_signal(signal.SIGCONT)
    heard(first, "the packages of")
    first.kill()
    first.communicate()
    heard(second, "setting up .venv, once:")
    second.send_signal(signal.SIGSTOP)
    third = set_up(tiny)
    heard(third, "another make is setting up .venv: waiting for it")
    second.send_signal(signal.SIGCONT)
    code, _, errors = outcome(second)
    assert (code, errors) == (0, "")
    assert outcome(third) == outcome(set_up(tiny)) == (0, "", "")
    assert "needed==1.0" in versions(tiny / ".venv" / "bin" / "python")


def test_what_a_machine_lacks_is_said_before_anything_is_made(tiny: Path) -> None:
    code, out, errors = outcome(set_up(tiny, CC="no-such-compiler"))
    assert (code, out) == (2, "")
    assert errors == (
        "canary: there is no working C compiler: apt install gcc libc6-dev, or set CC\n"
    )
    assert not (tiny / ".venv").exists()


def lock_extra(project: Path, extra: str, name: str) -> None:
    (project / extra).mkdir()
    lock_of(project / extra, make_wheel(project, name, "1.0")).rename(project / LOCKS[extra])


@pytest.mark.nightly
def test_where_no_compiler_is_zig_is_installed(tiny: Path, tmp_path: Path) -> None:
    lock_extra(tiny, "compiler", "ziglang")
    programs = tmp_path / "programs"  # what a wheel's scripts need, and no compiler
    programs.mkdir()
    for name in ("sh", "printenv"):
        (programs / name).symlink_to(str(shutil.which(name)))
    code, out, errors = outcome(set_up(tiny, PATH=str(programs), CC=""))
    assert (code, errors) == (0, "")
    assert out.count("takes zig from PyPI") == 1 and "apt install gcc" in out
    assert "ziglang==1.0" in versions(tiny / ".venv" / "bin" / "python")
    assert outcome(set_up(tiny, PATH=str(programs), CC="")) == (0, "", "")


def test_an_extra_is_added_once(tiny: Path) -> None:
    lock_extra(tiny, "plot", "drawing")
    assert outcome(set_up(tiny))[0] == 0
    code, out, errors = outcome(set_up(tiny, "plot"))
    assert (code, out, errors) == (0, f"{EXTRAS['plot']}\n", "")
    found = versions(tiny / ".venv" / "bin" / "python")
    assert "drawing==1.0" in found and "needed==1.0" in found
    assert outcome(set_up(tiny, "plot")) == outcome(set_up(tiny)) == (0, "", "")


def test_uv_is_taken_with_what_pip_is_configured_for_and_pip_where_it_fails(
    tiny: Path, tmp_path: Path
) -> None:
    programs, told = tmp_path / "programs", tmp_path / "told"
    programs.mkdir()
    uv = programs / "uv"
    uv.write_text(f'#!/bin/sh\n(echo "$@"; env) >> {told}\nexit 1\n')
    uv.chmod(0o755)
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nextra-index-url = https://a.example/simple https://b.example/simple\n"
        f"find-links = {tmp_path}/none\ntimeout = 7\n[install]\ntrusted-host = a.example\n"
    )
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    code, _, errors = outcome(
        set_up(tiny, PATH=path, PIP_CONFIG_FILE=str(config), UV_NO_INDEX="no")
    )
    assert (code, errors) == (0, "")
    assert "needed==1.0" in versions(tiny / ".venv" / "bin" / "python")
    lines = told.read_text().splitlines()
    assert any("--require-hashes" in line and line.startswith("pip install") for line in lines)
    assert {
        "UV_EXTRA_INDEX_URL=https://a.example/simple https://b.example/simple",
        f"UV_FIND_LINKS={tiny}",  # of the environment
        "UV_INSECURE_HOST=a.example",
        "UV_NO_INDEX=no",  # the user's own
    } <= {*lines}


@pytest.mark.root
@pytest.mark.beside
def test_a_folder_that_cannot_be_written_is_said(tiny: Path) -> None:
    with tempfile.TemporaryDirectory() as place:  # one that others can look into
        Path(place).chmod(0o755)
        shutil.move(tiny, place)
        code, _, errors = outcome(set_up(Path(place, "tiny"), SUDO_UID="65534", SUDO_GID="65534"))
    assert code == 2 and f"{place}/tiny cannot be written" in errors


@pytest.mark.nightly  # `test_bundle.py` has the quick ones
def test_a_bundle_is_set_up_from_its_own_wheels(tiny: Path, tmp_path: Path) -> None:
    wheels = tiny / "bundle" / "wheels"
    wheels.mkdir(parents=True)
    [wheel] = tiny.glob("needed-1.0-*.whl")
    wheel.rename(wheels / wheel.name)
    elsewhere = {"PIP_FIND_LINKS": str(tmp_path / "none"), "PIP_NO_INDEX": "1"}
    code, _, errors = outcome(set_up(tiny, **elsewhere))
    assert (code, errors) == (0, "")
    assert "needed==1.0" in versions(tiny / ".venv" / "bin" / "python")
