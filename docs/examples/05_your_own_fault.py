# SPDX-License-Identifier: Apache-2.0
"""
Your own fault
==============

A scenario is a function that says what breaks: it gets the fabric and the settings of a run, and
returns a plan of faults. Here a core switch has a bad moment: in the middle third of the run all of
its links corrupt a tenth of their packets. The next switch finds a wrong checksum and drops them.
"""

import matplotlib.pyplot as plt

from canary import Fault, FaultPlan, Scenario, run


def bad_moment(topology, settings):
    """Return faults of all links of core0 in the second third of the run."""
    third = settings.duration_s / 3
    when = ((third, 2 * third),)
    links = topology.links_of(topology.switch("core0"))
    return FaultPlan(tuple(Fault(link, 0.1, "corrupt", schedule=when) for link in links))


METHODS = "canary,canary:lossy_share=0.5,canary-mle,netbouncer,flock"
result = run(
    Scenario(make_faults=bad_moment), epochs=9, epoch_ms=200, load=0.2, seed=5, methods=METHODS
)

# %%
# A link counts as faulty if it was broken at any time of the run. Canary takes the losses of a
# segment for noise if they came in few epochs. How many are few follows from what healthy links
# lose. With ``lossy_share=0.5`` it wants loss in half of the epochs, and these links lose packets
# in a third of them.

print(len(result.faulty), "faulty links:", *result.faulty)
for method in METHODS.split(","):
    print(f"{method:22}", result.diagnose(method))

# %%
# What the meters counted in each epoch, on segments that begin or end at ``core0`` and on others.
# The segments of a run are numbered as those of its fabric.

segments = result.telemetry.segments
core0 = segments.segments.through(result.telemetry.topology.switch("core0"))
sent, lost = segments.sent, segments.lost

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for which, label in ((core0, "segments at core0"), (~core0, "all others")):
    share = 100 * lost[:, which].sum(axis=1) / sent[:, which].sum(axis=1)
    print(label, *(f"{each:.1f}" for each in share))
    axes.plot(share, "o-", label=label)
axes.set(xlabel="epoch", ylabel="packets lost, %")
axes.legend()
plt.show()

# %%
# In a file of its own, with ``SCENARIO = Scenario(make_faults=bad_moment)``, it is known to the
# command line, too: ``make scenario SCENARIO=bad_moment.py``.
