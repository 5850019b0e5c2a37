# SPDX-License-Identifier: Apache-2.0
"""Make a release in a folder, checked: ``python -m tests.release dist``.

The wheels and source distributions of both packages are built from what git has, their metadata is
checked by twine and the licences of all files by reuse, both packages are installed in an
environment of their own, tests run against what is installed there, and `SHA256SUMS` has their
hashes. Nothing is published: the workflow *release*
does that on a tag.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tests.distributions import PROJECTS, ROOT, build, environment

TOOLS = ("twine>=6,<8", "reuse>=5,<7")
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not nightly and not root")
SUITES = (
    ("testbed/softswitch/tests",),
    # Without the clone on the path the testbed, too, is the installed one.
    ("-o", "pythonpath=", "tests/analysis", "tests/testbed/fabric", "tests/testbed/record"),
)
"""pytest's words for each run of the tests against the installed packages."""


class NotReady(Exception):
    """This clone cannot be released; the message says why."""


def version() -> str:
    """Return the version that is to be released.

    Raises:
        NotReady: The files that name it differ, the changelog lacks it, or a file is not committed.
    """
    named = {
        str(project / "pyproject.toml"): tomllib.loads(
            (ROOT / project / "pyproject.toml").read_text()
        )["project"]["version"]
        for project in PROJECTS
    }
    for name, pattern in (
        ("CITATION.cff", r"^version: (.*)$"),
        ("pyproject.toml (dependency)", r'"canary-softswitch==(.*)"'),
        ("testbed/softswitch/canary_softswitch/process/command_line.py", r'^VERSION = "(.*)"$'),
        ("docs/project/cite.md", r"version = {(.*)}"),
    ):
        text = (ROOT / name.partition(" ")[0]).read_text()
        named[name] = re.findall(pattern, text, re.M)[0]
    if len({*named.values()}) > 1:
        raise NotReady(f"these name different versions: {named}")
    return named["CITATION.cff"]


def need_clean(wanted: str) -> None:
    """Check that everything is committed and that both changelogs have this version's heading.

    Raises:
        NotReady: One of this is not so.
    """
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    if changed:
        raise NotReady(f"commit or remove these files first:\n{changed.rstrip()}")
    for project in PROJECTS:
        if f"\n## {wanted}" not in (ROOT / project / "CHANGELOG.md").read_text():
            raise NotReady(
                f"{project / 'CHANGELOG.md'} has no heading {wanted}: rename Unreleased to it"
            )


def check(made: list[Path], work: Path) -> None:
    """Check the distributions' metadata with twine and the licences with reuse, which are fetched,
    and run tests against the installed wheels, in a folder for temporary files."""
    tools = work / "tools"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    subprocess.run([tools / "bin" / "pip", "install", "-q", *TOOLS], check=True)
    subprocess.run([tools / "bin" / "twine", "check", "--strict", *made], check=True)
    subprocess.run([tools / "bin" / "reuse", "lint", "--lines"], cwd=ROOT, check=True)
    python = environment(made[0].parent, work / "installed")
    for words in SUITES:
        print(f"against the installed packages: {' '.join(words)}", flush=True)
        subprocess.run([python, "-P", *PYTEST, "-n", "auto", *words], cwd=ROOT, check=True)


def sums(made: list[Path]) -> str:
    """Return the lines that ``sha256sum --check`` reads."""
    return "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in made)


def main(folder: Path) -> None:
    number = version()
    need_clean(number)
    shutil.rmtree(folder, ignore_errors=True)
    made = build(folder)
    with tempfile.TemporaryDirectory() as work:
        check(made, Path(work))
    (folder / "SHA256SUMS").write_text(sums(made))
    print(f"canary {number}: {len(made)} files and SHA256SUMS in {folder}{os.sep}")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except NotReady as error:
        sys.exit(f"release: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"release: this failed, see above: {' '.join(map(str, error.cmd))}")
