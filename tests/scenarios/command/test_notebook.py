# SPDX-License-Identifier: Apache-2.0
"""The notebooks run, and what they show is what comes out. No Jupyter is needed.

``python -m tests.scenarios.command.test_notebook`` runs them and writes what comes out into them.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure

from canary import Run

ROOT = Path(__file__).parents[3]
NOTEBOOKS = sorted((ROOT / "scenarios").glob("*.ipynb"))


def run_cells(notebook: dict[str, Any], folder: Path) -> list[list[dict[str, Any]]]:
    """What comes out of each cell of code, run in a folder as Jupyter would: what it prints, and
    the value of its last expression as text, or a figure as a picture."""
    matplotlib.use("Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    with contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                continue
            body = ast.parse("".join(cell["source"])).body
            last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
            printed, value = io.StringIO(), None
            with contextlib.redirect_stdout(printed):
                exec(compile(ast.Module(body, []), "cell", "exec"), names)
                if isinstance(last, ast.Expr):
                    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            found.append(_outputs(printed.getvalue(), value))
    return found


def _outputs(printed: str, value: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if printed:
        stream = {"output_type": "stream", "name": "stdout"}
        found.append(stream | {"text": printed.splitlines(keepends=True)})
    if isinstance(value, Figure):
        picture = io.BytesIO()
        value.savefig(picture, format="png", dpi=70, metadata={"Software": None})
        data = {"image/png": base64.b64encode(picture.getvalue()).decode() + "\n"}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
    elif value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if isinstance(value, Run):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        result = {"output_type": "execute_result", "data": data, "metadata": {}}
        found.append(result | {"execution_count": None})
    return found


def _texts(outputs: list[dict[str, Any]]) -> list[str]:
    """What a cell shows as text: what it printed, and the value of its last expression."""
    return [
        "".join(each["data"].get(kind, ""))
        for each in outputs
        if "data" in each
        for kind in ("text/plain", "text/html")
    ] + ["".join(each["text"]) for each in outputs if "text" in each]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_shows_what_comes_out(path: Path, tmp_path: Path) -> None:
    notebook = json.loads(path.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    outputs = run_cells(notebook, tmp_path)
    assert len(cells) == len(outputs) >= 8
    for cell, came_out in zip(cells, outputs, strict=True):
        assert _texts(came_out) == _texts(cell["outputs"]), "".join(cell["source"])
        assert bool(came_out) == bool(cell["outputs"]), "".join(cell["source"])
    assert path.stat().st_size < 90_000


def test_the_gallery_has_the_ten_tasks_of_the_page() -> None:
    """docs/do/python.md, so that they run: three lines each, on what the first block makes."""
    page = (ROOT / "docs" / "do" / "python.md").read_text()
    first, *tasks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    cells = json.loads((ROOT / "scenarios" / "gallery.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert [each for each in code if each + "\n" in (first, *tasks)] == [
        each.rstrip("\n") for each in (first, *tasks)
    ]
    assert len(tasks) == 10 and all(task.count("\n") == 3 for task in tasks)
    assert all(len(line) <= 100 for task in tasks for line in task.splitlines())


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        content = json.loads(notebook.read_text())
        with tempfile.TemporaryDirectory() as place:
            every = iter(run_cells(content, Path(os.path.realpath(place))))
        for each in content["cells"]:
            if each["cell_type"] == "code":
                each["outputs"] = next(every)
        notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
