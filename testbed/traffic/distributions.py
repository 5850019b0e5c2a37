# SPDX-License-Identifier: Apache-2.0
"""Flow-size distributions: published cumulative tables, Flock's Pareto, and tables in files.

A file is as data-center transport simulators use it. A line has a size and the share of the flows
that are no larger, rising to 1 or to 100 %, as in HPCC's files. The second of three columns, as in
pFabric's files, is skipped. ``#`` begins a comment.

Sizes are in bytes, as in HPCC's files, or in packets, as in pFabric's and in Homa's table of web
search: ``FILE:packets=1460`` says so. A file that is hardly one of bytes is refused until the name
says which it is.

The distribution is linear between the lines, as HPCC and pFabric draw from it. Homa's files begin
with the mean alone, and each line there is a step: all flows have one of the sizes in the file. So
a first line with the mean decides which it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from testbed.arrays import FloatArray
from testbed.errors import UserError
from testbed.record.messages import shown, why

Workload = Literal["hadoop", "websearch", "storage", "pareto"]
WORKLOADS: tuple[Workload, ...] = ("hadoop", "websearch", "storage", "pareto")


class FlowSizes(Protocol):
    """Sizes of flows in payload bytes, at least 1."""

    @property
    def mean(self) -> float:
        """Return the mean flow size in bytes."""
        ...

    def quantile(self, u: FloatArray) -> FloatArray:
        """Return the size in bytes that a share ``u`` of the flows does not exceed, float64[n]."""
        ...

    def quantile_by_bytes(self, u: FloatArray) -> FloatArray:
        """Return the same quantile, weighted by bytes: of the flow that a random byte belongs to.

        A network observed at a random instant holds flows of this distribution.
        """
        ...


@dataclass(frozen=True)
class Pareto:
    """The Pareto distribution with a given mean in bytes; most bytes are in very long flows."""

    mean: float = 200e3
    shape: float = 1.05

    @property
    def _scale(self) -> float:
        return self.mean * (self.shape - 1) / self.shape

    def quantile(self, u: FloatArray) -> FloatArray:
        """Return the size in bytes that a share ``u`` of the flows does not exceed."""
        return self._scale * (1 - u) ** (-1 / self.shape)

    def quantile_by_bytes(self, u: FloatArray) -> FloatArray:
        """Return the same quantile, weighted by the bytes of the flows."""
        log = np.log(self._scale) - np.log1p(-u) / (self.shape - 1)
        return np.exp(np.minimum(log, 60.0))  # e^60 bytes outlast everything and do not overflow


SIZE_FILES = (".txt", ".tcl", ".cdf")
"""How the name of a file of flow sizes ends."""
_UNITS = re.compile(r"(?P<file>.*):(?P<unit>bytes|packets=(?P<packet>[0-9]{1,5}))")


def size_file(workload: str) -> tuple[Path, int | None] | None:
    """Return the path of the file of flow sizes that a text names, and its unit in bytes, None if
    the text does not say; None if it names no such file.

    >>> size_file("search.tcl:packets=1460")
    (PosixPath('search.tcl'), 1460)
    >>> size_file("sizes.txt"), size_file("hadoop")
    ((PosixPath('sizes.txt'), None), None)

    Raises:
        UserError: The unit is a packet of no bytes, or none that there is.
    """
    named = _UNITS.fullmatch(workload)
    name = named["file"] if named else workload
    if named is None and (other := workload.rpartition(":"))[0].lower().endswith(SIZE_FILES):
        raise UserError(
            f"TRAFFIC={workload}: {shown(other[2])} is no unit: use :bytes or :packets=1460"
        )
    if not name.lower().endswith(SIZE_FILES):
        return None
    unit = int(named["packet"] or 1) if named else None
    if unit == 0:
        raise UserError(f"TRAFFIC={workload}: a packet has bytes: use :packets=1460")
    return Path(name), unit


def flow_sizes(workload: str) -> FlowSizes:
    """Return the flow-size distribution of a workload or of a file of sizes (`size_file`).

    ``hadoop`` (Facebook), ``websearch`` (DCTCP) and ``storage`` (Alibaba) are tables in ``data/``,
    which name their sources; ``pareto`` is Flock's (its section 6.3: mean 200 KB, shape 1.05).

    Raises:
        UserError: It is neither, or the file is no table of flow sizes.
    """
    if workload == "pareto":
        return Pareto()
    if workload in WORKLOADS:
        with resources.as_file(
            resources.files("testbed.traffic") / "data" / f"{workload}.txt"
        ) as path:
            return read_sizes(path, 1)
    if (file := size_file(workload)) is not None:
        return read_sizes(*file)
    raise UserError(
        f"TRAFFIC={workload} is unknown: use {', '.join(WORKLOADS)}, or a .txt file of sizes"
    )


_MOST_LINES = 100_000
_LARGEST = 1e15  # bytes of a flow


class SizeTableError(UserError):
    """The file is not a distribution of flow sizes. One line: the file, the line, the reason."""


@dataclass(frozen=True)
class SizeTable:
    """A cumulative distribution of flow sizes (bytes), linear between points, float64[n] each."""

    size: FloatArray
    share: FloatArray

    @property
    def mean(self) -> float:
        """Return the mean flow size in bytes."""
        return float(self._bytes.sum())

    @property
    def _bytes(self) -> FloatArray:
        return np.diff(self.share) * (self.size[1:] + self.size[:-1]) / 2

    def mean_is(self, value: float) -> bool:
        """Return True if the mean is ``value``, to 1 %."""
        return abs(self.mean - value) <= 0.01 * value

    def scaled(self, unit: int) -> SizeTable:
        """Return the distribution of ``unit`` times the sizes."""
        return SizeTable(self.size * unit, self.share)

    def share_up_to(self, size: float) -> float:
        """Return the share of the flows that are no larger than ``size`` bytes."""
        return float(np.interp(size, self.size, self.share))

    def quantile(self, u: FloatArray) -> FloatArray:
        """Return the size in bytes that a share ``u`` of the flows does not exceed."""
        return np.maximum(np.interp(u, self.share, self.size), 1.0)

    def quantile_by_bytes(self, u: FloatArray) -> FloatArray:
        """Return the same quantile, weighted by the bytes of the flows."""
        cumulative = np.concatenate(([0.0], np.cumsum(self._bytes)))
        cumulative /= cumulative[-1]
        # between two points the density grows with the size, so the square of the size is linear
        return np.maximum(_sqrt_interp(u, cumulative, self.size), 1.0)


_PACKET = 1460
_FEW_PACKETS, _FEW_BYTES = 20 * _PACKET, 2


def read_sizes(path: Path, unit: int | None = None) -> SizeTable:
    """Return the distribution of flow sizes in a file, in bytes.

    Args:
        path: The file.
        unit: The bytes of 1 in the file; None if nobody said, for a file of bytes.

    Raises:
        SizeTableError: The file is missing or unreadable, a line is invalid, or its sizes are
            hardly bytes and nobody said what they are.
    """
    rows: list[tuple[int, float, float]] = []
    heading: float | None = None
    try:
        if path.exists() and not path.is_file():
            raise SizeTableError(f"cannot read {path}: it is not a file")
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if number > _MOST_LINES:
                    raise SizeTableError(f"{path} has more than {_MOST_LINES:,} lines")
                words = line.partition("#")[0].replace(",", " ").split()
                if not words:
                    continue
                if len(words) == 1 and not rows:
                    heading = _number(words[0])
                    continue
                rows.append((number, *_size_and_share(path, number, words)))
    except FileNotFoundError:
        raise SizeTableError(f"there is no file of flow sizes {path}: check TRAFFIC") from None
    except OSError as error:
        raise SizeTableError(f"cannot read {path}: {why(error)}") from None
    except UnicodeDecodeError:
        raise SizeTableError(
            f"{path} is not a text file: lines of a size and a share are needed"
        ) from None
    if len(rows) < 2:
        raise SizeTableError(f"{path} has {len(rows)} lines of a size and a share: use at least 2")
    lines, size, share = (np.array(column) for column in zip(*rows, strict=True))
    if heading is not None and (steps := _steps(size, share)).mean_is(heading):
        _need_unit(path, steps, unit)
        return steps.scaled(unit or 1)
    for what, column in (("the size", size), ("the share", share)):
        for row in np.flatnonzero(np.diff(column) < 0)[:1]:
            raise _wrong(path, int(lines[row + 1]), f"{what} is smaller than in the line before")
    whole = share[-1]
    if not np.isclose(whole, [1, 100], rtol=1e-4, atol=0).any():
        raise _wrong(
            path, int(lines[-1]), f"the last share is {whole:g}: 1 or 100 (percent) is needed"
        )
    if size[-1] <= 0:
        raise SizeTableError(f"{path} has only flows of 0 bytes")
    if share[0] > 0:  # so many flows have the smallest size
        size, share = np.insert(size, 0, size[0]), np.insert(share, 0, 0.0)
    found = SizeTable(size, share / whole)
    _need_unit(path, found, unit)
    return found.scaled(unit or 1)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _steps(size: FloatArray, share: FloatArray) -> SizeTable:
    """Return the distribution of flows that all have one of these sizes.

    A share that falls, as in Homa's table of web search, counts as the largest before it.
    """
    order = bool((np.diff(size) >= 0).all())
    share = np.maximum.accumulate(share) / share[-1] if share[-1] > 0 else share
    if not order or share[-1] != 1:
        return SizeTable(np.zeros(2), np.array([0.0, 1.0]))
    return SizeTable(size.repeat(2), np.append(0.0, share.repeat(2)[:-1]))


def _need_unit(path: Path, found: SizeTable, unit: int | None) -> None:
    """Raise SizeTableError if nobody said what the sizes are, and they are hardly bytes.

    That is so if they are whole numbers, and no flow is as long as some packets, or half of the
    flows have two bytes at most.
    """
    if unit is not None or (found.size != np.round(found.size)).any():
        return
    largest = float(found.size[-1])
    if largest >= _FEW_PACKETS and found.quantile(np.array([0.5]))[0] > _FEW_BYTES:
        return
    raise SizeTableError(
        f"{path}: its largest flow is {largest:,.0f}: bytes or packets? Name the unit: "
        f"TRAFFIC={path}:packets={_PACKET} or TRAFFIC={path}:bytes"
    )


def _size_and_share(path: Path, number: int, words: list[str]) -> tuple[float, float]:
    if len(words) not in (2, 3):
        raise _wrong(path, number, f"{len(words)} columns: a size and a share are needed")
    numbers = []
    for what, word, most in (("size", words[0], _LARGEST), ("share", words[-1], 100.1)):
        try:
            value = float(word)
        except ValueError:
            raise _wrong(path, number, f"the {what} is {shown(word)}, no number") from None
        if not 0 <= value <= most:
            raise _wrong(path, number, f"the {what} is {value:g}: use 0 to {most:g}")
        numbers.append(value)
    return numbers[0], numbers[1]


def _wrong(path: Path, number: int, reason: str) -> SizeTableError:
    return SizeTableError(f"{path}: line {number}: {reason}")


def _sqrt_interp(u: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    return np.sqrt(np.interp(u, x, y**2))
