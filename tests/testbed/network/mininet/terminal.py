# SPDX-License-Identifier: Apache-2.0
"""``canary net`` on a pseudo-terminal, driven as a user at a terminal would."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from tests.patience import PATIENCE_S

PROMPT = "mininet> "


class Terminal:
    """A network at its prompt; ``path`` is the folder it is started in."""

    def __init__(self, path: Path) -> None:
        self._end, inner = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scenarios.command.cli", "net"],
            cwd=path,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            env={**os.environ, "TERM": "dumb", "COLUMNS": "200", "HOME": str(path)},
        )
        os.close(inner)

    def write(self, line: str) -> None:
        """Send a line to the prompt, without waiting for its answer."""
        os.write(self._end, f"{line}\n".encode())

    def read(self) -> str:
        """All up to the next prompt, or to the end."""
        text, deadline = "", time.monotonic() + PATIENCE_S
        while not text.endswith(PROMPT):
            assert time.monotonic() < deadline, text
            if not select.select([self._end], [], [], 1)[0]:
                continue
            try:
                data = os.read(self._end, 1 << 16)
            except OSError:  # it ended
                break
            text += data.decode().replace("\r", "")
        return text.removesuffix(PROMPT)

    def say(self, line: str) -> str:
        """What a command answers, without its echo."""
        self.write(line)
        return self.read().partition("\n")[2]
