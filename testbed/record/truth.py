# SPDX-License-Identifier: Apache-2.0
"""``truth.yaml``: the faults of a run, and the switches that failed as a whole."""

from __future__ import annotations

from testbed.fabric.clos import TopologyError
from testbed.record.bounded import MOST_YAML, read_bounded
from testbed.record.run import RunDirectory, RunError
from testbed.record.yaml_file import load_yaml


def links_with_matches(run: RunDirectory) -> list[str]:
    """Return the names of the links whose faults all hit only the flows that they match.

    Raises:
        RunError: ``truth.yaml`` is damaged (one line).
    """
    path = run.path / "truth.yaml"
    try:
        text = read_bounded(path, 4 * MOST_YAML).decode(errors="replace")
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}") from None
    if "match:" not in text:  # faults are many, and seldom have one
        return []
    try:
        faults = load_yaml(text)["faults"]
        matched = {fault["link"] for fault in faults if "match" in fault}
        return sorted(matched - {fault["link"] for fault in faults if "match" not in fault})
    except Exception:
        raise RunError(f"{path} is damaged: its faults cannot be read") from None


def failed_devices(run: RunDirectory) -> dict[str, int]:
    """Return the indices, from 0, of the switches that failed, by name.

    Raises:
        RunError: ``truth.yaml`` does not list switches of the fabric (one line).
    """
    path, fabric = run.path / "truth.yaml", run.fabric
    try:
        text = read_bounded(path, 4 * MOST_YAML).decode()
        _, key, text = text.rpartition("failed_devices:")  # it is the last, and faults are many
        names = load_yaml(text) if key else ()
    except Exception:  # PyYAML has errors of many kinds for a value that is none of its tag
        raise RunError(
            f"{path} is damaged: failed_devices must be switches of the fabric"
        ) from None
    try:
        return {name: fabric.switch(name) for name in names}
    except (TopologyError, TypeError):
        raise RunError(
            f"{path} is damaged: failed_devices must be switches of the fabric"
        ) from None
