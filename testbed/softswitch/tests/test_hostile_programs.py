# SPDX-License-Identifier: Apache-2.0
"""Programs of a stranger, mutated at random: refused in one line, or C without a word of theirs."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from canary_softswitch.compiler.source import Source, _translate
from canary_softswitch.errors import InvalidProgram, UnsupportedProgram
from testbed.softswitch.tests import mutate

ALL = [*mutate.FILES, *mutate.FILES, mutate.CANARY]
"""The large program takes as long as twenty others."""


def translated(data: bytes) -> Source:
    """The C of a program, which is not looked for in the cache."""
    return _translate(data, "stranger.json", None, 511)


def accepted(numbers: Iterable[int], ends: Counter[str]) -> Iterator[tuple[int, bytes, Source]]:
    """Mutations that make a program; the others are refused as they should be, and counted."""
    for number in numbers:
        _, data = mutate.mutated(number, ALL)
        try:
            source = translated(data)
        except (InvalidProgram, UnsupportedProgram) as e:  # anything else is a defect
            message = str(e)
            assert message and message.isprintable() and len(message) < 1100, number
            ends[type(e).__name__] += 1
            continue
        assert mutate.MARK not in source.code, number
        ends["accepted"] += 1
        yield number, data, source


def compiles(code: str, folder: Path) -> None:
    """The C compiler accepts a program."""
    file = folder / "program.c"
    file.write_text(code)
    done = subprocess.run(
        ["gcc", "-std=gnu11", "-fsyntax-only", "-Werror=shift-count-overflow", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.parametrize("path", [*mutate.FILES, mutate.CANARY], ids=lambda p: p.stem)
def test_c_is_the_same_whatever_the_names(path: Path) -> None:
    program = mutate.load(path)
    code = translated(json.dumps(program).encode()).code
    names = translated(json.dumps(mutate.renamed(program)).encode()).code
    assert names == code
    texts = mutate.texts_marked(mutate.renamed(program))
    assert mutate.MARK not in translated(json.dumps(texts).encode()).code


def test_mutated_programs(tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    made = {source.code for _, _, source in accepted(range(400), ends)}
    assert min(ends["accepted"], ends["InvalidProgram"], ends["UnsupportedProgram"]) > 10, ends
    for code in sorted(made)[:: len(made) // 6]:
        compiles(code, tmp_path)


@pytest.mark.nightly
def test_many_mutated_programs(tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    seen: set[str] = set()
    for number, _, source in accepted(range(1000, 31_000), ends):
        if source.code not in seen and number % 5 == 0:
            compiles(source.code, tmp_path)
        seen.add(source.code)
    print(dict(ends), f"{len(seen)} different programs")
    assert sum(ends.values()) == 30_000


def test_a_key_without_bits(tmp_path: Path) -> None:
    """Its value was shifted by the 64 bits of its word, which C leaves undefined."""
    program = mutate.load(mutate.PROGRAMS / "rates.json")
    program["header_types"][2]["fields"][0][1] = 0
    compiles(translated(json.dumps(program).encode()).code, tmp_path)
