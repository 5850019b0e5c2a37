# SPDX-License-Identifier: Apache-2.0
"""A stranger's P4Info and device config take little time, and are one line."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from canary_softswitch.device import config
from canary_softswitch.device.messages import P4Error, p4info_pb2
from canary_softswitch.errors import InvalidProgram
from testbed.softswitch.tests.conftest import PROGRAMS

SECONDS = 10
"""Processor time that anything here may take; what it replaces took the square of the bytes."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return Path(shutil.copy(PROGRAMS / "hashes.json", tmp_path / "program.json"))


@pytest.mark.parametrize("levels", [90, 400, 100_000])
def test_a_p4info_that_is_nested(program: Path, levels: int) -> None:
    inner = "tuple { members { " * levels + "bitstring { bit { bitwidth: 8 } } " + "} } " * levels
    text = f"digests {{ preamble {{ id: 1 }} type_spec {{ {inner} }} }}"
    program.with_name("program.p4info.txtpb").write_text(text)
    begun = time.process_time()
    with pytest.raises((InvalidProgram, P4Error)) as raised:
        config.read_config(str(program), 511)()
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 1100
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize("number", ["4294967296", "-1", "1" * 400])
def test_a_number_that_a_p4info_cannot_have(program: Path, number: str) -> None:
    text = f"tables {{ preamble {{ id: {number} }} }}"
    program.with_name("program.p4info.txtpb").write_text(text)
    with pytest.raises(InvalidProgram, match="cannot read .*p4info.txtpb: "):
        config.read_config(str(program), 511)


def test_a_p4info_that_is_too_large(program: Path) -> None:
    file = program.with_name("program.p4info.txtpb")
    file.write_text("# nothing\n" * (config.MAX_P4INFO // 10 + 1))
    with pytest.raises(InvalidProgram, match=r"cannot read .*\.txtpb: it has more than 4 MiB"):
        config.read_config(str(program), 511)


@pytest.mark.parametrize("byte", [b"\xff", b"\x80", b"\x08", b"\x0a"])
def test_a_device_config_of_one_byte_repeated(byte: bytes) -> None:
    """500 kB of 0xff took 16 s: one number of 3.5 million bits."""
    data = byte * 2_000_000
    begun = time.process_time()
    assert config.unwrapped(data) in (data, data[2:12])
    assert time.process_time() - begun < SECONDS


def test_a_number_of_eleven_bytes_is_none() -> None:
    wrapped = b"\x1a" + b"\x03{ }"
    assert config.unwrapped(wrapped) == b"{ }"
    assert config.unwrapped(b"\x08" + b"\xff" * 9 + b"\x01" + wrapped) == b"{ }"
    wrong = b"\x08" + b"\xff" * 10 + b"\x01" + wrapped
    assert config.unwrapped(wrong) == wrong


def test_a_type_that_is_defined_by_itself() -> None:
    made = object.__new__(config.PipelineConfig)
    made.p4info = p4info_pb2.P4Info()
    for name, other in (("a", "b"), ("b", "a")):
        made.p4info.type_info.new_types[name].original_type.new_type.name = other
    with pytest.raises(P4Error, match="its type is defined by itself"):
        made._width(made.p4info.type_info.new_types["a"].original_type, 8, "register 'r'")
