# SPDX-License-Identifier: Apache-2.0
"""Carries out the steps of vagrant/Dockerfile in the root of a bare system, without Docker.

    python3 tests/bare/image.py CONTEXT ROOT [COMMAND...]

CONTEXT is a folder with the project's files, ROOT one with the system that the file begins with, in
which programs can be run. A command, such as ``canary doctor``, is run in the image that came of
it. Nothing but what the file needs is known; anything else is refused, so that no step is passed
over. Needs root.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DOCKERFILE = Path("vagrant", "Dockerfile")
OF_THE_NETWORK = ("PIP_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
"""Variables of this machine that say how packages are reached; Docker has its own ways."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class StepError(Exception):
    """A step is not known, or failed."""


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the rest of each instruction; comments and ends of lines are gone."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, " ".join(rest.split())


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the values of its variables; unknown ones are empty."""
    return VARIABLE.sub(lambda found: values.get(found[1] or found[2], ""), text)


@dataclass
class Image:
    """The image while its steps are carried out.

    Attributes:
        context: The folder that COPY copies from.
        root: The system's root.
        bases: The names of the images that FROM may take: that of the root, then the stages.
        arguments, environment: The values of ARG and of ENV.
        command: That of CMD.
    """

    context: Path
    root: Path
    bases: list[str]
    arguments: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    command: list[str] = field(default_factory=list)

    def carry_out(self, name: str, rest: str) -> None:
        """Carry out an instruction.

        Raises:
            StepError: It is none that is known here, or it failed.
        """
        values = self.arguments | self.environment
        words = filled(rest, values).split()
        if name == "ARG":
            key, _, value = rest.partition("=")
            self.arguments.setdefault(key, value)
        elif name == "FROM" and words[0] in self.bases and (len(words) == 1 or words[1] == "AS"):
            self.bases += words[2:]
        elif name == "COPY" and len(words) == 2:
            self._copy(*words)
        elif name == "RUN" and rest:
            self._run(rest, values)
        elif name == "ENV" and rest.count("=") == 1:
            key, _, value = filled(rest, values).partition("=")
            self.environment[key] = value
        elif name == "CMD":
            self.command = json.loads(rest)
        else:
            raise StepError(f"this step is not known: {name} {rest}")

    def _copy(self, source: str, target: str) -> None:
        """Copy a file, or what is in a folder."""
        there = self.root / target.lstrip("/")
        if (self.context / source).is_dir():
            shutil.copytree(self.context / source, there, symlinks=True, dirs_exist_ok=True)
        else:
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.context / source, there)

    def _run(self, command: str, values: Mapping[str, str]) -> None:
        """Run a command of a shell in the root."""
        network = {k: v for k, v in os.environ.items() if k.startswith(OF_THE_NETWORK)}
        given = {"HOME": "/root", "LANG": "C.UTF-8"} | network | dict(values)
        words = [f"{key}={value}" for key, value in given.items()]
        done = subprocess.run(
            ["chroot", self.root, "env", "-i", *words, "sh", "-c", command], check=False
        )
        if done.returncode:
            raise StepError(f"exit code {done.returncode} of: {command}")


def main(context: str, root: str, *command: str) -> int:
    """Carry out all steps, say each, and run a command."""
    listed = list(steps((Path(context) / DOCKERFILE).read_text(encoding="utf-8")))
    image = Image(Path(context), Path(root), [listed[0][1].partition("=")[2]])
    if command:
        listed.append(("RUN", shlex.join(command)))
    for name, rest in listed:
        print(f"# {name} {rest}", flush=True)
        try:
            image.carry_out(name, rest)
        except StepError as error:
            print(f"image: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
