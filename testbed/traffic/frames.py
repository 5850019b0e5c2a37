# SPDX-License-Identifier: Apache-2.0
"""Reads the frames of a pcap or pcapng file, gzipped or not, some 100,000 at a time.

Scapy reads the file's records. Cost: 3 us a frame of pcap and 8 us of pcapng.
"""

from __future__ import annotations

import gzip
import logging
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from testbed.errors import UserError

SNAP = 192
"""Bytes kept of a frame: the link header and tags, IPv6, VXLAN, and the same again within it."""

UNDEFINED = "of an undefined interface"

TIMELESS = -1
"""The time of a frame that has none, as in pcapng's simple packet blocks."""

_CHUNK = 1 << 17
_GZIP_MAGIC = b"\x1f\x8b"
_NG_MAGIC = b"\x0a\x0d\x0d\x0a"
_FEW_BYTES = 1 << 24
_MOST_TIMES = 100
"""A gzipped file may unpack to ``_FEW_BYTES`` or to ``_MOST_TIMES`` times its size.

Traffic is compressed by a factor of 20 at best, a file made to exhaust memory by 1000.
"""
_LAST_NS = (1 << 63) - 1
_IF_TSOFFSET = 14  # the number of the option: seconds that an interface's times lack
_LONGEST = 1 << 18  # bytes of a frame, as libpcap has it: a longer one is a damaged length


class CaptureError(UserError):
    """The capture cannot be replayed. One line: the reason and what to do."""


@dataclass(frozen=True)
class Frames:
    """Captured frames: link type, time, original and captured length, first bytes; all [N].

    A frame without a time has that of the frame before it, and `TIMELESS` if there is none.
    ``timeless`` is the number of frames without a time; ``share`` of the file had been read when
    the last of them was.
    """

    link_type: npt.NDArray[np.int64]
    time_ns: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    captured: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]
    timeless: int
    share: float


def read_frames(path: Path, left_out: Counter[str]) -> Iterator[Frames]:
    """Yield the frames of a file, in its order; count those of no interface in ``left_out``.

    Raises:
        CaptureError: The file is missing, damaged, empty or no capture.
    """
    rows: list[tuple[int, int, int, int]] = []
    data: list[bytes] = []
    last_ns = TIMELESS

    def flush(share: float) -> Frames:
        """Return the collected frames and begin anew; ``share`` of the file was read, 0 to 1."""
        nonlocal last_ns
        link_type, time_ns, length, captured = np.array(rows, np.int64).T
        snaps = np.frombuffer(b"".join(data), np.uint8).reshape(-1, SNAP)
        rows.clear()
        data.clear()
        timeless = int(np.count_nonzero(time_ns == TIMELESS))
        time_ns = _like_the_one_before(time_ns, last_ns)
        last_ns = int(time_ns[-1])
        length = np.maximum(length, captured)
        return Frames(link_type, time_ns, length, captured, snaps, timeless, share)

    with _open(path) as (file, share), _quiet_scapy():
        for link_type, time_ns, length, frame in _records(path, file, left_out):
            rows.append((link_type, time_ns, length, len(frame)))
            data.append(frame[:SNAP].ljust(SNAP, b"\0"))
            if len(rows) == _CHUNK:
                yield flush(share())
        if rows:
            yield flush(1.0)


def _like_the_one_before(time_ns: npt.NDArray[np.int64], last_ns: int) -> npt.NDArray[np.int64]:
    """Return the times, in which a missing one is replaced by that of the frame before.

    ``last_ns`` is the time before the first of them.
    """
    at = np.maximum.accumulate(np.where(time_ns == TIMELESS, -1, np.arange(len(time_ns))))
    return np.where(at < 0, last_ns, time_ns[at])


