# SPDX-License-Identifier: Apache-2.0
"""Traffic from a list of flows: sender, receiver, bytes and start of each.

The file is CSV with the columns ``src``, ``dst``, ``bytes`` and ``start`` (seconds). Hosts are
named, or numbered from 0 on as the fabric numbers them. If all are IP addresses, each address
becomes a host, as those of a capture do (`testbed.traffic.replay.seats`). Times since 1970 count
from the first flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from testbed.arrays import WordArray
from testbed.errors import UserError
from testbed.fabric.packet_fabric import PacketFabric
from testbed.record.messages import first_line, shown, why
from testbed.traffic.flows import Traffic
from testbed.traffic.generator import FlowArrivals, payload_rates, send
from testbed.traffic.replay import seats

COLUMNS = ("src", "dst", "bytes", "start")
_TYPES = pa.string(), pa.string(), pa.float64(), pa.float64()

_MOST_BYTES, _MOST_FLOWS = 1 << 30, 10_000_000
_LARGEST = 1e15  # bytes of a flow
_SINCE_1970 = 1e8  # seconds; no run is as long


class FlowListError(UserError):
    """The file is not a list of flows of this fabric. One line: the file, the row, the reason."""


@dataclass(frozen=True)
class FlowList:
    """Traffic from a list of flows, and how many of the listed flows are not sent.

    Attributes:
        traffic: The flows and packets that the hosts send.
        listed: The number of flows in the file.
        late: The number of flows that begin after the end of the run.
        within_a_rack: The number of flows within a rack, which cross no link between switches.
    """

    traffic: Traffic
    listed: int
    late: int
    within_a_rack: int


def read_flow_list(
    path: Path,
    topology: PacketFabric,
    duration_s: float,
    seed: int,
    host_rate_bps: float,
    flow_rate: tuple[float, float],
) -> FlowList:
    """Read a list of flows and cut them into packets in the same way as generated flows.

    Args:
        path: The file.
        topology: Its hosts send.
        duration_s: Length of the run in seconds; flows are cut there.
        seed: Draws ports, protocols and the rate of each flow.
        host_rate_bps: Line rate of the hosts' links in bits a second.
        flow_rate: The lowest and the highest rate of a flow, as shares of the line rate.

    Raises:
        FlowListError: The file is unreadable, or a row makes no sense.
    """
    table = _read(path)
    payload = _numbers(path, table, "bytes", 1, _LARGEST)
    start = _numbers(path, table, "start", 0, float("inf"))
    if start.min() >= _SINCE_1970:
        start = start - start.min()
    found = [_addresses(table, end) for end in ("src", "dst")]
    if found[0] is not None and found[1] is not None:
        _refuse(path, found[0] == found[1], "src and dst are the same address")
        draw = np.random.default_rng([seed, 0xF10E6])
        src, dst = seats(found[0], found[1], payload, topology, draw)
    else:
        src, dst = (_hosts(path, table, end, topology) for end in ("src", "dst"))
        _refuse(path, src == dst, "src and dst are the same host")
    late = start >= duration_s
    near = topology.host_tor[src] == topology.host_tor[dst]
    kept = np.flatnonzero(~late & ~near)
    if not len(kept):
        raise FlowListError(
            f"{path}: none of its {len(src):,} flows begins within the run's {duration_s:g} s and "
            "goes from rack to rack"
        )
    kept = kept[np.argsort(start[kept], kind="stable")]
    rng = np.random.default_rng([seed, 0xF10E5])
    low, high = payload_rates(flow_rate, host_rate_bps)
    rate = low * (high / low) ** rng.random(len(kept))
    flows = FlowArrivals(
        src[kept].astype(np.int32), dst[kept].astype(np.int32), start[kept], payload[kept], rate
    )
    traffic = send(flows, duration_s, host_rate_bps, rng)
    return FlowList(traffic, len(src), int(late.sum()), int((near & ~late).sum()))


def read_bytes(path: Path) -> npt.NDArray[np.float64]:
    """Return the bytes of each flow in a list, float64[flows].

    Raises:
        FlowListError: The file is unreadable, or a size makes no sense.
    """
    return _numbers(path, _read(path), "bytes", 1, _LARGEST)


def _read(path: Path) -> pa.Table:
    try:
        if path.exists() and not path.is_file():
            raise FlowListError(f"cannot read {path}: it is not a file")
        if path.stat().st_size > _MOST_BYTES:
            raise FlowListError(f"{path} has more than a gigabyte: keep its first flows")
        table = pacsv.read_csv(
            path.absolute(),
            parse_options=pacsv.ParseOptions(ignore_empty_lines=True),
            convert_options=pacsv.ConvertOptions(
                column_types=dict(zip(COLUMNS, _TYPES, strict=True)),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except FileNotFoundError:
        raise FlowListError(f"there is no flow list {path}: check TRAFFIC") from None
    except OSError as error:
        raise FlowListError(f"cannot read {path}: {why(error)}") from None
    except (ValueError, pa.ArrowException) as error:
        raise FlowListError(f"{path}: {first_line(error)}") from None
    if sorted(table.column_names) != sorted(COLUMNS):
        found = ", ".join(shown(name) for name in table.column_names[:8])
        raise FlowListError(f"{path}: its columns are {found}: {', '.join(COLUMNS)} are needed")
    if not 0 < table.num_rows <= _MOST_FLOWS:
        raise FlowListError(f"{path} has {table.num_rows:,} flows: use 1 to {_MOST_FLOWS:,}")
    return table


def _addresses(table: pa.Table, end: str) -> WordArray | None:
    """Return the addresses in a column as numbers, uint64[flows], equal for equal addresses; None
    if some are no IP addresses."""
    column: Any = table.column(end).combine_chunks().dictionary_encode()
    names = column.dictionary.to_pylist()
    if column.null_count or not all("." in name or ":" in name for name in names):
        return None
    try:
        found = [ip_address(name.strip()) for name in names]
    except ValueError:
        return None
    number = np.array([int(each) % (2**61 - 1) for each in found], np.uint64)
    return number[column.indices.to_numpy(zero_copy_only=False)]


def _hosts(path: Path, table: pa.Table, end: str, topology: PacketFabric) -> npt.NDArray[np.int64]:
    column: Any = table.column(end)
    encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    names = encoded.dictionary.to_pylist()
    known = {name: host for host, name in enumerate(topology.host_names)}
    known |= {str(host): host for host in range(topology.n_hosts)}
    host = np.array([known.get(name.strip(), -2) for name in names] + [-1])
    found = host[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    _refuse(path, found == -1, f"{end} is missing")
    for row in np.flatnonzero(found == -2)[:1]:
        name = shown(column[int(row)].as_py())
        first, last = topology.host_names[0], topology.host_names[-1]
        raise _wrong(
            path,
            int(row),
            f"{end} {name} is not a host: use 0 to {topology.n_hosts - 1}, or {first} to {last}",
        )
    return found


def _numbers(
    path: Path, table: pa.Table, name: str, low: float, high: float
) -> npt.NDArray[np.float64]:
    column: Any = table.column(name)
    values = column.fill_null(float("nan")).to_numpy()
    for row in np.flatnonzero(~((values >= low) & (values <= high) & np.isfinite(values)))[:1]:
        least = f"a number of at least {low:g}" if high > _LARGEST else f"{low:g} to {high:g}"
        raise _wrong(path, int(row), f"{name} is {values[row]:g}: {least} is needed")
    return values


def _refuse(path: Path, bad: npt.NDArray[np.bool_], reason: str) -> None:
    for row in np.flatnonzero(bad)[:1]:
        raise _wrong(path, int(row), reason)


def _wrong(path: Path, row: int, reason: str) -> FlowListError:
    return FlowListError(f"{path}: row {row}: {reason}")
