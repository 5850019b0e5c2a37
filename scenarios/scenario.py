# SPDX-License-Identifier: Apache-2.0
"""The former place of `Scenario`: import it from `scenarios`. It is kept for one release."""

import warnings

from scenarios.experiment.request import Scenario, load_scenario, scenario_names  # noqa: F401

warnings.warn(
    "scenarios.scenario has moved: write `from canary import Scenario`",
    DeprecationWarning,
    stacklevel=2,
)
