# SPDX-License-Identifier: Apache-2.0
"""
One register by hand
====================

A switch's meter is three rows of 1,024 buckets. This example takes one bucket of one downstream
meter and works out, from the tables of the run alone, whose packets it counted, on which path
segment, and how many of them the segment lost. Every step can be done with pencil and paper. The
last ones repeat it for all flows of the segment and compare with what Canary is given.
"""

import zlib

import matplotlib.pyplot as plt

from canary import run

# Few flows, and fast ones, so that a bucket counts many packets in a second.
few = {"load": 0.02, "traffic": "hadoop", "flow_rate": "0.02..0.08"}
result = run(
    faults="tor3_0->agg3_1:0.05", noise="0", epochs=3, epoch_ms=1000, methods="canary", **few
)
registers, switches = result.table("registers"), result.table("switches")
USM, DSM = 0, 1  # the column ``meter``: upstream meter, downstream meter

# %%
# **The bucket.** The fullest clean bucket of a downstream meter in epoch 1. A bucket is *clean* if
# one flow alone counted in it, and *dirty* otherwise.

clean = registers[~registers.dirty & (registers.epoch == 1)]
bucket = clean[clean.meter == DSM].nlargest(1, "count").iloc[0]
print(bucket.to_string())

# %%
# **The flow.** A flow ID has 104 bits: source address (32), destination address (32), source port
# (16), destination port (16) and protocol (8), the first bit of each the most significant one. The
# record has the upper 40 bits in ``flow_hi`` and the lower 64 in ``flow_lo``.

flow = int(bucket.flow_hi) << 64 | int(bucket.flow_lo)
source, destination = flow >> 72, flow >> 40 & 0xFFFFFFFF
ports, protocol = (flow >> 24 & 0xFFFF, flow >> 8 & 0xFFFF), flow & 0xFF
addresses = [
    ".".join(str(byte) for byte in end.to_bytes(4, "big")) for end in (source, destination)
]
print(*addresses, ports, "TCP" if protocol == 6 else "UDP")

# %%
# **The hosts.** Host ``h`` of rack ``r`` in pod ``p`` has the address 10.p.r.(h + 2); 10.p.r.1 is
# its ToR switch. (The addresses of a *capture* are dealt to these hosts: the address with most
# packets first, one host of each rack in turn, the racks in an order that the seed draws.)

for end in (source, destination):
    _, pod, rack, last = end.to_bytes(4, "big")
    print(f"h{pod}_{rack}_{last - 2}")

# %%
# **The row and the bucket.** All rows share one CRC32 of the 13 bytes of the flow ID, most
# significant byte first: row 0 takes its bits 0 to 9, row 1 bits 10 to 19, row 2 bits 20 to 29.

crc = zlib.crc32(flow.to_bytes(13, "big"))
windows = [crc >> 10 * row & 1023 for row in range(3)]
print(f"CRC32 {crc:#010x}, buckets {windows}; the record: row {bucket.row}, bucket {bucket.bucket}")

# %%
# **The segment.** Segments between monitors are numbered as follows: those that turn inside a pod,
# by their first ToR, their last ToR and the switch between; then those that lead up, by ToR,
# aggregation switch and core; then the same backwards.

fabric = result.table("fabric")
up = {
    name: list(links.dst)
    for name, links in fabric[fabric.src_tier < fabric.dst_tier].groupby("src")
}
tors = list(dict.fromkeys(fabric.src[fabric.src_tier == 0]))
turning = [(a, m, b) for a in tors for b in tors if a != b for m in up[a] if m in up[b]]
rising = [(tor, agg, core) for tor in tors for agg in up[tor] for core in up[agg]]
segments = turning + rising + [segment[::-1] for segment in rising]

# %%
# A packet carries the pathBF of the segment: the bitwise *or* of the masks of its switches but the
# last, which reads it. Only one segment that ends at the bucket's switch has the bucket's pathBF.

mask = dict(zip(switches.name, switches["mask"], strict=True))
here = switches.name[bucket.switch]
[number] = [
    i
    for i, (first, middle, last) in enumerate(segments)
    if last == here and mask[first] | mask[middle] == bucket.path_bf
]
first, middle, last = segments[number]
print(f"{mask[first]:#010x} | {mask[middle]:#010x} = {bucket.path_bf:#010x}")
print(f"segment {number} of {len(segments)}:", " -> ".join(segments[number]))

# %%
# **The loss.** The upstream meter of the first switch has the same flow in the same buckets. What
# it counted more is what the segment lost, packet for packet.

key = ["flow_hi", "flow_lo"]
upstream = clean[(clean.meter == USM) & (clean.switch == switches.index[switches.name == first][0])]
[sent] = upstream[(upstream[key] == bucket[key]).all(axis=1)]["count"].unique()
print(f"{sent} sent, {bucket['count']} arrived, {sent - bucket['count']} lost")

# %%
# **All flows of the segment.** A flow may be clean in several rows, with equal counts: take one.
# The sums are those of the table ``segments``. (A flow that lost *all* its packets has no bucket
# downstream; here there is none.)

arrived = clean[
    (clean.meter == DSM) & (clean.switch == bucket.switch) & (clean.path_bf == bucket.path_bf)
]
both = upstream.merge(arrived, on=key, suffixes=("_up", "_down")).drop_duplicates(key)
print(
    f"{len(both)} flows: {both.count_up.sum()} sent, {(both.count_up - both.count_down).sum()} lost"
)
table = result.table("segments")
print(table[(table.epoch == 1) & (table.segment == number)].to_string(index=False))

# %%
# Row 0 of the downstream meter after this epoch, as a picture.

row = registers[(registers.epoch == 1) & (registers.switch == bucket.switch)]
row = row[(row.meter == DSM) & (row.row == 0)]
figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
axes.vlines(row.bucket, 0.5, row["count"], color="steelblue", label=f"{len(row)} buckets in use")
axes.plot(windows[0], bucket["count"], "o", color="firebrick", label="the bucket of this example")
axes.set(xlabel="bucket", ylabel="packets", yscale="log", xlim=(0, 1023), ylim=(0.5, 50_000))
axes.set_title(f"downstream meter of {here}, row 0")
axes.legend(fontsize="small", ncol=2, loc="upper left")
plt.show()
