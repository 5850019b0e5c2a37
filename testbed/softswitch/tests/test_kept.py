# SPDX-License-Identifier: Apache-2.0
"""A program that was translated before is taken from the cache, and only what was put there."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from canary_softswitch import Program, Switch
from canary_softswitch.compiler import source
from canary_softswitch.compiler.source import translate
from testbed.softswitch.tests.conftest import PROGRAMS

ROUTER = PROGRAMS / "router.json"
DATA = ROUTER.read_bytes()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "canary-softswitch"


@pytest.fixture
def with_libraries(load: Callable[..., Program], tmp_path: Path) -> None:
    """The cache has the compiled code of the program, but nothing of its translation."""
    (tmp_path / "canary-softswitch").mkdir()
    for observed in (None, "meta.verdict"):
        library = Path(load("router", observed).lib._name)
        for file in (library, library.with_suffix(".sha256")):
            shutil.copy(file, tmp_path / "canary-softswitch")


def count(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that are translated from now on."""
    done: list[str] = []
    really = source._translate

    def translated(data: bytes, path: str, *rest: object) -> source.Source:
        done.append(path)
        return really(data, path, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(source, "_translate", translated)
    return done


def test_the_same_is_translated_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = count(monkeypatch)
    first, again = translate(DATA, "a.json"), translate(DATA, "b.json")
    assert done == ["a.json"] and again.definition.path == "b.json"
    assert again.generated == first.generated and again.head_bytes == first.head_bytes
    again.definition.path = "a.json"
    assert again.definition == first.definition
    translate(DATA + b"\n", "c.json")
    translate(DATA, "d.json", drop_port=100)
    translate(DATA, "e.json", observe="meta.verdict")
    assert done == ["a.json", "c.json", "d.json", "e.json"]
    assert len(list(cache.glob("*.program"))) == 4


def test_another_code_translates_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translate(DATA, "a.json")
    done = count(monkeypatch)
    monkeypatch.setattr(source, "_translator", lambda: b"newer")
    translate(DATA, "a.json")
    assert done == ["a.json"]


class Trap:
    """What runs a command when it is unpickled."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.mkdir, (self.made,)


def damaged(file: Path, made: Path) -> None:
    file.write_bytes(pickle.dumps(Trap(made)))


def writable(file: Path, made: Path) -> None:
    damaged(file, made)
    file.with_suffix(".sha256").write_text(source.hashlib.sha256(file.read_bytes()).hexdigest())
    file.chmod(0o666)


def shared(file: Path, made: Path) -> None:
    writable(file, made)
    file.chmod(0o644)
    file.parent.chmod(0o777)


def truncated(file: Path, made: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


@pytest.mark.parametrize("damage", [damaged, writable, shared, truncated])
def test_what_others_could_have_put_there_is_not_used(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path, Path], None],
) -> None:
    first = translate(DATA, "a.json")
    (file,) = cache.glob("*.program")
    damage(file, tmp_path / "made")
    done = count(monkeypatch)
    assert translate(DATA, "a.json").code == first.code
    assert done == ["a.json"] and not (tmp_path / "made").exists()


def test_without_a_home_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "none"))
    (tmp_path / "file").touch()
    done = count(monkeypatch)
    assert translate(DATA, "a.json").code == translate(DATA, "a.json").code
    assert done == ["a.json", "a.json"]


def test_a_known_program_needs_no_validation(with_libraries: None, cache: Path) -> None:
    """A switch process would load pydantic before it is ready."""
    code = (
        "import sys; from canary_softswitch import Program; Program.load(sys.argv[1]); "
        "print(*(m for m in ('pydantic', 'canary_softswitch.compiler.codegen') "
        "if m in sys.modules))"
    )
    command = [sys.executable, "-c", code, str(ROUTER)]
    loaded = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert loaded == [["pydantic", "canary_softswitch.compiler.codegen"], []]


def test_a_kept_program_runs_as_the_first(with_libraries: None, cache: Path) -> None:
    packet = bytes(range(12)) + b"\x08\x00\x45" + bytes(40)
    first, kept = (Switch(Program.load(ROUTER, "meta.verdict")) for _ in range(2))
    assert first.process(1, packet) == kept.process(1, packet)
    assert first.observed == kept.observed
