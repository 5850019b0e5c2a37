# SPDX-License-Identifier: Apache-2.0
"""Made-up wheels: ``python tests/wheels.py LOCK FOLDER`` offers a later release of each package.

CI sets the project up with such a folder in pip's ``--find-links``. A set-up that resolved anything
would take one of them; `tests.scenarios.command.test_install` then finds what was installed to be
the lock.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

LATER = "9999"
"""A version that is later than any real one."""


def make_wheel(
    folder: Path, name: str, version: str, requires: Sequence[str] = (), script: str = ""
) -> Path:
    """Write a wheel that holds its metadata and perhaps a command, and return its path.

    Args:
        folder: Where the wheel goes.
        name: The name of the package.
        version: Its version.
        requires: The packages that it asks for.
        script: The name of a command that fails where Python keeps no bytecode; "" for none.
    """
    plain = re.sub(r"[-_.]+", "_", name)
    info = f"{plain}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        command = "#!/bin/sh\n! printenv PYTHONDONTWRITEBYTECODE\n"
        files[f"{plain}-{version}.data/scripts/{script}"] = command
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    path = folder / f"{plain}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, content in (files | {f"{info}/RECORD": record}).items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o100755 << 16  # a regular file that can be run
            wheel.writestr(entry, content)
    return path


def locked_versions(lock: Path) -> dict[str, str]:
    """Return the version of each package that a lock names, its markers left aside."""
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;\\]+)", lock.read_text(), re.M))


def main(lock: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*locked_versions(lock), "pip", "wheel"):
        make_wheel(folder, name, LATER)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
