"""Sets of parameters as YAML files: what the papers print, and what `canary calibrate` found.

    methods:
      netbouncer:
        parameters: {penalty: 1.0, link_threshold: 0.999}

A calibration also says on what it was trained and how well it did there; the papers' set says where
each value is printed. Both are read in the same way, so a file of one's own needs no more than the
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
from testbed.record.atomic import atomic_write
from testbed.record.yaml_file import read_yaml

PAPER = Path(__file__).parent / "paper_parameters.yaml"
_CLOSED = ConfigDict(extra="forbid")
Share = Annotated[float, Field(ge=0, le=1)]
Scalar = bool | int | float | str | None


class Entry(BaseModel):
    """A method's parameters.

    Attributes:
        parameters: Values by parameter of its constructor.
        sources: Where each is printed.
        precision, recall, f1: On the training data, see `analysis.evaluation.calibration.Setting`.
        cases, tried: How many cases it was tried on, with how many settings.
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
    """On what a calibration was trained: runs by settings or name; and by which rule."""

    model_config = _CLOSED
    rule: str
    runs: list[dict[str, Any]]


class Calibrated(BaseModel):
    """The content of a file."""

    model_config = _CLOSED
    methods: dict[str, Entry]
    trained: Trained | None = None


def read_set(
    name: str, fault_rate: float | None = None, files: Mapping[str, Path] | None = None
) -> Parameters:
    """The parameters that ``default``, ``paper`` or the path of a file stand for.

    Args:
        files: Method files that the user named: a set may have parameters for them, and for no
            other file.

    Raises:
        ValueError: The file cannot be read, or holds something else; a method, a parameter or a
            value is unknown (one line).
    """
    files = files or {}
    if name == "default":
        return Parameters(fault_rate=fault_rate, files=files)
    path = PAPER if name == "paper" else Path(name)
    content = _read(path)
    of: dict[str, Mapping[str, Any]] = {}
    for method, entry in content.methods.items():
        of[ALIASES.get(method, method)] = entry.parameters
    source = "paper" if name == "paper" else path.name
    try:
        check_parameters(Parameters(source, of, files=files))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    return Parameters(source, of, fault_rate, files)


def choose_methods(
    methods: str | None, parameters: str = "default", fault_rate: float | None = None
) -> tuple[list[BuiltMethod], Parameters]:
    """Return the methods that a user names, built, and the parameters that they were built with.

    Args:
        methods: In the grammar of `analysis.methods.parameters`; None are those of the testbed.
            Method files among them are run.
        parameters: See `read_set`.
        fault_rate: See `Parameters`.

    Raises:
        ValueError: Something of it is wrong, or does not fit together (one line).
    """
    files = method_files([named.name for named in read_names(methods or "")])
    chosen = read_set(parameters, fault_rate, files)
    return find_methods(",".join(METHODS) if methods is None else methods, chosen), chosen


def write_set(path: Path, content: Calibrated) -> None:
    """Write a set; equal content gives equal bytes.

    Raises:
        ValueError: It cannot be written.
    """
    said = content.model_dump(exclude_none=True)
    text = yaml.safe_dump(said, sort_keys=False, width=100, default_flow_style=None)
    try:
        with atomic_write(path) as new:
            new.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def _read(path: Path) -> Calibrated:
    absent = f"PARAMETERS={path}: no such file: use default, paper or a file"
    empty = "it holds no parameters: use methods: {NAME: {parameters: ...}}"
    return read_yaml(path, absent, empty).valid(Calibrated)
