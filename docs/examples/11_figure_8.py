# SPDX-License-Identifier: Apache-2.0
"""
Figure 8 of the Canary paper, reduced
=====================================

The paper's figure 8 compares four methods on a fat-tree of K = 8 with 26 faulty cables. The command
``canary reproduce FIG=canary-8`` draws it with the paper's values beside ours, from 20 draws of
faults; here are two draws. ``make reproduce`` alone lists all figures that can be reproduced.
"""

import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

canary = Path(sys.executable).with_name("canary")
command = [canary, "reproduce", "FIG=canary-8", "DRAWS=2", "OUT=runs/figure-8"]
subprocess.run(command, check=True, capture_output=True)

# %%
# Its folder has the picture, a table, a page and the numbers behind them: a row for each quantity,
# series, stage and draw. Canary is scored on 512 directed links, of which 52 are faulty, the others
# on 256 undirected ones, of which 26 are.

results = pd.read_parquet("runs/figure-8/canary-8/results.parquet")
SERIES = ["Canary α=1000", "NetBouncer-stage", "NetBouncer", "Flock"]
results = results[results.series.isin(SERIES)]
ends = results[results.quantity.isin(["links found", "links wrong"])]
print(ends.pivot_table("value", "series", "quantity").loc[SERIES])

# %%
# Accuracy, precision, recall and F1 after each of the five stages. A method without stages says the
# same after each.

figure, four = plt.subplots(1, 4, figsize=(10, 3), sharex=True, layout="constrained")
for axes, quantity in zip(four, ["accuracy", "precision", "recall", "F1"], strict=True):
    means = results[results.quantity == quantity].pivot_table("value", "x", "series")
    for series, marker in zip(SERIES, "osv^", strict=True):
        axes.plot(means.index, means[series], marker=marker, label=series)
    axes.set(title=quantity, xlabel="stage", ylim=(0, 1.05))
four[0].legend(fontsize="small")
plt.show()
