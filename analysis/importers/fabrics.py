# SPDX-License-Identifier: Apache-2.0
"""Readers of fabrics: containerlab, Batfish, networkx, Graphviz, and lists of edges."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analysis.importers.places import Places
from analysis.importers.reader import Row, importer
from analysis.importers.sources import Source


@importer(
    "clab",
    "containerlab's topologies (YAML)",
    """
topology:
  nodes:
    leaf0: {kind: linux}
    spine0: {kind: linux}
    client0: {kind: linux}
  links:
    - endpoints: ["leaf0:eth1", "spine0:eth1"]
    - endpoints: ["client0:eth1", "leaf0:eth9"]
""",
    makes="fabric",
)
def clab(source: Source, places: Places) -> Iterator[Row]:
    """Yield the cables of containerlab's topologies."""
    for document in source.yaml():
        nodes = document["topology"].get("nodes") or {}
        for link in document["topology"]["links"]:
            (a, a_port), (b, b_port) = (end.split(":", 1) for end in link["endpoints"])
            roles = [((nodes.get(end) or {}).get("labels") or {}).get("role") for end in (a, b)]
            yield _cable(a, b, (a_port, b_port), roles)


@importer(
    "batfish",
    "Batfish's layer1_topology.json",
    """
{"edges": [{"node1": {"hostname": "leaf0", "interfaceName": "Ethernet0"},
            "node2": {"hostname": "spine0", "interfaceName": "Ethernet0"}}]}
""",
    makes="fabric",
)
def batfish(source: Source, places: Places) -> Iterator[Row]:
    """Yield the cables of Batfish's layer-1 topologies, which may list both directions."""
    seen: set[frozenset[tuple[str, str]]] = set()
    for document in source.values():
        for edge in document["edges"]:
            ends = [(edge[n]["hostname"], edge[n]["interfaceName"]) for n in ("node1", "node2")]
            if frozenset(ends) not in seen:
                seen.add(frozenset(ends))
                yield _cable(ends[0][0], ends[1][0], (ends[0][1], ends[1][1]))


@importer(
    "nodelink",
    "networkx's node-link JSON (also of d3)",
    """
{"nodes": [{"id": "leaf0", "role": "leaf"}, {"id": "spine0", "role": "spine"}],
 "links": [{"source": "leaf0", "target": "spine0"}]}
""",
    makes="fabric",
)
def nodelink(source: Source, places: Places) -> Iterator[Row]:
    """Yield the cables of graphs; of a directed one that lists both directions, each once."""
    for document in source.values():
        kinds = ("role", "tier", "layer", "type")
        roles = {
            str(node["id"]): next((str(node[kind]) for kind in kinds if kind in node), None)
            for node in document["nodes"]
        }
        edges = document["links"] if "links" in document else document["edges"]
        pairs = [(str(edge["source"]), str(edge["target"])) for edge in edges]
        if document.get("directed"):
            there = set(pairs)
            pairs = [pair for pair in pairs if pair[0] < pair[1] or pair[::-1] not in there]
        for a, b in pairs:
            yield _cable(a, b, roles=(roles.get(a), roles.get(b)))


# An edge begins where a name does, and each part ends where the next cannot begin: so a line takes
# time in proportion to its length.
_NAME = r'(?:"([^"]+)"|([\w.]+(?:-[\w.]+)*))'
_EDGE = re.compile(
    rf"(?<![\w.-]){_NAME}\s*(?::\s*{_NAME}\s*)?(?:-->?|->)\s*{_NAME}\s*(?::\s*{_NAME})?"
)
_ATTRIBUTES = re.compile(r"\[[^][]*\]")


@importer(
    "dot",
    "Graphviz's dot, also with ports (netgraph, PTM)",
    """
graph dc { "leaf0":"swp1" -- "spine0":"swp1"; }
""",
    makes="fabric",
)
def dot(source: Source, places: Places) -> Iterator[Row]:
    """Yield the cables of Graphviz's graphs, in which each edge stands by itself."""
    for line in source.lines():
        for edge in _EDGE.finditer(_ATTRIBUTES.sub("", line)):
            a, a_port, b, b_port = (edge[i] or edge[i + 1] for i in (1, 3, 5, 7))
            yield _cable(a, b, (a_port, b_port))


@importer(
    "edgelist",
    "lists of edges, as Flock's simulator and networkx write them; `host->leaf` for a host",
    """
0 4
1 4
10000->0
10001->1
""",
    makes="fabric",
)
def edgelist(source: Source, places: Places) -> Iterator[Row]:
    """Yield the cables of lists of edges; weights and other words behind the two ends are left
    out."""
    for line in source.lines():
        a, b = re.split(r"\s*->\s*|[\s,;]+", line)[:2]
        yield _cable(a, b, roles=("host" if "->" in line else None, None))


def _cable(
    a: str,
    b: str,
    ports: tuple[str | None, str | None] = (None, None),
    roles: tuple[str | None, str | None] | list[str | None] = (None, None),
) -> Row:
    return {
        "src": a,
        "dst": b,
        "src_port": ports[0],
        "dst_port": ports[1],
        "src_role": roles[0],
        "dst_role": roles[1],
    }
