# SPDX-License-Identifier: Apache-2.0
"""BMv2 JSONs of a stranger: programs of the tests with names that would break C, and damaged ones.

Every name of a program is replaced by a text that has ``MARK`` in it, and C, shell and line ends
around that. A mutation then changes one to three places at random, which its number decides.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
CANARY = PROGRAMS.parents[3] / "p4" / "build" / "canary.json"
FILES = sorted(PROGRAMS.glob("*.json"))
MARK = "zQ7k"
HOSTILE = '"*/;\n__attribute__((constructor)) void x(void){{abort();}}\n#error $(id)`id`\\\t%s'
KEPT = {"ingress", "egress", "standard_metadata"}
"""Names that mean something; so do those of the fields of standard_metadata."""
WORDS = ("type", "op", "match_type", "algo", "__meta__", "compiler")
"""Keys whose values are no names."""
Step = str | int


def load(path: Path) -> Any:
    """Return a program as JSON has it."""
    return json.loads(path.read_text(encoding="utf-8"))


def renamed(program: Any) -> Any:
    """Return a program whose names are hostile; its parts have the same in common as before."""
    kept = KEPT | {
        field[0]
        for t in program["header_types"]
        if t["name"] == "standard_metadata"
        for field in t["fields"]
    }
    kept |= {name for name, _ in program.get("errors", [])}
    names = {name for name in _declared(program) if name not in kept}
    parts: dict[str, str] = {}

    def new(name: str) -> str:
        if name not in names:
            return name
        return ".".join(
            parts.setdefault(part, f"{MARK}{len(parts)}{HOSTILE}") for part in name.split(".")
        )

    def copied(value: Any, key: Step = "") -> Any:
        if isinstance(value, dict):
            return {new(k) if key == "next_tables" else k: copied(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [copied(v) for v in value]
        if key in ("filename", "source_fragment"):
            return f"{MARK}{HOSTILE}"
        return new(value) if isinstance(value, str) and key not in WORDS else value

    return copied(program)


def _declared(program: Any) -> Iterator[str]:
    """Yield the names that a program gives to anything."""
    for t in program["header_types"]:
        yield from (field[0] for field in t["fields"])
    for t in program.get("header_union_types", []):
        yield from (member[0] for member in t["headers"])
    waiting = [v for k, v in program.items() if k != "__meta__"]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(one.get("name"), str):
                yield one["name"]
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def texts_marked(program: Any) -> Any:
    """Return a program whose ``log_msg`` texts are hostile, too."""
    if isinstance(program, dict):
        if program.get("type") == "string":
            return {
                **program,
                "value": program["value"] + MARK + HOSTILE.replace("{{abort();}}", ""),
            }
        return {k: texts_marked(v) for k, v in program.items()}
    return [texts_marked(v) for v in program] if isinstance(program, list) else program


# ---- mutations ----

NUMBERS = [-1, 0, 1, 2, 3, 7, 8, 64, 65, 127, 128, 129, 255, 511, 1000, 65535, 65536, 1 << 20]
NUMBERS += [2**31 - 1, 2**31, 2**32 - 1, 2**32 + 1, 2**40, 2**63, 2**64, -(2**63), 10**30, 10**4000]
STRINGS = ["", '"', "\n", "*/", "0x", "-0x1", "0x" + "f" * 40, "0x" + "f" * 20000, "*", "default"]
STRINGS += [
    f"1);}}{HOSTILE}{MARK}",
    f"{MARK}{HOSTILE}",
    "0",
    "a" * 2000,
    "\u202e\ud800",
    "%s%n",
    "é",
]
OTHERS: list[Any] = [None, True, False, 1.5, 1e308, [], {}, [[]], [None], {"type": "hexstr"}]
DEEP = "@deep@"


def _places(value: Any, at: tuple[Step, ...] = ()) -> list[tuple[Step, ...]]:
    """Return all places in a program."""
    found, waiting = [], [(at, value)]
    while waiting:
        at, one = waiting.pop()
        found.append(at)
        if isinstance(one, dict):
            waiting += [((*at, k), v) for k, v in one.items() if k != "source_info"]
        elif isinstance(one, list):
            waiting += [((*at, i), v) for i, v in enumerate(one)]
    return found


def _get(program: Any, at: tuple[Step, ...]) -> Any:
    for step in at:
        program = program[step]
    return program


def _set(program: Any, at: tuple[Step, ...], value: Any) -> None:
    _get(program, at[:-1])[at[-1]] = value


class _Base:
    """A program to mutate: its text, its places and what stands there."""

    def __init__(self, path: Path) -> None:
        program = texts_marked(renamed(load(path)))
        self.text = json.dumps(program)
        self.places = [at for at in _places(program) if at]
        self.strings = [at for at in self.places if isinstance(_get(program, at), str)]
        self.numbers = [at for at in self.places if type(_get(program, at)) is int]
        self.lists = [at for at in self.places if isinstance(_get(program, at), list)]


_base = cache(_Base)


def mutated(number: int, files: list[Path]) -> tuple[str, bytes]:
    """Return the name of a program and its text with some places changed."""
    rng = random.Random(f"mutation {number}")
    path = rng.choice(files)
    base = _base(path)
    program = json.loads(base.text)
    deep = ""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(CHANGES)
        try:
            deep = change(rng, base, program) or deep
        except (KeyError, IndexError, TypeError, AttributeError, StopIteration):
            continue  # an earlier change took that place away
    text = json.dumps(program)
    return path.stem, text.replace(f'"{DEEP}"', deep).encode()


def _replace(rng: random.Random, base: _Base, program: Any) -> None:
    _set(program, rng.choice(base.places), rng.choice(rng.choice([NUMBERS, STRINGS, OTHERS])))


def _replace_number(rng: random.Random, base: _Base, program: Any) -> None:
    at = rng.choice(base.numbers)
    near = _get(program, at) + rng.choice([-1, 1, 2, 8])
    _set(
        program,
        at,
        rng.choice([near, rng.choice(NUMBERS), _get(program, rng.choice(base.numbers))]),
    )


def _replace_string(rng: random.Random, base: _Base, program: Any) -> None:
    other = _get(program, rng.choice(base.strings))
    _set(program, rng.choice(base.strings), rng.choice([other, other, other, rng.choice(STRINGS)]))


def _delete(rng: random.Random, base: _Base, program: Any) -> None:
    at = rng.choice(base.places)
    del _get(program, at[:-1])[at[-1]]


def _duplicate(rng: random.Random, base: _Base, program: Any) -> None:
    there = _get(program, rng.choice(base.lists))
    there.insert(rng.randrange(len(there) + 1), rng.choice(there))


def _shuffle(rng: random.Random, base: _Base, program: Any) -> None:
    rng.shuffle(_get(program, rng.choice(base.lists)))


def _swap(rng: random.Random, base: _Base, program: Any) -> None:
    """Exchange two values of one type."""
    a = rng.choice(base.places)
    kind = type(_get(program, a))
    b = next(b for b in rng.choices(base.places, k=50) if type(_get(program, b)) is kind)
    x, y = _get(program, a), _get(program, b)
    if a[: len(b)] != b and b[: len(a)] != a:
        _set(program, a, y)
        _set(program, b, x)


def _swap_alike(rng: random.Random, base: _Base, program: Any) -> None:
    """Exchange two values under the same key: references to others of the same kind."""
    a = rng.choice(base.places)
    alike = [b for b in rng.choices(base.places, k=2000) if b[-1] == a[-1] and b != a]
    b = rng.choice(alike)
    if a[: len(b)] != b and b[: len(a)] != a:
        x, y = _get(program, a), _get(program, b)
        _set(program, a, y)
        _set(program, b, x)


def _nest(rng: random.Random, base: _Base, program: Any) -> str:
    """Put a value into many others, more than any program has."""
    at = rng.choice(base.places)
    inner = json.dumps(_get(program, at))
    n = rng.choice([20, 90, 190, 250, 600, 5000])
    before, after = rng.choice(
        [
            ("[", "]"),
            ('{"a":', "}"),
            ('{"type":"expression","value":', "}"),
            ('{"op":"~","left":null,"right":', "}"),
            (
                '{"type":"expression","value":{"op":"+","left":{"type":"hexstr","value":"0x1"},"right":',
                "}}",
            ),
            ('{"op":"==","right":{"type":"bool","value":true},"left":', "}"),
        ]
    )
    _set(program, at, DEEP)
    return before * n + inner + after * n


CHANGES: list[Callable[[random.Random, _Base, Any], str | None]] = [
    *(_replace, _replace_number, _replace_number, _replace_string, _replace_string),
    *(_delete, _duplicate, _shuffle, _swap, _swap_alike, _swap_alike, _nest),
]
