# SPDX-License-Identifier: Apache-2.0
"""Parameter sets as YAML files: those that the papers print, and those from `canary calibrate`.

    methods:
      netbouncer:
        parameters: {penalty: 1.0, link_threshold: 0.999}

A calibration also records its training data and the scores on them; the papers' set records where
each value is printed. Both are read in the same way, so a user's own file needs no more than the
lines above.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from analysis.methods.method_file import method_files
from analysis.methods.parameters import Parameters, read_names
from analysis.methods.registry import (
    ALIASES,
    METHODS,
    BuiltMethod,
    check_parameters,
    find_methods,
)
from testbed.errors import UserError
from testbed.record.atomic import output_file
from testbed.record.outputs import Kind
from testbed.record.yaml_file import read_yaml

PAPER = Path(__file__).parent / "paper_parameters.yaml"
_CLOSED = ConfigDict(extra="forbid")
Share = Annotated[float, Field(ge=0, le=1)]
Scalar = bool | int | float | str | None


class Entry(BaseModel):
    """The parameters of one method.

    Attributes:
        parameters: Values by parameter of its constructor.
        sources: The paper and section that print each value, by parameter.
        precision, recall, f1: Means over the training data, 0 to 1, see
            `analysis.evaluation.calibration.Setting`.
        cases: How many cases of training data there were.
        tried: How many settings were tried.
    """

    model_config = _CLOSED
    parameters: dict[str, Scalar | list[Scalar]]
    sources: dict[str, str] | None = None
    precision: Share | None = None
    recall: Share | None = None
    f1: Share | None = None
    cases: int | None = None
    tried: int | None = None


class Trained(BaseModel):
    """The training of a calibration: the rule that chose the parameters, and the settings or names
    of the runs."""

    model_config = _CLOSED
    rule: str
    runs: list[dict[str, Any]]


class Calibrated(BaseModel):
    """The content of a parameter file: the entries of its methods, and their training, if any."""

    model_config = _CLOSED
    methods: dict[str, Entry]
    trained: Trained | None = None


def read_set(
    name: str, fault_rate: float | None = None, files: Mapping[str, Path] | None = None
) -> Parameters:
    """Return the parameters that ``default``, ``paper`` or the path of a file stands for.

    Args:
        name: ``default``, ``paper`` or a path.
        fault_rate: The loss rate from which on a link is called faulty, see `Parameters`.
        files: Method files that the user named; the set may have parameters for these and for no
            other file.

    Raises:
        ValueError: The file cannot be read or is no parameter set, or a method, a parameter or a
            value is unknown (one line).
    """
    files = files or {}
    if name == "default":
        return Parameters(fault_rate=fault_rate, files=files)
    path = PAPER if name == "paper" else Path(name)
    content = _read(path)
    values: dict[str, Mapping[str, Any]] = {}
    for method, entry in content.methods.items():
        values[ALIASES.get(method, method)] = entry.parameters
    source = "paper" if name == "paper" else path.name
    try:
        check_parameters(Parameters(source, values, files=files))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    return Parameters(source, values, fault_rate, files)


def choose_methods(
    methods: str | None, parameters: str = "default", fault_rate: float | None = None
) -> tuple[list[BuiltMethod], Parameters]:
    """Return the methods that a user names, built, and the parameters that they were built with.

    Args:
        methods: A list in the grammar of `analysis.methods.parameters`; None stands for `METHODS`.
            Method files in the list are run.
        parameters: The name of a parameter set, see `read_set`.
        fault_rate: The loss rate from which on a link is called faulty, see `Parameters`.

    Raises:
        ValueError: A name or value is wrong, or does not fit the others (one line).
    """
    files = method_files([named.name for named in read_names(methods or "")])
    chosen = read_set(parameters, fault_rate, files)
    return find_methods(",".join(METHODS) if methods is None else methods, chosen), chosen


def _is_set(path: Path) -> bool:
    """Return True if a file holds a parameter set."""
    try:
        return bool(_read(path).methods)
    except UserError:
        return False


PARAMETER_SET = Kind("parameter set", "parameters.yaml", _is_set)


def write_set(path: Path, content: Calibrated) -> None:
    """Write a parameter set to a YAML file; equal content gives equal bytes.

    Raises:
        UserError: The file cannot be written, or holds something else.
    """
    document = content.model_dump(exclude_none=True)
    text = yaml.safe_dump(document, sort_keys=False, width=100, default_flow_style=None)
    try:
        with output_file(path, PARAMETER_SET) as new:
            new.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def _read(path: Path) -> Calibrated:
    absent = f"PARAMETERS={path}: no such file: use default, paper or a file"
    empty = "it has no parameters: use methods: {NAME: {parameters: ...}}"
    return read_yaml(path, absent, empty).valid(Calibrated)
