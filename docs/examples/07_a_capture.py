# SPDX-License-Identifier: Apache-2.0
"""
A capture
=========

The packets of a capture can be sent through the fabric: when, how large and in which flows is taken
from the file, and its addresses are dealt to the hosts. Here Scapy writes a small capture of thirty
TCP connections and one ping; any ``.pcap`` or ``.pcapng`` file of yours will do.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scapy.layers.inet import ICMP, IP, TCP, Ether
from scapy.utils import wrpcap

from canary import run

rng = np.random.default_rng(7)
frames, sources = [], {}
for connection in range(30):
    begin, packets = rng.uniform(0, 2), int(rng.pareto(1.2) * 30) + 20
    ends = {"src": f"192.0.2.{rng.integers(1, 9)}", "dst": f"198.51.100.{rng.integers(1, 9)}"}
    sources[40_000 + connection] = ends["src"]
    for time in np.sort(begin + rng.uniform(0, 1, packets)):
        frame = Ether() / IP(**ends) / TCP(sport=40_000 + connection, dport=443) / bytes(600)
        frame.time = time
        frames.append(frame)
ping = Ether() / IP(src="192.0.2.1", dst="198.51.100.1") / ICMP()
ping.time = 1.0
wrpcap("small.pcap", sorted([*frames, ping], key=lambda frame: frame.time))

# %%
# ``:fit`` behind the name squeezes the capture's timing into the run; without it, packets beyond
# the run's end are left out, with a warning. The record says what became of the frames.

result = run(
    traffic="small.pcap:fit",
    faults="agg3_0->tor3_0:0.05",
    epochs=4,
    epoch_ms=500,
    methods="canary,canary-mle,flock",
)
Path("small.pcap").unlink()
account = json.loads((result.path / "capture.json").read_text())
print(
    f"{account['frames']:,} frames, {account['replayed']:,} replayed, left out:", account["refused"]
)
for method in ("canary", "canary-mle", "flock"):
    print(result.diagnose(method))

# %%
# Which host sends for which address? The address with most packets is dealt first, and hosts are
# dealt rack after rack: one host of each, then the second of each. If two addresses that talk to
# each other fall into one rack, the larger one moves to another rack for this pair. Ports stay,
# unless two flows would become one.

flows = result.table("flows")
names = np.array(result.telemetry.topology.host_names)
largest = flows.nlargest(5, "sent")
shown = largest.assign(
    address=largest.src_port.map(sources), src=names[largest.src_host], dst=names[largest.dst_host]
)
print(
    shown[["address", "src_port", "src", "dst", "dst_port", "sent", "lost"]].to_string(index=False)
)

# %%
# Who sends to whom.

packets = np.zeros((len(names), len(names)), int)
np.add.at(packets, (flows.src_host, flows.dst_host), flows.sent)
figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
picture = axes.imshow(packets, cmap="Blues")
axes.set_xticks(range(len(names)), names, rotation=90)
axes.set_yticks(range(len(names)), names)
axes.set(xlabel="receiver", ylabel="sender")
figure.colorbar(picture, label="packets of the capture")
plt.show()
