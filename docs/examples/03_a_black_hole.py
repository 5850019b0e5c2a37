# SPDX-License-Identifier: Apache-2.0
"""
A black hole that meters cannot see
===================================

A broken forwarding entry drops *all* packets of some flows and none of the others. Canary meters
large flows, and it learns of a flow where the flow arrives. So it matters when the hole opens:

* A hole that opens while its flows are metered is seen at once: the upstream meter goes on
  counting, the downstream meter counts nothing. Flows that begin later are not seen.
* A hole that is there from the start swallows its flows before any switch behind it has seen them.
  They are never selected, hence never metered.
"""

import matplotlib.pyplot as plt
import pandas as pd

from canary import Fault, FaultPlan, FlowMatch, Scenario, Ternary, run

# %%
# The hole is on one link. It takes the flows whose destination port ends in the bits 01, which is a
# quarter of them.

LINK = "tor0_0->agg0_1"
QUARTER = FlowMatch(dst_port=Ternary(value=0b01, mask=0b11))


def hole_from(second):
    """Return a scenario whose hole opens at a second of the run and stays open."""

    def faults(topology, settings):
        times = ((second, settings.duration_s),)
        return FaultPlan((Fault(topology.link(LINK), 1.0, "blackhole", QUARTER, times),))

    return Scenario(make_faults=faults)


METHODS = "canary,canary-mle,netbouncer,detector"
settings = {
    "traffic": "websearch",
    "epochs": 4,
    "epoch_ms": 500,
    "load": 0.2,
    "seed": 2,
    "noise": "0",
}
late = run(hole_from(1.0), methods=METHODS, **settings)
early = run(hole_from(0.0), methods=METHODS, **settings)

# %%
# Who finds it? ``canary`` and ``canary-mle`` read meters, the other two send probes. NetBouncer's
# probes carry another packet in their payload and have no ports of their own, so that the hole
# spares them. deTector's probes have many ports, and a quarter of them falls into the hole.

runs = {"opens at 1 s": late, "from the start": early}
found = {
    title: {method: LINK in result.diagnose(method).blamed for method in METHODS.split(",")}
    for title, result in runs.items()
}
print(pd.DataFrame(found))

# %%
# The record says why: it has every packet that the network dropped, and what the meters counted.
# Nothing else loses packets in these two runs (``noise``).

figure, both = plt.subplots(1, 2, figsize=(7, 3.3), sharey=True, layout="constrained")
for axes, (title, result) in zip(both, runs.items(), strict=True):
    drops = result.table("drops")
    epoch = drops[drops.cause == "fault"].time_ns // 500_000_000
    dropped = epoch.value_counts().reindex(range(4), fill_value=0)
    seen = result.table("segments").groupby("epoch").lost.sum().reindex(range(4), fill_value=0)
    print(f"{title}: {dropped.sum():,} packets dropped, {seen.sum():,} of them seen by the meters")
    axes.bar(range(4), dropped, color="lightgray", label="dropped")
    axes.plot(range(4), seen, "o-", color="firebrick", label="seen by the meters")
    axes.set(title=title, xlabel="epoch", xticks=range(4))
both[0].set_ylabel("packets")
figure.legend(*both[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()
