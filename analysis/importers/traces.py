# SPDX-License-Identifier: Apache-2.0
"""Readers of observations over known paths: Flock's traces, probe matrices, 007's events, INT."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analysis.importers.places import Places
from analysis.importers.reader import Row, importer
from analysis.importers.sources import Source, count


@importer(
    "flock",
    "traces of Flock's simulator; its numbers are the switches of the fabric by tier and name",
    """
FID 10004 10007 2 3 79500 0
FPT 2 7 3
SS 1000.0 53 0 0
""",
    methods="`flock`, `mle` with `INT`",
)
def flock(source: Source, places: Places) -> Iterator[Row]:
    """Yield the flows of traces: the packets of the last snapshot, over the path taken if there is
    one."""
    flow: dict = {}
    for line in source.lines():
        mark, *words = line.split()
        if mark == "FID":
            if "sent" in flow:
                yield flow
            src, dst = (places.switch(word) for word in words[2:4])
            flow = {"kind": "passive", "src": src, "dst": dst}
        elif mark == "FPT":
            flow["nodes"] = [places.switch(word) for word in words]
        elif mark == "SS":
            flow |= {"sent": count(words[1]), "lost": count(words[2])}
    if "sent" in flow:
        yield flow


@importer(
    "matrix",
    "a probe matrix (a row of 0 and 1 for each path, a column for each link in the order of the "
    "fabric's file) and the packets sent and lost of each row",
    """
1 0 0 1
0 1 1 0
2000 0
2000 46
""",
    methods="`netbouncer`, `detector`, `netscope`, `flock`, `mle`",
)
def matrix(source: Source, places: Places) -> Iterator[Row]:
    """Yield the probed paths; the order of their links is free."""
    paths, results, links = [], [], places.fabric.n_links
    for line in source.lines():
        words = re.split(r"[\s,;]+", line)
        if len(words) == links and links != 2:
            paths.append([i for i, word in enumerate(words) if count(word)])
        elif len(words) == 2:
            results.append((count(words[0]), count(words[1])))
        else:
            raise ValueError(f"{len(words)} columns: the fabric has {links} links")
    if len(paths) != len(results):
        raise ValueError(f"{len(paths)} paths, but {len(results)} rows of packets sent and lost")
    for path, (sent, lost) in zip(paths, results, strict=True):
        yield {"kind": "active", "path": path, "sent": sent, "lost": lost}


@importer(
    "007",
    "007's events: connections with retransmissions and the addresses of a traceroute, some `*`; "
    "beside them the switch and its neighbour of each address",
    """
[{"five_tuple": ["10.2.0.2", "10.1.0.2", 6, 29193, 80], "retx": 2,
  "hops": ["10.2.0.254", "172.16.9.1", "*", "10.1.0.2"]}]
""",
    methods="`007`, `007-binary`, `007-integer`, `max-coverage`",
)
def vigil(source: Source, places: Places) -> Iterator[Row]:
    """Yield the traced connections; the hop of the receiving host itself is left out."""
    for record in source.records():
        src, dst = record["five_tuple"][:2]
        hops = [places.hop(hop) for hop in record["hops"] if hop not in (src, dst)]
        yield {
            "kind": "connection",
            "src": places.tor(src),
            "dst": places.tor(dst),
            "nodes": hops,
            "retransmissions": count(record["retx"]),
        }


@importer(
    "int",
    "INT reports: flows with the switches that their packets named (JSON, CSV, InfluxDB lines)",
    """
{"src": "10.0.0.1", "dst": "10.2.0.1", "path": ["leaf0", "spine1", "leaf2"], "sent": 500, "lost": 9}
int,src=leaf0,dst=leaf2,path=leaf0-spine1-leaf2 sent=500i,lost=9i 1700000000000000000
""",
    methods="`flock`, `mle` with `INT`",
)
def inband(source: Source, places: Places) -> Iterator[Row]:
    """Yield the flows of INT reports, in JSON lines or InfluxDB's."""
    for record in _reports(source):
        path = record["path"]
        nodes = re.split(r"\s*->\s*|[\s,>-]+", path) if isinstance(path, str) else path
        if "lost" in record:
            lost = count(record["lost"])
        else:
            lost = count(record["sent"]) - count(record["received"])
        yield {
            "kind": "passive",
            "nodes": [places.switch(node) for node in nodes],
            "sent": count(record["sent"]),
            "lost": lost,
        }


def _reports(source: Source) -> Iterator[dict]:
    for path in source.files:
        own = Source([path])
        text = own.head(path)
        if re.match(r"[^\s,{]+,[^\s=]+=", text) and "\n{" not in text:
            yield from influx_points(source, path)
        else:
            own.file = source.file
            for record in own.records():
                source.file, source.place = own.file, own.place
                yield record


def influx_points(source: Source, path: object) -> Iterator[dict[str, str]]:
    """Yield the tags and fields of each line of InfluxDB's line protocol in a file of ``source``.

    The name of the measurement is ``measurement``.
    """
    own = Source([each for each in source.files if each == path])
    for line in own.lines():
        source.file, source.place = own.file, own.place
        head, fields = re.split(r"(?<!\\) ", line)[:2]
        name, *tags = re.split(r"(?<!\\),", head)
        pairs = [pair.split("=", 1) for pair in (*tags, *fields.split(","))]
        yield {"measurement": name} | {
            key: value.rstrip("iu").strip('"') if value[:-1].isdigit() else value.strip('"')
            for key, value in pairs
        }
