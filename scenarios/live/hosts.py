# SPDX-License-Identifier: Apache-2.0
"""What hosts of a network that stays up can be asked to do."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from testbed.errors import UserError

_TRIES, _CONNECTING_MS = 25, 5000
_DEAD = "the path may be dead: ping checks it, fault lists the broken links"


class HostError(UserError):
    """A program on a host failed; the message is one line."""


def iperf(source: Any, sink: Any, seconds: int) -> tuple[float, int]:
    """Run TCP from one of Mininet's hosts to another by iperf3 for some seconds.

    Returns:
        The rate that arrived in bits per second, and the number of retransmitted segments.

    Raises:
        HostError: It did not work (one line).
    """
    piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    server, report = sink.popen(["iperf3", "-s", "-1"], **piped), {}
    try:
        for _ in range(_TRIES):
            command = ["iperf3", "-c", sink.IP(), "-t", str(seconds), "-J"]
            command += ["--connect-timeout", str(_CONNECTING_MS)]
            client = source.popen(command, **piped)
            try:
                out, _ = client.communicate(timeout=seconds + 30)
            except subprocess.TimeoutExpired:
                raise HostError(f"iperf3 did not end in {seconds + 30} s: {_DEAD}") from None
            finally:
                client.kill()
            report = json.loads(out or "{}")
            if "sum_received" in report.get("end", {}):
                end = report["end"]
                return end["sum_received"]["bits_per_second"], end["sum_sent"]["retransmits"]
            if "refused" not in report.get("error", ""):
                break
            time.sleep(0.2)  # the server does not listen yet
    finally:
        server.kill()
        server.communicate()
    raise HostError(f"{report.get('error', 'iperf3 gave no answer')}: {_DEAD}")
