# SPDX-License-Identifier: Apache-2.0
"""
Your own traffic
================

Traffic can be a list of flows: who sends how many bytes to whom, and from which second on. Here
three racks send to one host and nobody else sends anything. Two links are broken: one that this
traffic crosses, and one that it does not. What no packet crosses, passive methods cannot see.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from canary import run

rng = np.random.default_rng(1)
senders = ["h1_0_0", "h1_0_1", "h2_0_0", "h2_0_1", "h3_1_0", "h3_1_1"]
flows = pd.DataFrame(
    {
        "src": np.repeat(senders, 40),
        "dst": "h0_0_0",
        "bytes": rng.integers(50_000, 400_000, 240),
        "start": np.round(rng.uniform(0, 1.8, 240), 4),
    }
)
flows.to_csv("incast.csv", index=False)
print(flows.head(3))

# %%
# The host ``h0_0_0`` is the first one at the switch ``tor0_0`` (pod 0, rack 0, host 0). A capture
# takes the place of such a list in another example, and a file of flow sizes (``sizes.txt``) draws
# flows from a distribution.

BROKEN = ["agg0_0->tor0_0", "tor2_1->agg2_0"]
METHODS = "canary-mle,flock,netbouncer"
result = run(
    traffic="incast.csv",
    faults=",".join(f"{link}:0.05" for link in BROKEN),
    epochs=4,
    epoch_ms=500,
    methods=METHODS,
)
Path("incast.csv").unlink()

# %%
# Rack ``tor2_1`` sends nothing, so meters have nothing to count on its link. Flock reads the flows
# of the hosts *and* probes, and NetBouncer probes alone.

for method in METHODS.split(","):
    blamed = result.diagnose(method).blamed
    print(f"{method:10}", {link: link in blamed for link in BROKEN})

# %%
# How many packets crossed each link, those of probes aside? The two broken links are marked.

links = result.table("links")
segments = result.telemetry.segments
metered = np.zeros(len(links), np.int64)
paths = segments.segments.paths
np.add.at(metered, paths.links, segments.sent.sum(axis=0)[paths.owner])

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
colors = ["firebrick" if name in BROKEN else "steelblue" for name in links.name]
axes.bar(links.index, metered, color=colors)
for name, height in zip(BROKEN, (10_200, 8_000), strict=True):
    at = links.index[links.name == name][0]
    arrow = {"arrowstyle": "->", "color": "firebrick"}
    axes.annotate(
        f"{name}: {metered[at]:,}",
        (at, metered[at]),
        (at + 6, height),
        color="firebrick",
        arrowprops=arrow,
    )
axes.set(xlabel="link", ylabel="packets that meters counted")
plt.show()
