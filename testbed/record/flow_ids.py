# SPDX-License-Identifier: Apache-2.0
"""Flow IDs as the record has them: the five-tuple in 104 bits, as an upper and a lower word."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import WordArray

TCP = 6
"""The IP protocol of connections, which 007 watches."""

# From the most significant bit: source 32, destination 8 | destination 24, ports 16 + 16, protocol
# 8. P4 puts them together in p4/include/flow.p4.


class FiveTuples(NamedTuple):
    """The addresses, ports and protocols of flows as numbers, arrays of equal length."""

    src_ip: npt.NDArray[np.uint32]
    dst_ip: npt.NDArray[np.uint32]
    src_port: npt.NDArray[np.uint16]
    dst_port: npt.NDArray[np.uint16]
    protocol: npt.NDArray[np.uint8]


def flow_ids(flows: FiveTuples) -> tuple[WordArray, WordArray]:
    """Return the upper 40 and the lower 64 bits of each flow's ID, as ``flow_hi`` and ``flow_lo``.

    >>> hi, lo = flow_ids(FiveTuples(*(np.array([n]) for n in (0x0A000002, 0x0A030003, 1, 2, 6))))
    >>> f"{hi[0]:010x}", f"{lo[0]:016x}"
    ('0a0000020a', '0300030001000206')
    """
    src, dst, sport, dport, protocol = (np.asarray(each, np.uint64) for each in flows)
    hi = src << np.uint64(8) | dst >> np.uint64(24)
    lo = (dst & np.uint64(0xFFFFFF)) << np.uint64(40) | sport << np.uint64(24)
    return hi, lo | dport << np.uint64(8) | protocol


def five_tuples(flow_hi: npt.ArrayLike, flow_lo: npt.ArrayLike) -> FiveTuples:
    """Return the 5-tuples of flow IDs, given as upper 40 and lower 64 bits; inverts `flow_ids`."""
    hi, lo = np.asarray(flow_hi, np.uint64), np.asarray(flow_lo, np.uint64)

    def bits(word: WordArray, shift: int, kind: Any) -> npt.NDArray[Any]:
        """Return the bits of a word from ``shift`` on that fill the unsigned type ``kind``."""
        return (word >> np.uint64(shift) & np.uint64(np.iinfo(kind).max)).astype(kind)

    dst = (hi & np.uint64(0xFF)) << np.uint64(24) | lo >> np.uint64(40)
    return FiveTuples(
        bits(hi, 8, np.uint32),
        bits(dst, 0, np.uint32),
        bits(lo, 24, np.uint16),
        bits(lo, 8, np.uint16),
        bits(lo, 0, np.uint8),
    )
