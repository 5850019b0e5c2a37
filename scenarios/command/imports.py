# SPDX-License-Identifier: Apache-2.0
"""``canary import``: tables of a fabric and of observations from the files of other tools."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from analysis.importers.registry import find_importer
from analysis.importers.tables import PLACES, Imported, import_files
from scenarios.command.localize import exported
from testbed.record.atomic import held
from testbed.record.exchange import OBSERVATIONS
from testbed.record.files import write_file
from testbed.record.outputs import need_folder
from testbed.record.run import RunError
from testbed.record.run_tables import FABRIC

NAMES = ("fabric.parquet", "observations.parquet", PLACES)


def import_to(
    name: str,
    files: Sequence[Path],
    folder: Path,
    topology: Path | None = None,
    hosts: str | None = None,
    tors: str | None = None,
) -> tuple[Imported, list[Path]]:
    """Read files of a format and write the tables into a folder, as `localize` reads them; return
    what was imported, and the written files.

    Nothing is written unless everything could be read. See
    `analysis.importers.tables.import_files` for the arguments.

    Raises:
        ValueError: There is no such format, a file is not of it, or the folder is in use or holds
            something else (one line).
    """
    reader = find_importer(name)
    try:
        need_folder(folder, exported, "import", "folder")
        found = import_files(reader, files, topology, hosts, tors)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from None
    with held(folder, folder), tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as work:
        place = Path(work)
        write_file(place / NAMES[0], FABRIC, found.links)
        made = [NAMES[0]]
        if found.observations is not None:
            write_file(place / NAMES[1], OBSERVATIONS, found.observations)
            made.append(NAMES[1])
        if found.places:
            (place / PLACES).write_text(json.dumps(found.places, indent=1) + "\n")
            made.append(PLACES)
        for each in NAMES:
            if each not in made:
                (folder / each).unlink(missing_ok=True)  # of an earlier import
        for each in made:
            (place / each).replace(folder / each)
    return found, [folder / each for each in made]
