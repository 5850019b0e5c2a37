# SPDX-License-Identifier: Apache-2.0
"""
A class exercise, with its solution
===================================

For a course on networks or on tomography; the reader knows the Canary paper up to its section III.

**Questions.** Take a fat-tree of K = 4 whose meters are on ToR and core switches.

1. How many path segments are there, and how many of them cross a given link between a ToR and an
   aggregation switch?
2. Take the logarithm of the success rate of each link as unknown and that of each segment as known.
   What is the rank of this system, and does it determine the rates of all links?
3. If it does not: name a change of rates that no segment notices. Why is a single faulty link found
   all the same?
4. A link loses 0.5 % of its packets, healthy links none. How many packets must a segment count so
   that with a probability of 99 % at least one of its packets is lost? Check it in a run.
"""

import matplotlib.pyplot as plt
import numpy as np

from canary import run

result = run(
    faults="tor1_0->agg1_0:0.005",
    noise="0",
    epochs=20,
    epoch_ms=200,
    load=0.12,
    methods="canary-mle",
)
counts = result.telemetry.segments
fabric = result.telemetry.topology
paths = counts.segments.paths

# %%
# **Solution of 1.** Upwards each of 8 ToRs has 2 aggregation switches with 2 core switches each: 32
# segments, and as many downwards. Between the two ToRs of a pod there are 2 ways in each direction:
# 16 in all 4 pods. That is 80. A link from a ToR up is on the 2 segments to the cores behind it,
# and on 1 that turns in the pod.

crosses = np.zeros((len(counts.segments), fabric.n_links))
crosses[paths.owner, paths.links] = 1
link = fabric.link("tor1_0->agg1_0")
print(len(counts.segments), "segments,", int(crosses[:, link].sum()), "of them over the link")

# %%
# **Solution of 2.** The system has a row for each segment and a column for each link.

rank = np.linalg.matrix_rank(crosses)
print(f"{crosses.shape[0]} equations, {crosses.shape[1]} unknowns, rank {rank}")

# %%
# **Solution of 3.** Take an aggregation switch. Add a constant to the logarithms of all links that
# arrive there, and subtract it from those of all links that leave. Every segment that crosses the
# switch arrives once and leaves once, so its sum stays. There are 8 such changes, one for each
# aggregation switch, and 64 - 8 = 56.
#
# But a success rate is at most 1. The change makes all links on one side of the switch better, and
# a link that loses nothing cannot get better. So it is impossible unless *all* links that arrive at
# the switch lose packets, or all that leave it.

agg = fabric.switch("agg1_0")
change = (fabric.link_dst == agg) * 1.0 - (fabric.link_src == agg) * 1.0
print("segments that notice:", np.count_nonzero(crosses @ change))
print(fabric.n_links - rank, "changes for", (fabric.tier == 1).sum(), "aggregation switches")
print(result.diagnose("canary-mle"))

# %%
# **Solution of 4.** All of n packets arrive with the probability 0.995^n. That is 1 % or less from
# n = ln 0.01 / ln 0.995 on.

needed = int(np.ceil(np.log(0.01) / np.log(0.995)))
print(needed, "packets")

# %%
# The check: the epochs of the three segments over the link, by how many packets they counted.

over = crosses[:, link] > 0
sent, lost = counts.sent[:, over].ravel(), counts.lost[:, over].ravel()
for low, high in ((1, 300), (300, needed), (needed, 10**9)):
    some = (sent >= low) & (sent < high)
    title = f"{low} to {high - 1}" if high < 10**9 else f"{low} or more"
    print(f"{title} packets: loss seen in {np.count_nonzero(lost[some])} of {some.sum()} epochs")

# %%

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
n = np.arange(1, 2000)
axes.plot(n, 1 - 0.995**n, color="gray", label="probability of at least one loss")
axes.axvline(needed, color="firebrick", linestyle="--", label=f"99 %: {needed} packets")
axes.plot(
    sent[sent > 0],
    (lost[sent > 0] > 0) * 1.0,
    "|",
    color="steelblue",
    markersize=12,
    label="epochs of the run",
)
axes.set(
    xlabel="packets that a segment counts in an epoch", ylabel="some were lost", xlim=(0, 2000)
)
axes.legend(loc="center right", fontsize="small")
plt.show()
