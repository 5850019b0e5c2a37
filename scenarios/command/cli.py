# SPDX-License-Identifier: Apache-2.0
"""The command line: ``canary run``, ``compare``, ``localize`` and the other commands."""

from __future__ import annotations

from scenarios.process.signals import exit_on_signals, raise_on_signals

if __name__ == "__main__":
    exit_on_signals()  # a signal during the imports below prints one line, too
    from scenarios.process.sudo import leave_root

    leave_root()

import gc
import os
import sys
import traceback
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.exceptions import TyperException

from scenarios.command.arguments import (
    ConfigOption,
    FaultRateOption,
    JsonOption,
    KOption,
    MethodsOption,
    OwnMethodsOption,
    ParametersOption,
    QuietOption,
    RunArgument,
    ScenarioOption,
    SudoOption,
    TrustOption,
    WatchOption,
    calibrated,
)
from scenarios.command.chapter import chapter
from scenarios.command.class_ import classes
from scenarios.command.compilers import need_compiler
from scenarios.command.foreign import check_method, import_
from scenarios.command.gates import Gate
from scenarios.command.look import diff, explain, runs, ui
from scenarios.command.machine import bundle, clean_net, doctor, export_lab, net, shell, warm_up
from scenarios.command.options import SettingsCommand, WordsCommand
from scenarios.command.other_words import COMMANDS, OPTIONS, hint
from scenarios.command.page import page
from scenarios.command.reproduce import reproduce
from scenarios.command.results import Output, shows_result
from scenarios.experiment.errors import DEFECT, message_line, message_of, stopped
from scenarios.experiment.terminal import line, progress_bar, wide_console
from testbed.errors import UserError
from testbed.fabric.names import nearest, plain


