# SPDX-License-Identifier: Apache-2.0
"""One switch fails: all its links drop packets at one rate, or it is dead (NetBouncer, 4.4)."""

from scenarios.experiment.request import Scenario

SCENARIO = Scenario(defaults={"faults": "devices:1"})
