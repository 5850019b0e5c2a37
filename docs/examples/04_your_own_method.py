# SPDX-License-Identifier: Apache-2.0
"""
Your own method
===============

A method is a class: a name, the part of the telemetry that it reads, and ``infer``, which blames
links. This one blames every link of a path segment that lost more than a given share of its
packets. With a low limit that finds every faulty link, and blames its healthy neighbours with it.
"""

import matplotlib.pyplot as plt
import numpy as np

from canary import Method, run


class WorstSegments(Method):
    """Blames every link of the segments that lose more than ``limit``."""

    name = "worst-segments"
    reads = "segments"

    def __init__(self, *, limit: float = 0.1) -> None:
        self.limit = limit

    def infer(self, counts, fabric):
        """Return the links that are blamed, and a score of each link of the fabric."""
        sent, lost = counts.sent.sum(axis=0), counts.lost.sum(axis=0)
        bad = np.flatnonzero(lost > self.limit * sent)
        links = counts.segments.paths.take(bad).links
        return self.diagnosis(fabric, links, score=np.bincount(links, minlength=fabric.n_links))


# %%
# ``counts`` are packets sent and lost on each segment: ``sent`` and ``lost`` are arrays of one row
# an epoch and one column a segment, and ``counts.segments.paths`` has the links of each segment.
#
# A run can be diagnosed by any method, also by one that did not exist when it was made.

result = run(faults="6links", seed=3, methods="canary")
print("faulty:", *result.faulty)
print(result.diagnose("canary"))
print(result.diagnose(WorstSegments()))
print(result.diagnose(WorstSegments(limit=0.02)))

# %%
# How does the limit change what is found and what is blamed wrongly?

limits = np.geomspace(0.001, 0.5, 12)
scores = [result.diagnose(WorstSegments(limit=limit)).score for limit in limits]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.semilogx(limits, [score.recall for score in scores], "o-", label="recall")
axes.semilogx(limits, [score.precision for score in scores], "s-", label="precision")
axes.set(xlabel="limit: share of packets that a segment loses", ylabel="worst-segments")
axes.legend()
plt.show()

# %%
# In a file of its own the method is known to the command line, too:
# ``canary run --methods canary,worst.py``.
