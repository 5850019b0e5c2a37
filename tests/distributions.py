# SPDX-License-Identifier: Apache-2.0
"""Build both distributions, canary-testbed and canary-softswitch: ``python -m tests.distributions
FOLDER``.

They are made of the files that git has, in a temporary folder, so that neither what lies about in a
clone nor an earlier build gets into them. Each wheel is built from its source distribution, as a
user's pip does who finds no wheel; those for one platform hold compiled libraries, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from sysconfig import get_path

from tests.platform_wheels import platform_wheels

ROOT = Path(__file__).parents[1]
SOFT_SWITCH = Path("testbed", "softswitch")
PROJECTS = (Path(), SOFT_SWITCH)
"""The folders of the two, below the root of the project."""

_BUILD = "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])"


def tracked(target: Path) -> None:
    """Copy the files of this project that git has, as they are now, into a folder.

    Raises:
        FileNotFoundError: This is no clone.
    """
    if not (ROOT / ".git").exists():
        raise FileNotFoundError("distributions are made of what git has, and this is no clone")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in os.fsdecode(listed.stdout).split("\0")[:-1]:
        if (ROOT / name).exists() or (ROOT / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def build(folder: Path) -> list[Path]:
    """Write the source distribution and the wheel of both into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    with tempfile.TemporaryDirectory() as name:
        clone = Path(name, "clone")
        tracked(clone)
        for project in PROJECTS:
            source = built_of("sdist", clone / project, folder)
            shutil.unpack_archive(source, Path(name, "unpacked"))
            unpacked = Path(name, "unpacked", source.name.removesuffix(".tar.gz"))
            made += [source, built_of("wheel", unpacked, folder)]
    return made


def _commit_time() -> dict[str, str]:
    """Return the variable by which the same commit gives the same bytes."""
    shown = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {"SOURCE_DATE_EPOCH": shown.stdout.strip()}


def built_of(kind: str, project: Path, folder: Path) -> Path:
    """Build a distribution of a project, ``sdist`` or ``wheel``, and return its path."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-P", "-c", _BUILD.format(kind), out]
        done = subprocess.run(
            command, cwd=project, env=os.environ | _commit_time(), capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"setuptools failed: {done.stderr[-2000:]}")
        [built] = Path(out).iterdir()
        return Path(shutil.move(built, folder / built.name))


def environment(made: Path, venv: Path) -> Path:
    """Install both wheels of a folder, those for this machine before those of pure Python, into a
    new environment, beside the packages that are installed here, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-index"]
    command += ["--no-deps", "--find-links", made.absolute(), "canary-testbed", "canary-softswitch"]
    subprocess.run([*command, "--disable-pip-version-check"], check=True, cwd=venv)
    [packages] = venv.glob("lib/python*/site-packages")
    # The packages of the lock are found where they are; ours are editable there, which is made by
    # .pth files, and those of a folder that is only on the path are not read.
    (packages / "locked.pth").write_text(f"{get_path('purelib')}\n")
    for script in Path(get_path("scripts")).iterdir():  # and their commands
        if not (python.parent / script.name).exists():
            (python.parent / script.name).symlink_to(script)
    return python


def main(folder: Path) -> None:
    for path in (*build(folder), *platform_wheels(folder)):
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