class Commands(TyperGroup):
    """The group of commands. An unknown command is answered with the nearest names."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command and return its result. A user's error prints one line and exits with code
        2; ``--debug`` prints its traceback, too. If nobody reads the output, the code is 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader has enough, as in canary runs | head
            raise typer.Exit(_unread()) from None
        except (UserError, OSError) as error:
            if ctx.params["debug"]:
                traceback.print_exc()
            print(f"canary: {message_of(error)}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt as stop:  # Typer would replace it and drop its notes
            raise typer.Exit(stopped(stop)) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name; raise an error with the nearest names if
        there is none."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            known = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
            others = hint(args[0], COMMANDS) or nearest(args[0], known)
            raise TyperException(f"there is no command {args[0]}: {others}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def start(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version of the program and of the record.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a user's error, too.")
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
@shows_result
def run(
    ctx: typer.Context,
    *,
    scenario: ScenarioOption = None,
    config: ConfigOption = None,
    run_dir: Annotated[
        Path | None,
        typer.Option("--run", help="Directory of the run. [default: runs/<time>-<scenario>]"),
    ] = None,
    methods: OwnMethodsOption = None,
    parameters: ParametersOption = "default",
    fault_rate: FaultRateOption = None,
    watch: WatchOption = False,
    sudo: SudoOption = False,
    output: Output,
    gate: Gate,
) -> None:
    """Emulate a scenario, and compare all methods on it."""
    with output.working():
        path = _run(
            ctx,
            scenario=scenario,
            config=config,
            run_dir=run_dir,
            methods=methods,
            parameters=parameters,
            fault_rate=fault_rate,
            gate=gate,
            watch=watch,
            sudo=sudo,
        )
    _show_run(output, gate, path)


def _run(
    ctx: typer.Context,
    *,
    scenario: str | None,
    config: Path | None,
    run_dir: Path | None,
    methods: str | None,
    parameters: str,
    fault_rate: float | None,
    gate: Gate,
    watch: bool,
    sudo: bool,
) -> Path:
    """Make the run that the options of ``canary run`` ask for, and return its directory."""
    from analysis.evaluation.parameter_sets import choose_methods
    from scenarios.command.watch import watching
    from scenarios.experiment.pace import paced_layout
    from scenarios.experiment.request import make_request
    from scenarios.experiment.run import (
        default_directory,
        new_run,
        run_experiment,
    )
    from scenarios.process.namespace import enter

    chosen, _ = choose_methods(methods, parameters, fault_rate)
    gate.need_methods(each.name for each in chosen)
    need_compiler()
    request = make_request(scenario, ctx.obj.settings, config)
    settings = request.settings()
    enter(settings.network, sudo, watch, ctx.obj.environment)
    ctx.obj.print_environment()
    path = run_dir or default_directory(request.name)
    with (
        progress_bar() as progress,
        watching(watch, settings.network, progress) as observer,
        new_run(path, numbered=run_dir is None) as writer,
    ):
        # An error of the input is the only line that is printed.
        layout = paced_layout(request, settings)
        run_experiment(layout, writer, chosen, observer)
        exit_on_signals(plain(f"the run is in {writer.path}"))
    return writer.path


def _show_run(output: Output, gate: Gate, path: Path) -> None:
    """Write the page of a run that has just ended, and print its result.

    Raises:
        typer.Exit: A method is under its bar; the code is 1.
    """
    from scenarios.command.show import figures_of, offer_page, show_run

    offered = offer_page(path)
    output.show(
        path, lambda: figures_of(path, trust=True), lambda: show_run(path, offered, output.verbose)
    )
    if not gate.passes(str(path), figures_of(path, trust=True)):
        raise typer.Exit(1)


@app.command(cls=WordsCommand)
@shows_result
def analyze(
    run_dir: RunArgument,
    trust: TrustOption = False,
    methods: OwnMethodsOption = None,
    parameters: ParametersOption = "default",
    fault_rate: FaultRateOption = None,
    *,
    output: Output,
    gate: Gate,
) -> None:
    """Diagnose a finished run again, without the network."""
    from analysis.evaluation.parameter_sets import choose_methods
    from scenarios.experiment.run import analyze as analyze_run

    with output.working():
        chosen, _ = choose_methods(methods, parameters, fault_rate)
        gate.need_methods(each.name for each in chosen)
        need_compiler()
        with progress_bar() as progress:
            analyze_run(run_dir, progress, trust, chosen)
        exit_on_signals(f"the diagnoses are in {run_dir}")
    _show_run(output, gate, run_dir)


@app.command(cls=WordsCommand)
@shows_result
def show(
    run_dir: Annotated[Path, typer.Argument(help="Directory of a finished run or comparison.")],
    trust: TrustOption = False,
    *,
    output: Output,
    gate: Gate,
) -> None:
    """Print the result of a finished run or comparison."""
    from scenarios.command.show import figures_of, show_figures

    output.show(
        run_dir,
        lambda: figures_of(run_dir, trust),
        lambda: show_figures(run_dir, trust, output.verbose),
    )
    if not gate.passes(str(run_dir), figures_of(run_dir, trust)):
        raise typer.Exit(1)


@app.command(cls=SettingsCommand)
@shows_result
def compare(
    ctx: typer.Context,
    *,
    scenario: ScenarioOption = None,
    config: ConfigOption = None,
    seeds: Annotated[str, typer.Option(help="A range, or a list: 1,2,10-12.")] = "1-20",
    methods: MethodsOption = "all",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the comparison. [default: runs/compare-<scenario>-<key>]"),
    ] = None,
    parameters: ParametersOption = "default",
    fault_rate: FaultRateOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="A Dask scheduler's address or file. [default: this machine]"),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(help="One comparison per value of a setting: K=4,8,16. [default: none]"),
    ] = None,
    sudo: SudoOption = False,
    output: Output,
    gate: Gate,
) -> None:
    """Compare the methods on many seeds, run in parallel.

    Figures come with confidence intervals. Finished seeds are kept: the same command continues an
    interrupted comparison.
    """
    from scenarios.command.compare import compare_seeds

    failed = compare_seeds(
        ctx.obj,
        scenario=scenario,
        config=config,
        seeds=seeds,
        methods=methods,
        out=out,
        parameters=parameters,
        fault_rate=fault_rate,
        cluster=cluster,
        sweep=sweep,
        sudo=sudo,
        output=output,
        gate=gate,
    )
    if failed:
        raise typer.Exit(1)


@app.command()
def localize(
    *,
    topology: Annotated[
        Path,
        typer.Option(
            help="The fabric: .parquet or .csv, the folder of an import, or as TOPOLOGY= takes it."
        ),
    ],
    telemetry: Annotated[
        Path,
        typer.Option(
            help="The observations: .parquet or .csv, or a folder of parts or of an import."
        ),
    ],
    method: MethodsOption = "all",
    out: Annotated[
        Path | None,
        typer.Option(help="Write all rankings to this .parquet or .csv file. [default: none]"),
    ] = None,
    parameters: ParametersOption = "default",
    fault_rate: FaultRateOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="For parts: an existing Dask cluster, as its scheduler's address or file. "
            "[default: this machine]"
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse tables that are not as the record describes them."),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Localize faulty links from files of telemetry.

    docs/reference/record.md describes these files.
    """
    from analysis.evaluation.parameter_sets import choose_methods
    from scenarios.command.localize import RANKING, print_verdicts
    from scenarios.command.localize import localize as localize_files
    from testbed.record.files import is_csv
    from testbed.record.outputs import in_words, need_place

    output = Output(quiet, as_json)
    output.need_path(out)
    replaces = out is not None and need_place(out, RANKING)
    if out is not None:
        is_csv(out)
    chosen, _ = choose_methods(method, parameters, fault_rate)
    need_compiler()
    with output.working(), progress_bar() as progress:
        verdicts = localize_files(topology, telemetry, chosen, progress, cluster, strict=strict)
    if out is not None:
        verdicts.write(out)
    used = {each.name: each.origin for each in chosen if each.name in verdicts.diagnoses}
    written = "" if out is None else in_words(out, replaces)
    output.show(out, verdicts.figures, lambda: print_verdicts(verdicts, used, written))


