# SPDX-License-Identifier: Apache-2.0
"""Wrong files, no compiler, the cache, names of fields, hostile packets, speed."""

from __future__ import annotations

import ctypes
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from canary_softswitch import (
    CompileError,
    InvalidProgram,
    NoCompiler,
    Program,
    SoftSwitchError,
    Switch,
    SwitchFault,
)
from canary_softswitch.compiler import build
from tests.programs import needs

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(p.stem for p in PROGRAMS.glob("*.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "not a BMv2 JSON"),
        ("{}", "not a BMv2 JSON"),
        (
            '{"header_types": 3, "headers": [], "parsers": [], "deparsers": [], "actions": [], '
            '"pipelines": []}',
            "not a valid BMv2 JSON",
        ),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SoftSwitchError, match=message) as e:
        Program.load(path)
    assert "\n" not in str(e.value)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(SoftSwitchError, match="cannot read"):
        Program.load(tmp_path / "none.json")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SoftSwitchError, match="UTF-8"):
        Program.load(tmp_path / "b.json")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("a kind without its mask", r"match_key\[0\]: it has no 'mask'"),
        ("another kind", r"match_key\[0\]\.match_type: the key '[\w.]+' is \w+"),
        ("no key", r"match_key\[0\]: it has no 'key'"),
        ("no parameters", r"action_entry\.action_id: action \d+ takes 1 parameters, not 0"),
        ("too wide", r"match_key\[0\]\.key: it does not fit in the \d+ bits"),
        ("twice", r"match_key: another const entry has the same match"),
    ],
)
def test_damaged_const_entries_are_one_line(tmp_path: Path, damage: str, message: str) -> None:
    root = json.loads((PROGRAMS / "router.json").read_text())
    tables = [t for pipe in root["pipelines"] for t in pipe["tables"]]
    entries = next(t["entries"] for t in tables if t.get("entries"))
    entry = entries[0]
    if damage == "no parameters":
        entry["action_entry"]["action_data"].clear()
    elif damage == "no key":
        del entry["match_key"][0]["key"]
    elif damage == "too wide":
        entry["match_key"][0]["key"] = "0x100000000000"
    elif damage == "twice":
        entries.append(entry)
    elif damage == "another kind":
        entry["match_key"][0].update(match_type="range", start="0x0", end="0x1")
    else:
        entry["match_key"][0].update(match_type="ternary")
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(root))
    with pytest.raises(InvalidProgram, match=rf"tables\[\d+\]\.entries\[\d\]\.{message}") as e:
        Program.load(path)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("kind", ["headers", "header_union_types", "header_union_stacks"])
def test_two_of_one_name_are_refused(tmp_path: Path, kind: str) -> None:
    root = json.loads((PROGRAMS / "unions.json").read_text())
    root[kind].append(root[kind][0])
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(root))
    with pytest.raises(SoftSwitchError, match=f"two of {kind} have the same name"):
        Program.load(path)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setitem(sys.modules, "ziglang", None)
    with pytest.raises(NoCompiler, match=r"cc, gcc, clang.*install"):
        build.compiler()
    monkeypatch.setenv("CC", "no-such-cc -O3")
    with pytest.raises(NoCompiler, match="no-such-cc"):
        build.compiler()
    monkeypatch.setenv("CC", '"')
    with pytest.raises(NoCompiler, match='CC=" is not a command: no closing quotation; use CC=gcc'):
        build.compiler()


def test_cache_is_used_and_keyed(
    load: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load("selector")

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(build.tempfile, "TemporaryDirectory", refuse)
    again = Program.load(PROGRAMS / "selector.json")
    assert again.lib._name == first.lib._name
    with pytest.raises(AssertionError):
        Program.load(PROGRAMS / "selector.json", observe="k.verdict")


def test_c_files_include_files(tmp_path: Path) -> None:
    """Files beside a file and the switch's own are put in, once: the text decides alone."""
    (tmp_path / "twice.h").write_text("static int twice(int x) { return 2 * x; }\n")
    (tmp_path / "middle.h").write_text('#include "twice.h"\n')
    main = tmp_path / "main.c"
    main.write_text(
        '#include <stdint.h>\n#include "middle.h"\n#include "twice.h"\n#include "abi.h"\n'
        "int four(int x) { return twice(twice(x)) + SS_OK; }\n"
        "void set(uint64_t *to, uint64_t value) { *to = value; }\n"
    )
    signatures = {
        "four": (ctypes.c_int, ctypes.c_int),
        "set": (None, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint64),
    }
    library = build.load_library(build.read_c(main), signatures)
    assert library.four(3) == 12
    value = ctypes.c_uint64()
    library.set(ctypes.byref(value), 2**63 + 1)
    assert value.value == 2**63 + 1
    (tmp_path / "twice.h").write_text("static int twice(int x) { return 3 * x; }\n")
    assert build.load_library(build.read_c(main), signatures).four(3) == 27


def test_refused_c_names_the_error() -> None:
    with pytest.raises(CompileError, match="error.*nonsense"):
        build.load_library("int f(void) { return nonsense; }\n", {})


@pytest.mark.parametrize("name", ["meta.verdict", "verdict", "scalars.metadata.verdict"])
def test_observe_names(load: Callable[..., Program], name: str) -> None:
    sw = Switch(load("router", name))
    sw.process(0, b"")
    assert sw.observed == 200


def test_observe_refuses_wide_and_ambiguous(load: Callable[..., Program]) -> None:
    with pytest.raises(SoftSwitchError, match="ambiguous"):
        load("router", "src")
    with pytest.raises(SoftSwitchError, match="104 bits"):
        load("matching", "k.wide")


@pytest.mark.parametrize("name", NAMES)
def test_hostile_packets(load: Callable[..., Program], name: str) -> None:
    sw = Switch(load(name))
    rng = random.Random(name)
    sw.set_mirror(5, 3)
    sw.set_multicast_group(1, [(q, q) for q in range(60)])
    packets = [
        bytes(rng.getrandbits(8) for _ in range(rng.choice([0, 1, 7, 20, 50, 200])))
        for _ in range(400)
    ]
    packets += [bytes([rng.randrange(13), rng.randrange(4)]) + p for p in packets]
    packets += [bytes(12) + b"\x08\x00\x45" + p for p in packets[:200]]
    for p in packets:
        try:
            out = sw.process(rng.randrange(512), p, rng.getrandbits(40))
        except SwitchFault:
            continue
        assert all(0 <= port < 512 for port, _ in out)
    sw.digests()


def test_switches_are_independent_and_cheap(load: Callable[..., Program]) -> None:
    switches = [Switch(load("speed")) for _ in range(200)]
    switches[3].register("I.r0")[0] = 5
    switches[3].table("I.routes").add([(0, 0)], "forward", [1])
    assert switches[4].register("I.r0")[0] == 0
    assert len(switches[4].table("I.routes")) == 0


@needs("p4c-bm2-ss")
@pytest.mark.parametrize("name", NAMES)
def test_committed_json_is_what_p4c_makes(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out.json"
    subprocess.run(
        ["p4c-bm2-ss", "--std", "p4-16", "-o", str(out), f"{name}.p4"],
        cwd=PROGRAMS,
        check=True,
        capture_output=True,
    )
    made, kept = json.loads(out.read_text()), json.loads((PROGRAMS / f"{name}.json").read_text())
    for key in ("header_types", "actions", "pipelines", "parsers", "deparsers"):
        assert made[key] == kept[key]
