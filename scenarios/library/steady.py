# SPDX-License-Identifier: Apache-2.0
"""Canary in its steady state: monitored flows go on from epoch to epoch, also with faults at K=8.

As many flows as by default, each with 81 full packets an epoch instead of 65, so that segments
reach ALPHA=1000 although some of their flows share a bucket of a core's meter or cannot be proven
to keep their path. This costs a quarter more packets.
"""

from scenarios.experiment.request import Scenario

SCENARIO = Scenario(defaults={"backend": "virtual", "load": 0.075, "flow_rate": 0.0005})