@app.command()
def export(
    run_dir: RunArgument,
    out: Annotated[Path, typer.Option(help="Folder for the two files.")],
    csv: Annotated[bool, typer.Option("--csv", help="Write CSV instead of Parquet.")] = False,
    parts: Annotated[
        bool,
        typer.Option("--parts", help="Only Canary's segments, a Parquet file per sub-problem."),
    ] = False,
    trust: TrustOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a run as files that `localize` reads."""
    from scenarios.command.localize import export as export_run

    output = Output(quiet, as_json)

    if csv and parts:
        raise UserError("--csv and --parts exclude each other: parts are Parquet")
    raise_on_signals()
    suffix = ".csv" if csv else ".parquet"
    files = [plain(str(path)) for path in export_run(run_dir, out, suffix, trust, parts=parts)]
    output.show(out, lambda: {"path": str(out), "files": files}, lambda: print(*files, sep="\n"))


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
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan deTector's probes, and count them.

    The plan has few paths that cover every link and tell failures apart; simpler plans stand beside
    it.
    """
    from scenarios.command.plan import PLAN, make_plan, plan_figures, render_plan, write_plan
    from testbed.record.outputs import in_words, need_place

    output = Output(quiet, as_json)
    output.need_path(out)
    replaces = out is not None and need_place(out, PLAN)
    need_compiler()
    with output.working(), progress_bar() as progress:
        matrix, timings = make_plan(k, alpha, beta, progress)
    if out is not None:
        write_plan(matrix, out)

    def show_plan() -> None:
        """Print the plan for a reader."""
        console = Console()
        render_plan(matrix, timings, console)
        if out is not None:
            console.print(line(f"paths: {in_words(out, replaces)}"), soft_wrap=True)

    output.show(out, lambda: plan_figures(matrix), show_plan)


@app.command(cls=WordsCommand)
def calibrate(
    out: Annotated[Path, typer.Option(help="The file of parameters that is written.")],
    method: Annotated[
        str,
        typer.Option(
            help="all, or a list; parameters in a name stay fixed: flock:p_bad=0.01.",
            autocompletion=calibrated,
        ),
    ] = "all",
    train: Annotated[
        list[Path] | None,
        typer.Option(
            help="A list of training runs, or the directory of a run; repeat for several. "
            "[default: scenarios/training.yaml]",
            show_default=False,
        ),
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            help="f1: highest mean F1; precision: highest recall at a precision of 98 %, then "
            "lower (Flock, section 5.2).",
            autocompletion=lambda: ["f1", "precision"],
        ),
    ] = "f1",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Choose parameters of methods on training runs.

    One rule serves all methods. The option --parameters of other commands reads the written file.
    """
    from analysis.evaluation.parameter_sets import PARAMETER_SET
    from analysis.methods.parameters import in_words as parameters_in_words
    from scenarios.many.calibrate import TRAINING
    from scenarios.many.calibrate import calibrate as calibrate_methods
    from testbed.record.outputs import in_words, need_place

    output = Output(quiet, as_json)
    replaces = need_place(out, PARAMETER_SET)
    need_compiler()
    with output.working(), progress_bar() as progress:
        found = calibrate_methods(method, train or [TRAINING], out, progress, rule)
    exit_on_signals(plain(f"the parameters are in {out}"))

    def show_parameters() -> None:
        """Print the chosen parameters for a reader."""
        console = wide_console()
        for name, entry in found.methods.items():
            text = f"{name}: {parameters_in_words(entry.parameters)}"
            console.print(line(text, "bold"), soft_wrap=True)
            console.print(
                f"  F1 {entry.f1:.3f}, precision {entry.precision:.3f}, recall {entry.recall:.3f} "
                f"on {entry.cases} training cases; {entry.tried} settings tried",
                highlight=False,
            )
        console.print(line(in_words(out, replaces)), soft_wrap=True)

    output.show(out, lambda: found.model_dump(mode="json"), show_parameters)


app.add_typer(classes, name="class", help="Make a class exercise, and grade it.")
app.command(cls=WordsCommand)(chapter)
app.command()(page)
app.command()(explain)
app.command()(runs)
app.command()(diff)
app.command()(ui)
app.command(cls=SettingsCommand)(net)
app.command(cls=WordsCommand)(reproduce)
app.command("import")(import_)
app.command("check-method")(check_method)
app.command("export-lab", cls=SettingsCommand)(export_lab)
app.command()(doctor)
app.command("warm-up", hidden=True)(warm_up)
app.command(hidden=True)(bundle)
app.command()(shell)
app.command("clean-net")(clean_net)


def _unread() -> int:
    """Let the last flush write to nowhere, as nobody reads the output. Return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def main() -> None:
    """Run the command line; every error of a user is printed as one line."""
    exit_on_signals()
    gc.set_threshold(1_000_000, 20, 100)  # a run has many objects, most of which live long
    # Matrix products are small here; OpenBLAS's threads would only spin while NumPy and SciPy load.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # escape characters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False, prog_name="canary")
    except typer.Exit as exit_:
        code = exit_.exit_code
    except TyperException as error:
        option = getattr(error, "option_name", None) or ""
        other = hint(option, OPTIONS)
        reason = f"there is no option {option}: {other}" if other else error.format_message()
        print(f"canary: {message_line(reason)}", file=sys.stderr)
        code = 2
    except (typer.Abort, KeyboardInterrupt) as stop:
        code = stopped(stop)
    except Exception:
        traceback.print_exc()
        print(DEFECT, file=sys.stderr)
        code = 1
    exit_on_signals("it had ended before")
    try:
        sys.stdout.flush()  # a short output is written here
    except BrokenPipeError:
        code = max(code or 0, _unread())
    gc.freeze()  # else the interpreter's exit takes a quarter of a second to visit all objects
    sys.exit(code or 0)


if __name__ == "__main__":
    main()
