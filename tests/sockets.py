# SPDX-License-Identifier: Apache-2.0
"""The sockets of this machine, as Linux lists them."""

from __future__ import annotations

from pathlib import Path


def rows(*tables: str) -> list[list[str]]:
    """Return the fields of every socket in these tables of /proc/net and in those of IPv6, which a
    kernel without IPv6 does not have."""
    files = (Path(f"/proc/net/{table}{version}") for table in tables for version in ("", "6"))
    return [
        line.split()
        for file in files
        if file.exists()
        for line in file.read_text().splitlines()[1:]
    ]
