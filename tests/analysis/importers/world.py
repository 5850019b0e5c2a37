# SPDX-License-Identifier: Apache-2.0
"""One world, written as the files of other tools: four leaves and four spines, two hosts a leaf;
``leaf2->spine1`` loses 2 % of its packets, all others 1 in 100,000."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

from testbed.fabric.clos import leaf_spine

FABRIC = leaf_spine(4, 4)
FAULTY = "leaf2->spine1"
LEAVES, SPINES = range(4), range(4)
LOSS = {name: 0.02 if name == FAULTY else 1e-5 for name in FABRIC.link_names}
RULE = "leaf{1}=10.{1}.0.0/16"

Flow = tuple[int, int, int, int, int]
"""Two leaves, a spine, packets sent and lost."""


@cache
def flows() -> list[Flow]:
    rng, made = np.random.default_rng(1), []
    for _ in range(1500):
        a, b = rng.choice(4, 2, replace=False).tolist()
        spine, sent = int(rng.integers(4)), int(rng.integers(50, 500))
        rate = LOSS[f"leaf{a}->spine{spine}"] + LOSS[f"spine{spine}->leaf{b}"]
        made.append((a, b, spine, sent, int(rng.binomial(sent, rate))))
    return made


@cache
def meshes(sent: int = 4000) -> list[tuple[int, int, int, int]]:
    """Two leaves, and the pings sent and lost."""
    rng, made = np.random.default_rng(2), []
    for a in LEAVES:
        for b in LEAVES:
            if a != b:
                there = np.mean([LOSS[f"leaf{a}->spine{s}"] + LOSS[f"spine{s}->leaf{b}"]
                                 for s in SPINES])  # fmt: skip
                back = np.mean([LOSS[f"leaf{b}->spine{s}"] + LOSS[f"spine{s}->leaf{a}"]
                                for s in SPINES])  # fmt: skip
                made.append((a, b, sent, int(rng.binomial(sent, there + back))))
    return made


@cache
def polls(skew: int = 30) -> list[tuple[str, str, int, int]]:
    """The two ends of each link, the packets that went out and those that came in, read apart."""
    rng, made = np.random.default_rng(3), []
    for name in FABRIC.link_names:
        src, dst = name.split("->")
        out = int(rng.integers(50_000, 150_000))
        came = out - int(rng.binomial(out, LOSS[name])) + int(rng.integers(-skew, skew + 1))
        made.append((src, dst, out, came))
    return made


def address(leaf: int, host: int = 1) -> str:
    return f"10.{leaf}.0.{host}"


def lines(records: list) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def cables() -> list[tuple[int, int]]:
    return [(leaf, spine) for leaf in LEAVES for spine in SPINES]


def clab() -> str:
    nodes = [f"leaf{i}" for i in LEAVES] + [f"spine{i}" for i in SPINES]
    nodes += [f"client{i}" for i in LEAVES]
    ends = [(f"leaf{a}:eth{b + 1}", f"spine{b}:eth{a + 1}") for a, b in cables()]
    ends += [(f"client{i}:eth1", f"leaf{i}:eth9") for i in LEAVES]
    return "\n".join(
        ["name: dc", "topology:", "  nodes:", *(f"    {node}: {{kind: linux}}" for node in nodes),
         "  links:", *(f'    - endpoints: ["{a}", "{b}"]' for a, b in ends), ""]
    )  # fmt: skip


def batfish() -> str:
    one = [
        [{"hostname": f"leaf{a}", "interfaceName": f"Ethernet{b}"},
         {"hostname": f"spine{b}", "interfaceName": f"Ethernet{a}"}]
        for a, b in cables()
    ]  # fmt: skip
    both = [pair for each in one for pair in (each, each[::-1])]
    return json.dumps({"edges": [{"node1": a, "node2": b} for a, b in both]})


def nodelink() -> str:
    nodes = [{"id": f"leaf{i}", "role": "leaf"} for i in LEAVES]
    nodes += [{"id": f"spine{i}", "role": "spine"} for i in SPINES]
    links = [{"source": f"leaf{a}", "target": f"spine{b}"} for a, b in cables()]
    return json.dumps({"directed": False, "nodes": nodes, "links": links})


def graphml() -> str:
    """As networkx writes a graph with both directions of each cable."""
    names = [f"leaf{i}" for i in LEAVES] + [f"spine{i}" for i in SPINES]
    nodes = [f'<node id="{n}"><data key="d0">{n.rstrip("0123456789")}</data></node>' for n in names]
    both = [(f"leaf{a}", f"spine{b}") for a, b in cables()]
    edges = [f'<edge source="{a}" target="{b}"/>' for a, b in [*both, *(p[::-1] for p in both)]]
    head = [
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        '<key id="d0" for="node" attr.name="role" attr.type="string"/>',
        '<graph edgedefault="directed">',
    ]
    return "\n".join([*head, *nodes, *edges, "</graph></graphml>"])


def gml() -> str:
    names = [f"leaf{i}" for i in LEAVES] + [f"spine{i}" for i in SPINES]
    nodes = [f'  node [\n    id {i}\n    label "{n}"\n  ]' for i, n in enumerate(names)]
    edges = [f"  edge [ source {a} target {len(LEAVES) + b} ]" for a, b in cables()]
    return "\n".join(["graph [", *nodes, *edges, "]", ""])


def htsim() -> str:
    lower, upper = f"Radix_Down 2\nRadix_Up {len(SPINES)}", f"Radix_Down {len(LEAVES)}"
    hosts = 2 * len(LEAVES)
    head = f"Nodes {hosts}\nTiers 2\nPodsize {hosts}\n"
    return f"# a leaf-spine\n{head}\nTier 0\n{lower}\nOversubscribed 1\n\nTier 1\n{upper}\n"


def dot() -> str:
    edges = [f'  "leaf{a}":"swp{b}" -- "spine{b}":"swp{a}";' for a, b in cables()]
    return "\n".join(["graph dc {", "  node [shape=box];", *edges, "}", ""])


def edgelist() -> str:
    edges = [f"{a} {4 + b}" for a, b in cables()]
    return "\n".join([*edges, *(f"{1000 + i}->{i // 2}" for i in range(8)), ""])


def flock() -> str:
    text = "Failing_link 2 5 0.02\n"
    for i, (a, b, spine, sent, lost) in enumerate(flows()):
        text += f"FID {1000 + 2 * a} {1000 + 2 * b} {a} {b} {1500 * sent} {i}\n"
        text += f"FPT {a} {4 + spine} {b}\nSS 500.0 1 0 0\nSS 1000.0 {sent} {lost} 0\n"
    return text


def matrix() -> tuple[str, str]:
    rng, rows, results = np.random.default_rng(4), [], []
    for a, b in [(a, b) for a in LEAVES for b in LEAVES if a != b]:
        for spine in SPINES:
            over = [f"leaf{a}->spine{spine}", f"spine{spine}->leaf{b}"]
            rows.append(" ".join(str(int(name in over)) for name in FABRIC.link_names))
            results.append(f"2000 {rng.binomial(2000, sum(LOSS[name] for name in over))}")
    return "\n".join([*rows, ""]), "\n".join([*results, ""])


def vigil() -> tuple[str, str]:
    rng, events, addresses = np.random.default_rng(5), [], {}
    for a, b in cables():
        addresses[f"172.16.{4 * a + b}.0"] = [f"leaf{a}", f"spine{b}"]
        addresses[f"172.16.{4 * a + b}.1"] = [f"spine{b}", f"leaf{a}"]
    for a, b, spine, _, lost in flows():
        if lost:
            hops = [f"10.{a}.0.254", f"172.16.{4 * a + spine}.1", f"172.16.{4 * b + spine}.0"]
            hops = [hop if rng.random() > 0.1 else "*" for hop in hops]
            five = [address(a), address(b, 2), 6, int(rng.integers(1024, 65536)), 80]
            events.append({"five_tuple": five, "retx": lost, "hops": [*hops, address(b, 2)]})
    return json.dumps(events), json.dumps(addresses)


def inband() -> str:
    return lines(
        [{"src": address(a), "dst": address(b), "path": [f"leaf{a}", f"spine{s}", f"leaf{b}"],
          "sent": sent, "lost": lost} for a, b, s, sent, lost in flows()]
    )  # fmt: skip


def inband_influx() -> str:
    return "".join(
        f"int,src=leaf{a},dst=leaf{b},path=leaf{a}-spine{s}-leaf{b} sent={sent}i,lost={lost}i {i}\n"
        for i, (a, b, s, sent, lost) in enumerate(flows())
    )


def pingmesh() -> str:
    rows = [f"now,{address(a)},{address(b)},leaf{a},leaf{b},{n},{n - k},42"
            for a, b, n, k in meshes()]  # fmt: skip
    head = "timestamp,src_ip,dst_ip,src_tor,dst_tor,sent,recv,p50_us"
    return "\n".join([head, *rows, ""])


def pingmesh_json() -> str:
    return lines([{"src": address(a), "dst": address(b), "sent": n, "lost": k}
                  for a, b, n, k in meshes()])  # fmt: skip


def scamper() -> str:
    pings = [{"type": "ping", "src": address(a), "dst": address(b), "ping_sent": n,
              "statistics": {"replies": n - k}} for a, b, n, k in meshes()]  # fmt: skip
    return lines([{"type": "cycle-start"}, *pings])


def atlas() -> str:
    return json.dumps([{"type": "ping", "from": address(a), "src_addr": address(a),
                        "dst_addr": address(b), "sent": n, "rcvd": n - k}
                       for a, b, n, k in meshes()])  # fmt: skip


def mtr() -> str:
    return lines(
        [{"report": {"mtr": {"src": address(a), "dst": address(b), "tests": n},
                     "hubs": [{"count": 1, "host": "???", "Loss%": 100.0, "Snt": n},
                              {"count": 2, "host": address(b), "Loss%": 100 * k / n, "Snt": n}]}}
         for a, b, n, k in meshes()]
    )  # fmt: skip


def gnmi() -> str:
    found = []
    for src, dst, out, came in polls():
        for switch, other, way, packets in ((src, dst, "out", out), (dst, src, "in", came)):
            path = f"/interfaces/interface[name=to-{other}]/state/counters/{way}-pkts"
            found.append({"timestamp": 0, "prefix": switch, "path": path, "delta": packets})
    return json.dumps(found)


def gnmic() -> str:
    """Counters' values, twice, as gnmic prints events."""
    found = []
    for src, dst, out, came in polls():
        for switch, other, way, packets in ((src, dst, "out", out), (dst, src, "in", came)):
            for value in (10**9, 10**9 + packets):
                path = f"interfaces/interface[name=to-{other}]/state/counters"
                update = {"Path": path, "values": {path: {f"{way}-pkts": str(value)}}}
                found.append({"source": f"{switch}:57400", "updates": [update]})
    return lines(found)


