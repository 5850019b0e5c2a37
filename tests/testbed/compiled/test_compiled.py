# SPDX-License-Identifier: Apache-2.0
"""What is compiled is kept on disk, and is found again only for the very code it was made of."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import event

from testbed import caches, compiled
from testbed.compiled import cache

CALLEE = "from testbed.compiled import njit\n\n@njit\ndef f():\n    return {}\n"
CALLER = "from testbed.compiled import njit\n{}\n@njit\ndef g():\n    return 10 * f()\n"
CALL = "from analysis.caller import g; print(g())"
COUNT = """
import numba.core.event as event
def count(e):
    if e.is_start: print("compiled", end=" ")
class Count(event.Listener):
    on_start = on_end = lambda self, e: count(e)
event.register("numba:compile", Count())
"""

FORKS = """
import json, os, sys
import numba
numba.njit(lambda x: x + 1)(1)
sys.dont_write_bytecode = True  # it mixes up files of one length written within a second
for request in sys.stdin:
    folder, environment, code = json.loads(request)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(environment)
        sys.path.insert(0, folder)
        for number, name in enumerate(("out", "err"), 1):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        exec(code, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)  # without taking Numba down, which takes longer than most of these programs
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    """Runs programs in processes that have Numba, but nothing of `testbed`: a second less each."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, root: Path, environment: dict[str, str], code: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([str(root), environment, code]), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        out, err = ((root / name).read_text() for name in ("out", "err"))
        if status:
            raise subprocess.CalledProcessError(status, code, out, err)
        return out


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    environment = {name: each for name, each in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", FORKS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        yield Forks(process)
        assert process.stdin is not None
        process.stdin.close()


class Project:
    """A project of two files with compiled functions, one calling the other's."""

    def __init__(self, root: Path, forks: Forks) -> None:
        self.root, self._forks = root, forks
        (root / "testbed" / "compiled").mkdir(parents=True)
        (root / "analysis").mkdir()
        for module in (compiled, cache):
            shutil.copy(str(module.__file__), root / "testbed" / "compiled")
        shutil.copy(Path(caches.__file__), root / "testbed")
        self.write("analysis/callee.py", CALLEE.format(1))
        self.write("analysis/caller.py", CALLER.format("from analysis.callee import f\n"))

    def write(self, file: str, text: str) -> None:
        (self.root / file).write_text(text)

    def run(self, code: str = CALL) -> str:
        return self._forks.run(self.root, self._environment, COUNT + code).strip()

    def run_anew(self, code: str = CALL) -> str:
        """Run in a process that shares nothing with others, as forks do the seed of hashes."""
        done = subprocess.run(
            [sys.executable, "-B", "-c", COUNT + code],
            env={**os.environ, **self._environment},
            cwd=self.root,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    @property
    def _environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.root), "XDG_CACHE_HOME": str(self.root / "cache")}

    @property
    def folders(self) -> list[Path]:
        return sorted((self.root / "testbed" / "compiled" / "__pycache__").glob("kernels-*"))


@pytest.fixture
def project(tmp_path: Path, forks: Forks) -> Project:
    return Project(tmp_path, forks)


def test_a_changed_callee_in_another_file_is_noticed(project: Project) -> None:
    assert project.run() == "compiled compiled 10"
    assert project.run_anew() == "10"
    project.write("analysis/callee.py", CALLEE.format(2))
    assert project.run() == "compiled compiled 20"
    project.write("analysis/callee.py", CALLEE.format(1))
    assert project.run_anew() == "10"  # and what it was before is still there


def test_an_edit_compiles_what_it_touches_and_what_calls_that(project: Project) -> None:
    other = "\n@njit\ndef h():\n    return {}\n"
    both = "from analysis.caller import g; from analysis.callee import h; print(g(), h())"
    project.write("analysis/callee.py", CALLEE.format(1) + other.format(5))
    assert project.run(both) == "compiled compiled compiled 10 5"
    project.write("analysis/callee.py", CALLEE.format(1) + other.format(6))
    assert project.run(both) == "compiled 10 6"
    moved = CALLEE.format(1).replace("@njit", "# a comment\n\n@njit") + other.format(6)
    project.write("analysis/callee.py", moved)
    assert project.run(both) == "10 6"


