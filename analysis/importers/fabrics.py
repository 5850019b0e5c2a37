# SPDX-License-Identifier: Apache-2.0
"""Readers of fabrics: containerlab, Batfish, networkx, GraphML, GML, Graphviz, htsim, and lists of
edges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.importers.places import Places
from analysis.importers.reader import Row, importer
from analysis.importers.sources import Source, count


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
        roles = {str(node["id"]): _role(node) for node in document["nodes"]}
        edges = document["links"] if "links" in document else document["edges"]
        pairs = [(str(edge["source"]), str(edge["target"])) for edge in edges]
        for a, b in _once(pairs) if document.get("directed") else pairs:
            yield _cable(a, b, roles=(roles.get(a), roles.get(b)))


@importer(
    "graphml",
    "GraphML (networkx, Topology Zoo)",
    """
<graphml><key id="d0" for="node" attr.name="role"/>
<graph edgedefault="undirected">
<node id="leaf0"><data key="d0">leaf</data></node>
<node id="spine0"><data key="d0">spine</data></node>
<edge source="leaf0" target="spine0"/>
</graph></graphml>
""",
    makes="fabric",
)
def graphml(source: Source, places: Places) -> Iterator[Row]:
    """Yield the cables of GraphML. Nodes have their labels as names where these differ."""
    meanings: dict[str, str] = {}
    graph = _Graph()
    for element in source.elements(("key", "node", "edge", "graph")):
        if element.tag == "key":
            meanings[element.attrib["id"]] = element.get("attr.name", "")
        elif element.tag == "graph":
            graph.directed = element.get("edgedefault") == "directed"
        elif element.tag == "edge":
            graph.edges.append((element.attrib["source"], element.attrib["target"]))
        else:
            data = [child for child in element if child.tag == "data"]
            values = {meanings.get(each.get("key", ""), ""): each.text or "" for each in data}
            graph.nodes[element.attrib["id"]] = values
    yield from graph.cables()


_GML = re.compile(r'"[^"]*"|[][]|[^][\s"]+')


@importer(
    "gml",
    "GML (networkx, Topology Zoo)",
    """
graph [
  node [ id 0 label "leaf0" ]
  node [ id 1 label "spine0" ]
  edge [ source 0 target 1 ]
]
""",
    makes="fabric",
)
def gml(source: Source, places: Places) -> Iterator[Row]:
    """Yield the cables of GML. Nodes have their labels as names where these differ."""
    graph = _Graph()
    inside: list[tuple[str, dict[str, str]]] = []
    key = ""
    for line in source.lines():
        for word in _GML.findall(line):
            if word == "[":
                inside.append((key.lower(), {}))
                key = ""
            elif word == "]":
                name, values = inside.pop()
                if name == "node":
                    graph.nodes[values["id"]] = values
                elif name == "edge":
                    graph.edges.append((values["source"], values["target"]))
                elif name == "graph":
                    graph.directed = values.get("directed") == "1"
            elif key:
                if inside:
                    inside[-1][1][key] = word.strip('"')
                key = ""
            else:
                key = word
    yield from graph.cables()


class _Graph:
    """A graph that is read node by node.

    Attributes:
        nodes: What is known of each node, by its id.
        edges: The ids of both ends of each edge.
        directed: Whether an edge has a direction; then a cable may stand there twice.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, str]] = {}
        self.edges: list[tuple[str, str]] = []
        self.directed = False

    def cables(self) -> Iterator[Row]:
        """Yield the cables, between nodes named by their labels if all have different ones."""
        labels = {each: node.get("label") or "" for each, node in self.nodes.items()}
        if "" in labels.values() or len(set(labels.values())) < len(labels):
            labels = {each: each for each in self.nodes}
        for a, b in _once(self.edges) if self.directed else self.edges:
            roles = _role(self.nodes[a]), _role(self.nodes[b])
            yield _cable(labels[a], labels[b], roles=roles)


def _once(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs of a directed graph; of two that are each other's opposite, one."""
    there = set(pairs)
    return [pair for pair in pairs if pair[0] < pair[1] or pair[::-1] not in there]


def _role(node: Mapping[str, Any]) -> str | None:
    kinds = ("role", "tier", "layer", "type")
    return next((str(node[kind]) for kind in kinds if kind in node), None)


@importer(
    "htsim",
    "htsim's fat-trees (`.topo`)",
    """
Nodes 16
Tiers 3
Podsize 4
Tier 0
Radix_Down 2
Radix_Up 2
Tier 1
Radix_Down 2
Radix_Up 2
Tier 2
Radix_Down 4
""",
    makes="fabric",
)
def htsim(source: Source, places: Places) -> Iterator[Row]:
    """Yield the cables of htsim's fat-trees, wired as by it: an aggregation switch has every core
    whose number is its own in the pod, modulo the aggregation switches of a pod."""
    head: dict[str, int] = {}
    tiers: list[dict[str, int]] = []
    for line in source.lines():
        key, value = line.lower().split()[:2]
        if key == "tier":
            tiers.append({"bundle": 1})
        else:
            (tiers[-1] if tiers else head)[key] = count(value)
    if len(tiers) != head["tiers"] or len(tiers) not in (2, 3):
        raise ValueError(f"it says {head['tiers']} tiers and has {len(tiers)}: 2 or 3 are needed")
    nodes, pod_hosts = head["nodes"], head["podsize"]
    rack, (lower, upper) = tiers[0]["radix_down"], tiers[:2]
    pods = _parts(nodes, pod_hosts)
    racks = _parts(pod_hosts, rack)
    aggs = _parts(lower["radix_up"], upper["bundle"])
    if nodes > _MOST_HOSTS or pods * racks * aggs * upper["bundle"] > _MOST_HOSTS:
        raise ValueError(f"it has more than {_MOST_HOSTS:,} hosts or cables")
    for host in range(nodes):
        yield _cable(f"h{host}", f"tor{host // rack}", roles=("host", "tor"))
    for tor in range(pods * racks):
        for agg in range(tor // racks * aggs, (tor // racks + 1) * aggs):
            yield from _bundle(f"tor{tor}", f"agg{agg}", upper["bundle"])
    if len(tiers) == 3:
        ways = _parts(upper["radix_up"], tiers[2]["bundle"])
        for agg in range(pods * aggs):
            for way in range(ways):
                core = agg % aggs + way * aggs
                yield from _bundle(f"agg{agg}", f"core{core}", tiers[2]["bundle"])


_MOST_HOSTS = 1_000_000


def _parts(whole: int, part: int) -> int:
    if part < 1 or whole < 1 or whole % part:
        raise ValueError(f"{whole} is not a multiple of {part}")
    return whole // part


def _bundle(a: str, b: str, cables: int) -> Iterator[Row]:
    for number in range(cables):
        yield _cable(a, b, (f"{b}-{number}", f"{a}-{number}"))


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
