# SPDX-License-Identifier: Apache-2.0
"""Installs a C compiler where there is none."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from scenarios.command.install import InstallError, add_extra
from testbed.errors import UserError

ROOT = Path(__file__).parents[2]


def need_compiler() -> None:
    """Install zig's C compiler from its lock file, and print that, if there is no C compiler and
    this installation has not been compiled for its platform.

    Raises:
        NoCompiler: There is none, and this is not the environment that ``make`` set up; or CC names
            another.
        UserError: It could not be installed.
    """
    from canary_softswitch.compiler.build import compiler, uses_prebuilt
    from canary_softswitch.errors import NoCompiler

    if uses_prebuilt():
        return
    try:
        compiler()
    except NoCompiler:
        if os.environ.get("CC") or Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
            raise
        try:
            add_extra(ROOT, "compiler")
        except (InstallError, OSError) as error:
            raise UserError(str(error).removeprefix("canary: ")) from None
        importlib.invalidate_caches()
        compiler()
