# SPDX-License-Identifier: Apache-2.0
"""The former place of `Settings`: import it from `scenarios`. It is kept for one release."""

import warnings

from scenarios.experiment.settings import (  # noqa: F401
    Setting,
    Settings,
    SettingsError,
    described,
    make_settings,
)

warnings.warn(
    "scenarios.settings has moved: write `from canary import Settings`",
    DeprecationWarning,
    stacklevel=2,
)