def iplink() -> dict[str, str]:
    found: dict[str, dict[str, dict]] = {}
    for src, dst, out, came in polls():
        for switch, other, way, packets in ((src, dst, "tx", out), (dst, src, "rx", came)):
            stats = found.setdefault(switch, {}).setdefault(f"to-{other}", {})
            stats[way] = {"packets": packets}
    return {
        f"{switch}.json": json.dumps(
            [{"ifname": "lo", "stats64": {"rx": {"packets": 1}, "tx": {"packets": 1}}}]
            + [{"ifname": f"{name}@if7", "stats64": stats} for name, stats in links.items()]
        )
        for switch, links in found.items()
    }


def prometheus() -> str:
    text = "# HELP node_network_transmit_packets_total packets\n"
    for src, dst, out, came in polls():
        for switch, other, way, packets in (
            (src, dst, "transmit", out),
            (dst, src, "receive", came),
        ):
            labels = f'instance="{switch}:9100",device="to-{other}"'
            text += f"node_network_{way}_packets_total{{{labels}}} {packets}\n"
    return text


def prometheus_json() -> str:
    result = []
    for src, dst, out, came in polls():
        for switch, other, way, packets in (
            (src, dst, "transmit", out),
            (dst, src, "receive", came),
        ):
            metric = {"__name__": f"node_network_{way}_packets_total", "instance": switch,
                      "device": f"to-{other}"}  # fmt: skip
            result.append({"metric": metric, "values": [[0, "5"], [60, str(5 + packets)]]})
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def influx() -> str:
    text = ""
    for src, dst, out, came in polls():
        text += f"interface,host={src},interface=to-{dst} out_pkts={out}i 1700000000000000000\n"
        text += f"interface,host={dst},interface=to-{src} in_pkts={came}i 1700000000000000000\n"
    return text


