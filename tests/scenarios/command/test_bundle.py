# SPDX-License-Identifier: Apache-2.0
"""A bundle has all that a machine without network needs to set the project up and run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from canary_softswitch.compiler.build import kept
from scenarios.command import bundle as bundles
from scenarios.command import warm_up
from scenarios.command.bundle import BundleError, make_bundle
from tests.patience import PATIENCE_S
from tests.same_run import compare
from tests.scenarios.conftest import Canary

ROOT = Path(__file__).parents[3]
RUN = ("FAULTS=10pct", "K=4", "BACKEND=virtual")
ALONE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
"""The command under which a process has no network, not even itself."""


def test_a_folder_that_is_no_clone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(BundleError, match="git failed: .*not a git repository"):
        make_bundle(out, lambda step: None)
    assert not list(out.iterdir())


def test_what_is_compiled_in_a_bundle_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(warm_up, "ROOT", tmp_path)
    monkeypatch.setattr(warm_up, "compile_all", lambda files, progress: None)
    monkeypatch.setattr(warm_up, "smallest_run", lambda: None)
    compiled = warm_up.bundled(tmp_path, "compiled")
    compiled.mkdir(parents=True)
    (compiled / "abc.so").write_bytes(b"library")
    warm_up.warm_up(lambda what, share: None)
    assert kept("abc.so") == b"library"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the last commit; skipped where this is no clone or the packages are out of
    reach."""
    try:
        return make_bundle(tmp_path_factory.mktemp("bundle"), lambda step: None)
    except BundleError as error:
        pytest.skip(f"no bundle can be made here: {error}")


@pytest.mark.nightly
def test_a_bundle_is_set_up_and_run_without_network(
    bundle: Path, tmp_path: Path, canary: Canary
) -> None:
    reach = "import socket; socket.create_connection(('192.0.2.1', 9))"
    probe = [*ALONE, sys.executable, "-c", reach]
    if b"unreachable" not in subprocess.run(probe, capture_output=True, check=False).stderr:
        pytest.skip("a process cannot be without network here")
    subprocess.run(["tar", "-xf", bundle, "-C", tmp_path], check=True)
    home = tmp_path / "home"
    home.mkdir()
    given = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    done = subprocess.run(
        [*ALONE, "make", f"PYTHON={sys.executable}", "scenario", *RUN, "RUN=runs/one"],
        cwd=tmp_path / "canary",
        env=given | {"HOME": str(home), "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    compiled = {path.name for path in (tmp_path / "canary" / "bundle" / "compiled").iterdir()}
    assert {path.name for path in (home / ".cache").rglob("*.so")} == compiled
    assert canary("run", *RUN, f"RUN={tmp_path / 'here'}").code == 0
    assert not compare(tmp_path / "canary" / "runs" / "one", tmp_path / "here").wrong
