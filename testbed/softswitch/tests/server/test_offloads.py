# SPDX-License-Identifier: Apache-2.0
"""TCP and UDP over untouched veths, whose kernels leave checksums and cutting to the interface."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.softswitch.tests.server.client import PROGRAMS, Process
from testbed.softswitch.tests.server.wires import ip
from tests.patience import PATIENCE_S

BYTES = 8 << 20
SERVE = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], 5000), family=family)
print("ready", flush=True)
taken, _ = server.accept()
digest = hashlib.sha256()
while data := taken.recv(1 << 16):
    digest.update(data)
taken.sendall(digest.digest())
"""
SEND = f"""
import hashlib, random, socket, sys
data = random.Random(1).randbytes({BYTES})
with socket.create_connection((sys.argv[1], 5000), timeout=180) as s:
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    print(s.recv(32).hex() == hashlib.sha256(data).hexdigest())
"""


@contextmanager
def two_hosts() -> Iterator[tuple[str, str, list[str]]]:
    """Two namespaces, each with a veth as the kernel makes it, and the switch's ends of these."""
    name = f"off{os.getpid() % 10**6}"
    hosts, ends = (name + "a", name + "b"), [name + "s1", name + "s2"]
    try:
        for i, (host, end) in enumerate(zip(hosts, ends, strict=True), 1):
            ip("netns", "add", host)
            ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("link", "set", end, "up")
            ip("-n", host, "addr", "add", f"10.9.0.{i}/24", "dev", "eth0")
            ip("-n", host, "addr", "add", f"fd00:9::{i}/64", "dev", "eth0", "nodad")
            ip("-n", host, "link", "set", "eth0", "up")
        yield *hosts, ends
    finally:
        for host, end in zip(hosts, ends, strict=True):
            subprocess.run(["ip", "netns", "del", host], capture_output=True)
            subprocess.run(["ip", "link", "del", end], capture_output=True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes namespaces")
@pytest.mark.parametrize("address", ["10.9.0.2", "fd00:9::2"])
def test_tcp_over_untouched_veths(address: str) -> None:
    """Every byte arrives; before, the connection hung."""
    if not shutil.which("ip"):
        pytest.skip("ip is not on PATH")
    with two_hosts() as (a, b, ends):
        ports = [x for i, end in enumerate(ends, 1) for x in ("-i", f"{i}@{end}")]
        with Process(str(PROGRAMS / "repeater.json"), *ports):
            server = subprocess.Popen(
                ["ip", "netns", "exec", b, sys.executable, "-c", SERVE, address],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert server.stdout and server.stdout.readline() == "ready\n"
            run = subprocess.run(
                ["ip", "netns", "exec", a, sys.executable, "-c", SEND, address],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            server.kill()
            server.wait()
    assert run.stdout == "True\n", run.stderr


# ---- frames with a vnet header, from a raw socket at the other end of a veth ----

NEEDS_CSUM, TCP4, TCP6, UDP = 1, 1, 4, 5
PAYLOAD = random.Random(2).randbytes(3000)


def folded(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def headers(v6: bool, udp: bool, vlan: bool, payload: int) -> tuple[bytes, int]:
    """Ethernet, IP and TCP or UDP of a frame whose checksum is begun, and where the last begins."""
    l4 = (
        struct.pack(">HHHH", 1, 2, 8 + payload, 0)
        if udp
        else struct.pack(
            ">HHIIBBHHH",
            1,
            2,
            0xFFFFFF00,
            7,
            0x50,
            0x99,
            100,
            0,
            0,  # FIN, PSH, ACK, CWR
        )
    )
    protocol, size = (17 if udp else 6), len(l4) + payload
    if v6:
        addresses = bytes(range(32))
        l3 = struct.pack(">IHBB", 6 << 28, size, protocol, 64) + addresses
    else:
        addresses = bytes(range(10, 18))
        l3 = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 99, 0, 64, protocol, 0) + addresses
        l3 = l3[:10] + struct.pack(">H", 0xFFFF ^ folded(l3)) + l3[12:]
    begun = folded(addresses + struct.pack(">HH", protocol, size))
    at = 6 if udp else 16
    l4 = l4[:at] + struct.pack(">H", begun) + l4[at + 2 :]
    ethernet = bytes(range(12)) + (b"\x81\0\0\x05" if vlan else b"")
    ethernet += b"\x86\xdd" if v6 else b"\x08\0"
    return ethernet + l3 + l4, len(ethernet) + len(l3)


def is_right(frame: bytes, v6: bool, udp: bool, vlan: bool) -> bool:
    """Whether lengths and checksums of a frame are those of its content."""
    l3 = 14 + 4 * vlan
    if v6:
        l4, addresses = l3 + 40, frame[l3 + 8 : l3 + 40]
        lengths = struct.unpack_from(">H", frame, l3 + 4)[0] == len(frame) - l4
    else:
        l4, addresses = l3 + 20, frame[l3 + 12 : l3 + 20]
        lengths = struct.unpack_from(">H", frame, l3 + 2)[0] == len(frame) - l3
        lengths &= folded(frame[l3:l4]) == 0xFFFF
    pseudo = addresses + struct.pack(">HH", 17 if udp else 6, len(frame) - l4)
    if udp:
        lengths &= struct.unpack_from(">H", frame, l4 + 4)[0] == len(frame) - l4
    return lengths and folded(pseudo + frame[l4:]) == 0xFFFF


@pytest.mark.parametrize("vlan", [False, True])
@pytest.mark.parametrize("udp", [False, True])
@pytest.mark.parametrize("v6", [False, True])
def test_each_kind_of_frame(v6: bool, udp: bool, vlan: bool) -> None:
    """A frame whose checksum is begun, and one that is to be cut, through the C itself."""
    from canary_softswitch.compiler.build import load_library
    from canary_softswitch.ports.ports import PORTS_C

    header = (PORTS_C.parent / "offload.h").read_text()
    p, u = ctypes.c_void_p, ctypes.c_uint32
    library = load_library(
        "#include <stdint.h>\n#include <string.h>\n" + header + CUT,
        {"complete": (None, p, p, u), "cut": (u, p, p, u, p, p)},
    )
    for size, segment in ((200, 0), (1, 0), (3000, 1000), (2999, 1400), (1001, 1000)):
        head, l4 = headers(v6, udp, vlan, size)
        frame = head + PAYLOAD[:size]
        kind = UDP if udp else TCP6 if v6 else TCP4
        vnet = struct.pack(
            "<BBHHHH", NEEDS_CSUM, kind if segment else 0, len(head), segment, l4, 6 if udp else 16
        )
        out = ctypes.create_string_buffer(frame, 1 << 16)
        if not segment:
            library.complete(vnet, out, len(frame))
            assert is_right(out.raw[: len(frame)], v6, udp, vlan)
            continue
        lengths, made = (u * 64)(), ctypes.create_string_buffer(1 << 18)
        n = library.cut(vnet, frame, len(frame), made, lengths)
        assert n == -(-size // segment)
        frames = [made.raw[i << 12 : (i << 12) + lengths[i]] for i in range(n)]
        assert all(is_right(f, v6, udp, vlan) for f in frames)
        assert b"".join(f[len(head) :] for f in frames) == PAYLOAD[:size]
        if not udp:
            numbers = [struct.unpack_from(">I", f, l4 + 4)[0] for f in frames]
            wanted = [(0xFFFFFF00 + i * segment) % (1 << 32) for i in range(n)]
            flags = [f[l4 + 13] for f in frames]
            assert numbers == wanted
            assert [f & 0x80 for f in flags] == [0x80] + [0] * (n - 1)
            assert [f & 9 for f in flags] == [0] * (n - 1) + [9]


CUT = """
void complete(const struct virtio_net_hdr *h, uint8_t *data, uint32_t length) {
    pp_checksum(h, data, length);
}
uint32_t cut(const struct virtio_net_hdr *h, const uint8_t *data, uint32_t length, uint8_t *out,
             uint32_t *lengths) {
    pp_cut c;
    uint32_t n = 0;
    if (!pp_cut_begin(h, data, length, &c)) return 0;
    while ((lengths[n] = pp_cut_next(h, data, length, &c, n, out + (n << 12)))) n++;
    return n;
}
"""
