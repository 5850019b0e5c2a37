# SPDX-License-Identifier: Apache-2.0
"""
The same fault, from 1 % to 0.01 %
==================================

The less a link loses, the more packets it takes to tell it from a healthy one. Here one link loses
1 %, then 0.3 %, and so on down to 0.01 %. Healthy links lose packets, too: each has a loss rate of
its own between 0 and 0.01 % (the setting ``noise``). Every rate is tried with five seeds, that is
with other traffic and other losses.

The runs use the backend ``flow``: it draws how many packets of each flow are lost, and sends none.
"""

import matplotlib.pyplot as plt
import pandas as pd

from canary import run

RATES = [0.01, 0.003, 0.001, 0.0003, 0.0001]
METHODS = ["canary", "canary-mle", "canary-mle:fault_rate=0.0002", "netbouncer", "flock"]

rows = []
for rate in RATES:
    for seed in range(1, 6):
        result = run(
            faults=f"tor0_0->agg0_1:{rate}",
            seed=seed,
            backend="flow",
            epochs=30,
            methods=",".join(METHODS),
        )
        found = result.figures[["recall", "false_positives"]].reset_index()
        rows.append(found.assign(rate=rate))
table = pd.concat(rows)

# %%
# In how many of five runs does each method find the link, and how many healthy links does it blame
# in all five?

found = table.pivot_table("recall", "method", "rate", aggfunc="sum", sort=False)
wrong = table.pivot_table("false_positives", "method", "rate", aggfunc="sum", sort=False)
print(found.astype(int), end="\n\n")
print(wrong)

# %%
# ``canary-mle`` stops at 0.1 % on purpose: a link that loses less is no fault by default. With
# ``fault_rate=0.0002`` in its name it calls 0.02 % a fault, and finds some links that lose 0.03 %.
# A link that loses 0.01 % is like its healthy neighbours. Flock has one loss rate for all faulty
# links, 3 %: what loses less than 0.5 % is more like its healthy links, which lose 0.01 %.
# NetBouncer sent 100 probes over each path, which is too few: of these a fault of 0.1 % takes a
# tenth of a packet.

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for method, marker in zip(METHODS, "os^vD", strict=True):
    axes.semilogx(100 * found.columns, found.loc[method], marker=marker, label=method, alpha=0.8)
axes.set(xlabel="loss rate of the link, %", ylabel="found, of 5 runs", ylim=(-0.3, 5.3))
axes.set_xticks([100 * rate for rate in RATES], [f"{100 * rate:g}" for rate in RATES], minor=False)
axes.minorticks_off()
axes.invert_xaxis()
axes.legend(fontsize="small")
plt.show()
