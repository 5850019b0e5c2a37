# SPDX-License-Identifier: Apache-2.0
"""Make a release in a folder, checked: ``python -m tests.release dist``.

The wheels and source distributions of both packages are built from what git has, and the wheels of
each platform from those. Their metadata is checked by twine, the C library that they need by
auditwheel and the licences of all files by reuse. Both packages are installed in an environment of
their own, tests run against what is installed there, and a run with the compiled libraries must be
that of pure Python's wheels. `SHA256SUMS` has the hashes. Nothing is published: the workflow
*release* does that on a tag.
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

from tests import same_run
from tests.distributions import PROJECTS, ROOT, build, environment
from tests.platform_wheels import platform_wheels

TOOLS = ("auditwheel>=6,<8", "twine>=6,<8", "reuse>=5,<7")
RUN = ("run", "--k", "4", "--backend", "virtual")
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
    """Check the distributions with twine and auditwheel and the licences with reuse, which are
    fetched, and run tests against the installed wheels, in a folder for temporary files."""
    tools = work / "tools"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    subprocess.run([tools / "bin" / "pip", "install", "-q", *TOOLS], check=True)
    subprocess.run([tools / "bin" / "twine", "check", "--strict", *made], check=True)
    subprocess.run([tools / "bin" / "reuse", "lint", "--lines"], cwd=ROOT, check=True)
    for wheel in made:
        need_platform(wheel, tools / "bin" / "auditwheel")
    python = environment(made[0].parent, work / "installed")
    need_same_run(python, made, work)
    for words in SUITES:
        print(f"against the installed packages: {' '.join(words)}", flush=True)
        subprocess.run([python, "-P", *PYTEST, "-n", "auto", *words], cwd=ROOT, check=True)


def need_platform(wheel: Path, auditwheel: Path) -> None:
    """Check that a wheel for Linux needs no newer C library than its name says.

    Raises:
        NotReady: It does.
    """
    if not (named := re.search(r"-manylinux_(\d+)_(\d+)_\w+\.whl$", wheel.name)):
        return
    shown = subprocess.run(
        [auditwheel, "show", wheel], capture_output=True, text=True, check=True
    ).stdout
    needs = re.search(r'tag:\s+"manylinux_(\d+)_(\d+)_', shown)
    if not needs or [*map(int, needs.groups())] > [*map(int, named.groups())]:
        raise NotReady(f"{wheel.name} is not of its platform: {shown}")


def need_same_run(python: Path, made: list[Path], work: Path) -> None:
    """Check that a run with the installed wheels, which hold compiled libraries for this machine,
    compiles nothing and is that of the wheels of pure Python.

    Args:
        python: The Python of the environment in which they are installed.
        made: All distributions.
        work: A folder for temporary files.

    Raises:
        NotReady: The runs differ.
    """
    pure = work / "pure"
    pure.mkdir()
    for wheel in made:
        if wheel.name.endswith("-none-any.whl"):
            shutil.copy(wheel, pure)
    runs = [work / "run", work / "pure-run"]
    cache = work / "cache"
    for each, run in zip((python, environment(pure, work / "pure-venv")), runs, strict=True):
        command = [each.with_name("canary"), *RUN, "--run", run]
        environ = os.environ | {"XDG_CACHE_HOME": str(cache)}
        environ.pop("CC", None)
        subprocess.run(command, cwd=work, env=environ, check=True, stdout=subprocess.DEVNULL)
        if each == python and (compiled := [*cache.rglob("*.so")]):
            raise NotReady(f"{len(compiled)} libraries were compiled that the wheels should hold")
    if wrong := same_run.compare(*runs).wrong:
        raise NotReady(f"a run of the platform's wheels differs: {wrong}")


def sums(made: list[Path]) -> str:
    """Return the lines that ``sha256sum --check`` reads."""
    return "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in made)


def main(folder: Path) -> None:
    number = version()
    need_clean(number)
    shutil.rmtree(folder, ignore_errors=True)
    made = build(folder)
    made += platform_wheels(folder)
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
