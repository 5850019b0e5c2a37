# SPDX-License-Identifier: Apache-2.0
"""10 % of the directed links drop packets silently, at rates from 0.001 to 1.

This is the setting of Canary's section IV-D: five ranges of loss rates in the paper's proportions.
"""

from scenarios.experiment.request import Scenario

SCENARIO = Scenario()
