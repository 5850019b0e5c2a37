# SPDX-License-Identifier: Apache-2.0
"""Packages that only some commands need: Matplotlib, Dask and zig, which compiles C.

``make`` installs them where a target needs them. A command without them says so in one line.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from testbed.errors import UserError

ROOT = Path(__file__).parents[1]
NO_PICTURE = "no picture: Matplotlib is not installed (make setup-plot)"


def can_draw() -> bool:
    """Return True if Matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def need_dask() -> None:
    """Raise `UserError` if Dask, which a cluster needs, is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise UserError("CLUSTER= needs Dask, which is not installed: make setup-cluster")


def need_compiler() -> None:
    """Install zig's C compiler from its lock file, and print that, if there is no C compiler.

    Raises:
        NoCompiler: There is none, and this is not the environment that ``make`` set up; or CC names
            another.
        UserError: It could not be installed.
    """
    from testbed.softswitch.compiler.build import compiler  # imports the soft switch
    from testbed.softswitch.errors import NoCompiler

    try:
        compiler()
    except NoCompiler:
        if os.environ.get("CC") or Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
            raise
        from scenarios.command.install import InstallError, add_extra

        try:
            add_extra(ROOT, "compiler")
        except (InstallError, OSError) as error:
            raise UserError(str(error).removeprefix("canary: ")) from None
        importlib.invalidate_caches()
        compiler()
