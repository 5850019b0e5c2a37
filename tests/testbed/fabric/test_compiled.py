"""What is compiled is kept on disk, and never outlives the sources it was made of."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import event

from testbed import caches
from testbed.fabric import compiled

CALLEE = "from testbed.fabric.compiled import njit\n\n@njit\ndef f():\n    return {}\n"
CALLER = "from testbed.fabric.compiled import njit\n{}\n@njit\ndef g():\n    return 10 * f()\n"
COUNT = """
import numba.core.event as event
def count(e):
    if e.is_start: print("compiled", end=" ")
class Count(event.Listener):
    on_start = on_end = lambda self, e: count(e)
event.register("numba:compile", Count())
"""


class Project:
    """A project of two files with compiled functions, one calling the other's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "testbed" / "fabric").mkdir(parents=True)
        (root / "analysis").mkdir()
        shutil.copy(Path(compiled.__file__), root / "testbed" / "fabric")
        shutil.copy(Path(caches.__file__), root / "testbed")
        self.write("analysis/callee.py", CALLEE.format(1))
        self.write("analysis/caller.py", CALLER.format("from analysis.callee import f\n"))

    def write(self, file: str, text: str) -> None:
        (self.root / file).write_text(text)

    def run(self, code: str = "from analysis.caller import g; print(g())") -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "XDG_CACHE_HOME": str(self.root / "cache"),
        }
        environment.pop("NUMBA_CACHE_DIR", None)
        done = subprocess.run(
            [sys.executable, "-c", COUNT + code],
            env=environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    @property
    def folders(self) -> list[Path]:
        return sorted((self.root / "testbed" / "fabric" / "__pycache__").glob("kernels-*"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_changed_callee_in_another_file_is_noticed(project: Project) -> None:
    assert project.run() == "compiled compiled 10"
    assert project.run() == "10"
    project.write("analysis/callee.py", CALLEE.format(2))
    assert project.run() == "compiled compiled 20"
    project.write("analysis/callee.py", CALLEE.format(1))
    assert project.run() == "10"  # and what it was before is still there


def test_a_script_of_ones_own_notices_it_too(project: Project) -> None:
    """One that says `numba.njit(cache=True)` itself."""
    script = CALLER.format("from analysis.callee import f\n").replace("@njit", "@numba.njit")
    project.write("mine.py", "import numba\n" + script.replace("numba.njit", "numba.njit(cache=1)"))
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
    assert project.run("import runpy; runpy.run_path('pool.py', run_name='__main__')") == str(
        [10] * 4
    )
    assert len(project.folders) == 1


def test_nothing_is_kept_of_sources_edited_after_the_start(project: Project) -> None:
    """A long run imports its methods at the end; meanwhile a file is edited, and later put back."""
    edit = (
        "import testbed.fabric.compiled, pathlib\n"
        f"pathlib.Path('analysis/callee.py').write_text({CALLEE.format(2)!r})\n"
        "from analysis.caller import g; print(g())"
    )
    assert project.run(edit).endswith("20")
    project.write("analysis/callee.py", CALLEE.format(1))
    assert project.run().endswith("10")


def test_without_a_place_to_write_it_compiles_in_memory(project: Project) -> None:
    (project.root / "cache").write_text("no folder")
    (project.root / "testbed" / "fabric" / "__pycache__").write_text("no folder")
    assert project.run() == "compiled compiled 10"
    assert project.run() == "compiled compiled 10"


def test_what_is_damaged_is_compiled_again(project: Project) -> None:
    project.run()
    [folder] = project.folders
    indices, contents = sorted(folder.rglob("*.nbi")), sorted(folder.rglob("*.nbc"))
    os.truncate(indices[0], indices[0].stat().st_size // 2)  # the callee's
    data = bytearray(contents[1].read_bytes())
    data[-400:] = bytes(400)
    contents[1].write_bytes(data)
    assert project.run() == "compiled compiled 10"
    assert project.run() == "10"


def test_a_place_that_others_can_write_is_not_used(project: Project) -> None:
    own = project.root / "testbed" / "fabric" / "__pycache__"
    own.mkdir()
    own.chmod(0o777)
    assert project.run() == "compiled compiled 10"
    assert not project.folders and list((project.root / "cache").rglob("*.nbc"))
    (project.root / "cache" / "canary-kernels").chmod(0o777)
    with pytest.raises(subprocess.CalledProcessError) as raised:
        project.run()
    last = raised.value.stderr.splitlines()[-1]
    assert "canary-kernels is another user's or can be written by others" in last


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
    assert project.run() == "10"
    assert not list((project.root / "cache").rglob("*.nbc"))
    project.write("analysis/caller.py", CALLER.format("from analysis.callee import f\n\n"))
    assert project.run().startswith("compiled")
    assert project.run() == "10"
    assert list((project.root / "cache").rglob("*.nbc"))
    assert project.folders == [folder] and sorted(folder.rglob("*")) == before
    os.chmod(folder, 0o777)  # others could put code there
    project.write("analysis/caller.py", CALLER.format("from analysis.callee import f\n"))
    assert project.run() == "compiled compiled 10"


def test_folders_of_old_sources_go(tmp_path: Path) -> None:
    for n in range(10):
        (tmp_path / f"kernels-{n}").mkdir()
        os.utime(tmp_path / f"kernels-{n}", (n, n))  # long ago
    (tmp_path / "kernels-now").mkdir()
    compiled._forget(tmp_path)
    left = {folder.name for folder in tmp_path.iterdir()}
    assert left == {"kernels-now", *(f"kernels-{n}" for n in range(11 - compiled.KEPT, 10))}


def test_what_compiled_functions_read_is_in_files_with_compiled_functions() -> None:
    """The digest is of these alone: a constant of another file would change unnoticed."""
    for file in compiled._STATE:
        if file == "testbed/fabric/compiled.py":
            continue
        tree = ast.parse((compiled.ROOT / file).read_text())
        origin = {
            alias.asname or alias.name: node.module or ""
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        for value in vars(module).values():
            if isinstance(value, numba.core.registry.CPUDispatcher):
                for name in value.py_func.__code__.co_names:
                    source = origin.get(name, "").replace(".", "/") + ".py"
                    assert source == ".py" or source in compiled._STATE, (file, name)


def test_compiling_takes_no_time_of_what_is_timed() -> None:
    """The first diagnosis of a large fabric had seven seconds of it."""
    fresh, compiling = numba.njit(lambda a: np.sort(a)[0]), list[float]()
    begin = time.perf_counter()
    with event.install_timer("numba:compile", compiling.append):
        least, seconds = compiled.timed(lambda: (time.sleep(0.05), fresh(np.array([3.0, 1.0])))[1])
    passed = time.perf_counter() - begin
    assert least == 1.0
    assert 0.05 <= seconds < passed - 0.9 * sum(compiling)
    assert compiling[0] > 0


def test_all_compile_in_this_way() -> None:
    own = Path(compiled.__file__)
    for package in (*compiled.PACKAGES, "scenarios"):
        for file in (compiled.ROOT / package).rglob("*.py"):
            assert file == own or "import numba" not in file.read_text(), f"{file}: use njit"


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
