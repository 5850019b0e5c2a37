"""Folders that a command fills piece by piece, one command at a time, and goes on with later."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.record.places import PlaceError, at_work, held, need_no_links
from testbed.record.run import RunError


@contextmanager
def alone(folder: Path, mark: str, what: str) -> Iterator[Path]:
    """Hold a folder, made if need be, for a block of work; the path of its file ``mark``.

    Args:
        mark: The file that says whose folder this is; empty if new.
        what: What such a folder holds, for its user: "comparison".

    Raises:
        RunError: Another command is at work there, it holds something else or a link, or cannot be
            written.
    """
    settings = folder / mark
    if folder.is_symlink():
        raise RunError(f"{folder} is a link: name the folder that it leads to")
    try:
        if at_work(folder):
            raise RunError(f"another command is at work in {folder}: wait for it")
        folder.mkdir(parents=True, exist_ok=True)
        there = os.listdir(folder)
        if there and mark not in there:
            raise RunError(f"{folder} exists and is no {what}: choose another")
        need_no_links(folder)
        settings.touch()
    except PlaceError as error:
        raise RunError(str(error)) from None
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from None
    with held(settings, folder):
        yield settings


def is_of(settings: Path, key: Mapping[str, Any]) -> bool:
    """Whether the folder of ``settings`` is of this key; a new one is from now on.

    Raises:
        RunError: The file is damaged, or cannot be written.
    """
    folder = settings.parent
    try:
        text = settings.read_text()
        if not text:
            settings.write_text(json.dumps(key, indent=2) + "\n")
            return True
        return json.loads(text) == json.loads(json.dumps(key))
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise RunError(f"{settings} is damaged: remove {folder}") from None
