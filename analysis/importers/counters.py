# SPDX-License-Identifier: Apache-2.0
"""Readers of counters at both ends of links: gNMI, ``ip -s -j link``, Prometheus, InfluxDB."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from analysis.importers.places import Places
from analysis.importers.reader import Row, importer
from analysis.importers.sources import Source, count
from analysis.importers.traces import influx_points
from testbed.errors import UserError

_METHODS = "`canary`, `canary-mle`, `mle`"

Reading = tuple[str, str, bool, int]
"""A switch, its interface, whether packets went out there, and how many did."""


def _ends(source: Source, places: Places, readings: Iterable[Reading]) -> Iterator[Row]:
    """Yield a row for each direction of a link between two switches from the sums of the counters
    at both ends. Interfaces to hosts and others that lead to no switch are left out."""
    sums: dict[tuple[str, str, bool], int] = {}
    for name, interface, out, packets in readings:
        switch = places.switch(name)
        if (other := places.neighbour(switch, interface)) is not None:
            key = (switch, other, True) if out else (other, switch, False)
            sums[key] = sums.get(key, 0) + packets
    if not sums:
        raise UserError(
            "no interface is known to lead to a switch: import the fabric from a file with "
            "interfaces (clab, batfish, dot), or name interfaces after the switch at the other end"
        )
    for (src, dst, out), sent in sums.items():
        if out and (src, dst, False) in sums:
            arrived = sums[src, dst, False]
            yield {"kind": "counter", "nodes": [src, dst], "sent": sent, "arrived": arrived}


_INTERFACE = re.compile(r"interfaces?/interface\[name=([^][]+)\]")
_PACKETS = re.compile(r"(in|out)-(?:unicast-)?pkts$")


@importer(
    "gnmi",
    "gNMI updates of OpenConfig's interface counters (JSON lists or lines, also gnmic's), with the "
    "packets of each poll as `delta`, or the counter as `value`",
    """
[{"timestamp": 0, "prefix": "leaf0", "delta": 142999,
  "path": "/interfaces/interface[name=to-spine0]/state/counters/out-pkts"},
 {"timestamp": 0, "prefix": "spine0", "delta": 143026,
  "path": "/interfaces/interface[name=to-leaf0]/state/counters/in-pkts"}]
""",
    methods=_METHODS,
)
def gnmi(source: Source, places: Places) -> Iterator[Row]:
    """Yield the links whose two ends were polled."""
    yield from _ends(source, places, _differences(_updates(source)))


def _updates(source: Source) -> Iterator[tuple[Reading, bool]]:
    """Yield readings, and whether each is a counter's value."""
    for record in source.records():
        switch = record.get("prefix") or str(record.get("source", "")).partition(":")[0]
        if "updates" in record:  # gnmic
            pairs = [(update.get("Path") or next(iter(update["values"])), value)
                     for update in record["updates"]
                     for value in [update["values"]]]  # fmt: skip
            found = [
                (path, leaf, value) for path, values in pairs for leaf, value in values.items()
            ]
            parts = [(f"{path}/{leaf}".rstrip("/"), value, True) for path, leaf, value in found]
        else:
            total = "delta" not in record
            parts = [(record["path"], record["value" if total else "delta"], total)]
        for path, value, total in parts:
            leaves = value.items() if isinstance(value, dict) else [("", value)]
            for leaf, packets in leaves:
                whole = f"{path}/{leaf}".rstrip("/")
                interface, kind = _INTERFACE.search(whole), _PACKETS.search(whole)
                if interface and kind:
                    yield (switch, interface[1], kind[1] == "out", count(packets)), total


def _differences(readings: Iterable[tuple[Reading, bool]]) -> Iterator[Reading]:
    """Yield readings, of counters the last value minus the first; one of a single value is taken as
    it is."""
    ends: dict[tuple[str, str, bool], tuple[int, int, int]] = {}
    for (switch, interface, out, packets), total in readings:
        if not total:
            yield switch, interface, out, packets
            continue
        low, high, n = ends.get((switch, interface, out), (packets, packets, 0))
        ends[switch, interface, out] = min(low, packets), max(high, packets), n + 1
    for (switch, interface, out), (low, high, n) in ends.items():
        yield switch, interface, out, high - low if n > 1 else high


