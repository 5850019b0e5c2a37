# SPDX-License-Identifier: Apache-2.0
"""The house's plan: which room may import which, no circles, no file or function too long, and
every source with its licence.

The plan itself is in `docs/learn/architecture.md`; here every import is read with `ast`, also those
inside functions and for the type checker only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("testbed", "analysis", "scenarios")
SOFT_SWITCH = ROOT / "testbed" / "softswitch"  # a distribution of its own
PACKAGES = [*(ROOT / room for room in ROOMS), SOFT_SWITCH / "canary_softswitch"]

EVERYWHERE = {
    "testbed.errors",
    "testbed.arrays",
    "testbed.cores",
    "testbed.rootless",
    "testbed.signals",
}
SOFT = {"canary_softswitch"}
KERNELS = {"testbed.kernels"}
READ = KERNELS | {"testbed.fabric", "testbed.record", "testbed.measurements"}
LOW = KERNELS | SOFT | {"testbed.fabric", "testbed.record", "testbed.dataplane"}
CONTROL = LOW | {"testbed.control"}
FAULTS = CONTROL | {"testbed.faults"}
NETWORK = FAULTS | {"testbed.network"}
TRAFFIC = NETWORK | {"testbed.traffic"}
MAY_IMPORT: dict[str, set[str]] = {
    "canary_softswitch": set(),
    "testbed.errors": SOFT,
    "testbed.arrays": set(),
    "testbed.cores": set(),
    "testbed.rootless": set(),
    "testbed.signals": set(),
    "testbed.user_files": set(),
    "testbed.kernels": SOFT,
    "testbed.fabric": KERNELS,
    "testbed.dataplane": set(),
    "testbed.record": {"testbed.fabric"},
    "testbed.control": LOW,
    "testbed.faults": CONTROL,
    "testbed.network": FAULTS,
    "testbed.traffic": NETWORK,
    "testbed.measurements": TRAFFIC,
    "analysis.solvers": KERNELS | {"testbed.fabric"},
    "analysis.telemetry": READ,
    "analysis.importers": READ | {"analysis.telemetry"},
    "analysis.methods": READ | {"testbed.user_files", "analysis.solvers", "analysis.telemetry"},
    "analysis.evaluation": READ | {"analysis.solvers", "analysis.telemetry", "analysis.methods"},
    "analysis.pages": READ
    | {"analysis.solvers", "analysis.telemetry", "analysis.methods", "analysis.evaluation"},
}
"""For each room the rooms it may import, besides `EVERYWHERE`. Those of the soft switch are in
its own test_imports.py."""

EXTRAS = {"scenarios.extras"}
RUN = {"scenarios.process", "scenarios.experiment"}
SCENARIOS: dict[str, set[str]] = {
    "scenarios.extras": set(),
    "scenarios.process": set(),
    "scenarios.experiment": {"scenarios.process"},
    "scenarios.library": {"scenarios.experiment"},
    "scenarios.live": RUN,
    "scenarios.many": EXTRAS | RUN,
    "scenarios.papers": EXTRAS | {"scenarios.experiment", "scenarios.many"},
    "scenarios.command": EXTRAS | RUN | {"scenarios.live", "scenarios.many", "scenarios.papers"},
    "scenarios.api": {
        *("scenarios.experiment", "scenarios.keywords", "scenarios.frames", "scenarios.notebook"),
        "scenarios.process",
    },
    "scenarios.compared": {"scenarios.experiment", "scenarios.many", "scenarios.keywords"},
    "scenarios.frames": set(),
    "scenarios.keywords": {"scenarios.experiment"},
    "scenarios.real_net": {"scenarios.keywords", "scenarios.live"},
    "scenarios.notebook": EXTRAS,
    "scenarios.pytest_fixture": {"scenarios.api"},
    "scenarios.__main__": {"scenarios.command", "scenarios.process"},
    "scenarios.scenario": {"scenarios.experiment"},
    "scenarios.settings": {"scenarios.experiment"},
    "scenarios": set(),
}
"""For each room of `scenarios`, which may import all of `testbed` and `analysis`, the others of it
that it may import. A scenario of one's own imports from `scenarios` itself."""

# REUSE-IgnoreStart
LICENCE = "SPDX-License-Identifier: Apache-2.0"
# REUSE-IgnoreEnd
LINES = 600  # besides the licence; one subject decides where a file ends, not this bound
STATEMENT_LINES = 60
HOLD_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def sources() -> list[Path]:
    return files("*.py")


def files(pattern: str) -> list[Path]:
    """The files of our packages; that of the soft switch lies below testbed."""
    return [
        path
        for package in PACKAGES
        for path in sorted(package.rglob(pattern))
        if SOFT_SWITCH not in path.parents or SOFT_SWITCH in package.parents
    ]


def module_of(path: Path) -> str:
    root = SOFT_SWITCH if SOFT_SWITCH in path.parents else ROOT
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sources()}


def statements(path: Path) -> list[ast.AST]:
    """Every statement of a Python file, wherever in it; expressions hold none."""
    found: list[ast.AST] = [ast.parse(path.read_text())]
    for node in found:
        inside = ast.iter_child_nodes(node)
        found += [each for each in inside if isinstance(each, HOLD_STATEMENTS)]
    return found


