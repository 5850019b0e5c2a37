# SPDX-License-Identifier: Apache-2.0
"""What Thrift's clients are told of a refusal is its code: no word of a message decides on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from canary_softswitch.device.config import PipelineConfig
from canary_softswitch.device.device import Device
from canary_softswitch.device.messages import p4info_pb2
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.errors import TableErrorCode as Code
from canary_softswitch.thrift.tables import Tables
from canary_softswitch.thrift.values import BmError
from testbed.softswitch.tests.server.client import PROGRAMS

Call = Callable[..., Any]


def calls(device: Device, program: str) -> Call:
    """The calls about tables of a device that runs a program; each takes all its arguments."""
    code = (PROGRAMS / f"{program}.json").read_bytes()
    device.commit(device.pipeline_of(PipelineConfig(p4info_pb2.P4Info(), code)))
    known = Tables(device).calls
    return lambda name, *arguments: known[name](dict(enumerate((0, *arguments), 1)))[1]


def exact(*values: bytes) -> list[Any]:
    return [{1: 0, 2: {1: v}} for v in values]


KEY = exact(bytes(4), bytes(13))
ADD = "bm_mt_add_entry"


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        (ADD, (b"I.exact_t", KEY, b"I.set", [b"1"], {}), Code.DUPLICATE_ENTRY),
        (ADD, (b"I.exact_t", KEY[:1], b"I.set", [b"1"], {}), Code.BAD_MATCH_KEY),
        (ADD, (b"I.exact_t", exact(bytes(4), b"\xff" * 14), b"I.set", [b"1"]), Code.BAD_MATCH_KEY),
        (ADD, (b"I.exact_t", KEY, b"I.set", [], {}), Code.BAD_ACTION_DATA),
        (ADD, (b"I.exact_t", KEY, b"I.set", [b"\x01\x00"], {}), Code.BAD_ACTION_DATA),
        (ADD, (b"I.exact_t", KEY, b"I.none", [], {}), Code.INVALID_ACTION_NAME),
        (ADD, (b"I.none", KEY, b"I.set", [b"1"], {}), Code.INVALID_TABLE_NAME),
        ("bm_mt_delete_entry", (b"I.exact_t", 77), Code.INVALID_HANDLE),
        ("bm_mt_read_counter", (b"I.exact_t", 0), Code.COUNTERS_DISABLED),
        ("bm_mt_reset_counters", (b"I.exact_t",), Code.COUNTERS_DISABLED),
        ("bm_mt_get_meter_rates", (b"I.exact_t", 0), Code.METERS_DISABLED),
        ("bm_mt_indirect_add_entry", (b"I.exact_t", KEY, 0), Code.WRONG_TABLE_TYPE),
    ],
)
def test_of_tables(
    device: Device, monkeypatch: pytest.MonkeyPatch, name: str, arguments: Any, code: Code
) -> None:
    call = calls(device, "matching")
    call(ADD, b"I.exact_t", KEY, b"I.set", [b"1"], {})
    monkeypatch.setattr(SoftSwitchError, "__str__", lambda _: "said in other words")
    with pytest.raises(BmError) as refused:
        call(name, *arguments)
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        (ADD, (b"I.direct", exact(b"\0\1"), b"I.set", [b"1"], {}), Code.WRONG_TABLE_TYPE),
        ("bm_mt_indirect_add_entry", (b"I.direct", exact(b"\0\1"), 9), Code.INVALID_MBR_HANDLE),
        ("bm_mt_indirect_ws_add_entry", (b"I.hashed", [], 9), Code.BAD_MATCH_KEY),
        ("bm_mt_act_prof_add_member", (b"I.ap", b"I.none", []), Code.INVALID_ACTION_NAME),
        ("bm_mt_act_prof_add_member", (b"I.ap", b"I.set", []), Code.BAD_ACTION_DATA),
        ("bm_mt_act_prof_delete_member", (b"I.ap", 0), Code.MBR_STILL_USED),
        ("bm_mt_act_prof_delete_member", (b"I.ap", 9), Code.INVALID_MBR_HANDLE),
        ("bm_mt_act_prof_create_group", (b"I.ap",), Code.NO_ACTION_PROFILE_SELECTION),
        ("bm_mt_act_prof_delete_group", (b"I.ecmp", 0), Code.GRP_STILL_USED),
        ("bm_mt_act_prof_delete_group", (b"I.ecmp", 9), Code.INVALID_GRP_HANDLE),
        ("bm_mt_act_prof_add_member_to_group", (b"I.ecmp", 0, 0), Code.MBR_ALREADY_IN_GRP),
        ("bm_mt_indirect_ws_set_default_group", (b"I.hashed", 9), Code.INVALID_GRP_HANDLE),
        ("bm_mt_act_prof_get_members", (b"I.none",), Code.INVALID_ACTION_PROFILE_NAME),
    ],
)
def test_of_action_profiles(
    device: Device, monkeypatch: pytest.MonkeyPatch, name: str, arguments: Any, code: Code
) -> None:
    call = calls(device, "selector")
    call("bm_mt_act_prof_add_member", b"I.ap", b"I.set", [b"1"])
    call("bm_mt_indirect_add_entry", b"I.direct", exact(b"\0\0"), 0)
    call("bm_mt_act_prof_add_member", b"I.ecmp", b"I.send", [b"1"])
    call("bm_mt_act_prof_create_group", b"I.ecmp")
    call("bm_mt_act_prof_add_member_to_group", b"I.ecmp", 0, 0)
    call("bm_mt_indirect_ws_add_entry", b"I.hashed", [{1: 1, 3: {1: b"\0\0", 2: 8}}], 0)
    monkeypatch.setattr(SoftSwitchError, "__str__", lambda _: "said in other words")
    with pytest.raises(BmError) as refused:
        call(name, *arguments)
    assert refused.value.code is code
