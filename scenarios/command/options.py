# SPDX-License-Identifier: Apache-2.0
"""The settings as options of the command line, in make's list and in the documentation's table.

An option can be given in three ways: ``--k 8``; ``K=8``, as make passes it on; and ``CANARY_K=8``
in the environment. The first two win over the environment. An unknown name is always an error.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from testbed.fabric.names import nearest, plain, shortened

if TYPE_CHECKING:
    from scenarios.experiment.settings import Setting

PREFIX = "CANARY_"
OF_COMMANDS = (
    "SCENARIO",
    "CONFIG",
    "RUN",
    "SEEDS",
    "METHODS",
    "OUT",
    "PARAMETERS",
    "FAULT_RATE",
    "WATCH",
    "SWEEP",
    "SUDO",
    "SCRIPT",
    "MACHINES",
    "QUIET",
    "JSON",
    "VERBOSE",
    "FAIL_UNDER",
    "JUNIT",
    "SUMMARY",
)
"""Options of `run`, `compare` and `export-lab` that are not settings."""

_SWITCHED = {"1": True, "0": False}
_CHOSEN = {"backend": "auto"}  # default on the command line only, which then resolves it
_WORD = re.compile(r"([A-Za-z][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class GivenOptions:
    """The options that the user gave: ``settings`` by name, and in ``environment`` the values that
    came from the environment, by option."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def print_environment(self) -> None:
        """Print the options that came from the environment, as they are not on the command line."""
        for option, value in self.environment.items():
            name = option.removeprefix("--").replace("-", "_").upper()
            print(shortened(plain(f"from the environment: {name}={value}")), flush=True)


class WordsCommand(TyperCommand):
    """A command whose options can also be written as words: ``K=8`` is ``--k 8``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace words such as ``K=8`` by options, parse the arguments, and return those left
        over."""
        known = _by_name(self.get_params(ctx))
        return super().parse_args(ctx, list(_spelled_out(args, known)))


class SettingsCommand(WordsCommand):
    """A command with an option for each setting; ``ctx.obj`` holds the `GivenOptions`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's own parameters and an option for each setting."""
        *own, last = super().get_params(ctx)
        every = [*own, *_options()]
        for name, option in _by_name(every).items():
            option.envvar = PREFIX + name
            option.show_envvar = option.envvar in os.environ  # messages then name the variable
        return [*every, last]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Check the names in the environment, parse the arguments, and return those left over."""
        settings = [option.name.upper() for option in _options()]
        _check_environment([*settings, *OF_COMMANDS])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, with the settings that were given in ``ctx.obj``, and return its
        result."""
        every = {option.name: ctx.params.pop(option.name) for option in _options()}
        from_environment = {
            _long(option): os.environ[option.envvar]
            for option in _by_name(self.get_params(ctx)).values()
            if (source := ctx.get_parameter_source(option.name)) and source.name == "ENVIRONMENT"
        }
        given = {name: value for name, value in every.items() if value is not None}
        ctx.obj = GivenOptions(given, from_environment)
        return super().invoke(ctx)


def _by_name(params: Iterable[Any]) -> dict[str, Any]:
    """Return options by the name that make uses for them, such as ``EPOCH_MS``."""
    options = [param for param in params if param.param_type_name == "option"]
    names = {_long(option)[2:].replace("-", "_").upper(): option for option in options}
    return {name: option for name, option in names.items() if name != "HELP"}


def _long(option: Any) -> str:
    """Return the long form of an option, such as ``--epoch-ms``."""
    return next(name for name in option.opts if name.startswith("--"))


def _spelled_out(args: list[str], known: Mapping[str, Any]) -> Iterable[str]:
    """Yield the arguments with each ``NAME=value`` replaced by its option; nothing is replaced
    after ``--``."""
    flags = {_long(option) for option in known.values() if option.is_flag}
    value_follows = ended = False
    for arg in args:
        ended = ended or (arg == "--" and not value_follows)
        word = None if value_follows or ended else _WORD.fullmatch(arg)
        takes = arg.startswith("--") and "=" not in arg and arg not in flags
        value_follows = takes and not value_follows
        if word is None:
            yield arg
        elif word[1] not in known:
            raise TyperException(f"there is no option {arg}: {nearest(word[1], known)}")
        elif known[word[1]].is_flag:
            if word[2] not in _SWITCHED:
                raise TyperException(f"{arg}: {word[1]} is 1 or 0")
            if _SWITCHED[word[2]]:
                yield _long(known[word[1]])
        else:
            yield f"{_long(known[word[1]])}={word[2]}"


def _check_environment(known: Iterable[str]) -> None:
    """Raise an error for a ``CANARY_`` variable in the environment that is no known option."""
    names = list(known)
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in names:
            hint = nearest(name, [PREFIX + each for each in names])
            raise TyperException(f"{name} in the environment is not an option: {hint}")


@cache
def _options() -> list[Any]:
    """Return an option for each setting. Pydantic is imported only here, so that ``canary --help``
    stays quick."""
    from scenarios.experiment.settings import described

    def take(**given: object) -> None:
        """Have no effect: Typer makes the options from this function's signature."""

    shown = {setting.name: _option(setting) for setting in described()}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in shown.items()
    ]
    take.__annotations__ = shown
    take.__signature__ = inspect.Signature(parameters)
    app = typer.Typer(add_completion=False)
    app.command()(take)
    return typer.main.get_command(app).params


def _option(setting: Setting) -> Any:
    """Return the type annotation from which Typer makes the option of a setting."""
    text = f"{_plain(setting.meaning)} [default: {_default(setting)}{_bounds(setting)}]"
    choices = [*setting.choices, *(["auto"] if setting.name == "backend" else [])]
    completed = (lambda: choices) if choices else None
    parser = _share_or_auto if setting.name == "load" else None
    option = typer.Option(help=text, autocompletion=completed, parser=parser)
    return Annotated[setting.kind | None, option]


def _share_or_auto(text: str) -> float | str:
    """Return the value of LOAD, a number or the word ``auto``."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor auto") from None


def table_row(setting: Setting) -> str:
    """Return the row of a setting in the documentation's table, as Markdown."""
    name, bounds = setting.name.upper(), _bounds(setting)
    return f"| `{name}` | {_default(setting)} | {setting.meaning}{bounds} |"


def _default(setting: Setting) -> str:
    """Return the default of a setting, with those of backends: ``100; flow 1000, softswitch
    7000``."""
    usual = _CHOSEN.get(setting.name, setting.default)
    others = [f"{backend} {_value(value)}" for backend, value in setting.on.items()]
    return f"{_value(usual)}; {', '.join(others)}" if others else _value(usual)


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _bounds(setting: Setting) -> str:
    """Return the bounds of a setting with their unit, such as ``; 20 to 60,000 ms``; empty without
    bounds."""
    if setting.low is None or setting.high is None:
        return ""
    unit = f" {setting.unit}" if setting.unit else ""
    return f"; {setting.low:,} to {setting.high:,}{unit}"


def _plain(markdown: str) -> str:
    return markdown.replace("`", "")
