"""A scenario: its faults, and the settings whose default it changes.

A scenario file is a Python file with a module-level ``SCENARIO``; its docstring says what the
scenario shows.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from scenarios.experiment.settings import Settings, SettingsError, described
from testbed.fabric.clos import Fabric, TopologyError
from testbed.faults.plan import FaultError, FaultPlan
from testbed.faults.specification import parse_faults
from testbed.network.virtual import LinkModel
from testbed.user_files import UserFile

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
                raise SettingsError(f"{str(name).upper()} is no setting: choose of {choose}")
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
            f"scenario {name!r} is none of the library, and a file names no other: to run a Python "
            f"file, give it yourself as SCENARIO=FILE.py; the library has "
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