def nfdump() -> str:
    rows = ["ts,te,td,sa,da,sp,dp,pr,ipkt,ibyt,ra"]
    for i, (a, b, _, sent, lost) in enumerate(flows()):
        for leaf, packets in ((a, sent), (b, sent - lost)):
            rows.append(f"t,t,1,{address(a)},{address(b)},{i},80,TCP,{packets},0,leaf{leaf}")
    return "\n".join([*rows, "Summary", "flows,bytes,packets", "3000,0,0", ""])


def ipfix() -> str:
    return lines(
        [{"sourceIPv4Address": address(a), "destinationIPv4Address": address(b),
          "sourceTransportPort": i, "destinationTransportPort": 80, "protocolIdentifier": 6,
          "packetDeltaCount": packets, "exporterIPv4Address": f"192.168.0.{leaf}"}
         for i, (a, b, _, sent, lost) in enumerate(flows())
         for leaf, packets in ((a, sent), (b, sent - lost))]
    )  # fmt: skip


def pmacct() -> str:
    rows = ["ip_src,ip_dst,port_src,port_dst,ip_proto,packets,peer_ip_src"]
    for i, (a, b, _, sent, lost) in enumerate(flows()):
        for leaf, packets in ((a, sent), (b, sent - lost)):
            rows.append(f"{address(a)},{address(b)},{i},80,tcp,{packets},192.168.0.{leaf}")
    return "\n".join([*rows, ""])


def iperf3() -> str:
    return lines(
        [{"start": {"connected": [{"local_host": address(a), "remote_host": address(b)}],
                    "tcp_mss": 1460},
          "end": {"sum_sent": {"bytes": 1460 * (sent - lost), "retransmits": lost}}}
         for a, b, _, sent, lost in flows()]
    )  # fmt: skip


def fabric_table() -> str:
    rows = ["link,src,dst,src_tier,dst_tier"]
    for i, name in enumerate(FABRIC.link_names):
        src, dst = name.split("->")
        rows.append(f"{i},{src},{dst},{int(src > 'm')},{int(dst > 'm')}")
    return "\n".join([*rows, ""])


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path
