"""A request: a scenario, the settings that the user gave, and those of a file.

The file is a YAML file (``k: 8``) or the ``config.json`` of a run. For each setting, a given value
wins over the file, and the file wins over the scenario's default. A file may come from a stranger,
so it can name scenarios of the library only, and never code to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scenarios.experiment.scenario import Scenario, load_scenario, need_library
from scenarios.experiment.settings import Settings, SettingsError, described, make_settings
from testbed.fabric.names import nearest
from testbed.record.yaml_file import YamlError, read_yaml

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

    @property
    def backend(self) -> str:
        """The backend that the request names, by default ``auto``."""
        every = {"backend": "auto"} | dict(self.scenario.defaults) | {**self.recorded, **self.given}
        return str(every["backend"])

    @property
    def named(self) -> set[str]:
        """The names of the settings that do not have their default."""
        return {*self.scenario.defaults, *self.recorded, *self.given}

    def settings(self, backend: str | None = None) -> Settings:
        """Return the settings of the run, on ``backend`` if it is given instead of the requested
        one.

        Raises:
            SettingsError: See `make_settings`.
        """
        backend = backend or self.backend
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
    said = {} if file is None else _read(file)
    recorded = "record_version" in said
    known = [setting.name for setting in described()]
    own = {key: said[key] for key in known if key in said}
    for key in said:
        if not recorded and key not in (*known, "scenario"):
            raise SettingsError(f"{file}: there is no setting {key}: {nearest(str(key), known)}")
    if name is None:
        name = str(said.get("scenario", SCENARIO))
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
            path, f"no file {path}", "it holds no settings: use lines as k: 8"
        ).content
    except YamlError as error:
        raise SettingsError(str(error)) from None
    for key, value in content.items():
        if isinstance(value, bool | list | dict) and "record_version" not in content:
            raise SettingsError(f"{path}: {key}: one value is needed")
    return content
