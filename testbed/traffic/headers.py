# SPDX-License-Identifier: Apache-2.0
"""Finds the IP packet of each captured frame behind labels, PPPoE and extension headers, and, on
request, the packet within a tunnel.

Tunnels are VXLAN, Geneve, GRE with IP or Ethernet in it, ERSPAN (types I to III), and IP in IP.
All steps treat many frames at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.traffic.flows import UDP
from testbed.traffic.frames import SNAP

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

IPV4, IPV6 = 0x0800, 0x86DD
VLAN = (0x8100, 0x88A8, 0x9100, 0x9200)
_MPLS, _PPPOE = (0x8847, 0x8848), 0x8864
_ETHERNET, _ERSPAN2, _ERSPAN3 = 0x6558, 0x88BE, 0x22EB
_PPP = {0x0021: IPV4, 0x0057: IPV6}
_IN_8_BYTES, _FRAGMENT, _AUTHENTICATION = (0, 43, 60, 135, 139, 140), 44, 51
_IP4_IN_IP, _IP6_IN_IP, _GRE = 4, 41, 47
_VXLAN, _GENEVE = (4789, 8472), 6081

MOST_HEADERS = 8
"""Labels, tags, extension headers or tunnels that are looked through, each."""


@dataclass
class Layers:
    """Where the IP packet of each of n frames begins.

    Attributes:
        data: The first bytes of each frame, uint8[n, SNAP].
        at: The offset of the IP header, int64[n].
        ether_type: The Ethernet type of what is there, int64[n]; 0 if there is none.
        l4: The offset of the header behind IP, int64[n].
        protocol: The protocol of that header, int64[n].
        later: Whether the packet is a fragment but the first, bool[n].
        tunnel: Whether another packet is within this one, bool[n].
    """

    data: npt.NDArray[np.uint8]
    at: Offsets
    ether_type: Offsets

    def __post_init__(self) -> None:
        self._rows = np.arange(len(self.data))
        self.later = np.zeros(len(self.data), np.bool_)
        self.tunnel = np.zeros(len(self.data), np.bool_)
        self.l4, self.protocol = self.at, np.zeros_like(self.at)

    def byte(self, offset: Offsets) -> Offsets:
        """Return the byte at an offset in each frame, int64[n]; 0 behind its first bytes."""
        found = self.data[self._rows, np.minimum(offset, SNAP - 1)].astype(np.int64)
        return np.where(offset < SNAP, found, 0)

    def word(self, offset: Offsets) -> Offsets:
        """Return the 16-bit big-endian number at an offset in each frame, int64[n]."""
        return self.byte(offset) << 8 | self.byte(offset + 1)

    @property
    def v4(self) -> Mask:
        """Return in which frames IPv4 is, bool[n]."""
        return self.ether_type == IPV4

    @property
    def v6(self) -> Mask:
        """Return in which frames IPv6 is, bool[n]."""
        return self.ether_type == IPV6

    def find(self, inner: bool) -> None:
        """Find the packets, those within tunnels if ``inner``; else only mark the tunnels."""
        self._below_ip()
        self._behind_ip()
        for _ in range(MOST_HEADERS):
            where, at, ether_type = self._within()
            if not where.any():
                return
            self.tunnel |= where
            if not inner:
                return
            self.at = np.where(where, at, self.at)
            self.ether_type = np.where(where, ether_type, self.ether_type)
            self._below_ip()
            self._behind_ip()

    def _below_ip(self) -> None:
        """Skip VLAN tags, MPLS labels and PPPoE."""
        for _ in range(MOST_HEADERS):
            tagged = np.isin(self.ether_type, VLAN)
            labelled = np.isin(self.ether_type, _MPLS)
            session = self.ether_type == _PPPOE
            if not (tagged | labelled | session).any():
                return
            after = np.where(tagged, self.word(self.at + 2), self.ether_type)
            bottom = labelled & (self.byte(self.at + 2) & 1 == 1)
            version = self.byte(self.at + 4) >> 4
            of_label = np.where(version == 4, IPV4, np.where(version == 6, IPV6, 0))
            after = np.where(bottom, of_label, after)
            ppp = self.word(self.at + 6)
            of_ppp = np.where(ppp == 0x0021, _PPP[0x0021], np.where(ppp == 0x0057, IPV6, 0))
            self.ether_type = np.where(session, of_ppp, after)
            self.at = self.at + np.where(session, 8, np.where(tagged | labelled, 4, 0))

    def _behind_ip(self) -> None:
        """Set ``l4``, ``protocol`` and ``later``, behind IPv6's extension headers."""
        v4, v6 = self.v4, self.v6
        self.protocol = np.where(
            v4, self.byte(self.at + 9), np.where(v6, self.byte(self.at + 6), 0)
        )
        self.l4 = self.at + np.where(v4, (self.byte(self.at) & 15) * 4, 40)
        self.later = v4 & (self.word(self.at + 6) & 0x1FFF != 0)
        for _ in range(MOST_HEADERS):
            fragment = v6 & (self.protocol == _FRAGMENT)
            authentication = v6 & (self.protocol == _AUTHENTICATION)
            others = v6 & np.isin(self.protocol, _IN_8_BYTES)
            some = fragment | authentication | others
            if not some.any():
                return
            self.later |= fragment & (self.word(self.l4 + 2) & 0xFFF8 != 0)
            length = self.byte(self.l4 + 1)
            size = np.where(authentication, 4 * (length + 2), 8 * (length + 1))
            size = np.where(fragment, 8, size)
            self.protocol = np.where(some, self.byte(self.l4), self.protocol)
            self.l4 = np.where(some, self.l4 + size, self.l4)

    def _within(self) -> tuple[Mask, Offsets, Offsets]:
        """Return which packets are tunnels, and the offset and the Ethernet type of what is in
        them."""
        at, kind = np.zeros_like(self.at), np.zeros_like(self.at)
        is_ip = (self.v4 | self.v6) & ~self.later

        def put(where: Mask, offset: Offsets, ether_type: Offsets | int) -> None:
            at[where] = offset[where]
            kind[where] = np.broadcast_to(ether_type, kind.shape)[where]

        put(is_ip & (self.protocol == _IP4_IN_IP), self.l4, IPV4)
        put(is_ip & (self.protocol == _IP6_IN_IP), self.l4, IPV6)
        udp = is_ip & (self.protocol == UDP)
        port = self.word(self.l4 + 2)
        put(udp & np.isin(port, _VXLAN) & (self.byte(self.l4 + 8) & 8 > 0), self.l4 + 16, _ETHERNET)
        options = 4 * (self.byte(self.l4 + 8) & 63)
        put(udp & (port == _GENEVE), self.l4 + 16 + options, self.word(self.l4 + 10))
        flags, gre = self.word(self.l4), is_ip & (self.protocol == _GRE)
        inside = self.l4 + 4
        for bit in (0x8000, 0x2000, 0x1000):  # checksum, key, sequence number
            inside = inside + np.where(flags & bit > 0, 4, 0)
        carried = self.word(self.l4 + 2)
        # ERSPAN's first type has neither a sequence number nor a header of its own.
        second = (carried == _ERSPAN2) & (flags & 0x1000 > 0)
        third = carried == _ERSPAN3
        more = np.where(self.byte(inside + 11) & 1 > 0, 20, 12)
        inside = inside + np.where(second, 8, np.where(third, more, 0))
        mirrored = third | (carried == _ERSPAN2)
        put(gre, inside, np.where(mirrored, _ETHERNET, carried))
        ethernet = kind == _ETHERNET
        types = self.word(at + 12)
        at, kind = np.where(ethernet, at + 14, at), np.where(ethernet, types, kind)
        known = (kind == IPV4) | (kind == IPV6) | np.isin(kind, VLAN + _MPLS)
        return known & (at > 0), at, kind
