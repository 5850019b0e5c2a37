# SPDX-License-Identifier: Apache-2.0
"""Packages that only some commands need: Matplotlib and Dask.

``make`` installs them where a target needs them. A command without them says so in one line.
"""

from __future__ import annotations

import importlib.util

from testbed.errors import UserError

NO_PICTURE = "no picture: Matplotlib is not installed (make setup-plot, or pip install matplotlib)"


def can_draw() -> bool:
    """Return True if Matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def need_matplotlib() -> None:
    """Raise `UserError` if Matplotlib is not installed."""
    if not can_draw():
        raise UserError(NO_PICTURE)


def need_dask() -> None:
    """Raise `UserError` if Dask, which a cluster needs, is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise UserError(
            "CLUSTER= needs Dask, which is not installed: make setup-cluster, or "
            "pip install 'canary-testbed[cluster]'"
        )
