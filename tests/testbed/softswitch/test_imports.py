# SPDX-License-Identifier: Apache-2.0
"""Inside the soft switch imports run one way: compiler <- runtime <- server, and in no circle."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import testbed.softswitch

ROOM = Path(testbed.softswitch.__file__).parent
NAME = "testbed.softswitch"
FLOORS = ("errors", "compiler", "runtime", "server")


@cache
def imports() -> dict[str, set[str]]:
    """The modules of the room that each one imports, anywhere in it."""
    files = {
        ".".join((NAME, *p.relative_to(ROOM).with_suffix("").parts)).removesuffix(".__init__"): p
        for p in ROOM.rglob("*.py")
    }
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        found[module] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
            elif isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            found[module] |= {n for n in names if n in files}
    return found


def floor(module: str) -> int:
    return FLOORS.index(module.split(".")[2])


def test_imports_run_down() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, others in imports().items()
        for other in others
        if module != NAME and other != NAME and floor(other) > floor(module)
    ]
    assert not wrong


def test_no_module_needs_the_public_face() -> None:
    assert not [m for m, others in imports().items() if NAME in others]


def test_no_circle() -> None:
    TopologicalSorter(imports()).prepare()
