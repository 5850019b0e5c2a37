# SPDX-License-Identifier: Apache-2.0
"""A virtual or flow run calls nothing that only Linux has; what needs Linux says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scenarios.experiment.backends import need_network
from testbed.network import requirements
from testbed.network.kinds import NETWORKS
from testbed.network.network import NetworkError
from tests.scenarios.conftest import Canary, refused

WITHOUT_LINUX = """
import io, os, signal, socket, sys

linux = [name for name in dir(os) if name.startswith(("sched_", "pidfd_", "SCHED_", "CLONE_"))]
linux += ["setns", "unshare", "eventfd", "memfd_create", "splice", "posix_fadvise"]
linux += ["setresuid", "setresgid", "getresuid", "getresgid", "O_PATH", "O_TMPFILE"]
for name in linux:
    vars(os).pop(name, None)
for name in [name for name in dir(socket) if name.startswith(("AF_NETLINK", "AF_PACKET", "PF_"))]:
    delattr(socket, name)
for name in ("sigtimedwait", "sigwaitinfo"):
    vars(signal).pop(name, None)
for name in ("mininet", "pyroute2", "scapy"):
    sys.modules[name] = None

def no_proc(opened):
    def call(path, *arguments, **options):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "there is no such folder on this system", os.fspath(path))
        return opened(path, *arguments, **options)
    return call

io.open, os.open, os.stat = no_proc(io.open), no_proc(os.open), no_proc(os.stat)
import builtins
builtins.open = no_proc(builtins.open)

from scenarios import run
from scenarios.experiment.estimate import available_bytes

assert available_bytes() > 0
for backend in ("virtual", "flow"):
    run(backend=backend, k=4, epochs=2, seed=1, path=backend)
"""


def test_a_run_takes_nothing_that_only_linux_has(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT_LINUX], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for backend in ("virtual", "flow"):
        assert (tmp_path / backend / "summary.json").exists()


@pytest.mark.parametrize("backend", ["bmv2", "softswitch"])
def test_what_needs_linux_says_so(
    canary: Canary, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setattr(requirements, "sys", SimpleNamespace(platform="darwin"))
    with pytest.raises(NetworkError, match="needs Linux: use BACKEND=virtual"):
        need_network(NETWORKS[backend], tcp=False)
    need_network(NETWORKS["virtual"], tcp=False)
    refused(canary("net", f"BACKEND={backend}"), "needs Linux", "BACKEND=virtual")
