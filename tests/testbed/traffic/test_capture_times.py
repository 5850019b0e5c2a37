# SPDX-License-Identifier: Apache-2.0

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgWriter

from testbed.fabric.fat_tree import FatTree
from testbed.traffic.capture import STRAY, judge_times, read_capture
from testbed.traffic.replay import replay
from tests.testbed.traffic.test_capture import flow_packets, write

K4 = FatTree(4)
HOUR = 3600 * 10**9
NOW = 1_700_000_000 * 10**9


def burst(n=400, begin=NOW, step=100_000):
    """Times of n packets, 100 us apart."""
    return begin + step * np.arange(n, dtype=np.int64)


@pytest.mark.parametrize("time", [0, 1, NOW - HOUR, NOW + HOUR, (1 << 63) - 1])
@pytest.mark.parametrize("where", [0, 137, 400])
def test_a_time_far_from_all_others_is_stray_wherever_the_packet_stands(time, where):
    times = judge_times(np.insert(burst(), where, time))
    assert np.flatnonzero(times.stray).tolist() == [where]
    assert not len(times.pauses_ns)


def test_strays_on_both_sides_are_found_together():
    time_ns = np.concatenate(([0, 5], burst(1000), [NOW + HOUR, (1 << 63) - 1]))
    assert np.flatnonzero(judge_times(time_ns).stray).tolist() == [0, 1, 1002, 1003]


def test_a_pause_takes_no_time_once_it_is_closed():
    time_ns = np.concatenate((burst(200), burst(200, NOW + HOUR), burst(200, NOW + 3 * HOUR)))
    times = judge_times(time_ns)
    assert not times.stray.any()
    assert times.pauses_ns.tolist() == [HOUR - 199 * 100_000, 2 * HOUR - 199 * 100_000]
    closed = times.without_pauses(time_ns)
    assert (np.diff(closed) >= 0).all()
    assert np.ptp(closed) == 3 * 199 * 100_000


@pytest.mark.parametrize(
    "time_ns",
    [
        burst(1),
        burst(2, step=HOUR),
        burst(1000, step=10**9),  # a packet a second
        burst(50, step=HOUR),  # and an hour
        np.zeros(300, np.int64),
        np.concatenate((burst(300), burst(300, NOW + 9 * 10**8))),  # less than a second
        np.concatenate((burst(300, step=10**7), burst(300, NOW + 2 * 10**10, 10**7))),
    ],
)
def test_ordinary_silence_is_left_alone(time_ns):
    times = judge_times(time_ns)
    assert not times.stray.any()
    assert not len(times.pauses_ns)


