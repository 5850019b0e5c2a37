"""The command line: ``canary run``, ``compare``, ``localize`` and their like."""

from __future__ import annotations

from scenarios.stopping import at_once, exit_code, in_one_line, tidily

if __name__ == "__main__":
    at_once()  # during the imports below, too

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.exceptions import TyperException

from scenarios.nearest import nearest
from scenarios.options import SettingsCommand, WordsCommand
from scenarios.sudo import new_run, pick_backend
from scenarios.terminal import line, progress_bar, wide_console
from testbed.fabric.names import plain

__all__ = ["app", "main"]


class Commands(TyperGroup):
    """A command that does not exist is answered by those that do."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            others = nearest(args[0], self.list_commands(ctx))
            raise TyperException(f"there is no command {args[0]}: {others}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

NOTE_ON_COMPARISON = (
    "means of {} runs with 95 % bootstrap intervals; * is scored on undirected links\n"
    "AP: average precision of the ranking; F1u: all on undirected links; sec: diagnosis"
)


def _scenarios() -> list[str]:
    from scenarios.scenario import scenario_names

    return scenario_names()


def _methods() -> list[str]:
    from analysis.methods.registry import method_names

    return ["all", *method_names()]


RunArgument = Annotated[Path, typer.Argument(help="Directory of a finished run.")]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Read what was changed after the run, too.")
]

# Options of `run` and `compare` alike.
ScenarioOption = Annotated[
    str | None,
    typer.Option(
        help="Name of a scenario, or the path of a scenario file. [default: faulty_links]",
        autocompletion=_scenarios,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        help="Settings from a YAML file, or of an earlier run: its config.json. Options win over "
        "it. [default: none]"
    ),
]
MethodsOption = Annotated[
    str,
    typer.Option(help="all, or a list: flock,netbouncer,007.", autocompletion=_methods),
]


@app.callback(invoke_without_command=True)
def start(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version, and that of the record.")
    ] = False,
) -> None:
    """Break links of a fat-tree that runs the Canary P4 program, and see who finds them."""
    if version:
        from importlib.metadata import version as version_of

        from testbed.record.schema import VERSION

        print(f"canary {version_of('canary-testbed')}, record version {VERSION}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


@app.command(cls=SettingsCommand)
def run(
    ctx: typer.Context,
    scenario: ScenarioOption = None,
    config: ConfigOption = None,
    run_dir: Annotated[
        Path | None,
        typer.Option("--run", help="Directory of the run. [default: runs/<time>-<scenario>]"),
    ] = None,
) -> None:
    """Emulate a scenario, and compare all methods on it."""
    with _errors():
        from analysis.evaluation.report import render
        from scenarios.backends import at_this_pace
        from scenarios.estimate import announce
        from scenarios.experiment import default_directory, run_experiment
        from scenarios.request import make_request

        request = make_request(scenario, ctx.obj.settings, config)
        ctx.obj.tell()
        backend = request.backend
        if backend == "auto":
            backend = pick_backend(request.settings("virtual").k, ctx.obj)
        settings = at_this_pace(request.settings(backend), request.named)
        path = run_dir or default_directory(request.name)
        with progress_bar() as progress, new_run(path, numbered=run_dir is None) as writer:
            summary = run_experiment(
                request.name, request.scenario, settings, writer, progress, expect=announce
            )
            at_once(plain(f"the run is in {writer.path}"))
        console = Console()
        render(summary, console)
        console.print(line(f"run directory: {writer.path}"), soft_wrap=True)


@app.command()
def analyze(run_dir: RunArgument, trust: TrustOption = False) -> None:
    """Diagnose a finished run again, without the network."""
    with _errors():
        from analysis.evaluation.report import render
        from scenarios.experiment import analyze as analyze_run

        with progress_bar() as progress:
            summary = analyze_run(run_dir, progress, trust)
        at_once(f"the diagnoses are in {run_dir}")
        render(summary, Console())


@app.command()
def show(
    run_dir: RunArgument,
    as_json: Annotated[
        bool, typer.Option("--json", help="Its summary.json, for programs.")
    ] = False,
    trust: TrustOption = False,
) -> None:
    """Print the comparison of a finished run."""
    with _errors():
        from analysis.evaluation.report import render
        from testbed.record.run import RunDirectory

        summary = RunDirectory(run_dir, trust=trust).summary
        if as_json:
            print(json.dumps(summary, indent=2))
        else:
            render(summary, Console())


@app.command(cls=SettingsCommand)
def compare(
    ctx: typer.Context,
    scenario: ScenarioOption = None,
    config: ConfigOption = None,
    seeds: Annotated[str, typer.Option(help="A range, or a list: 1,2,10-12.")] = "1-20",
    methods: MethodsOption = "all",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the comparison. [default: runs/compare-<scenario>-<key>]"),
    ] = None,
) -> None:
    """Compare the methods on many seeds, run in parallel.

    Figures come with confidence intervals. Finished seeds are kept: after an interruption the same
    command goes on.
    """
    with _errors():
        from analysis.evaluation.comparison import comparison_table
        from analysis.evaluation.report import capture_line
        from analysis.methods.registry import find_methods, make_method
        from scenarios.compare import compare as compare_runs
        from scenarios.compare import default_folder, parse_seeds
        from scenarios.request import make_request
        from scenarios.settings import SettingsError

        if "seed" in ctx.obj.settings:
            raise SettingsError("SEED is of one run: use SEEDS=1-20, or a list")
        every = parse_seeds(seeds)
        names = find_methods(methods)
        for method in names:
            make_method(method)
        request = make_request(scenario, ctx.obj.settings, config)
        auto = request.backend == "auto"
        settings = request.settings("virtual" if auto else None)  # seeds in parallel
        ctx.obj.tell()
        folder = out or default_folder(request.name, settings, names)
        with progress_bar() as progress:
            result = compare_runs(request.name, settings, every, names, folder, progress)
        at_once(plain(f"the figures are in {folder}"))
        console = wide_console()
        if result.capture is not None:
            console.print(line(capture_line(result.capture)), soft_wrap=True)
        console.print(comparison_table(result.rows))
        runs = len(set(result.rows["seed"].tolist()))
        console.print(NOTE_ON_COMPARISON.format(runs), style="dim", highlight=False)
        for seed, reason in result.failures.items():
            console.print(line(f"seed {seed} failed: {reason}", "red"))
        console.print(line(f"{folder}/results.parquet, {folder}/f1.png"), soft_wrap=True)
    if result.failures:
        raise typer.Exit(1)


@app.command()
def localize(
    topology: Annotated[Path, typer.Option(help="The fabric: .parquet or .csv.")],
    telemetry: Annotated[Path, typer.Option(help="The observations: .parquet or .csv.")],
    method: MethodsOption = "all",
    out: Annotated[
        Path | None,
        typer.Option(help="Write all rankings to this Parquet file. [default: none]"),
    ] = None,
) -> None:
    """Localize faulty links from files of telemetry.

    testbed/record/README.md describes them.
    """
    with _errors():
        from analysis.evaluation.ranking import render_ranking
        from analysis.methods.registry import find_methods
        from scenarios.localize import localize as localize_files

        names = find_methods(method)
        with progress_bar() as progress:
            verdicts = localize_files(topology, telemetry, names, progress)
        if out is not None:
            verdicts.write(out)
        console = wide_console()
        console.print(line(verdicts.heading()))
        for name, diagnosis in verdicts.diagnoses.items():
            console.print()
            console.print(render_ranking(name, diagnosis, verdicts.numbered))
        for reason in verdicts.silent:
            console.print()
            console.print(line(reason, "yellow"))


@app.command()
def export(
    run_dir: RunArgument,
    out: Annotated[Path, typer.Option(help="Folder for the two files.")],
    csv: Annotated[bool, typer.Option("--csv", help="CSV instead of Parquet.")] = False,
    trust: TrustOption = False,
) -> None:
    """Write a run as files that `localize` reads."""
    with _errors():
        from scenarios.localize import export as export_run

        tidily()
        for path in export_run(run_dir, out, ".csv" if csv else ".parquet", trust):
            print(plain(str(path)))


KOption = Annotated[
    int,
    typer.Option(
        help="Ports of a switch: the fat-tree's K, an even number. [default: 4; 4 to 128]",
        show_default=False,
    ),
]


@app.command(cls=WordsCommand)
def plan(
    k: KOption = 4,
    alpha: Annotated[
        int,
        typer.Option(help="Paths wanted over each link. [default: 3; from 1]", show_default=False),
    ] = 3,
    beta: Annotated[
        int,
        typer.Option(help="Failed links to tell apart. [default: 1; 0 to 3]", show_default=False),
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Write the paths as Parquet. [default: none]")
    ] = None,
) -> None:
    """Plan deTector's probes, and count them.

    Few paths that cover every link and tell failures apart, against plans that need no thought.
    """
    with _errors():
        from scenarios.plan import check_place, make_plan, render_plan, write_plan

        if out is not None:
            check_place(out)
        with progress_bar() as progress:
            matrix, timings = make_plan(k, alpha, beta, progress)
        console = Console()
        render_plan(matrix, timings, console)
        if out is not None:
            write_plan(matrix, out)
            console.print(line(f"paths: {out}"), soft_wrap=True)


@app.command(cls=WordsCommand)
def net(
    k: KOption = 4,
    backend: Annotated[
        str,
        typer.Option(help="softswitch or bmv2.", autocompletion=lambda: ["softswitch", "bmv2"]),
    ] = "softswitch",
) -> None:
    """Bring the network up, with Mininet's prompt (root)."""
    with _errors():
        from scenarios.prompt import open_prompt
        from scenarios.settings import REAL_TIME, SettingsError

        if backend not in REAL_TIME:
            raise SettingsError(f"BACKEND={backend} has no network: use {', '.join(REAL_TIME)}")
        tidily()
        with tempfile.TemporaryDirectory() as logs:
            open_prompt(k, backend, Path(logs))


