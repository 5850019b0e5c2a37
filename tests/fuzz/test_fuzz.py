# SPDX-License-Identifier: Apache-2.0
"""The corpus: mutations that were found to matter. And what a sanitizer sees is reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.softswitch.tests import mutate
from testbed.softswitch.tests.test_sanitizers import LACKING
from tests.fuzz import programs

CORPUS = json.loads((Path(__file__).parent / "corpus.json").read_text())
FEW = [file for file in mutate.FILES if file.stem != "speed"]
pytestmark = pytest.mark.skipif(bool(LACKING), reason=LACKING)


@pytest.mark.parametrize(
    "numbers",
    [CORPUS["programs"], pytest.param(list(range(200)), marks=pytest.mark.nightly)],
    ids=["corpus", "more"],
)
def test_programs(numbers: list[int]) -> None:
    figures = programs.fuzz(numbers, files=FEW)
    assert sum(figures.ends.values()) == len(numbers)
    assert not figures.reports, figures.reports


def test_a_byte_beside_a_packet_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wrong = programs.PACKETS_C.read_text().replace("sum += result", "sum += data[length] + result")
    (tmp_path / "packets.c").write_text(wrong)
    monkeypatch.setattr(programs, "PACKETS_C", tmp_path / "packets.c")
    repeater = [file for file in mutate.FILES if file.stem == "repeater"]
    figures = programs.fuzz(range(40), files=repeater, packets=400)
    assert figures.reports and "heap-buffer-overflow" in figures.reports[0]
