"""The settings where people meet them: options of the command line, `make help`, README's table."""

from __future__ import annotations

import inspect
import textwrap
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from scenarios.settings import Setting

__all__ = ["SettingsCommand", "help_lines", "table_row"]

_CHOSEN = {"backend": "auto"}  # what the command line takes for the default: it finds out


class SettingsCommand(TyperCommand):
    """A command with an option for each setting; ``ctx.obj`` holds those that are given."""

    def get_params(self, ctx: Any) -> list[Any]:
        *own, last = super().get_params(ctx)
        return [*own, *_options(), last]

    def invoke(self, ctx: Any) -> Any:
        names = [option.name for option in _options()]
        given = {name: ctx.params.pop(name) for name in names}
        ctx.obj = {name: value for name, value in given.items() if value is not None}
        return super().invoke(ctx)


@cache
def _options() -> list[Any]:
    """An option for each setting. Pydantic is imported here, so ``canary --help`` stays quick."""
    from scenarios.settings import described

    def take(**given: object) -> None:
        """Typer reads the signature and makes options of it."""

    shown = {setting.name: _option(setting) for setting in described()}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in shown.items()
    ]
    take.__annotations__ = shown
    take.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(take)
    return typer.main.get_command(app).params


def _option(setting: Setting) -> Any:
    text = f"{_plain(setting.meaning)} [{_default(setting)}{_bounds(setting)}]"
    return Annotated[setting.kind | None, typer.Option(help=text)]


def table_row(setting: Setting) -> str:
    """The row of a setting in README's table."""
    name, bounds = setting.name.upper(), _bounds(setting)
    return f"| `{name}` | {_default(setting)} | {setting.meaning}{bounds} |"


def help_lines(setting: Setting) -> list[str]:
    """What `make help` says of a setting."""
    name = f"{setting.name.upper()}={_default(setting).partition(';')[0]}"
    return textwrap.wrap(
        _plain(setting.meaning) + _bounds(setting),
        width=100,
        initial_indent=f"  {name:<18} ",
        subsequent_indent=" " * 21,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _default(setting: Setting) -> str:
    """``100; flow 1000, softswitch 7000``."""
    usual = _CHOSEN.get(setting.name, setting.default)
    others = [f"{backend} {_value(value)}" for backend, value in setting.on.items()]
    return f"{_value(usual)}; {', '.join(others)}" if others else _value(usual)


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _bounds(setting: Setting) -> str:
    if setting.low is None or setting.high is None:
        return ""
    unit = f" {setting.unit}" if setting.unit else ""
    return f"; {setting.low:,} to {setting.high:,}{unit}"


def _plain(markdown: str) -> str:
    return markdown.replace("`", "")