@app.command()
def doctor() -> None:
    """What this machine can run, and what to install."""
    with _errors():
        from scenarios.doctor import examine, render_findings

        render_findings(examine(), wide_console())


@app.command("warm-up", hidden=True)
def warm_up() -> None:
    """Compile what a run needs, once an installation: `make setup` does it."""
    with _errors():
        from scenarios.warm_up import warm_up as compile_all

        with progress_bar() as progress:
            compile_all(progress)


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
    """Remove what a killed run left of its network (root).

    And nothing else.
    """
    with _errors():
        from testbed.network.processes import ProcessError, clean

        if os.geteuid() != 0:
            raise ProcessError("networks are root's: use sudo")
        cleaned = clean()
        ended = ", ".join(cleaned.ended)
        print(f"ended {ended}" if ended else "nothing was left")
        for runner in cleaned.alive:
            print(f"process {runner} still runs a network: it is let alone")


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
        print(f"canary: {plain(text)}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as stop:
        raise typer.Exit(_stopped(stop)) from None


def _stopped(stop: BaseException) -> int:
    """Say it in one line; the exit code."""
    number = stop.args[0] if stop.args else signal.SIGINT
    kept = plain(" ".join(getattr(stop, "__notes__", ["nothing was kept"])))
    with suppress(OSError):  # a terminal that is gone
        print(in_one_line(number, kept), file=sys.stderr, flush=True)
    return exit_code(number)


def main() -> None:
    """Run the command line; whatever is wrong with it is one line, too."""
    at_once()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a letter that the terminal lacks is no error
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False, prog_name="canary")
    except typer.Exit as exit_:
        code = exit_.exit_code
    except TyperException as error:
        text = " ".join(error.format_message().split())
        print(f"canary: {plain(text)}", file=sys.stderr)
        code = 2
    except (typer.Abort, KeyboardInterrupt) as stop:
        code = _stopped(stop)
    at_once("it was over already")
    sys.exit(code or 0)


if __name__ == "__main__":
    main()
