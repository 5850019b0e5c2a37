"""A scenario: what breaks, and what of the usual settings it changes.

A scenario file is Python with a module-level ``SCENARIO``; its docstring says what it shows.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scenarios.settings import Settings, SettingsError
from testbed.fabric.clos import Fabric
from testbed.faults.plan import FaultPlan
from testbed.faults.specification import parse_faults
from testbed.network.virtual import LinkModel

__all__ = ["Scenario", "load_scenario", "scenario_names"]

FaultMaker = Callable[[Fabric, Settings], FaultPlan]


def _from_text(topology: Fabric, settings: Settings) -> FaultPlan:
    return parse_faults(settings.faults, topology, settings.seed)


@dataclass(frozen=True)
class Scenario:
    """What a scenario file defines.

    Attributes:
        defaults: Settings this scenario changes; the command line still wins.
        make_faults: Turns the topology and the settings into the faults; by default the setting
            ``faults`` is parsed.
        links: Delay, rate and queues of the links.
    """

    defaults: Mapping[str, object] = field(default_factory=dict)
    make_faults: FaultMaker = _from_text
    links: LinkModel = LinkModel()


def scenario_names() -> list[str]:
    """The scenarios shipped in ``library``: modules that define ``SCENARIO``."""
    here = str(Path(__file__).parent / "library")
    return sorted(
        module.name
        for module in pkgutil.iter_modules([here])
        if "\nSCENARIO = " in Path(here, f"{module.name}.py").read_text()
    )


def load_scenario(name: str) -> Scenario:
    """Load a shipped scenario by name, or one's own by the path of its Python file.

    Raises:
        SettingsError: There is none of that name, or the file defines no ``SCENARIO``.
    """
    if name.endswith(".py"):
        module = _load_file(Path(name))
    elif name in scenario_names():
        module = importlib.import_module(f"scenarios.library.{name}")
    else:
        raise SettingsError(
            f"no scenario {name!r}: choose {', '.join(scenario_names())}, or give a .py file"
        )
    found = getattr(module, "SCENARIO", None)
    if not isinstance(found, Scenario):
        raise SettingsError(f"{name} defines no SCENARIO: see scenarios/library/faulty_links.py")
    return found


def _load_file(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SettingsError(f"no scenario file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise SettingsError(f"scenario file {path} does not load: {reason}") from None
    return module
