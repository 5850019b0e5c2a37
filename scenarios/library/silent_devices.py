# SPDX-License-Identifier: Apache-2.0
"""One or two switches lose packets on 25 to 100 % of their links, 0.1 to 1 % (Flock, section 7.2).

Each link has its own loss rate, as in section 7.1, whose set-up section 7.2 uses.

The network and its traffic are those of `scenarios.library.silent_drops`.
"""

from scenarios.experiment.request import Scenario
from scenarios.library.silent_drops import FLOCK

SCENARIO = Scenario(defaults=FLOCK | {"faults": "device-links:1..2@25..100pct:0.001..0.01"})
