# SPDX-License-Identifier: Apache-2.0
"""Nothing is broken: whatever a method flags here is a false alarm."""

from scenarios.experiment.request import Scenario

SCENARIO = Scenario(defaults={"faults": "none"})
