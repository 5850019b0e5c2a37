# SPDX-License-Identifier: Apache-2.0
"""The weight of a session whose network runs in real time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.network.speed import NICE

GROUP = Path("/proc/self/autogroup")
LOOK = f"""
from pathlib import Path
from testbed.network.speed import raised_priority
group = Path("{GROUP}")
with raised_priority():
    print(group.read_text().split()[-1])
print(group.read_text().split()[-1])
"""


@pytest.mark.skipif(not GROUP.exists() or os.geteuid() != 0, reason="sessions have no weight here")
def test_a_session_has_more_weight_only_while_its_network_is_up() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOOK],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    assert run.stdout.split() == [str(NICE), "0"]
