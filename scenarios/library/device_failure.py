"""One switch fails: all its links drop packets (NetBouncer, section 4.4; Flock, section 7.2)."""

from scenarios.scenario import Scenario

SCENARIO = Scenario(defaults={"faults": "devices:1"})
