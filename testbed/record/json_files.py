# SPDX-License-Identifier: Apache-2.0
"""Read and write the JSON files of a run as `testbed.record.documents` declares them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from testbed.errors import UserError
from testbed.record.atomic import atomic_write
from testbed.record.bounded import read_json_text
from testbed.record.documents import DOCUMENTS
from testbed.record.messages import shown
from testbed.signals import signals_blocked


class DocumentError(UserError):
    """A JSON file does not match its declaration. One line: the file, the field and the reason."""


@cache
def _adapter(name: str) -> TypeAdapter[dict[str, Any]]:
    # Pydantic drops an exception of a signal's handler here, and takes a pattern for another one.
    with signals_blocked():
        return TypeAdapter(DOCUMENTS[name])


def read_document(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file, which is one of `DOCUMENTS` by its name.

    Raises:
        DocumentError: It cannot be read, or does not match its declaration.
    """
    try:
        return _checked(path, read_json_text(path))
    except OSError as error:
        raise DocumentError(f"{path}: {error.strerror or 'not readable'}") from None


def write_document(path: Path, content: Mapping[str, Any]) -> None:
    """Write one of `DOCUMENTS` atomically, replacing an earlier version.

    Raises:
        DocumentError: The content is not as declared.
        OSError: It cannot be written.
    """
    text = document_text(path, content)
    with atomic_write(path) as new:
        new.write_text(text)


def document_text(path: Path, content: Mapping[str, Any]) -> str:
    """Return the text of one of `DOCUMENTS` as `write_document` writes it.

    Raises:
        DocumentError: The content is not as declared.
    """
    text = json.dumps(content, indent=2) + "\n"
    _checked(path, text.encode())
    return text


def _checked(path: Path, text: bytes) -> dict[str, Any]:
    try:
        return _adapter(path.name).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Input ")
    if first["type"] == "json_invalid":
        raise DocumentError(f"{path} is not readable JSON: {shown(message)}") from None
    field = ".".join(str(part) for part in first["loc"])
    if not field:
        raise DocumentError(f"{path} holds {shown(first['input'])}: an object is needed") from None
    field = field if field.isprintable() and len(field) < 100 else shown(field)
    reason = {
        "missing": "is missing",
        "extra_forbidden": "is unknown",
    }.get(first["type"], f"is {shown(first['input'])}: {message}")
    raise DocumentError(f"{path}: {field} {reason}") from None
