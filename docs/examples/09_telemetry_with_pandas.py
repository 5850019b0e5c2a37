# SPDX-License-Identifier: Apache-2.0
"""
Telemetry from elsewhere, with pandas
=====================================

Your hosts already count retransmissions, and some agent traces a few connections. That is
telemetry, too. This example takes two tables as monitoring systems have them, with columns of their
own, and makes of them what the methods read.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from canary import localize

# %%
# The cabling of three racks under two spines, a row for each cable. The methods need a row for each
# direction, and to know which switches the racks are at: tier 0.

cabling = pd.DataFrame(
    [(f"rack{r}", f"spine{s}") for r in range(3) for s in range(2)], columns=["lower", "upper"]
)
up = cabling.rename(columns={"lower": "src", "upper": "dst"}).assign(src_tier=0, dst_tier=1)
down = cabling.rename(columns={"upper": "src", "lower": "dst"}).assign(src_tier=1, dst_tier=0)
fabric = pd.concat([up, down], ignore_index=True).rename_axis("link").reset_index()
print(fabric.head(3).to_string(index=False))

# %%
# The hosts' log: a row for each TCP connection. Nobody knows which of the two spines a connection
# went over. One link, from ``spine1`` down to ``rack2``, loses 3 %.

rng = np.random.default_rng(2)
src, dst = rng.integers(0, 3, (2, 3000))
log = pd.DataFrame({"from": src, "to": dst, "segments": rng.integers(20, 400, 3000)})
log = log[log["from"] != log["to"]]
spine = rng.integers(0, 2, len(log))
rate = np.where((spine == 1) & (log.to == 2), 0.03, 0.0001)
log["retransmitted"] = rng.binomial(log.segments, rate)
print(log.head(3).to_string(index=False))

# %%
# 1. *Without paths.* Each connection becomes an observation of the kind ``passive``, with the
#    switches at its ends. The methods take all equal-cost paths between these into account.
# 2. *With some paths.* Of each hundredth connection the agent traced the path. A row with a path in
#    ``nodes`` needs no ends.

passive = pd.DataFrame(
    {
        "id": log.index,
        "kind": "passive",
        "src": "rack" + log["from"].astype(str),
        "dst": "rack" + log.to.astype(str),
        "sent": log.segments,
        "retransmissions": log.retransmitted,
    }
)
traced = passive.iloc[::100].copy()
over = pd.Series(spine, log.index)
traced["nodes"] = [[[row.src, f"spine{over[row.id]}", row.dst]] for row in traced.itertuples()]
both = pd.concat([passive.drop(traced.index), traced])

verdicts = {}
for title, observations in (("without paths", passive), ("some traced", both)):
    verdicts[title] = localize(fabric, observations, "flock")
    print(f"{title}: {len(observations):,} connections, blamed:", verdicts[title].blamed)

# %%
# Without paths the link over ``spine0`` and that over ``spine1`` look alike: both are on every
# connection to ``rack2``. Twenty traces tell them apart. The picture has the score of each link.

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
height = 0.4
for shift, (title, verdict) in zip((-height / 2, height / 2), verdicts.items(), strict=True):
    axes.barh(np.arange(len(fabric)) + shift, verdict.links.score, height, label=title)
axes.set_yticks(range(len(fabric)), verdict.links.link, fontsize=8)
axes.invert_yaxis()
axes.set(xlabel="score: how suspicious flock finds the link")
axes.legend()
plt.show()
