# SPDX-License-Identifier: Apache-2.0
"""Every example of the gallery runs, prints what is kept, and draws a picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.docs.examples import FOLDER, NAMES, OUTPUT, Examples, kept

NIGHTLY = ("02_", "03_", "07_", "11_", "12_")
"""Those that take longest."""


@pytest.fixture(scope="session")
def examples() -> Iterator[Examples]:
    with Examples() as made:
        yield made


def named(name: str) -> object:
    return pytest.param(name, marks=[pytest.mark.nightly] if name.startswith(NIGHTLY) else [])


@pytest.mark.parametrize("name", [named(name) for name in NAMES])
def test_an_example_prints_what_is_kept(name: str, examples: Examples, tmp_path: Path) -> None:
    ran = examples.run(name, tmp_path)
    assert ran.code == 0, ran.errors
    assert ran.printed == kept(name).read_text(), "python -m tests.docs.examples writes it anew"
    pictures = [Image.open(file).convert("L") for file in sorted(tmp_path.glob("*.png"))]
    assert pictures, "it draws nothing"
    for picture in pictures:
        drawn = sum(picture.histogram()[:200]) / (picture.width * picture.height)
        assert 0.005 < drawn < 0.9, "the picture is empty"


def test_examples_and_outputs_belong_together() -> None:
    assert len(NAMES) >= 12
    assert sorted(file.stem for file in OUTPUT.iterdir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_example_has_a_title_and_uses_the_public_names(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    _, opening, title, line, *_ = text.splitlines()  # below the licence
    assert opening == '"""' and line == "=" * len(title)
    for room in ("analysis", "testbed", "scenarios."):
        assert f"from {room}" not in text and f"import {room}" not in text
