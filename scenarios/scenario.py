"""A scenario: what breaks, and what of the usual settings it changes.

A scenario file is Python with a module-level ``SCENARIO``; its docstring says what it shows.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from scenarios.settings import Settings, SettingsError, described
from testbed.fabric.clos import Fabric, TopologyError
from testbed.faults.plan import FaultError, FaultPlan
from testbed.faults.specification import parse_faults
from testbed.network.virtual import LinkModel

__all__ = ["SECONDS", "Scenario", "load_scenario", "scenario_names"]

SECONDS = 8.0
"""How long a scenario file may take to load, and then to say what breaks."""

FaultMaker = Callable[[Fabric, Settings], FaultPlan]


def _from_text(topology: Fabric, settings: Settings) -> FaultPlan:
    return parse_faults(settings.faults, topology, settings.seed, duration_s=settings.duration_s)


@dataclass(frozen=True)
class Scenario:
    """What a scenario file defines.

    Attributes:
        defaults: Settings this scenario changes; the command line still wins.
        make_faults: Turns the topology and the settings into the faults; by default the setting
            ``faults`` is parsed.
        links: Delay, rate and queues of the links.
        file: The file it was loaded from, None if it came with the testbed.

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
        """What breaks in a run, checked against its fabric and its length.

        Raises:
            ValueError: The plan makes no sense, or the scenario's file does not make one: one line
                with its file and line.
        """
        if self.file is None or self.make_faults is _from_text:
            plan = self.make_faults(topology, settings)
            plan.check(topology, settings.duration_s)
            return plan
        with _told_by_line(self.file, self.make_faults):
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
        SettingsError: There is none of that name, or the file does not load or defines no
            ``SCENARIO``: one line with its file and line.
    """
    if name.endswith(".py"):
        path = Path(name)
        found = getattr(_load_file(path), "SCENARIO", None)
        if isinstance(found, Scenario):
            return replace(found, file=path)
    elif name in scenario_names():
        return importlib.import_module(f"scenarios.library.{name}").SCENARIO
    else:
        raise SettingsError(
            f"no scenario {name!r}: choose {', '.join(scenario_names())}, or give a .py file"
        )
    raise SettingsError(f"{name} defines no SCENARIO: see scenarios/library/faulty_links.py")


def _load_file(path: Path) -> object:
    name = f"scenario file {path.stem}"  # no module has such a name, whatever the file's is
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SettingsError(f"no scenario file {path}: check SCENARIO")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _told_by_line(path):
        spec.loader.exec_module(module)
    return module


class _TooLong(BaseException):
    """Not an `Exception`, or a scenario file might catch it."""


@contextmanager
def _told_by_line(path: Path, function: Callable[..., object] | None = None) -> Iterator[None]:
    """Whatever code of a scenario file does wrong is one line that names the file and the line.

    Args:
        path: The file.
        function: What is called of it; where that begins is told if nothing closer is known.
    """
    try:
        with _time_limit():
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, _TooLong):
            reason = f"still at work after {SECONDS:g} s: it must only say what breaks"
        elif isinstance(error, SystemExit):
            reason = "calls sys.exit: raise ValueError with a reason instead"
        elif isinstance(error, FaultError | SettingsError | TopologyError):
            reason = str(error)
        else:
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        line = _line_in(path, error, function)
        where = f" line {line}" if line else ""
        said = " ".join(reason.split())
        raise SettingsError(f"scenario file {path}{where}: {said}") from error


def _line_in(
    path: Path, error: BaseException, function: Callable[..., object] | None
) -> int | None:
    """The line of the file where an error came up, else the one where ``function`` begins."""
    file = str(path.absolute())
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    if lines:
        return lines[-1]
    code = getattr(function, "__code__", None)
    return code.co_firstlineno if code and code.co_filename == file else None


@contextmanager
def _time_limit() -> Iterator[None]:
    """Raise `_TooLong` after `SECONDS`, also in a sleep; other threads than the main have none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 0.2)  # again, if something catches it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
