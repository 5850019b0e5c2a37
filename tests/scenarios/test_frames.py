# SPDX-License-Identifier: Apache-2.0
"""A run as a frame of polars and as a graph of networkx, where these packages are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.api import Run, load


@pytest.fixture
def made(run_path: Path) -> Run:
    return load(run_path)


def test_a_frame_of_polars_has_the_rows_of_pandas(made: Run) -> None:
    pytest.importorskip("polars")
    for name in ("links", "verdicts", "figures"):
        frame = getattr(made, name)
        found = made.to_polars(name)
        assert found.height == len(frame) and set(frame.columns) <= set(found.columns)
    links = made.to_polars("links")
    assert links.filter(links["faulty"])["link"].to_list() == made.faulty


def test_a_graph_has_an_edge_for_each_directed_link(made: Run) -> None:
    pytest.importorskip("networkx")
    graph = made.to_networkx("canary")
    assert graph.number_of_edges() == len(made.links) and "tor0_0" in graph
    assert graph.nodes["core0"]["tier"] == 2
    broken = [data["link"] for _, _, data in graph.edges(data=True) if data["faulty"]]
    assert sorted(broken) == sorted(made.faulty)
    blamed = {data["link"] for _, _, data in graph.edges(data=True) if data["blamed"]}
    verdicts = made.verdicts
    own = verdicts[(verdicts.method == "canary") & verdicts.blamed]
    assert blamed == set(own.link)
    with pytest.raises(ValueError, match="no method canry: did you mean canary"):
        made.to_networkx("canry")


def test_a_missing_package_is_one_line(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(ValueError, match="polars is not installed: pip install polars"):
        made.to_polars("links")