def test_a_constant_is_no_type_of_argument_of_its_own(project: Project) -> None:
    project.write("analysis/callee.py", CALLEE.replace("f()", "f(x, y=1)").format("x - y"))
    calls = "f(3) + f(n) + f(n, 2) + f(n, y=4)"
    text = CALLER.format("from analysis.callee import f\n")
    project.write("analysis/caller.py", text.replace("g()", "g(n)").replace("10 * f()", calls))
    assert project.run("from analysis.caller import g; print(g(5))").split()[-1] == "10"
    assert len(list(project.folders[0].glob("analysis.callee.f-*"))) == 2  # with y, and without


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        ("A = 1", "A = 2", "A"),
        ("A = (1.5, 2)", "A = (1.5, 3)", "A[1]"),
        ("A = np.arange(3)", "A = np.arange(1, 4)", "A[0]"),
        ("import analysis.callee as B", "import analysis.other as B", "B.f() + B.ONE"),
    ],
)
def test_a_constant_is_compiled_in(project: Project, before: str, after: str, value: str) -> None:
    project.write("analysis/callee.py", CALLEE.format(1) + "ONE = 1\n")
    project.write("analysis/other.py", CALLEE.format(3) + "ONE = 4\n")
    head = "import numpy as np\nfrom testbed.compiled import njit\n"
    text = head + "{}\n@njit\ndef g():\n    return {}\n"
    shown = []
    for line in (before, before, after):
        project.write("analysis/caller.py", text.format(line, value))
        shown.append(project.run())
    assert shown[0].endswith(f" {shown[1]}") and shown[1] != shown[2].split()[-1]
    assert "compiled" in shown[2]


def test_fields_of_a_named_tuple_are_compiled_in(project: Project) -> None:
    """Two of one type that change places leave Numba's own text of the type as it was."""
    text = (
        "from collections import namedtuple\nfrom testbed.compiled import njit\n"
        "P = namedtuple('P', '{}')\n\n@njit\ndef g(p):\n    return p.a\n"
    )
    call = "from analysis.caller import P, g; print(g(P(1, 2)))"
    for fields, shown in (("a b", "compiled 1"), ("a b", "1"), ("b a", "compiled 2")):
        project.write("analysis/caller.py", text.format(fields))
        assert project.run(call) == shown


def test_a_function_given_as_an_argument_is_compiled_in(project: Project) -> None:
    text = "from testbed.compiled import njit\n\n@njit\ndef g(f):\n    return 10 * f()\n"
    project.write("analysis/caller.py", text)
    call = "from analysis.caller import g; from analysis.callee import f; print(g(f))"
    assert project.run(call).endswith("10")
    assert project.run(call) == "10"
    project.write("analysis/callee.py", CALLEE.format(2))
    assert project.run(call).endswith("20")


def test_a_script_of_ones_own_notices_it_too(project: Project) -> None:
    project.write("mine.py", CALLER.format("from analysis.callee import f\n"))
    mine = "from mine import g; print(g())"
    assert project.run(mine).endswith("10")
    assert project.run(mine) == "10"
    project.write("analysis/callee.py", CALLEE.format(2))
    assert project.run(mine).endswith("20")


def test_processes_of_a_pool_share_the_cache(project: Project) -> None:
    project.run()
    project.write(
        "pool.py",
        "from multiprocessing import get_context\n"
        "from analysis.caller import g\n"
        "def work(_): return g()\n"
        "if __name__ == '__main__':\n"
        "    with get_context('spawn').Pool(2) as pool: print(pool.map(work, range(4)))\n",
    )
    assert project.run_anew("import runpy; runpy.run_path('pool.py', run_name='__main__')") == str(
        [10] * 4
    )
    assert len(project.folders) == 1


def test_sources_edited_after_the_start_are_kept_as_what_they_are(project: Project) -> None:
    """A long run imports its methods at the end; meanwhile a file is edited, and later put back."""
    edit = (
        "import testbed.compiled, pathlib\n"
        f"pathlib.Path('analysis/callee.py').write_text({CALLEE.format(2)!r})\n"
        "from analysis.caller import g; print(g())"
    )
    assert project.run(edit).endswith("20")
    project.write("analysis/callee.py", CALLEE.format(1))
    assert project.run().endswith("10")


