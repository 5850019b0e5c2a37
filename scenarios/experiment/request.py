# SPDX-License-Identifier: Apache-2.0
"""A scenario, and the request of a run: a scenario, the settings that the user gave, and those of a
file.

A scenario has faults, and the settings whose default it changes. A scenario file is a Python file
with a module-level ``SCENARIO``; its docstring says what the scenario shows.

A file of settings is a YAML file (``k: 8``) or the ``config.json`` of a run. For each setting, a
given value wins over the file, and the file wins over the scenario's default. A file may come from
a stranger, so it can name scenarios of the library only, and never code to run.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scenarios.experiment.settings import Settings, SettingsError, described, make_settings
from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.names import nearest
from testbed.faults.plan import FaultError, FaultPlan
from testbed.faults.specification import parse_faults
from testbed.network.virtual import LinkModel
from testbed.record.yaml_file import YamlError, read_yaml
from testbed.user_files import UserFile

SCENARIO = "faulty_links"
OWN = "own"
"""The name of a scenario that is given as an object."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Request:
    """A scenario, and the settings that the user asked for.

    Attributes:
        name: The name of the scenario, or the path of its file.
        scenario: The scenario itself.
        given: Settings that the user asked for; one that the run would ignore is an error.
        recorded: All settings of an earlier run, or none; those that the run ignores are allowed.
    """

    name: str
    scenario: Scenario
    given: Mapping[str, Any]
    recorded: Mapping[str, Any]

    def backend(self, auto: str = "virtual") -> str:
        """Return the backend that the request names; ``auto`` if it names none or ``auto``."""
        every = dict(self.scenario.defaults) | {**self.recorded, **self.given}
        named = str(every.get("backend", "auto"))
        return auto if named == "auto" else named

    @property
    def named(self) -> set[str]:
        """Return the names of the settings that do not have their default."""
        return {*self.scenario.defaults, *self.recorded, *self.given}

    def settings(self, backend: str | None = None) -> Settings:
        """Return the settings of the run, on ``backend`` if it is given instead of the requested
        one, which is ``virtual`` by default.

        Raises:
            SettingsError: See `make_settings`.
        """
        backend = backend or self.backend()
        recorded = dict(self.recorded)
        was = str(recorded.get("backend"))
        if was != backend:  # drop values that were defaults of the other backend
            usual = {s.name: s.on.get(was, s.default) for s in described() if s.on}
            recorded = {n: v for n, v in recorded.items() if n not in usual or v != usual[n]}
        base = dict(self.scenario.defaults) | recorded
        return make_settings(dict(self.given) | {"backend": backend}, base)


def make_request(
    name: str | Scenario | None, given: Mapping[str, Any], file: Path | None = None
) -> Request:
    """Return the request made of options and a file.

    Args:
        name: A scenario, its name, or the path of its file, which is executed; by default the
            scenario that ``file`` names, which must be in the library, or `SCENARIO`.
        given: Settings by name.
        file: YAML, a run's ``config.json`` or the run's directory.

    Raises:
        SettingsError: The file cannot be read, names a setting that does not exist, or there is no
            such scenario (one line).
    """
    content = {} if file is None else _read(file)
    recorded = "record_version" in content
    known = [setting.name for setting in described()]
    own = {key: content[key] for key in known if key in content}
    for key in content:
        if not recorded and key not in (*known, "scenario"):
            raise SettingsError(f"{file}: there is no setting {key}: {nearest(str(key), known)}")
    if name is None:
        name = str(content.get("scenario", SCENARIO))
        try:
            need_library(name)
        except SettingsError as error:
            raise SettingsError(f"{file}: {error}") from None
    given, own = (
        {key: value for key, value in each.items() if (key, value) != ("load", "auto")}
        for each in (given, own)
    )
    scenario, name = (name, OWN) if isinstance(name, Scenario) else (load_scenario(name), name)
    if recorded:
        return Request(name, scenario, given, own)
    return Request(name, scenario, own | dict(given), _NOTHING)


def _read(file: Path) -> dict[Any, Any]:
    """Return the content of a file of settings, or of the ``config.json`` of a run."""
    path = file / "config.json" if file.is_dir() else file
    try:
        content = read_yaml(
            path, f"no file {path}", "it has no settings: use lines such as k: 8"
        ).content
    except YamlError as error:
        raise SettingsError(str(error)) from None
    for key, value in content.items():
        if isinstance(value, bool | list | dict) and "record_version" not in content:
            raise SettingsError(f"{path}: {key}: one value is needed")
    return content


