"""One or two switches lose packets on 25 to 100 % of their links, 0.1 to 1 % (Flock, section 7.2).

The network and its traffic are those of `scenarios.library.silent_drops`.
"""

from scenarios.library.silent_drops import FLOCK
from scenarios.scenario import Scenario

SCENARIO = Scenario(defaults=FLOCK | {"faults": "devices:1..2@25..100pct:0.001..0.01"})
