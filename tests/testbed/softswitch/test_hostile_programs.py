# SPDX-License-Identifier: Apache-2.0
"""Programs of a stranger, mutated at random: refused in one line, or C without a word of theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from testbed.softswitch.compiler.source import Source, _translate
from testbed.softswitch.errors import InvalidProgram, UnsupportedProgram
from tests.testbed.softswitch import mutate
from tests.testbed.softswitch.test_sanitizers import SANITIZERS, runtime

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
            said = str(e)
            assert said and said.isprintable() and len(said) < 1100, number
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
        ["gcc", "-std=gnu11", "-fsyntax-only", str(file)], capture_output=True, text=True
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


RUN = """
import random, sys
from testbed.softswitch import Program, SoftSwitchError, Switch, SwitchFault
rng = random.Random(1)
sw = Switch(Program.load(sys.argv[1]))
sw.set_mirror(5, 3, truncate=9)
sw.set_multicast_group(1, [(1, 1), (2, 2)])
for name in sw.program.registers:
    sw.register(name)[-1:] = 1
for i in range(300):
    size = rng.choice([0, 1, 5, 20, 60, 600, 60000 if i % 100 == 0 else 30])
    data = bytes([rng.randrange(16), rng.randrange(16) * 8]) + rng.randbytes(size)
    try:
        sw.process(rng.randrange(512), data[: rng.choice([1, size, size + 2])], i)
    except SwitchFault:
        pass
sw.digests()
"""


@pytest.mark.nightly
@pytest.mark.skipif(not runtime(), reason="gcc or its sanitizers' library is not there")
def test_mutated_programs_run_without_a_report(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CC": f"gcc -O1 {SANITIZERS}",
        "LD_PRELOAD": runtime(),
        "ASAN_OPTIONS": "detect_leaks=0:max_allocation_size_mb=4096",
        "PYTHONMALLOC": "malloc",  # each packet in memory of its own
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    seen: set[str] = set()
    for number, data, source in accepted(range(40_000, 60_000), Counter()):
        if source.code in seen:
            continue
        seen.add(source.code)
        path = tmp_path / f"{number}.json"
        path.write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(path)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{number}: {done.stderr[-2000:]}"
        if len(seen) == 60:
            break
