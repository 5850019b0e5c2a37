# SPDX-License-Identifier: Apache-2.0
"""The notebook runs, and what it shows is what comes out. No Jupyter is needed.

``python -m tests.scenarios.command.test_notebook`` runs it and writes what comes out into it.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

NOTEBOOK = Path(__file__).parents[3] / "scenarios" / "first_run.ipynb"


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
        result = {"output_type": "execute_result", "data": data, "metadata": {}}
        found.append(result | {"execution_count": None})
    return found


def _texts(outputs: list[dict[str, Any]]) -> list[str]:
    return ["".join(each["data"].get("text/plain", "")) for each in outputs if "data" in each]


def test_the_notebook_shows_what_comes_out(tmp_path: Path) -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    outputs = run_cells(notebook, tmp_path)
    assert len(cells) == len(outputs) >= 8
    for cell, came_out in zip(cells, outputs, strict=True):
        assert _texts(came_out) == _texts(cell["outputs"]), "".join(cell["source"])
        assert bool(came_out) == bool(cell["outputs"]), "".join(cell["source"])
    assert NOTEBOOK.stat().st_size < 60_000


if __name__ == "__main__":
    content = json.loads(NOTEBOOK.read_text())
    with tempfile.TemporaryDirectory() as place:
        every = iter(run_cells(content, Path(os.path.realpath(place))))
    for each in content["cells"]:
        if each["cell_type"] == "code":
            each["outputs"] = next(every)
    NOTEBOOK.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
