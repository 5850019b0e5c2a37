"""Nothing is broken: whatever a method flags here is a false alarm."""

from scenarios.experiment.request import Scenario

SCENARIO = Scenario(defaults={"faults": "none"})
