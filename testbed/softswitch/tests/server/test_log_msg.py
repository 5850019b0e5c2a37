# SPDX-License-Identifier: Apache-2.0
"""``log_msg``: what a program writes into the log, and what simple_switch writes there."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from canary_softswitch import Program, Switch
from canary_softswitch.compiler.codegen_log import WrongFormat, pieces
from canary_softswitch.errors import UnsupportedProgram
from canary_softswitch.ports.ports import Capture, Log, Port, Ports
from testbed.softswitch.tests.conftest import PROGRAMS
from testbed.softswitch.tests.test_simple_switch import PORTS, reference
from tests.programs import needs

WIDTHS = {"b": 8, "i": -8, "l": 64, "w": 128, "s": -100, "rest": 28, "bytes": 320, "most": -200}
WIDTHS["n"] = 8  # of logs.p4; negative: signed


def packet(rng: random.Random) -> tuple[bytes, dict[str, int]]:
    """A packet and its fields, which are often the least or the largest."""
    fields, whole = {}, 0
    for name, width in WIDTHS.items():
        bits = abs(width)
        top = 1 << bits - 1
        value = rng.choice([0, 1, top - 1, top, 2 * top - 1, *(rng.getrandbits(bits),) * 4])
        whole = whole << bits | value
        fields[name] = value - 2 * top if width < 0 and value >= top else value
    size = sum(map(abs, WIDTHS.values())) // 8
    return whole.to_bytes(size, "big"), fields


def expected(f: dict[str, int], length: int) -> list[str]:
    """The lines of one packet."""
    return [
        f"parser: {f['b']}",
        "ingress: to port 1 by -3, 1 -3",
        f'ingress: {{ {f["i"]}}} "100%s" ? 1 {int(f["b"] > 100)}',
        "ingress: (" + ",".join(f"{name}:{value}" for name, value in f.items()) + ")",
        f"ingress: {f['bytes']} and {f['most']} and {(f['w'] + 1) % (1 << 128)}",
        f"ingress: {f['b'] << 8 | f['n']}",
        f"ingress: {(f['i'] + 127) % 256 - 128}",
        "ingress: nothing to tell, ü",
        f"egress: {length} bytes {f['l']}",
        f"deparser: {f['s']}",
    ]


def logged(program: Program, packets: Sequence[bytes], tmp_path: Path, level: str) -> list[str]:
    """Lines of the log, from their level's letter on."""
    log = Log(str(tmp_path / "log"), level)
    interfaces = [Port(i, str(tmp_path / f"x{i}")) for i in (0, 1)]
    ports = Ports(interfaces, capture=Capture(files=True), log=log)
    switch = Switch(program)
    ports.attach(switch)
    for data in packets:
        ports.inject(0, data)
    ports.close()
    for data in packets[:1]:
        switch.process(0, data)  # the log is closed
    return lines_of(Path(f"{log.file}.txt"))


def lines_of(file: Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [f"{line.split('] ')[2][1:]} {line.split('] ', 4)[-1]}" for line in lines]


def test_lines_of_a_program(load: Callable[..., Program], tmp_path: Path) -> None:
    made = [packet(random.Random(i)) for i in range(100)]
    lines = logged(load("logs"), [p for p, _ in made], tmp_path, "info")
    assert lines == [f"I {x}" for p, f in made for x in expected(f, len(p))]


def test_level_keeps_lines_away(load: Callable[..., Program], tmp_path: Path) -> None:
    made, _ = packet(random.Random(1))
    assert not logged(load("logs"), [made], tmp_path, "warn")


@needs("simple_switch")
def test_same_lines_as_simple_switch(load: Callable[..., Program], tmp_path: Path) -> None:
    packets = [packet(random.Random(i))[0] for i in range(50)]
    options = ("--log-file", str(tmp_path / "theirs"), "--log-flush", "--log-level", "info")
    out, _ = reference("logs", packets, tmp_path, options=options)
    assert [len(port) for port in out] == [0, len(packets), *[0] * (PORTS - 2)]
    theirs = lines_of(tmp_path / "theirs.txt")
    ours = logged(load("logs"), packets, tmp_path, "info")
    for threads in (("I parser:", "I ingress:"), ("I egress:", "I deparser:")):
        assert [x for x in theirs if x.startswith(threads)] == [
            x for x in ours if x.startswith(threads)
        ]


@pytest.mark.parametrize(
    ("text", "around"),
    [
        ("none", ["none"]),
        ("a {} b {x y} c", ["a ", " b ", " c"]),
        (r"\{a\} {\}} b", ["{a} ", " b"]),
        ("{}{} {}", ["", "", " ", ""]),  # simple_switch ends at this one
        ("{} {}", ["{} ", ""]),  # of one number
        ("{", ["{"]),
    ],
)
def test_placeholders(text: str, around: list[str]) -> None:
    assert pieces(text, len(around) - 1) == around


@pytest.mark.parametrize(
    ("text", "numbers", "wrong"),
    [
        ("a {} {}", 1, r"expected \(2\) argument\(s\) but go \(1\)"),
        ("a {}", 2, r"expected \(1\) argument\(s\) but go \(2\)"),
        ("a {", 1, 'No matching "}"'),
        (r"a {\}", 1, 'No matching "}"'),
    ],
)
def test_wrong_placeholders(text: str, numbers: int, wrong: str) -> None:
    with pytest.raises(WrongFormat, match=wrong):
        pieces(text, numbers)


def with_message(parameters: list[Any], tmp_path: Path) -> Path:
    """The program with other parameters of its parser's log_msg."""
    program = json.loads((PROGRAMS / "logs.json").read_text())
    (primitive,) = [
        operation["parameters"][0]
        for state in program["parsers"][0]["parse_states"]
        for operation in state["parser_ops"]
        if operation["op"] == "primitive"
    ]
    primitive["parameters"] = parameters
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(program))
    return path


def test_a_wrong_number_of_arguments_is_told_in_the_log(tmp_path: Path) -> None:
    text = {"type": "string", "value": 'of "{}"'}
    program = Program.load(
        with_message([text, {"type": "parameters_vector", "value": {}}], tmp_path)
    )
    data, fields = packet(random.Random(1))
    first, *rest = logged(program, [data], tmp_path, "info")
    assert first == (
        "E Not enough arguments for format string in call to log_msg(). Format string expected "
        "(1) argument(s) but go (0): logs.p4(14)."
    )
    assert rest == [f"I {x}" for x in expected(fields, len(data))[1:]]


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    header = {"type": "parameters_vector", "value": [{"type": "header", "value": "h"}]}
    with pytest.raises(UnsupportedProgram, match="header used as a number"):
        Program.load(with_message([{"type": "string", "value": "a {}"}, header], tmp_path))
