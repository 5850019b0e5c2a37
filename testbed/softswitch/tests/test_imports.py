# SPDX-License-Identifier: Apache-2.0
"""Inside the soft switch imports run one way, in no circle, and nowhere else in this project."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import canary_softswitch

ROOM = Path(canary_softswitch.__file__).parent
NAME = "canary_softswitch"
COMPILER = {"errors", "caches"}
RUNTIME = {"errors", "compiler"}
PORTS = RUNTIME | {"runtime"}
DEVICE = PORTS | {"limits", "ports"}
SERVERS = DEVICE | {"device"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "caches": set(),
    "limits": set(),
    "compiler": COMPILER,
    "runtime": RUNTIME,
    "ports": PORTS,
    "device": DEVICE,
    "p4runtime": SERVERS,
    "thrift": SERVERS,
    "process": SERVERS | {"p4runtime", "thrift"},
}
"""For each room the rooms it may import."""
OTHERS = {"analysis", "canary", "scenarios", "testbed", "tests"}


@cache
def names() -> dict[str, set[str]]:
    """The names that each module of the package imports, anywhere in it."""
    found: dict[str, set[str]] = {}
    for path in ROOM.rglob("*.py"):
        parts = (NAME, *path.relative_to(ROOM).with_suffix("").parts)
        imported = found.setdefault(".".join(parts).removesuffix(".__init__"), set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
            elif isinstance(node, ast.Import):
                imported |= {a.name for a in node.names}
    return found


def imports() -> dict[str, set[str]]:
    """The modules of the package that each one imports, not the package itself."""
    return {module: imported & names().keys() - {NAME} for module, imported in names().items()}


def room(module: str) -> str:
    return module.split(".")[1]


def test_every_room_is_in_the_plan() -> None:
    assert {room(module) for module in imports() if module != NAME} == MAY_IMPORT.keys()


def test_imports_run_down() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, others in imports().items()
        for other in others
        if module != NAME and room(other) not in {room(module)} | MAY_IMPORT[room(module)]
    ]
    assert not wrong
    list(TopologicalSorter(MAY_IMPORT).static_order())


def test_nothing_of_the_testbed_is_imported() -> None:
    assert not {name for each in names().values() for name in each if name.split(".")[0] in OTHERS}


def test_no_module_needs_the_public_face() -> None:
    public = {f"{NAME}.{name}" for name in canary_softswitch.__all__}
    assert (
        not {name for each in [names()[m] for m in names() if m != NAME] for name in each} & public
    )


def test_no_circle() -> None:
    TopologicalSorter(imports()).prepare()
