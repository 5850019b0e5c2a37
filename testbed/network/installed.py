"""Whether a network of namespaces can be brought up here, and what to install if not."""

from __future__ import annotations

import importlib.util
import os
import shutil

from testbed.network.switches import SOFT_SWITCH, Backend

__all__ = ["missing", "not_installed"]


def missing(backend: Backend | None = None) -> str:
    """Why no network can be brought up here, with this backend or at all; "" if one can."""
    if os.geteuid():
        return "a network of namespaces needs root: use sudo"
    return not_installed(backend)


def not_installed(backend: Backend | None = None) -> str:
    """What `missing` finds besides root."""
    for command, package in (("mnexec", "mininet"), ("ip", "iproute2")):
        if shutil.which(command) is None:
            return f"{command} is not on the PATH: apt install {package}"
    for module, package in (("mininet", "mininet"), ("p4runtime_sh", "p4runtime-shell")):
        if importlib.util.find_spec(module) is None:
            return f"Python's {module} is not installed: pip install {package}"
    if backend == "bmv2" and shutil.which("simple_switch_grpc") is None:
        return "simple_switch_grpc is not on the PATH: install BMv2, or use BACKEND=softswitch"
    if backend == "softswitch" and importlib.util.find_spec(SOFT_SWITCH) is None:
        return "the soft switch has no process of its own here"
    return ""
