# SPDX-License-Identifier: Apache-2.0
"""Commands go on without the packages that only draw, and say what the others lack."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from canary_softswitch import NoCompiler
from canary_softswitch.compiler import build
from canary_softswitch.compiler.build import compiler
from scenarios.command import compilers, install
from scenarios.command.compilers import need_compiler
from scenarios.extras import NO_PICTURE, can_draw
from scenarios.papers.reproduce import was_run
from testbed.errors import UserError
from testbed.network.requirements import IP
from tests.scenarios.conftest import Canary, refused

RUN = ("K=4", "EPOCHS=1", "LOAD=0.01", "METHODS=canary")


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        for there in [each for each in sys.modules if each.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, there)
        monkeypatch.setitem(sys.modules, name, None)


def test_a_comparison_goes_on_without_its_picture(
    canary: Canary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "compared"
    command = ("compare", "SEEDS=1", f"OUT={out}", *RUN)
    first = canary(*command)
    assert first.code == 0 and (out / "f1.png").exists() and NO_PICTURE not in first.out
    without(monkeypatch, "matplotlib")
    assert not can_draw()
    again = canary(*command)
    assert again.code == 0 and NO_PICTURE in again.out and "f1.png" not in again.out
    assert not list(out.glob("f1.*")) and (out / "results.parquet").exists()


def test_a_reproduction_goes_on_without_its_figure(
    canary: Canary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without(monkeypatch, "matplotlib")
    out = tmp_path / "out"
    result = canary("reproduce", "FIG=canary-table-2", "DRAWS=2", f"OUT={out}")
    assert result.code == 0 and result.out.count(NO_PICTURE) == 1, result
    there = {path.name for path in (out / "canary-table-2").iterdir()}
    assert {"index.html", "table.md"} <= there and not there & {
        "figure.png",
        "figure.svg",
        "figure.pdf",
    }
    from scenarios.papers.registry import EXPERIMENTS

    assert was_run(EXPERIMENTS["canary-table-2"], out)


@pytest.mark.parametrize(
    "words",
    [("net", "K=4"), ("export-lab", "K=4"), ("run", "BACKEND=softswitch", "SUDO=0", *RUN)],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("name", ["mininet", "p4runtime_sh", "pyroute2"])
def test_real_packets_need_their_packages(
    words: tuple[str, ...],
    name: str,
    canary: Canary,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scenarios.experiment.backends.forbidden", lambda: "")
    monkeypatch.setattr("testbed.network.requirements.MNEXEC", IP)
    without(monkeypatch, name)
    wanted = f"Python's {name} is not installed: pip install 'canary-testbed[real]'"
    refused(canary(*words), (words[0] == "run" and IP.lacking) or wanted)
    assert not [*tmp_path.iterdir()]


def test_a_cluster_needs_dask(
    canary: Canary, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without(monkeypatch, "dask", "distributed")
    result = canary(
        "compare", "SEEDS=1", f"OUT={tmp_path / 'x'}", "CLUSTER=tcp://127.0.0.1:1", *RUN
    )
    refused(result, "needs Dask", "make setup-cluster")


@pytest.fixture
def _no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    without(monkeypatch, "ziglang")


@pytest.mark.usefixtures("_no_compiler")
def test_zig_is_installed_where_no_compiler_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compilers, "ROOT", tmp_path)
    with pytest.raises(NoCompiler, match="install gcc"):  # in an environment that is not make's
        need_compiler()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    added = []

    def add_extra(root: Path, extra: str) -> None:
        added.append((root, extra))
        (tmp_path / "ziglang").mkdir()
        (tmp_path / "ziglang" / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, "ziglang")
        monkeypatch.syspath_prepend(str(tmp_path))

    monkeypatch.setattr(compilers, "add_extra", add_extra)
    need_compiler()
    assert added == [(tmp_path, "compiler")]
    assert compiler() == [os.path.realpath(tmp_path / "ziglang" / "zig"), "cc"]
    need_compiler()
    assert len(added) == 1
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(NoCompiler, match="no-such-compiler"):
        need_compiler()


@pytest.mark.usefixtures("_no_compiler")
def test_zig_is_not_needed_where_a_wheel_holds_compiled_libraries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "PREBUILT", tmp_path)
    need_compiler()
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(NoCompiler, match="no-such-compiler"):
        need_compiler()


@pytest.mark.usefixtures("_no_compiler")
def test_what_kept_zig_from_being_installed_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def add_extra(root: Path, extra: str) -> None:
        raise install.InstallError("canary: this failed, see above: pip")

    monkeypatch.setattr(compilers, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(compilers, "add_extra", add_extra)
    with pytest.raises(UserError, match="^this failed, see above: pip$"):
        need_compiler()
