# SPDX-License-Identifier: Apache-2.0
"""The walks of a packet and of an epoch, in docs/learn, name what there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STEP = re.compile(r"^\d+\. ", re.MULTILINE)
PLACE = re.compile(r"`([\w/.]+\.(?:py|c|h|p4))\s+([\w.]+)`")


def walk(page: str) -> list[tuple[str, str]]:
    """(file, name) of every place a walk passes, in its order."""
    steps = STEP.split((ROOT / "docs" / "learn" / f"{page}.md").read_text())[1:]
    places = [PLACE.findall(step) for step in steps]
    assert all(places), "a step without a place in the code"
    return [place for step in places for place in step]


PLACES = [*walk("packet"), *walk("epoch")]


def names(path: Path) -> set[str]:
    """What a file defines: functions, classes, ``Class.method``, constants; P4's controls."""
    text = re.sub(r"__attribute__\(\(\w+\)\) ", "", path.read_text())
    if path.suffix == ".p4":
        return set(re.findall(r"^(?:control|parser) (\w+)\(", text, re.MULTILINE))
    if path.suffix in (".c", ".h"):
        return set(re.findall(r"^\w[\w\s*]*?\b(\w+)\([^;]*$", text, re.MULTILINE))
    found = set()
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name, body=body):
                methods = (each.name for each in body if isinstance(each, ast.FunctionDef))
                found |= {name, *(f"{name}.{method}" for method in methods)}
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case _:
                pass
    return found


@pytest.mark.parametrize(("file", "name"), dict.fromkeys(PLACES))
def test_the_walks_name_what_exists(file: str, name: str) -> None:
    assert name in names(ROOT / file)
