# SPDX-License-Identifier: Apache-2.0
"""Whether a network of namespaces can be brought up here, and what to install if not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

from testbed.network.switches import SOFT_SWITCHES, Backend
from testbed.rootless import find_program, forbidden, may_make_networks


@dataclass(frozen=True)
class Tool:
    """A program that has to be installed besides this package.

    Attributes:
        command: Its name on the PATH.
        install: The command that installs it.
        without: What needs it.
        instead: The option that makes it unnecessary, if there is one.
        asks: The argument with which it prints its version.
    """

    command: str
    install: str
    without: str
    instead: str = ""
    asks: str = "--version"

    @property
    def lacking(self) -> str:
        """Return a line that says what to do if the program is missing or does not run; "" if it
        runs."""
        path = find_program(self.command)
        problem = "is not on the PATH" if path is None else failure(path, self.asks)
        if not problem:
            return ""
        instead = f", or use {self.instead}" if self.instead else ""
        return f"{self.command} {problem}: {self.install}{instead}"


@cache
def failure(path: str, *arguments: str) -> str:
    """Return how a program fails with harmless arguments, such as ``--version``: "does not run"
    with its last line of output, or "" if it ends with 0. A program can be on the PATH and lack a
    library. The answer is kept for this process."""
    try:
        done = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERS_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run ({error})"
    if done.returncode == 0:
        return ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return f"does not run ({lines[-1].strip() if lines else f'exit code {done.returncode}'})"


_ANSWERS_S = 60.0  # a busy machine may take seconds


_REAL = "runs on real packets and Mininet's prompt"
_P4LANG = "sudo vagrant/provision.sh (Debian, Ubuntu)"

MNEXEC = Tool("mnexec", "apt install mininet", _REAL, asks="-v")
IP = Tool("ip", "apt install iproute2", _REAL, asks="-V")
IPERF = Tool("iperf3", "apt install iperf3", "TCP by the hosts' own kernels", "TCP=0")
PING = Tool("ping", "apt install iputils-ping", "ping at Mininet's prompt", asks="-V")
BMV2 = Tool("simple_switch_grpc", _P4LANG, "BACKEND=bmv2", "BACKEND=softswitch")
NFT = Tool("nft", "apt install nftables", "links of BMv2 that go down", "BACKEND=softswitch")
P4C = Tool("p4c", _P4LANG, "changes of p4/canary.p4: what it compiles to is in p4/build")


def no_namespaces() -> str:
    """Return why this system has no network namespaces, "" if it is Linux."""
    if sys.platform == "linux":
        return ""
    return "a network of namespaces needs Linux: use BACKEND=virtual, or vagrant/'s machine"


def no_packages() -> str:
    """Return which of the Python packages for real packets is not installed, "" if all are."""
    for module in ("mininet", "p4runtime_sh", "pyroute2"):
        if importlib.util.find_spec(module) is None:
            return f"Python's {module} is not installed: pip install 'canary-testbed[real]'"
    return ""


def missing(backend: Backend | None = None) -> str:
    """Return why a network cannot be brought up here, "" if it can.

    Args:
        backend: The kind of switches that it needs; None checks for no kind of switch.
    """
    if reason := no_namespaces():
        return reason
    if not may_make_networks():
        return forbidden() or "this process needs namespaces of its own: start it by unshare -Urn"
    return not_installed(backend)


def not_installed(backend: Backend | None = None) -> str:
    """Return a line about the first missing program or package, "" if there is none.

    Unlike `missing`, this does not check whether this process may make networks.
    """
    for tool in (MNEXEC, IP):
        if tool.lacking:
            return tool.lacking
    if reason := no_packages():
        return reason
    if backend == "bmv2" and BMV2.lacking:
        return BMV2.lacking
    if backend == "softswitch" and importlib.util.find_spec(SOFT_SWITCHES) is None:
        return "the soft switch cannot run as a process here"
    return ""
