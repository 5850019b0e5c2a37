# SPDX-License-Identifier: Apache-2.0
"""The manifest of a finished run: the size and hash of every file, in ``manifest.json``.

It is written last. `check` finds files that differ from those that the run wrote. `replace`
replaces files of a run such that it can be read at any moment, even if the replacement is
interrupted: meanwhile the manifest lists the new files beside the old ones, and both are valid.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.errors import UserError
from testbed.record.documents import DOCUMENTS
from testbed.record.json_files import DocumentError, read_document, write_document
from testbed.record.run_tables import of
from testbed.record.schema import VERSION

MANIFEST = "manifest.json"
PAGE = "index.html"
"""The page for people, which can be made from the run at any time and is no part of it."""

Entries = dict[str, dict[str, Any]]


class ManifestError(UserError):
    """A run was changed after it was finished. The message is one line that names the file."""


def seal(folder: Path) -> None:
    """Write the manifest of all files that a run has now.

    Raises:
        OSError: A file cannot be read, or the manifest not be written.
    """
    entries = {name: _entry(folder / name) for name in _files(folder)}
    _write(folder, {"files": entries})


def check(folder: Path) -> None:
    """Compare a finished run with its manifest.

    Files that no part of the program reads may be added, such as notes or a plot.

    Raises:
        ManifestError: A file was changed, cut off, exchanged, removed or added.
    """
    while True:
        manifest = _read(folder)
        try:
            return _compare(folder, manifest)
        except OSError as error:
            raise ManifestError(f"{error.filename}: {error.strerror}") from None
        except ManifestError:
            if _read(folder) == manifest:  # else somebody has just replaced files
                raise


def replace(folder: Path, new: Path) -> None:
    """Move all files below ``new`` to their places in a run and update its manifest.

    All other files keep their entries, even if they were changed.

    Raises:
        OSError: A file cannot be moved or written.
    """
    files = _files(new)
    try:
        manifest = _read(folder)
    except ManifestError:  # read with --trust: the run stays without a valid manifest
        manifest = None
    if manifest is not None:
        entries = {name: _entry(new / name) for name in files}
        _write(folder, {"files": _as_found(folder, manifest), "replacing": entries})
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (new / name).replace(folder / name)
    if manifest is not None:
        _write(folder, {"files": _as_found(folder, _read(folder))})


def _compare(folder: Path, manifest: Mapping[str, Any]) -> None:
    files, replacing = manifest["files"], manifest.get("replacing", {})
    found = _files(folder)
    for name in sorted({*files, *replacing}):
        known = [part[name] for part in (files, replacing) if name in part]
        if name not in found:
            if name not in files:  # its replacement was cut short
                continue
            raise ManifestError(f"{folder / name} is missing, but the run had it")
        size = found[name]
        if all(size != entry["bytes"] for entry in known):
            was = known[0]["bytes"]
            raise ManifestError(
                f"{folder / name} was changed after the run: {size:,} bytes instead of {was:,}"
            )
        if _entry(folder / name) not in known:
            raise ManifestError(f"{folder / name} was changed after the run")
    for name in sorted(found.keys() - files.keys() - replacing.keys()):
        if _is_read(name):
            raise ManifestError(f"{folder / name} was added after the run")


def _is_read(name: str) -> bool:
    """Return True if a file of this name would be read as a part of the run."""
    table, _, suffix = name.rpartition(".")
    try:
        of(table)
    except KeyError:
        return name in (*DOCUMENTS, "truth.yaml")
    return suffix == "parquet"


def _files(folder: Path) -> dict[str, int]:
    """Return the size in bytes of each regular file of a run, by name, sorted.

    The manifest, the page and hidden files, such as new versions of others, are left out.
    """
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(place, name)
            if not name.startswith(".") and path.is_file():
                found[path.relative_to(folder).as_posix()] = path.stat().st_size
    for name in (MANIFEST, PAGE):
        found.pop(name, None)
    return dict(sorted(found.items()))


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def _as_found(folder: Path, manifest: Mapping[str, Any]) -> Entries:
    """Return the entries after a replacement, which may have been interrupted."""
    entries = dict(manifest["files"])
    for name, new in manifest.get("replacing", {}).items():
        path = folder / name
        if path.is_file() and _entry(path) == new:
            entries[name] = new
    return entries


def _read(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise ManifestError(f"{path} is missing, so changes to the run cannot be detected")
    try:
        manifest = read_document(path)
    except DocumentError as error:
        raise ManifestError(str(error)) from None
    if manifest["record_version"] != VERSION:
        raise ManifestError(f"{path} is of version {manifest['record_version']}, not of {VERSION}")
    return manifest


def _write(folder: Path, content: Mapping[str, Any]) -> None:
    write_document(folder / MANIFEST, {"record_version": VERSION} | dict(content))
