# SPDX-License-Identifier: Apache-2.0
"""
Break a link and see who finds it
=================================

One directed link of a K=4 fat-tree drops 5 % of its packets. Nobody is told: no counter of the
switch shows it, which is why such a fault is called *silent*. Five methods look for it, each in the
measurements that it is made for.
"""

import matplotlib.pyplot as plt

from canary import run

METHODS = "canary,netbouncer,flock,007,007:threshold=0.01,canary-mle"
result = run(faults="tor0_0->agg0_1:0.05", seed=7, methods=METHODS)

# %%
# The run knows the truth, and has a score for each method. NetBouncer's probes go up and come back
# on the same links, so it cannot tell the two directions of a link apart: it is scored on
# *undirected* links, the others on *directed* ones.

print("faulty:", *result.faulty)
print(result.figures[["native", "precision", "recall", "f1"]].round(2))

# %%
# A verdict names the links that a method blames. 007 blames a link that has more votes than it
# would get by chance. The paper's own threshold, 1 % of all votes (``007:threshold=0.01``), is
# meant for networks of thousands of links; among 64 links a few stray losses reach it.

for method in METHODS.split(","):
    verdict = result.diagnose(method)
    print(
        f"{method:18} found {result.faulty[0] in verdict.blamed}, blamed wrongly: {verdict.wrong}"
    )

# %%
# The fabric as Canary sees it, after coordinate descent on what the switches' meters counted: the
# darker a link, the larger its estimated loss rate. The two directions of a link are drawn side by
# side.

fabric = result.telemetry.topology
loss = 1 - result.diagnose("canary").links.success
place = {}
for tier in range(3):
    names = [name for name, of in zip(fabric.switch_names, fabric.tier, strict=True) if of == tier]
    for i, name in enumerate(names):
        place[name] = ((i + 0.5) / len(names), tier)

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, share in sorted(zip(fabric.link_names, loss, strict=True), key=lambda pair: pair[1]):
    (x0, y0), (x1, y1) = (place[end] for end in name.split("->"))
    aside = 0.004 if y1 > y0 else -0.004
    color = plt.cm.OrRd(0.2 + 0.8 * min(share / 0.05, 1))
    axes.plot([x0 + aside, x1 + aside], [y0, y1], color=color, linewidth=1.5)
for name, (x, y) in place.items():
    axes.text(x, y, name, ha="center", va="center", fontsize=7, bbox={"fc": "white", "ec": "gray"})
axes.set_axis_off()
axes.set_title(f"loss rates that Canary estimates: {loss.max():.1%} on {', '.join(result.faulty)}")
plt.show()
