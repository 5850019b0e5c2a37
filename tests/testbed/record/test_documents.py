# SPDX-License-Identifier: Apache-2.0
"""JSON files of a run: what is wrong in one is a line with the file and the field."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from testbed.record import json_files
from testbed.record.run import RunDirectory, RunError, RunWriter

MISSING = object()


@pytest.fixture
def copy(run_path: Path, tmp_path: Path) -> Path:
    shutil.copytree(run_path, tmp_path / "copy")
    return tmp_path / "copy"


def changed(path: Path, field: str, value: Any) -> None:
    content = inner = json.loads(path.read_text())
    *way, last = field.split(".")
    for name in way:
        inner = inner[name]
    if value is MISSING:
        del inner[last]
    else:
        inner[last] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("name", "field", "value", "reason"),
    [
        ("network.json", "epochs", 1e9, "is 1000000000.0: should be a valid integer"),
        ("network.json", "epochs", 10**9, "is 1000000000: should be less than or equal to 1000"),
        ("network.json", "epochs", -1, "is -1: should be greater than or equal to 1"),
        ("network.json", "epochs", "two", "is 'two': should be a valid integer"),
        ("network.json", "epochs", True, "is True: should be a valid integer"),
        ("network.json", "epochs", 5, "is 5, more than requested"),
        ("network.json", "epochs", MISSING, "is missing"),
        ("network.json", "canary_bytes", -1, "is -1: should be greater"),
        ("network.json", "canary_bytes", 10**30, "should be less than"),
        ("network.json", "unread", [[0, -1]], "is -1"),
        ("network.json", "unread", [[4, 0]], "names epoch 4 of 4"),
        ("network.json", "restarted", [[4, 0]], "names epoch 4 of 4"),
        ("network.json", "rerouted", [[4, 0]], "names epoch 4 of 4"),
        ("network.json", "unread", [["0", 0]], "is '0': should be a valid integer"),
        ("network.json", "collection_seconds", [float("nan")], "should be a finite number"),
        ("network.json", "conservation", [], "is []: should be an object"),
        ("network.json", "conservation.sent", None, "is None: should be a valid integer"),
        ("network.json", "weather", "rain", "is unknown"),
        ("config.json", "k", 5000, "is 5000: should be less than or equal to 128"),
        ("config.json", "monitors", "tor++core", "is 'tor++core': String should match"),
        ("config.json", "monitors", 5, "is 5: should be a valid string"),
        ("config.json", "telemetry", "A1+X", "is 'A1+X': String should match"),
        ("config.json", "epochs", MISSING, "is missing"),
        ("summary.json", "methods.007.directed.f1", 1.5, "is 1.5: should be less than"),
        ("summary.json", "methods.007.native", "both", "is 'both'"),
        ("summary.json", "faulty_links", [7], "is 7: should be a valid string"),
        ("summary.json", "methods", {"\x1b[31m": 1}, "should be an object"),
    ],
)
def test_a_wrong_field_is_named(copy: Path, name: str, field: str, value: Any, reason: str) -> None:
    changed(copy / name, field, value)
    with pytest.raises(RunError) as raised:
        _ = RunDirectory(copy, trust=True).summary
    message = str(raised.value)
    assert message.startswith(f"{copy / name}: ") and field.split(".")[-1] in message
    assert reason in message and message.isprintable() and len(message) < 600


def test_a_placement_that_the_fabric_does_not_have_is_named(copy: Path) -> None:
    changed(copy / "config.json", "monitors", "tor+spine")
    with pytest.raises(RunError, match=r"config.json: MONITORS=tor\+spine: .* no switch 'spine'"):
        _ = RunDirectory(copy, trust=True).segments


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"7", b"\xff{}", b"[" * 100_000, b'{"epochs": ' + b"9" * 10_000]
)
@pytest.mark.parametrize("name", ["config.json", "network.json", "summary.json"])
def test_what_is_no_json_object_is_named(copy: Path, name: str, content: bytes) -> None:
    (copy / name).write_bytes(content)
    with pytest.raises(RunError) as raised:
        _ = RunDirectory(copy, trust=True).summary
    assert str(raised.value).startswith(str(copy / name)) and str(raised.value).isprintable()


def test_what_is_not_as_declared_is_not_written(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    with pytest.raises(RunError, match=r"cannot write .*network\.json: fabric is missing"):
        writer.json("network.json", {"epochs": 1})
    assert not (writer.partial / "network.json").exists()
    writer.abandon()


def test_an_interrupt_waits_until_a_declaration_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pydantic took a pattern for another one: "should match '<unprintable str object>'"."""
    compiled = []

    def compile_it(document: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        compiled.append(document)

    monkeypatch.setattr(json_files, "TypeAdapter", compile_it)
    # A job in the background of a shell begins with interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            json_files._adapter.__wrapped__("config.json")
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(compiled) == 1