def _records(
    path: Path, file: Any, left_out: Counter[str]
) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield link type, time in ns or `TIMELESS`, original length and captured bytes of each frame.

    Scapy ends silently where a file is cut off, so this checks for the end before each record.
    """
    # its import takes longer than most captures, and only replays need it
    from scapy.data import MTU
    from scapy.error import Scapy_Exception

    count = 0
    try:
        reader, ng = _reader(path, file)
        while file.peek(1):
            record = reader._read_block(MTU) if ng else reader._read_packet(MTU)
            if record is None:
                left_out[UNDEFINED] = reader.undefined
                continue
            frame: bytes = record[0]
            about: Any = record[1]
            if ng:
                link_type = about.linktype
                time_ns = TIMELESS
                if about.tshigh is not None:
                    ticks = (about.tshigh << 32) + about.tslow
                    time_ns = ticks * 10**9 // about.tsresol + reader.offset_s() * 10**9
            else:
                link_type = reader.linktype & 0xFFFF
                time_ns = about.sec * 10**9 + about.usec * (1 if reader.nano else 1000)
                if about.caplen > _LONGEST or len(frame) < min(about.caplen, MTU):
                    raise EOFError
            if time_ns != TIMELESS:  # what no clock says is far from all others
                time_ns = min(max(time_ns, 0), _LAST_NS)
            yield link_type, time_ns, about.wirelen, frame
            count += 1
    except (EOFError, OSError, zlib.error, struct.error, MemoryError, Scapy_Exception) as error:
        if isinstance(error, OSError) and error.errno:
            raise CaptureError(f"cannot read {path}: {error.strerror}") from None
        intact = f", or keep its intact part with editcap -r {path.name} good.pcap 1-{count}"
        raise CaptureError(
            f"{path} is truncated or damaged after {count} packets: copy it again"
            f"{intact if count else ''}"
        ) from None


def _reader(path: Path, file: Any) -> tuple[Any, bool]:
    """Return Scapy's reader of the file's records, and True if the file is pcapng."""
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapReader

    magic = file.peek(4)[:4]
    if not magic:
        raise CaptureError(f"{path} is empty: capture again, or use another file")
    if magic[:2] == _GZIP_MAGIC:
        raise CaptureError(f"{path} is gzipped twice: unpack it once")
    ng = magic == _NG_MAGIC
    try:
        return (_ng_reader() if ng else RawPcapReader)(file), ng
    except Scapy_Exception:
        raise CaptureError(f"{path} is not a capture: use pcap or pcapng, gzipped or not") from None


@cache
def _ng_reader() -> Any:
    """Return Scapy's reader of pcapng, extended: time offsets, sections, undefined interfaces."""
    from scapy.utils import RawPcapNgReader

    class Reader(RawPcapNgReader):
        undefined = 0  # frames of an interface that the file does not describe
        interface = 0  # of the last packet

        def offset_s(self) -> int:
            """Return the seconds to be added to the last packet's time."""
            return self.interfaces[self.interface][2].get("tsoffset", 0)

        def _check_interface_id(self, intid: int) -> bool:
            self.interface = intid
            known = intid < len(self.interfaces)
            self.undefined += not known
            return known

        def _read_block_shb(self) -> None:
            self.interfaces: list[Any] = []  # each section numbers its own
            super()._read_block_shb()

        def _read_block_idb(self, block: bytes, _: int) -> None:
            super()._read_block_idb(block, _)
            link_type, snap, options = self.interfaces[-1]
            offset: Any = self._read_options(block[8:]).get(_IF_TSOFFSET, b"")
            if len(offset) == 8:
                (options["tsoffset"],) = struct.unpack(self.endian + "q", offset)
            self.interfaces[-1] = link_type, snap or _LONGEST, options  # 0 is no limit

    return Reader


class _Unzipped(gzip.GzipFile):
    """A gzipped file that raises CaptureError if it unpacks to more than any capture does."""

    def __init__(self, path: Path, raw: BinaryIO, size: int) -> None:
        super().__init__(fileobj=raw, mode="rb")
        self._path, self._left = path, max(_FEW_BYTES, _MOST_TIMES * size)

    def read(self, size: int | None = -1) -> bytes:
        """Return at most ``size`` unpacked bytes; raise CaptureError if the total is too large."""
        data = super().read(size)
        self._left -= len(data)
        if self._left < 0:
            raise CaptureError(
                f"{self._path} unpacks to more than {_MOST_TIMES} times its size, unlike any "
                "capture of traffic: check it with capinfos, and unpack it if it is correct"
            )
        return data


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Yield the file, unzipped, and a function that returns the share of it that was read."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise CaptureError(f"cannot read {path}: it is not a regular file: copy it into one")
        with path.open("rb") as raw:
            size = max(path.stat().st_size, 1)

            def share() -> float:
                """Return the share of the file's bytes that was read, 0 to 1."""
                return min(1.0, raw.tell() / size)

            if raw.peek(2)[:2] == _GZIP_MAGIC:
                with _Unzipped(path, cast(BinaryIO, raw), size) as unzipped:
                    yield unzipped, share
            else:
                yield raw, share
    except FileNotFoundError:
        raise CaptureError(f"there is no capture {path}: check TRAFFIC") from None
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror or error}") from None


@contextmanager
def _quiet_scapy() -> Iterator[None]:
    """Silence Scapy's log within the block, as damage to a file is reported as an error."""
    logger = logging.getLogger("scapy")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