@given(
    st.lists(st.integers(0, (1 << 63) - 1) | st.integers(NOW, NOW + 10**9), min_size=1),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_file_does_not_matter(some, random):
    shuffled = list(some)
    random.shuffle(shuffled)
    one, other = (judge_times(np.array(each, np.int64)) for each in (some, shuffled))
    strays = (
        sorted(np.array(each, np.int64)[times.stray])
        for each, times in ((some, one), (shuffled, other))
    )
    assert next(strays) == next(strays)
    assert one.ends_ns.tolist() == other.ends_ns.tolist()
    assert not one.stray.all()
    closed = one.without_pauses(np.sort(np.array(some, np.int64)))
    assert (np.diff(closed) >= 0).all()


@pytest.fixture(scope="module")
def many_packets():
    """Packets that know their bytes, so they are soon written; each test gives them its times."""
    return [Ether(bytes(packet)) for packet in flow_packets(400)]


TIMES = [1000 + i * 1e-4 for i in range(400)]


@pytest.fixture(scope="module")
def good(many_packets, tmp_path_factory):
    """A capture without a stray packet."""
    return write(tmp_path_factory.mktemp("times") / "good.pcap", timed(many_packets, TIMES))


def timed(packets, times):
    for packet, time in zip(packets, times, strict=True):
        packet.time = time
    return packets


@pytest.mark.parametrize("fit", [True, False])
@pytest.mark.parametrize("strays", [[(0, 0.0)], [(400, 4e9)], [(0, 0.0), (200, 5000.0)]])
def test_stray_packets_change_nothing_of_the_others(tmp_path, many_packets, good, strays, fit):
    packets, times = list(many_packets), list(TIMES)
    for at, time in strays:
        packets.insert(at, packets[5].copy())
        times.insert(at, time)
    bad = write(tmp_path / "bad.pcap", timed(packets, times))
    (one, account), (other, with_strays) = (
        replay(path, K4, seed=1, duration_s=0.1, fit=fit) for path in (good, bad)
    )
    assert with_strays.refused == {STRAY: len(strays)}
    assert with_strays.frames == with_strays.replayed + len(strays)
    assert (one.time_ns == other.time_ns).all()
    assert (one.flow == other.flow).all()
    assert account.factor == with_strays.factor == (pytest.approx(0.1 / 0.0399) if fit else 1)


def test_a_pause_is_cut_out_of_what_is_fitted_and_named(tmp_path, many_packets):
    times = [1000 + i * 1e-4 + 3600 * (i >= 200) for i in range(400)]
    path = write(tmp_path / "gap.pcap", timed(many_packets, times))
    traffic, account = replay(path, K4, seed=1, duration_s=1.0, fit=True)
    assert (account.pauses, account.replayed) == (1, 400)
    assert account.pauses_s == pytest.approx(3600, abs=1)
    assert np.diff(traffic.time_ns.astype(np.int64)).max() < 10**7
    traffic, account = replay(path, K4, seed=1, duration_s=1.0)
    assert (account.pauses, account.replayed) == (1, 200)


def block(kind, body):
    size = 12 + len(body)
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


SECTION = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(offset=None):
    """An interface description of Ethernet, in microseconds, with an if_tsoffset."""
    option = b"" if offset is None else struct.pack("<HHqHH", 14, 8, offset, 0, 0)
    return block(1, struct.pack("<HHI", 1, 0, 0) + option)


def padded(frame):
    return frame + bytes(-len(frame) % 4)


def enhanced(frame, time_us, number=0):
    header = struct.pack("<IIIII", number, time_us >> 32, time_us & 0xFFFFFFFF, *2 * (len(frame),))
    return block(6, header + padded(frame))


def simple(frame):
    return block(3, struct.pack("<I", len(frame)) + padded(frame))


FRAMES = [bytes(packet) for packet in flow_packets(4)]


def test_the_offset_of_an_interface_is_added(tmp_path):
    path = tmp_path / "offset.pcapng"
    parts = [enhanced(FRAMES[0], 5_000_000), enhanced(FRAMES[1], 2_000_000, 1)]
    path.write_bytes(SECTION + interface() + interface(4) + b"".join(parts))
    assert read_capture(path).time_ns.tolist() == [0, 10**9]  # at 5 s and at 4 + 2 s


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([None, 7, None, 8], [0, 0, 0, 1000]),
        ([None, None, None, None], [0, 0, 0, 0]),
        ([7, None, None, 9], [0, 0, 0, 2000]),
    ],
)
def test_packets_without_a_time_take_their_neighbours(tmp_path, parts, expected):
    path = tmp_path / "simple.pcapng"
    blocks = [
        simple(frame) if time is None else enhanced(frame, 10**15 + time)
        for frame, time in zip(FRAMES, parts, strict=True)
    ]
    path.write_bytes(SECTION + interface() + b"".join(blocks))
    capture = read_capture(path)
    assert capture.time_ns.tolist() == expected
    assert capture.timeless == parts.count(None)
    assert STRAY not in capture.refused


def test_what_scapy_writes_is_read_as_before(tmp_path):
    path = write(tmp_path / "plain.pcapng", flow_packets(), writer=PcapNgWriter)
    assert read_capture(path).timeless == 0
