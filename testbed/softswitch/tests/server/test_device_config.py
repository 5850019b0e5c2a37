# SPDX-License-Identifier: Apache-2.0
"""The forms in which controllers send a program."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from testbed.softswitch.tests.server.client import JSON, Client
from testbed.softswitch.tests.server.test_entities import ROUTES, entries


def varint(n: int) -> bytes:
    return bytes([n & 0x7F | 0x80, *varint(n >> 7)]) if n > 0x7F else bytes([n])


def test_program_in_the_wrapper_of_the_tutorials(client: Client) -> None:
    code = JSON.read_bytes()
    extras = b"\x12\x04\x0a\x02\x08\x01"  # a map of numbers
    wrapped = b"\x08\x01" + extras + b"\x1a" + varint(len(code)) + code
    client.configure(code=wrapped)
    client.write(("insert", client.route(0x0A010000, 16, 3)))
    client.configure("RECONCILE_AND_COMMIT", code=wrapped)
    assert len(entries(client, ROUTES)) == 1
    for broken in (wrapped[:-1], wrapped[:3], b"\x1a\xff", b"\x1a", b"\xff" * 20, b"\x0b\x00"):
        with pytest.raises(grpc.RpcError) as e:
            client.configure(code=broken)
        error: Any = e.value
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "\n" not in error.details()
    assert len(entries(client, ROUTES)) == 1


def test_a_program_of_a_stranger_is_refused_with_its_place(client: Client) -> None:
    """What a VERIFY is given is data; where it is wrong is said in a line."""
    root = json.loads(JSON.read_text())
    root["actions"][3]["id"] = "1(void) {}\n__attribute__((constructor)) void own(void) {}\nvoid a"
    for action in ("VERIFY", "VERIFY_AND_COMMIT"):
        for code, message in (
            (json.dumps(root).encode(), "actions[3].id: it should be a valid integer"),
            (b"[" * 100_000, "p4_device_config has more than 400 levels"),
            (b"{}", "it has no 'header_types'"),
        ):
            with pytest.raises(grpc.RpcError) as e:
                client.configure(action, code=code)
            error: Any = e.value
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert message in error.details() and "\n" not in error.details()
    client.configure("VERIFY")
