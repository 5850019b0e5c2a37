"""The former place of `Settings`: import it from `scenarios`. It is kept for one release."""

import warnings

from scenarios.experiment.settings import *  # noqa: F403

warnings.warn(
    "scenarios.settings has moved: write `from scenarios import Settings`",
    DeprecationWarning,
    stacklevel=2,
)
