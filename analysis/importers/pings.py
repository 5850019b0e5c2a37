# SPDX-License-Identifier: Apache-2.0
"""Readers of pings there and back: Pingmesh, scamper, RIPE Atlas, mtr."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from analysis.importers.places import Places
from analysis.importers.reader import Row, importer
from analysis.importers.sources import Source, count

_METHODS = "`mle`"


@importer(
    "pingmesh",
    "logs of a ping mesh (CSV, JSON lines): source and destination as ToRs, hosts or addresses, "
    "packets sent and received, or lost",
    """
timestamp,src_ip,dst_ip,src_tor,dst_tor,sent,recv,p50_us
2026-11-27T10:00:00Z,10.0.0.1,10.2.0.1,leaf0,leaf2,4000,3975,42
""",
    methods=_METHODS,
)
def pingmesh(source: Source, places: Places) -> Iterator[Row]:
    """Yield the round trips of a mesh."""
    for record in source.records():
        src, dst = (
            _first(record, f"{end}_tor", f"{end}_ip", f"{end}_addr", end) for end in ("src", "dst")
        )
        sent = count(_first(record, "sent", "tx", "probes"))
        if "lost" in record:
            lost = count(record["lost"])
        else:
            lost = sent - count(_first(record, "recv", "received", "rcvd", "rx"))
        yield _trip(places, src, dst, sent, lost)


@importer(
    "scamper",
    "scamper's pings (JSON lines, as sc_warts2json writes them)",
    """
{"type": "ping", "src": "10.0.0.1", "dst": "10.2.0.1", "ping_sent": 100,
 "statistics": {"replies": 97, "loss": 0.03}}
""",
    methods=_METHODS,
)
def scamper(source: Source, places: Places) -> Iterator[Row]:
    """Yield the round trips of pings; traces have no losses, and are left out."""
    for record in source.records():
        if record.get("type") == "ping":
            sent = count(_first(record, "ping_sent", "probe_count"))
            got = record.get("statistics", {}).get("replies", len(record.get("responses", ())))
            yield _trip(places, record["src"], record["dst"], sent, sent - count(got))


@importer(
    "atlas",
    "RIPE Atlas' results of pings (JSON)",
    """
[{"type": "ping", "src_addr": "10.0.0.1", "dst_addr": "10.2.0.1", "sent": 3, "rcvd": 2}]
""",
    methods=_METHODS,
)
def atlas(source: Source, places: Places) -> Iterator[Row]:
    """Yield the round trips of pings; other results are left out."""
    for record in source.records():
        if record.get("type", "ping") == "ping":
            sent = count(record["sent"])
            src, dst = _first(record, "src_addr", "from"), _first(record, "dst_addr", "dst_name")
            yield _trip(places, src, dst, sent, sent - count(record["rcvd"]))


@importer(
    "mtr",
    "mtr's reports (--json): the packets that reached the last hop and came back",
    """
{"report": {"mtr": {"src": "10.0.0.1", "dst": "10.2.0.1", "tests": 100},
            "hubs": [{"count": 1, "host": "10.0.0.254", "Loss%": 0.0, "Snt": 100},
                     {"count": 4, "host": "10.2.0.1", "Loss%": 3.0, "Snt": 100}]}}
""",
    methods=_METHODS,
)
def mtr(source: Source, places: Places) -> Iterator[Row]:
    """Yield the round trips to the last hop of each report."""
    for record in source.records():
        report = record["report"]
        last = report["hubs"][-1]
        sent = count(last["Snt"])
        lost = round(sent * float(last["Loss%"]) / 100)
        yield _trip(places, report["mtr"]["src"], report["mtr"]["dst"], sent, lost)


def _trip(places: Places, src: Any, dst: Any, sent: int, lost: int) -> Row:
    ends = {"src": places.tor(src), "dst": places.tor(dst)}
    return {"kind": "roundtrip", **ends, "sent": sent, "lost": lost}


def _first(record: Mapping[str, Any], *names: str) -> Any:
    """Return the first of several fields that a record has; raise KeyError if it has none."""
    for name in names:
        if record.get(name) not in (None, ""):
            return record[name]
    raise KeyError(names[0])
