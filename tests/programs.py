# SPDX-License-Identifier: Apache-2.0
"""Programs of others that tests compare with: each is tried, not looked up.

A program can be on the PATH and lack a library or a Python module. That is no failure of this
project: the test is skipped with what the program says.
"""

from __future__ import annotations

import os
import shutil
from sysconfig import get_path

import pytest

from testbed.network.requirements import failure

COMMAND_LINE = [
    "env",
    "PYTHONPATH=" + os.pathsep.join([get_path("purelib"), os.environ.get("PYTHONPATH", "")]),
    "simple_switch_CLI",
]
"""BMv2's command line, a Python program that needs thrift, with the packages of these tests."""


def unusable(name: str, *arguments: str) -> str:
    """Return why a program cannot be used here, or "" if it ends with 0 when it is run with these
    arguments."""
    path = shutil.which(name)
    if path is None:
        return f"{name} is not on the PATH"
    command = COMMAND_LINE if name == COMMAND_LINE[-1] else [path]
    problem = failure(*command, *arguments)
    return problem and f"{name} {problem}"


def needs(*names: str) -> pytest.MarkDecorator:
    """Return the mark that skips tests where one of these programs of p4lang cannot be used."""
    asks = {"simple_switch_CLI": "--help"}
    reason = next(filter(None, (unusable(name, asks.get(name, "--version")) for name in names)), "")
    return pytest.mark.skipif(bool(reason), reason=reason or "never")