def test_without_a_place_to_write_it_compiles_in_memory(project: Project) -> None:
    (project.root / "cache").write_text("no folder")
    (project.root / "testbed" / "compiled" / "__pycache__").write_text("no folder")
    assert project.run() == "compiled compiled 10"
    assert project.run() == "compiled compiled 10"


def test_what_is_damaged_is_compiled_again(project: Project) -> None:
    project.run()
    [folder] = project.folders
    callee, caller = sorted(folder.glob("*.nbc"))
    os.truncate(callee, callee.stat().st_size // 2)
    data = bytearray(caller.read_bytes())
    data[-400:] = bytes(400)
    caller.write_bytes(data)
    assert project.run() == "compiled compiled 10"
    assert project.run() == "10"


def test_a_place_that_others_can_write_is_not_used(project: Project) -> None:
    own = project.root / "testbed" / "compiled" / "__pycache__"
    own.mkdir()
    own.chmod(0o777)
    assert project.run() == "compiled compiled 10"
    assert not project.folders and list((project.root / "cache").rglob("*.nbc"))
    (project.root / "cache" / "canary-kernels").chmod(0o777)
    with pytest.raises(subprocess.CalledProcessError) as raised:
        project.run()
    last = raised.value.stderr.splitlines()[-1]
    assert "canary-kernels belongs to another user or can be written by others" in last


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_who_does_not_own_the_program_reads_its_cache_and_keeps_an_own_one(
    project: Project,
) -> None:
    """Root filled the folder of the user who called sudo with files of its own."""
    project.run()
    [folder] = project.folders
    for file in (project.root / "testbed").rglob("*"):
        os.chown(file, 12345, 12345)
    before = sorted(folder.rglob("*"))
    changed = CALLER.format("from analysis.callee import f\n").replace("10 *", "20 *")
    assert project.run() == "10"
    assert not list((project.root / "cache").rglob("*.nbc"))
    project.write("analysis/caller.py", changed)
    assert project.run() == "compiled 20"
    assert project.run() == "20"
    assert list((project.root / "cache").rglob("*.nbc"))
    assert project.folders == [folder] and sorted(folder.rglob("*")) == before
    os.chmod(folder, 0o777)  # others could put code there
    project.write("analysis/caller.py", CALLER.format("from analysis.callee import f\n"))
    assert project.run() == "compiled compiled 10"


def test_what_was_not_used_for_long_goes(tmp_path: Path) -> None:
    for n in range(10):
        for part in ("a", "b"):
            (tmp_path / f"f-{n}-{part}").touch()
            os.utime(tmp_path / f"f-{n}-{part}", (n, n))  # long ago
    (tmp_path / "f-now-a").touch()
    cache._forget(tmp_path.glob("f-*"), lambda path: path.name.rsplit("-", 1)[0])
    left = {file.name.rsplit("-", 1)[0] for file in tmp_path.iterdir()}
    assert left == {"f-now", *(f"f-{n}" for n in range(11 - cache.KEPT, 10))}


def test_compiling_takes_no_time_of_what_is_timed() -> None:
    """The first diagnosis of a large fabric had seven seconds of it."""
    fresh, compiling = numba.njit(lambda a: a.min()), list[float]()
    begin = time.process_time()
    with event.install_timer("numba:compile", compiling.append):
        least, seconds = compiled.timed(lambda: (time.sleep(0.2), fresh(np.array([3.0, 1.0])))[1])
    passed = time.process_time() - begin
    assert least == 1.0 and compiling[0] > 0
    assert 0 <= seconds < passed / 2, "nor does waiting"


def test_all_compile_in_this_way() -> None:
    root = Path(compiled.__file__).parents[2]
    for package in ("testbed", "analysis", "scenarios"):
        for file in (root / package).rglob("*.py"):
            own = file.parent == Path(compiled.__file__).parent
            assert own or "import numba" not in file.read_text(), f"{file}: use njit"


def test_help_compiles_nothing() -> None:
    code = (
        "import sys\n"
        "from scenarios.command import cli\n"
        "sys.argv = ['canary', '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
