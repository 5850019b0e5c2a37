# SPDX-License-Identifier: Apache-2.0
"""Readers of flow records: nfdump, IPFIX, pmacct, iperf3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.importers.places import Places
from analysis.importers.reader import Row, importer
from analysis.importers.sources import Source, count

_METHODS = "`flock`, `mle:kinds=P`"
_KEY = {
    "src": ("sa", "srcaddr", "src4_addr", "sourceIPv4Address", "sourceIPv6Address", "ip_src"),
    "dst": ("da", "dstaddr", "dst4_addr", "destinationIPv4Address", "destinationIPv6Address",
            "ip_dst"),
    "sport": ("sp", "src_port", "sourceTransportPort", "port_src"),
    "dport": ("dp", "dst_port", "destinationTransportPort", "port_dst"),
    "protocol": ("pr", "proto", "protocolIdentifier", "ip_proto"),
}  # fmt: skip
_PACKETS = ("ipkt", "in_packets", "packetDeltaCount", "packetTotalCount", "packets")
_EXPORTER = ("ra", "exporter", "exporterIPv4Address", "peer_ip_src", "label")


def _records(source: Source, places: Places) -> Iterator[Row]:
    """Yield the flows that several exporters saw: sent is what most packets were counted, lost what
    the exporter with fewest did not count. A flow that one exporter saw tells of no loss, and is
    left out."""
    seen: dict[tuple[Any, ...], dict[str, int]] = {}
    for record in source.records():
        if _field(record, _KEY["src"], None) in (None, "Summary"):
            break
        flow = tuple(_field(record, names) for names in _KEY.values())
        counts = seen.setdefault(flow, {})
        exporter = str(_field(record, _EXPORTER))
        counts[exporter] = counts.get(exporter, 0) + count(_field(record, _PACKETS))
    for (src, dst, *_), counts in seen.items():
        if len(counts) > 1:
            sent, arrived = max(counts.values()), min(counts.values())
            ends = {"src": places.tor(src), "dst": places.tor(dst)}
            yield {"kind": "passive", **ends, "sent": sent, "lost": sent - arrived}


def _field(record: Mapping[str, Any], names: Sequence[str], *default: Any) -> Any:
    for name in names:
        if record.get(name) not in (None, ""):
            return record[name]
    if default:
        return default[0]
    raise KeyError(names[0])


nfdump = importer(
    "nfdump",
    "nfdump's CSV (-o csv) of the flows that the ToRs of both ends exported",
    """
ts,te,td,sa,da,sp,dp,pr,ipkt,ibyt,ra
2026-11-27 10:00:00,2026-11-27 10:00:09,9.0,10.0.0.1,10.2.0.1,4000,80,TCP,500,700000,leaf0
2026-11-27 10:00:00,2026-11-27 10:00:09,9.0,10.0.0.1,10.2.0.1,4000,80,TCP,491,687400,leaf2
""",
    methods=_METHODS,
)(_records)

ipfix = importer(
    "ipfix",
    "IPFIX records in JSON (lines, or a list), of the flows that the ToRs of both ends exported",
    """
{"sourceIPv4Address": "10.0.0.1", "destinationIPv4Address": "10.2.0.1", "sourceTransportPort": 4000,
 "destinationTransportPort": 80, "protocolIdentifier": 6, "packetDeltaCount": 500,
 "exporterIPv4Address": "192.168.0.1"}
""",
    methods=_METHODS,
)(_records)

pmacct = importer(
    "pmacct",
    "pmacct's records (CSV, JSON) of the flows that the ToRs of both ends exported",
    """
{"ip_src": "10.0.0.1", "ip_dst": "10.2.0.1", "port_src": 4000, "port_dst": 80, "ip_proto": "tcp",
 "packets": 500, "peer_ip_src": "192.168.0.1"}
""",
    methods=_METHODS,
)(_records)


@importer(
    "iperf3",
    "iperf3's reports (--json): packets lost of UDP, retransmissions of TCP",
    """
{"start": {"connected": [{"local_host": "10.0.0.1", "remote_host": "10.2.0.1"}], "tcp_mss": 1460},
 "end": {"sum_sent": {"bytes": 730000, "retransmits": 9}}}
""",
    methods=_METHODS,
)
def iperf3(source: Source, places: Places) -> Iterator[Row]:
    """Yield a flow for each report."""
    for record in source.values():
        ends = record["start"]["connected"][0]
        row = {
            "kind": "passive",
            "src": places.tor(ends["local_host"]),
            "dst": places.tor(ends["remote_host"]),
        }
        total = record["end"].get("sum", {})
        if "lost_packets" in total:
            yield row | {"sent": count(total["packets"]), "lost": count(total["lost_packets"])}
        else:
            sent, size = record["end"]["sum_sent"], record["start"].get("tcp_mss") or 1460
            again = count(sent["retransmits"])
            packets = -(-count(sent["bytes"]) // count(size)) + again
            yield row | {"sent": packets, "retransmissions": again}
