"""The command line: ``canary run``, ``canary analyze``, ``canary show``."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from typer.exceptions import TyperException

__all__ = ["app", "main"]

app = typer.Typer(
    help="Break links of a fat-tree that runs the Canary P4 program, and see who finds them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

RunArgument = Annotated[Path, typer.Argument(help="Directory of a finished run.")]


@app.command()
def run(
    scenario: Annotated[
        str, typer.Option(help="Name of a scenario, or the path of a scenario file.")
    ] = "faulty_links",
    k: Annotated[int | None, typer.Option(help="Ports of a switch: the fat-tree's K.")] = None,
    faults: Annotated[
        str | None,
        typer.Option(help="10pct, 6links, none, devices:1, tor0_0->agg0_1:0.05, a list, a .yaml."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same run.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs.")] = None,
    epoch_ms: Annotated[int | None, typer.Option(help="Length of an epoch in ms.")] = None,
    traffic: Annotated[
        str | None, typer.Option(help="hadoop, websearch, storage, pareto[:skewed], or a capture.")
    ] = None,
    tcp: Annotated[
        float | None, typer.Option(help="Share of the larger flows that real TCP carries.")
    ] = None,
    load: Annotated[float | None, typer.Option(help="Share of the hosts' line rate.")] = None,
    monitors: Annotated[str | None, typer.Option(help="tor+core or tor.")] = None,
    alpha: Annotated[int | None, typer.Option(help="Packets wanted a segment and epoch.")] = None,
    beta: Annotated[int | None, typer.Option(help="Flows wanted a segment.")] = None,
    delta: Annotated[int | None, typer.Option(help="Flows selected at a time.")] = None,
    eta: Annotated[int | None, typer.Option(help="Packets that make a heavy hitter.")] = None,
    noise: Annotated[float | None, typer.Option(help="Loss rate of healthy links.")] = None,
    backend: Annotated[
        str, typer.Option(help="auto, virtual, flow; as root with Mininet: bmv2, softswitch.")
    ] = "auto",
    injector: Annotated[str | None, typer.Option(help="p4 (auto), netem, nft.")] = None,
    topology: Annotated[
        str | None,
        typer.Option(help="With flow: leaf-spine:8:4, clos:4:8:4:16, :irregular=5pct."),
    ] = None,
    telemetry: Annotated[
        str | None, typer.Option(help="With flow: kinds of Flock's section 6.2, A1+A2+P, INT.")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run", help="Directory of the run [runs/<time>-<scenario>].")
    ] = None,
) -> None:
    """Emulate a scenario, diagnose it with every method, print the comparison."""
    given = {name: value for name, value in locals().items() if value is not None}
    path = given.pop("run_dir", None)
    name = given.pop("scenario")
    with _errors():
        from analysis.report import render
        from scenarios.experiment import default_directory, run_experiment
        from scenarios.scenario import load_scenario
        from scenarios.settings import make_settings

        found = load_scenario(name)
        asked = dict(found.defaults) | given
        if asked["backend"] == "auto":
            asked["backend"] = _choose_backend(asked)
        settings = make_settings(asked)
        path = path or default_directory(name)
        with _progress() as progress, _for_the_caller(path):
            summary = run_experiment(name, found, settings, path, progress)
        console = Console()
        render(summary, console)
        console.print(f"run directory: {path}", highlight=False, soft_wrap=True)


@app.command()
def analyze(run_dir: RunArgument) -> None:
    """Diagnose a finished run again, without the network."""
    with _errors():
        from analysis.report import render
        from scenarios.experiment import analyze as analyze_run

        with _progress() as progress:
            summary = analyze_run(run_dir, progress)
        render(summary, Console())


@app.command()
def show(run_dir: RunArgument) -> None:
    """Print the comparison of a finished run."""
    with _errors():
        from analysis.report import render
        from testbed.run import RunDirectory

        render(RunDirectory(run_dir).json("summary.json"), Console())


@app.command()
def net(
    k: Annotated[int, typer.Option(help="Ports of a switch: the fat-tree's K.")] = 4,
    backend: Annotated[str, typer.Option(help="softswitch or bmv2.")] = "softswitch",
) -> None:
    """Bring the network up under Mininet and open Mininet's prompt (needs root)."""
    with _errors():
        from scenarios.backends import bring_up
        from scenarios.settings import make_settings

        settings = make_settings({"k": k, "backend": backend})
        with tempfile.TemporaryDirectory() as logs:
            bring_up(settings, Path(logs))