FaultMaker = Callable[[Fabric, Settings], FaultPlan]


def _from_text(topology: Fabric, settings: Settings) -> FaultPlan:
    """Return the faults that the setting ``faults`` describes."""
    return parse_faults(settings.faults, topology, settings.seed, duration_s=settings.duration_s)


@dataclass(frozen=True)
class Scenario:
    """The content of a scenario file.

    Attributes:
        defaults: Settings that this scenario changes; options of the command line win over them.
        make_faults: Function of the fabric and the settings that returns the faults; by default it
            parses the setting ``faults``.
        links: Delay, rate and queues of the links in virtual time.
        file: The file it was loaded from; None for a scenario of the library or made in Python.

    Raises:
        SettingsError: A field is of the wrong kind, or there is no such setting.
    """

    defaults: Mapping[str, object] = field(default_factory=dict)
    make_faults: FaultMaker = _from_text
    links: LinkModel = LinkModel()
    file: Path | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.defaults, Mapping):
            raise SettingsError("defaults of a Scenario must be a dictionary of settings")
        known = [setting.name for setting in described()]
        for name in self.defaults:
            if name not in known:
                choose = ", ".join(known)
                raise SettingsError(f"{str(name).upper()} is not a setting: choose from {choose}")
        if not callable(self.make_faults):
            raise SettingsError("make_faults of a Scenario must be a function")
        if not isinstance(self.links, LinkModel):
            raise SettingsError("links of a Scenario must be a LinkModel")

    def faults(self, topology: Fabric, settings: Settings) -> FaultPlan:
        """Return the faults of a run, checked against its fabric and its length.

        Raises:
            ValueError: The plan is wrong, or the scenario's file does not return a plan; the
                message is one line with the file and the line.
        """
        if self.file is None or self.make_faults is _from_text:
            return self._checked_faults(topology, settings)
        with _user_file(self.file).blamed(self.make_faults):
            return self._checked_faults(topology, settings)

    def _checked_faults(self, topology: Fabric, settings: Settings) -> FaultPlan:
        """Return the faults, after checks of the function's signature, its result and the plan."""
        try:
            inspect.signature(self.make_faults).bind(topology, settings)
        except TypeError:
            raise SettingsError(
                "make_faults must take two arguments: def faults(topology, settings)"
            ) from None
        plan = self.make_faults(topology, settings)
        if not isinstance(plan, FaultPlan):
            found = "nothing" if plan is None else repr(plan)[:60]
            raise SettingsError(f"make_faults returns {found}: it must return a FaultPlan")
        plan.check(topology, settings.duration_s)
        return plan


def scenario_names() -> list[str]:
    """Return the names of the scenarios in ``library``: its modules that define ``SCENARIO``."""
    here = str(Path(__file__).parents[1] / "library")
    return sorted(
        module.name
        for module in pkgutil.iter_modules([here])
        if "\nSCENARIO = " in Path(here, f"{module.name}.py").read_text()
    )


def need_library(name: str) -> None:
    """Check that a scenario named in a file is in the library, so that the file cannot choose code
    to run.

    Raises:
        SettingsError: The library has no such scenario (one line, without the name of the file).
    """
    if name not in scenario_names():
        raise SettingsError(
            f"scenario {name!r} is not in the library, and a file of settings cannot name a "
            "Python file: give it as SCENARIO=FILE.py; the library has "
            f"{', '.join(scenario_names())}"
        )


def load_scenario(name: str) -> Scenario:
    """Return a scenario of the library by name, or the user's own by the path of its Python file.

    Raises:
        SettingsError: There is no such scenario, or the file does not load or defines no
            ``SCENARIO``; the message is one line with the file and the line.
    """
    if name.endswith(".py"):
        path = Path(name)
        found = getattr(_user_file(path).load(), "SCENARIO", None)
        if isinstance(found, Scenario):
            return replace(found, file=path)
    elif name in scenario_names():
        return importlib.import_module(f"scenarios.library.{name}").SCENARIO
    else:
        raise SettingsError(
            f"no scenario {name!r}: choose {', '.join(scenario_names())}, or give a .py file"
        )
    raise SettingsError(f"{name} defines no SCENARIO: see scenarios/library/faulty_links.py")


def _user_file(path: Path) -> UserFile:
    """Return a scenario's file, whose errors become `SettingsError` with file and line."""
    return UserFile(path, "scenario", SettingsError, (FaultError, TopologyError))