@cache
def imports(path: Path) -> frozenset[str]:
    """The project's modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            whole = node.module or ""
            names = [f"{whole}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else whole for name in names]
        else:
            continue
        found |= {name for name in names if name.split(".")[0] in (*ROOMS, "canary_softswitch")}
    return frozenset(found)


def room_of(module: str) -> str:
    first, *rest = module.split(".")
    return first if first == "canary_softswitch" else ".".join([first, *rest[:1]])


def test_every_room_is_in_the_plan() -> None:
    rooms = {room_of(name) for name in MODULES} - {"testbed", "analysis"}
    assert rooms == MAY_IMPORT.keys() | SCENARIOS.keys()


@pytest.mark.parametrize("room", [*MAY_IMPORT, *SCENARIOS])
def test_arrows_run_down_only(room: str) -> None:
    below = {each for each in MAY_IMPORT if room in SCENARIOS}
    allowed = EVERYWHERE | below | {**MAY_IMPORT, **SCENARIOS}[room]
    wrong = {
        f"{name} imports {target}"
        for name, path in MODULES.items()
        if room_of(name) == room
        for target in imports(path)
        if room_of(target) != room and room_of(target) not in allowed
    }
    assert not wrong


def test_the_plan_itself_has_no_circle() -> None:
    list(TopologicalSorter({**MAY_IMPORT, **SCENARIOS}).static_order())


def test_no_circle_of_modules() -> None:
    graph = {name: imports(path) - {name} for name, path in MODULES.items()}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def own_code() -> list[Path]:
    """What is written by hand; p4's artifacts and the tests' programs are not."""
    c = files("*.[ch]")
    tests = [*(ROOT / "tests").rglob("*.py"), *(SOFT_SWITCH / "tests").rglob("*.py")]
    p4 = sorted((ROOT / "p4").rglob("*.p4")) + sorted((ROOT / "p4").rglob("*.py"))
    return sources() + c + p4 + sorted(tests)


def test_no_file_is_too_long() -> None:
    long = {
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in [*own_code(), *sorted((ROOT / "analysis" / "pages" / "assets").iterdir())]
        if (lines := sum(LICENCE not in line for line in path.read_text().splitlines())) > LINES
    }
    assert not long


def test_sources_begin_with_their_licence() -> None:
    """`REUSE.toml` speaks for P4 programs, whose compiled files quote their lines, and for data."""
    built = [ROOT / name for name in ("Makefile", "p4/Makefile", "pyproject.toml")]
    built += [SOFT_SWITCH / "pyproject.toml"]
    files = [path for path in own_code() if path.suffix != ".p4"] + scripts() + built
    files += [*(ROOT / "docs").glob("*.py"), *(ROOT / "docs" / "examples").glob("*.py")]
    files += [*(ROOT / "tests").rglob("*.[ch]"), *(ROOT / ".github").rglob("*.yml")]
    without = {str(path.relative_to(ROOT)) for path in files if not licensed(path.read_text())}
    assert not without


def scripts() -> list[Path]:
    places = (".ci", "testbed", "scenarios", "tests", "vagrant")
    files = [path for place in places for path in (ROOT / place).rglob("*") if path.is_file()]
    return [path for path in files if path.read_bytes().startswith(b"#!")]


def licensed(text: str) -> bool:
    """Whether the first line, below a shebang, is the licence; an empty file needs none."""
    first, _, rest = text.partition("\n")
    return not text or LICENCE in (rest.partition("\n")[0] if first.startswith("#!") else first)


def test_long_functions_say_why() -> None:
    """A function of more than 60 lines has a comment ``# Long: ...`` above it that says why."""
    unexplained = set()
    for path in own_code():
        if path.suffix == ".p4":
            continue  # a control is a room and not a function
        text = path.read_text()
        found = functions(path) if path.suffix == ".py" else c_functions(text)
        lines = text.splitlines()
        for first, last, name in found:
            if last - first + 1 > STATEMENT_LINES and "# Long: " not in lines[first - 2].replace(
                "/* Long: ", "# Long: "
            ):
                unexplained.add(f"{path.relative_to(ROOT)}: {name}, {last - first + 1} lines")
    assert not unexplained


def functions(path: Path) -> Iterator[tuple[int, int, str]]:
    """First and last line and name of each function; decorators count, docstrings do not."""
    for node in statements(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            body = node.body[0]
            documented = ast.get_docstring(node) is not None and body.end_lineno is not None
            docstring_lines = body.end_lineno - body.lineno + 1 if documented else 0  # type: ignore[operator]
            yield first, (node.end_lineno or first) - docstring_lines, node.name


def c_functions(text: str) -> Iterator[tuple[int, int, str]]:
    """The same of C whose functions begin and end in the first column."""
    begin, name = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\w[\w\s*]*?\b(\w+)\(", line):
            begin, name = number, head.group(1)
        elif line == "}" and begin:
            yield begin, number, name
            begin = 0
