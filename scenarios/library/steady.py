# SPDX-License-Identifier: Apache-2.0
"""Canary in its steady state: monitored flows go on from epoch to epoch, also with faults at K=8.

The traffic is that of the other scenarios. The controller selects DELTA=30 flows a request, more
than its target BETA: with as many as BETA, a segment that lost one of its flows, or two of whose
flows share a bucket of a meter, missed its targets and was asked for new rules.

At K=8 with 10 % of the links faulty 88 % of the epochs of segments between pods meet both targets
after the first (94 % of those without a faulty link), and 88 % of all need no new rule from the
third on; with the default DELTA=20 these are 85, 89 and 83 % (seed 1).
"""

from scenarios.experiment.request import Scenario

SCENARIO = Scenario(defaults={"delta": 30})
