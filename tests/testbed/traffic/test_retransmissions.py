# SPDX-License-Identifier: Apache-2.0
"""The readers of the kernel's retransmissions, on what a kernel could hand them."""

import mmap
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.traffic.retransmissions import TracepointError, _fields, _records

LAYOUT = """name: tcp_retransmit_skb
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:const void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;
\tfield:int state;\toffset:24;\tsize:4;\tsigned:1;
\tfield:__u16 sport;\toffset:28;\tsize:2;\tsigned:0;
\tfield:__u16 dport;\toffset:30;\tsize:2;\tsigned:0;
\tfield:__u16 family;\toffset:32;\tsize:2;\tsigned:0;
\tfield:__u8 saddr[4];\toffset:34;\tsize:4;\tsigned:0;
\tfield:__u8 daddr[4];\toffset:38;\tsize:4;\tsigned:0;
\tfield:__u8 saddr_v6[16];\toffset:42;\tsize:16;\tsigned:0;

print fmt: "family=%s sport=%hu", REC->family, REC->sport
"""


def test_fields_are_where_the_kernel_says():
    fields = _fields(LAYOUT)
    assert fields == {"sport": 28, "dport": 30, "saddr": 34, "daddr": 38, "end": 42}


@pytest.mark.parametrize("gone", ["sport", "daddr[4]"])
def test_another_layout_is_refused(gone):
    with pytest.raises(TracepointError, match="other fields"):
        _fields(LAYOUT.replace(gone, "something"))


@settings(deadline=None)
@given(
    payloads=st.lists(st.binary(max_size=200), max_size=200),
    start=st.integers(0, 10_000),
    lost=st.integers(0, 200),
)
def test_records_come_back_whole_wherever_the_ring_wraps(payloads, start, lost):
    size = 4 * mmap.PAGESIZE
    ring = mmap.mmap(-1, mmap.PAGESIZE + size)
    head = tail = 8 * start
    kept = []
    for number, payload in enumerate(payloads):
        raw = payload.ljust((len(payload) + 3) // 8 * 8 + 4, b"\0")  # the kernel pads to 8 bytes
        record = struct.pack("=IHHI", 9, 0, 12 + len(raw), len(raw)) + raw
        if number == lost:  # PERF_RECORD_LOST
            record = struct.pack("=IHHQQ", 2, 0, 24, 1, 5)
        if head + len(record) - tail > size:
            break
        for offset, byte in enumerate(record):
            ring[mmap.PAGESIZE + (head + offset) % size] = byte
        head += len(record)
        kept += [raw] if number != lost else []
    struct.pack_into("=QQ", ring, 0x400, head, tail)
    assert list(_records(ring)) == kept
    assert struct.unpack_from("=QQ", ring, 0x400) == (head, head)
    assert list(_records(ring)) == []
    ring.close()