@app.command()
def shell(
    switch: Annotated[str, typer.Argument(help="A switch of the running network: agg0_1.")],
) -> None:
    """Open p4runtime-sh on a switch of the running network."""
    with _errors():
        from testbed.network.mininet import running_switch

        arguments = running_switch(switch)
    main = "from p4runtime_sh.shell import main; main()"  # the package installs no command
    os.execv(sys.executable, [sys.executable, "-c", main, *arguments])


@app.command("clean-net")
def clean_net() -> None:
    """Remove what a crashed run left of its network, and nothing else."""
    with _errors():
        from testbed.network.mininet import STATE, clean

        ended = clean(STATE)
        print(f"ended {', '.join(ended)}" if ended else "nothing was left")


def _choose_backend(asked: dict[str, Any]) -> str:
    """What BACKEND=auto means here; where it takes root, this process goes on as root."""
    from scenarios.backends import choose_backend
    from scenarios.settings import make_settings

    choice = choose_backend(make_settings(asked | {"backend": "virtual"}).k)
    print(f"BACKEND=auto: {choice.backend} ({choice.reason})", flush=True)
    if choice.sudo:
        program = [sys.executable, "-m", "scenarios.cli", *sys.argv[1:]]
        os.execvp("sudo", ["sudo", "-n", *program, "--backend", choice.backend])
    return choice.backend


@contextmanager
def _for_the_caller(path: Path) -> Iterator[None]:
    """What sudo's root writes at ``path`` belongs to the user who called sudo."""
    new = [place for place in (path, *path.parents) if not place.exists()]
    try:
        yield
    finally:
        user, group = (int(os.environ.get(f"SUDO_{what}", "0")) for what in ("UID", "GID"))
        if os.geteuid() == 0 and user:
            here = [path, path.with_name(f"{path.name}.partial")]
            below = [file for place in here for file in place.rglob("*")]
            for place in {*new, *here, *below}:
                if place.exists():
                    os.chown(place, user, group)


class _Bar:
    """One line of progress; silent where the output is no terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=1.0)

    def __call__(self, what: str, share: float) -> None:
        self._progress.update(self._task, description=what, completed=share)


@contextmanager
def _progress() -> Iterator[Any]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:24}"), BarColumn(), TaskProgressColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        yield _Bar(progress)


@contextmanager
def _errors() -> Iterator[None]:
    """A user's mistake is one line and exit code 2."""
    from testbed.network.mininet import NetworkError
    from testbed.network.processes import ProcessError
    from testbed.softswitch import SoftSwitchError

    try:
        yield
    except (ValueError, OSError, SoftSwitchError, NetworkError, ProcessError) as error:
        text = " ".join("; ".join([str(error), *getattr(error, "__notes__", [])]).split())
        print(f"canary: {text}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as stop:
        kept = " ".join(getattr(stop, "__notes__", ["nothing was kept"]))
        print(f"canary: interrupted: {kept}", file=sys.stderr)
        raise typer.Exit(130) from None


def main() -> None:
    """Run the command line; whatever is wrong with it is one line, too."""
    # A termination tidies up as Ctrl-C does; a shell's background jobs begin with SIGINT ignored.
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.default_int_handler)
    try:
        code = app(standalone_mode=False)
    except typer.Exit as exit_:
        code = exit_.exit_code
    except TyperException as error:
        text = " ".join(error.format_message().split())
        print(f"canary: {text}", file=sys.stderr)
        code = 2
    except (typer.Abort, KeyboardInterrupt):
        print("canary: interrupted: nothing was kept", file=sys.stderr)
        code = 130
    sys.exit(code or 0)


if __name__ == "__main__":
    main()
