# SPDX-License-Identifier: Apache-2.0
"""Clones, resubmit, recirculate, multicast, truncation, digests, asserts, the C interface."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

import pytest

from canary_softswitch import Program, SoftSwitchError, Switch, SwitchFault
from canary_softswitch.runtime.program import Result

Admit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)


@pytest.fixture
def sw(load: Callable[..., Program]) -> Switch:
    return Switch(load("copies", "meta.keep"))


def op(code: int, arg: int = 0, rest: bytes = b"payload-of-the-packet") -> bytes:
    return bytes([code, arg]) + bytes(6) + rest


def fields(data: bytes) -> tuple[int, int, int, int]:
    """(arg, instance type, kept metadata, packet length seen in egress)."""
    return data[1], data[2], data[3], struct.unpack(">I", data[4:8])[0]


def test_ingress_clone_is_the_original_packet(sw: Switch) -> None:
    assert [p for p, _ in sw.process(1, op(1))] == [2]  # no session: no clone
    sw.set_mirror(5, 7)
    out = sw.process(1, op(1, 3))
    assert [(p, fields(d)) for p, d in out] == [(7, (3, 1, 55, 29)), (2, (99, 0, 55, 29))]
    assert sw.observed == 55


def test_mirror_truncates_and_goes_to_a_group(sw: Switch) -> None:
    sw.set_mirror(5, 7, truncate=12)
    assert [(p, len(d)) for p, d in sw.process(1, op(1))] == [(7, 12), (2, 29)]
    sw.set_multicast_group(9, [(3, 0), (4, 0)])
    sw.set_mirror(5, None, multicast_group=9)
    assert [p for p, _ in sw.process(1, op(1))] == [3, 4, 2]
    sw.delete_mirror(5)
    assert [p for p, _ in sw.process(1, op(1))] == [2]


def test_dropped_packet_is_still_cloned(sw: Switch) -> None:
    sw.set_mirror(6, 9)
    [(port, data)] = sw.process(1, op(10))
    assert port == 9
    assert fields(data)[1] == 1


def test_egress_clone_keeps_its_field_list(sw: Switch) -> None:
    sw.set_mirror(5, 7)
    out = sw.process(1, op(6))
    assert [(p, fields(d)[1:3]) for p, d in out] == [(2, (0, 0)), (7, (2, 44))]


def test_resubmit(sw: Switch) -> None:
    [(port, data)] = sw.process(1, op(2))
    assert port == 2
    assert fields(data)[2] == 4  # four passes through ingress


def test_recirculate(sw: Switch) -> None:
    [(port, data)] = sw.process(1, op(7, 3))
    assert port == 2
    assert fields(data)[0] == 0
    assert fields(data)[2] == 30


def test_endless_packet_is_cut_off(sw: Switch) -> None:
    with pytest.raises(SwitchFault, match="256 passes"):
        sw.process(1, op(9))
    assert len(sw.process(1, op(0))) == 1  # the switch works on


def test_multicast(sw: Switch) -> None:
    assert sw.process(1, op(3, 1)) == []
    sw.set_multicast_group(1, [(4, 10), (5, 11), (4, 12)])
    out = sw.process(1, op(3, 1))
    assert [(p, fields(d)[1:3]) for p, d in out] == [(4, (5, 10)), (5, (5, 11)), (4, (5, 12))]
    sw.set_multicast_group(1, [])
    assert sw.process(1, op(3, 1)) == []
    with pytest.raises(SoftSwitchError, match="at most 1024"):
        sw.set_multicast_group(1, [(1, 1)] * 1025)


def test_a_group_of_all_ports(sw: Switch) -> None:
    """It copied to 64 at most, of which BMv2 knows nothing."""
    copies = [(port, rid) for port in range(500) for rid in (1, 2)]
    sw.set_multicast_group(1, copies)
    out = sw.process(1, op(3, 1))
    assert [port for port, _ in out] == [port for port, _ in copies]


def test_too_many_outputs(sw: Switch) -> None:
    sw.set_multicast_group(1, [(1, i) for i in range(1024)])
    assert len(sw.process(1, op(3, 1))) == 1024
    sw.set_mirror(5, 3, multicast_group=1)
    with pytest.raises(SwitchFault, match="1024 output"):
        sw.process(1, op(1))


def test_truncate_and_add_header(sw: Switch) -> None:
    assert len(sw.process(1, op(4))[0][1]) == 10
    [(_, data)] = sw.process(1, op(8))
    assert data[8:10] == b"\xbe\xef"
    assert fields(data)[3] == 31
    assert sw.process(1, op(12)) == []


def test_digests_are_filtered_until_acknowledged(sw: Switch) -> None:
    for i, arg in enumerate((1, 2, 1, 1)):
        sw.process(3, op(5, arg), now_us=100 + i)
    assert sw.digests_pending == 2
    [(name, d)] = sw.digests(ack=False).items()
    assert name in sw.program.digests
    assert len(sw.digests(ack=True)[name]) == 2
    assert d["now_us"].tolist() == [100, 101]
    assert d["sequence"].tolist() == [0, 1]
    first, wide, port = sw.program.digests[name].fields
    assert (first[1], wide[1], port[1]) == (8, 104, 9)
    assert d[wide[0]]["lo"].tolist() == [0x701, 0x702]
    assert d[port[0]].tolist() == [3, 3]
    assert sw.digests_pending == 0
    sw.process(3, op(5, 1), now_us=200)  # acknowledged: learned again
    assert sw.digests()[name]["sequence"].tolist() == [2]
    for arg in range(200):
        sw.process(3, op(5, arg))
        sw.process(3, op(5, arg))
    assert len(sw.digests()[name]) == 200


def test_assert_names_its_line(sw: Switch) -> None:
    assert len(sw.process(1, op(11, 2))) == 1
    with pytest.raises(SwitchFault, match=r"copies\.p4:\d+"):
        sw.process(1, op(11, 3))


def test_c_interface_and_admission(sw: Switch) -> None:
    lib = sw.program.lib
    seen: list[tuple[int, int]] = []

    def decide(_: int, port: int, length: int) -> int:
        seen.append((port, length))
        return int(port != 5)

    result = Result()
    sw.set_multicast_group(1, [(4, 0), (5, 0)])
    process = ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_char_p,
        ctypes.c_uint32,
        ctypes.c_uint64,
        Admit,
        ctypes.c_void_p,
        ctypes.POINTER(Result),
    )(sw.program.process_address)
    data = op(3, 1)
    assert process(sw.handle, 1, data, len(data), 5, Admit(decide), None, result) == 0
    assert seen == [(4, 29), (5, 29)]
    assert (result.n, result.queue_dropped) == (1, 1)
    assert (result.packets[0].port, result.packets[0].kind) == (4, 5)
    pending = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)(sw.program.digests_pending_address)
    assert pending(sw.handle) == lib.ss_digests_pending(sw.handle) == 0
