# SPDX-License-Identifier: Apache-2.0
"""
A fabric from a file
====================

Any Clos network can be described by a table with a row for each *directed* link. Here it is a
leaf-spine network of four leaves and two spines, from which one cable is missing. What its switches
or hosts measure is a second table. Both can be CSV or Parquet files.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from canary import localize

# %%
# The columns ``src_tier`` and ``dst_tier`` say which switches are leaves: tier 0. The first line of
# a CSV file says what it is.

cables = [(leaf, spine) for leaf in range(4) for spine in range(2) if (leaf, spine) != (3, 0)]
lines = ["# localization-telemetry fabric 1", "link,src,dst,src_tier,dst_tier"]
for number, (leaf, spine) in enumerate(cables):
    lines.append(f"{2 * number},leaf{leaf},spine{spine},0,1")
    lines.append(f"{2 * number + 1},spine{spine},leaf{leaf},1,0")
Path("fabric.csv").write_text("\n".join(lines) + "\n")
print(*lines[:5], "...", sep="\n")

# %%
# Every leaf probes every other over every spine that both have. A link fails: what goes down from
# ``spine1`` to ``leaf2`` loses 2 %. In the observations a path is the list of its switches.

rng = np.random.default_rng(4)
rows = []
for src in range(4):
    for dst in range(4):
        for spine in range(2):
            if src != dst and {(src, spine), (dst, spine)} <= set(cables):
                rate = 0.02 if (spine, dst) == (1, 2) else 0.00005
                path = [f"leaf{src}", f"spine{spine}", f"leaf{dst}"]
                rows.append({"nodes": [path], "sent": 2000, "lost": rng.binomial(2000, rate)})
observations = pd.DataFrame(rows).assign(kind="active").rename_axis("id").reset_index()
print(observations[observations.lost > 0].to_string(index=False))

# %%
# ``localize`` takes files or frames, and the name of a method. These observations are one-way
# probes, which ``netbouncer``, ``flock`` and ``mle`` read.

for method in ("netbouncer", "flock", "mle"):
    print(method, localize("fabric.csv", observations, method).blamed)

# %%
# The command line does the same with ``canary localize --topology fabric.csv --telemetry
# observations.parquet --method all``. The picture has what ``mle`` estimates for each link.

verdict = localize("fabric.csv", observations, "mle")
Path("fabric.csv").unlink()
links = verdict.links.assign(loss=lambda table: 100 * (1 - table.success))
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.barh(links.link, links.loss, color=np.where(links.flagged, "firebrick", "steelblue"))
axes.invert_yaxis()
axes.tick_params(axis="y", labelsize=8)
axes.set(xlabel="estimated loss rate, %")
plt.show()