@importer(
    "iplink",
    "`ip -s -j link` of each switch, in a file with the switch's name: leaf0.json",
    """
[{"ifname": "to-spine0", "stats64": {"rx": {"packets": 67366}, "tx": {"packets": 142999}}}]
""",
    methods=_METHODS,
)
def iplink(source: Source, places: Places) -> Iterator[Row]:
    """Yield the links whose two ends were read."""

    def readings() -> Iterator[Reading]:
        for record in source.records():
            switch = Path(source.file or "").stem
            stats = record.get("stats64") or record["stats"]
            for way, out in (("tx", True), ("rx", False)):
                yield switch, record["ifname"].partition("@")[0], out, count(stats[way]["packets"])

    yield from _ends(source, places, readings())


_SAMPLE = re.compile(r"(\w+)\{([^}]*)\}\s+([-+.\w]+)")
_LABEL = re.compile(r'\b(\w+)="([^"]*)"')
_METRIC = re.compile(r"(receive|transmit|[io]n|out|rx|tx)_(?:unicast_)?(?:packets|pkts)(?:_total)?$"
                     r"|if(?:HC)?(In|Out)UcastPkts$")  # fmt: skip


@importer(
    "prometheus",
    "samples of node_exporter's or snmp_exporter's packet counters, as text or as the API's JSON",
    """
node_network_transmit_packets_total{instance="leaf0:9100",device="to-spine0"} 142999
node_network_receive_packets_total{instance="spine0:9100",device="to-leaf0"} 143026
""",
    methods=_METHODS,
)
def prometheus(source: Source, places: Places) -> Iterator[Row]:
    """Yield the links whose two ends were sampled."""
    yield from _ends(source, places, _differences(_samples(source)))


def _samples(source: Source) -> Iterator[tuple[Reading, bool]]:
    for path in source.files:
        own, source.file, source.place = Source([path]), path, ""
        if own.head(path)[:1] in "{[":
            points = [
                (result["metric"]["__name__"], result["metric"], value[1])
                for document in own.values()
                for result in document["data"]["result"]
                for value in (result.get("values") or [result["value"]])
                if "__name__" in result["metric"]
            ]
        else:
            found = (_SAMPLE.match(line) for line in own.lines())
            points = [(each[1], dict(_LABEL.findall(each[2])), each[3]) for each in found if each]
        for name, labels, value in points:
            if kind := _METRIC.search(name):
                out = (kind[1] or kind[2]).lower() in ("transmit", "out", "tx")
                switch = labels.get("instance", labels.get("host", "")).partition(":")[0]
                interface = labels.get("device") or labels.get("ifName") or labels["interface"]
                yield (switch, interface, out, count(value)), True


@importer(
    "influx",
    "InfluxDB lines of interface counters, as Telegraf writes them",
    """
interface,host=leaf0,interface=to-spine0 in_pkts=67366i,out_pkts=142999i 1700000000000000000
""",
    methods=_METHODS,
)
def influx(source: Source, places: Places) -> Iterator[Row]:
    """Yield the links whose two ends were sampled."""

    def readings() -> Iterator[tuple[Reading, bool]]:
        for path in source.files:
            for point in influx_points(source, path):
                yield from _of_point(point)

    yield from _ends(source, places, _differences(readings()))


def _of_point(point: dict[str, Any]) -> Iterator[tuple[Reading, bool]]:
    switch = point.get("host") or point.get("agent_host") or point["source"]
    interface = point.get("interface") or point.get("ifName") or point["name"]
    for names, out in ((("out_pkts", "packets_sent", "ifHCOutUcastPkts"), True),
                       (("in_pkts", "packets_recv", "ifHCInUcastPkts"), False)):  # fmt: skip
        for name in names:
            if name in point:
                yield (switch, interface, out, count(point[name])), True
