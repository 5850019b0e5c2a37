"""The command line: ``canary run``, ``compare``, ``localize`` and their like."""

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

from scenarios.options import SettingsCommand

__all__ = ["app", "main"]

app = typer.Typer(
    help="Break links of a fat-tree that runs the Canary P4 program, and see who finds them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

NOTE_ON_COMPARISON = (
    "means of {} runs with 95 % bootstrap intervals; * is scored on undirected links\n"
    "AP: average precision of the ranking; F1u: all on undirected links; sec: diagnosis"
)

RunArgument = Annotated[Path, typer.Argument(help="Directory of a finished run.")]

# Options of `run` and `compare` alike.
ScenarioOption = Annotated[
    str, typer.Option(help="Name of a scenario, or the path of a scenario file.")
]
MethodsOption = Annotated[str, typer.Option(help="all, or a list: flock,netbouncer,vigil.")]


@app.command(cls=SettingsCommand)
def run(
    ctx: typer.Context,
    scenario: ScenarioOption = "faulty_links",
    run_dir: Annotated[
        Path | None, typer.Option("--run", help="Directory of the run [runs/<time>-<scenario>].")
    ] = None,
) -> None:
    """Emulate a scenario, diagnose it with every method, print the comparison."""
    with _errors():
        from analysis.evaluation.report import render
        from scenarios.experiment import default_directory, run_experiment
        from scenarios.scenario import load_scenario
        from scenarios.settings import make_settings

        found = load_scenario(scenario)
        asked = {"backend": "auto"} | dict(found.defaults) | ctx.obj
        if asked["backend"] == "auto":
            asked["backend"] = _choose_backend(asked)
        settings = make_settings(asked)
        path = run_dir or default_directory(scenario)
        with _progress() as progress, _for_the_caller(path):
            summary = run_experiment(scenario, found, settings, path, progress)
        console = Console()
        render(summary, console)
        console.print(f"run directory: {path}", highlight=False, soft_wrap=True)


@app.command()
def analyze(run_dir: RunArgument) -> None:
    """Diagnose a finished run again, without the network."""
    with _errors():
        from analysis.evaluation.report import render
        from scenarios.experiment import analyze as analyze_run

        with _progress() as progress:
            summary = analyze_run(run_dir, progress)
        render(summary, Console())


@app.command()
def show(run_dir: RunArgument) -> None:
    """Print the comparison of a finished run."""
    with _errors():
        from analysis.evaluation.report import render
        from testbed.record.run import RunDirectory

        render(RunDirectory(run_dir).json("summary.json"), Console())


@app.command(cls=SettingsCommand)
def compare(
    ctx: typer.Context,
    scenario: ScenarioOption = "faulty_links",
    seeds: Annotated[str, typer.Option(help="1-20, or a list: 1,2,10-12.")] = "1-20",
    methods: MethodsOption = "all",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the comparison [runs/compare-<scenario>-<key>].")
    ] = None,
) -> None:
    """Run many seeds in parallel and compare the methods, with confidence intervals.

    Finished seeds are kept: after an interruption the same command goes on.
    """
    with _errors():
        from analysis.evaluation.comparison import comparison_table
        from analysis.methods.registry import find_methods, make_method
        from scenarios.compare import compare as compare_runs
        from scenarios.compare import default_folder, parse_seeds
        from scenarios.scenario import load_scenario
        from scenarios.settings import SettingsError, make_settings

        if "seed" in ctx.obj:
            raise SettingsError("SEED is of one run: use SEEDS=1-20, or a list")
        every = parse_seeds(seeds)
        names = find_methods(methods)
        for method in names:
            make_method(method)
        asked = {"backend": "auto"} | dict(load_scenario(scenario).defaults) | ctx.obj
        if asked["backend"] == "auto":
            asked["backend"] = "virtual"  # seeds in parallel
        settings = make_settings(asked)
        folder = out or default_folder(scenario, settings, names)
        with _progress() as progress:
            result = compare_runs(scenario, settings, every, names, folder, progress)
        console = _console()
        console.print(comparison_table(result.rows))
        runs = len(set(result.rows["seed"].tolist()))
        console.print(NOTE_ON_COMPARISON.format(runs), style="dim", highlight=False)
        for seed, reason in result.failures.items():
            console.print(f"seed {seed} failed: {reason}", style="red", highlight=False)
        console.print(f"{folder}/results.parquet, {folder}/f1.png", highlight=False, soft_wrap=True)
    if result.failures:
        raise typer.Exit(1)


@app.command()
def localize(
    topology: Annotated[Path, typer.Option(help="The fabric: .parquet or .csv.")],
    telemetry: Annotated[Path, typer.Option(help="The observations: .parquet or .csv.")],
    method: MethodsOption = "all",
    out: Annotated[
        Path | None, typer.Option(help="Write all rankings to this Parquet file.")
    ] = None,
) -> None:
    """Localize faulty links from telemetry files (testbed/record/README.md)."""
    with _errors():
        from analysis.evaluation.ranking import render_ranking
        from analysis.methods.registry import find_methods
        from scenarios.localize import localize as localize_files

        names = find_methods(method)
        with _progress() as progress:
            verdicts = localize_files(topology, telemetry, names, progress)
        if out is not None:
            verdicts.write(out)
        console = _console()
        console.print(verdicts.heading(), highlight=False)
        for name, diagnosis in verdicts.diagnoses.items():
            console.print()
            console.print(render_ranking(name, diagnosis, verdicts.numbered))
        for reason in verdicts.silent:
            console.print(f"\n{reason}", style="yellow", highlight=False)


@app.command()
def export(
    run_dir: RunArgument,
    out: Annotated[Path, typer.Option(help="Folder for the two files.")],
    csv: Annotated[bool, typer.Option("--csv", help="CSV instead of Parquet.")] = False,
) -> None:
    """Write a run's fabric and telemetry as files that `localize` and other tools read."""
    with _errors():
        from scenarios.localize import export as export_run

        for path in export_run(run_dir, out, ".csv" if csv else ".parquet"):
            print(path)


@app.command()
def plan(
    k: Annotated[int, typer.Option(help="Ports of a switch: the fat-tree's K.")] = 4,
    alpha: Annotated[int, typer.Option(help="Paths wanted over each link.")] = 3,
    beta: Annotated[int, typer.Option(help="Failed links to tell apart, 0 to 3.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Write the paths as Parquet.")] = None,
) -> None:
    """Plan deTector's probes: few paths that cover every link and tell failures apart."""
    with _errors():
        from scenarios.plan import make_plan, render_plan, write_plan

        if out is not None and not out.parent.is_dir():
            raise ValueError(f"{out.parent} is no directory: choose another --out")
        with _progress() as progress:
            matrix, timings = make_plan(k, alpha, beta, progress)
        console = Console()
        render_plan(matrix, timings, console)
        if out is not None:
            write_plan(matrix, out)
            console.print(f"paths: {out}", highlight=False, soft_wrap=True)


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
        from testbed.network.switches import running_switch

        arguments = running_switch(switch)
    main = "from p4runtime_sh.shell import main; main()"  # the package installs no command
    os.execv(sys.executable, [sys.executable, "-c", main, *arguments])


@app.command("clean-net")
def clean_net() -> None:
    """Remove what a crashed run left of its network, and nothing else."""
    with _errors():
        from testbed.network.processes import STATE, clean

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


def _console() -> Console:
    """Standard output; wide enough for tables where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


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
    from testbed.network.network import NetworkError
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
