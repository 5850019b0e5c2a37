# SPDX-License-Identifier: Apache-2.0
"""Comparisons of methods over many seeds from Python: `compare`, and what it returns."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from analysis.evaluation.comparison import (
    COLUMNS,
    bench_in,
    chosen,
    defined,
    good_seeds,
    mean_of,
    method_names,
)
from analysis.evaluation.comparison_screen import behind, best_of, comparison_screen
from analysis.evaluation.intervals import interval
from analysis.evaluation.parameter_sets import choose_methods
from analysis.evaluation.screen import LINE_WIDTH, print_screen
from analysis.methods.registry import REFERENCE, build
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.pace import at_this_pace
from scenarios.experiment.request import Scenario, make_request
from scenarios.keywords import GivenSettings, Methods, as_settings, method_text
from scenarios.many.compare import compare as compare_seeds
from scenarios.many.compare import default_folder, read_comparison
from testbed.cores import usable_cores
from testbed.errors import UserError
from testbed.fabric.names import nearest

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Unpack


class Comparison:
    """A comparison of methods on the same seeds.

    Attributes:
        path: Its folder.
        failures: Why seeds failed, in a line each, by seed.
    """

    def __init__(
        self, path: Path, rows: Mapping[str, Any], failures: Mapping[int, str] | None = None
    ) -> None:
        self.path = path
        self.failures = dict(failures or {})
        self._rows = rows

    def __repr__(self) -> str:
        return f"<comparison {self.path}: {len(self.methods)} methods, {len(self.seeds)} seeds>"

    def __str__(self) -> str:
        """Return the screen of the comparison as text, 80 columns wide."""
        text = io.StringIO()
        what = comparison_screen(self._rows, self.path.name, LINE_WIDTH)
        print_screen(what, {}, Console(file=text, width=LINE_WIDTH))
        return text.getvalue()

    def _repr_html_(self) -> str:
        """Return the figures as a table in HTML, for a notebook."""
        return self.figures.to_html(float_format="{:.3f}".format)

    @property
    def methods(self) -> list[str]:
        """Return the names of the methods, the reference among them."""
        return method_names(self._rows)

    @property
    def seeds(self) -> list[int]:
        """Return the seeds with a good run, ascending."""
        return good_seeds(self._rows)

    @property
    def rows(self) -> DataFrame:
        """Return a frame with a row for each seed and method: `comparison.COLUMNS`, but for the
        curves."""
        from pandas import DataFrame

        return DataFrame({name: self._rows[name] for name in COLUMNS if name != "found_at"})

    @property
    def figures(self) -> DataFrame:
        """Return a frame with a row for each method: the mean ``f1`` with the bounds ``low`` and
        ``high`` of its 95 % interval, the means of ``precision``, ``recall``, ``telemetry_bytes``
        and ``probe_packets``, and in how many ``runs`` F1 is defined."""
        from pandas import DataFrame

        found = []
        for name in self.methods:
            own = chosen(self._rows, name)
            known = defined(own["f1"])
            f1 = interval(known)
            means = ("precision", "recall", "telemetry_bytes", "probe_packets")
            found.append(
                {"method": name, "bench": bench_in(self._rows, name)}
                | {"f1": f1.mean, "low": f1.low, "high": f1.high}
                | {column: mean_of(own[column]) for column in means}
                | {"runs": len(known)}
            )
        return DataFrame(found).set_index("method")

    def paired(self, method: str = "") -> DataFrame:
        """Return how much F1 each method has less than another one, on the same seeds.

        Args:
            method: The other one; by default the one with the highest mean F1, the reference aside.

        Returns:
            A frame with a row for each method: the mean ``difference``, the bounds ``low`` and
            ``high`` of its 95 % interval (nan if it is equal in each run, or for one seed), and
            ``differs``, whether the interval does not hold 0.

        Raises:
            ValueError: There is no such method.
        """
        from pandas import DataFrame

        best = method or best_of(self._rows, self.methods)
        if best not in self.methods:
            raise UserError(f"there is no method {best!r}: {nearest(best, self.methods)}")
        found = []
        for name in self.methods:
            if name != best:
                value, differs = behind(self._rows, name, best)
                bounds = {"low": value.low, "high": value.high}
                found.append(
                    {
                        "method": name,
                        "difference": value.mean,
                        **bounds,
                        "differs": differs == "yes",
                    }
                )
        return DataFrame(found).set_index("method").rename_axis(f"{best} less")


def compare(
    scenario: str | None = None,
    *,
    seeds: int | Iterable[int] = 10,
    methods: Methods | None = "all",
    path: str | Path | None = None,
    config: str | Path | None = None,
    parameters: str | Path = "default",
    fault_rate: float | None = None,
    **settings: Unpack[GivenSettings],
) -> Comparison:
    """Compare methods on many seeds, run in parallel, as `canary compare`.

    Finished seeds are kept in the folder: the same call continues a comparison.

    Args:
        scenario: Its name or the path of its file; by default ``faulty_links``.
        seeds: The seeds, or how many from 1 on.
        methods: Names, as in `scenarios.run`; objects cannot be compared, as other processes build
            the methods. The reference is always among them.
        path: The folder, by default ``runs/compare-<scenario>-<key>``.
        config: Settings from a YAML file or an earlier run.
        parameters: ``default``, ``paper``, or a file of `canary calibrate`.
        fault_rate: The loss rate from which on a link is faulty, for methods that ask.
        settings: Settings by name, such as ``k=8``; ``backend`` is ``virtual`` by default.

    Raises:
        ValueError: A setting makes no sense, or no seed ran (one line).

    >>> found = compare(seeds=2, methods="canary-mle,netbouncer", backend="flow", epochs=1)
    >>> found.methods, found.seeds
    (['netbouncer', 'canary-mle', 'any-loss'], [1, 2])
    """
    if isinstance(scenario, Scenario):
        raise UserError("compare takes a scenario by name or file, as other processes load it")
    every = list(range(1, seeds + 1)) if isinstance(seeds, int) else sorted(set(seeds))
    if not every:
        raise UserError("seeds is empty: say how many, or list them")
    given = as_settings(settings)
    if "seed" in given:
        raise UserError("seed is for one run: use seeds=20, or a list")
    named, chosen_parameters = choose_methods(method_text(methods), str(parameters), fault_rate)
    if all(each.name != REFERENCE for each in named):
        named.append(build(REFERENCE, chosen_parameters))
    request = make_request(scenario, given, None if config is None else Path(config))
    made = request.settings()
    # An error of the input comes before anything is written.
    layout = layout_of(made, request.scenario, request.name)
    made = at_this_pace(made, layout, request.named, usable_cores())
    folder = (
        default_folder(request.name, made, named, chosen_parameters) if path is None else Path(path)
    )
    numbers = [int(seed) for seed in np.asarray(every).tolist()]
    result = compare_seeds(
        request.name, made, numbers, named, folder, lambda what, share: None, chosen_parameters
    )
    return Comparison(folder, result.rows, result.failures)


def load_comparison(path: str | Path) -> Comparison:
    """Return a comparison that was made before.

    Raises:
        ValueError: ``path`` holds none, or it is damaged (one line).
    """
    found = read_comparison(Path(path))
    return Comparison(found.folder, found.rows)
