# SPDX-License-Identifier: Apache-2.0
"""Python's face: typed settings, lists and objects, frames with one key, comparisons, notebooks."""

from __future__ import annotations

import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

import canary
from analysis.methods.mle.mle import Mle
from canary import Comparison, Run, compare, load, load_comparison
from scenarios.experiment.settings import described, make_settings
from scenarios.keywords import GivenSettings, as_methods, as_settings

QUICK: dict[str, Any] = {"backend": "flow", "epochs": 1}


@pytest.fixture(scope="module")
def result(run_path: Path) -> Run:
    return load(run_path)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    path = tmp_path_factory.mktemp("compared") / "here"
    return compare(seeds=3, methods=["canary", "canary-mle"], path=path, **QUICK)


# ---- settings ------------------------------------------------------------------------------------


def test_the_keywords_are_the_settings() -> None:
    hints = typing.get_type_hints(GivenSettings)
    assert list(hints) == [setting.name for setting in described()]
    for setting in described():
        kinds = set(typing.get_args(hints[setting.name])) or {hints[setting.name]}
        if setting.choices:
            assert set(setting.choices) - {"auto"} == kinds - {"auto"}
        elif setting.name == "load":
            assert float in kinds
        else:
            assert setting.kind in kinds or (setting.kind is str and str in kinds)


def test_a_type_checker_knows_them(tmp_path: Path) -> None:
    """Completion of editors comes from the same types."""
    program = tmp_path / "program.py"
    program.write_text(
        "from canary import compare, run\n"
        "run(k=4, faults=0.1, noise=(0.0, 1e-4), methods=['canary'], backend='flow')\n"
        "run(kk=4)\n"
        "run(k='four')\n"
        "compare(seeds=2, backend='fast')\n"
    )
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "basedpyright", "--outputjson", str(program)]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    if "No module named" in done.stderr:
        pytest.skip("there is no basedpyright")
    import json

    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = {each["range"]["start"]["line"] for each in found if each["severity"] == "error"}
    assert errors == {2, 3, 4}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"faults": 0.1}, "10pct"),
        ({"faults": 0.005}, "0.5pct"),
        ({"faults": 6}, "6links"),
        ({"faults": 0}, "none"),
        ({"faults": []}, "none"),
        ({"faults": ["6links", "tor0_0->agg0_1:0.05"]}, "6links, tor0_0->agg0_1:0.05"),
        ({"faults": {"tor0_0->agg0_1": 0.05, "a-b": 1}}, "tor0_0->agg0_1:0.05, a-b:1"),
        ({"faults": Path("my/faults.yaml")}, "my/faults.yaml"),
        ({"noise": (0, 1e-4)}, "0..0.0001"),
        ({"noise": 0}, "0"),
        ({"flow_rate": np.float64(0.25)}, "0.25"),
        ({"events": ["0 reboot core0", "1 reboot core1"]}, "0 reboot core0; 1 reboot core1"),
        ({"telemetry": ("A1", "P")}, "A1+P"),
        ({"monitors": ["tor", "core"]}, "tor+core"),
        ({"traffic": Path("a.pcap")}, "a.pcap"),
    ],
)
def test_lists_and_objects_are_the_texts_of_the_command_line(given: dict, text: str) -> None:
    [value] = as_settings(given).values()
    assert value == text


def test_numbers_stay_numbers() -> None:
    made = as_settings({"k": np.int64(8), "load": 0.5, "seed": 3})
    assert made == {"k": 8, "load": 0.5, "seed": 3}
    assert make_settings({"backend": "virtual"} | made).k == 8


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"K": 4}, "there is no setting K: did you mean k?"),
        ({"colour": 1}, "there is no setting colour: choose from k, faults"),
        ({"faults": 1.5}, "faults=1.5: faults takes a text, a share"),
        ({"faults": True}, "faults=True: faults takes"),
        ({"faults": [1, 2]}, "faults takes"),
        ({"faults": {"a->b": "much"}}, "faults='much': faults takes a number"),
        ({"k": True}, "k=True: k takes a number"),
        ({"k": [4]}, r"k=\\[4\\]: k takes a number"),
        ({"noise": (1, 2, 3)}, "noise takes a number"),
        ({"topology": 4}, "topology=4: topology takes a text"),
        ({"k": 5}, "K=5 is not a fat-tree"),
    ],
)
def test_a_wrong_value_names_its_setting(given: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message.replace("\\\\", "\\")) as error:
        canary.run(path=tmp_path / "run", backend="flow", **given)
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


def test_methods_are_names_lists_and_objects(tmp_path: Path) -> None:
    own = Mle(penalty=3.0)
    made = canary.run(path=tmp_path / "run", methods=["canary", own], **QUICK)
    assert list(made.figures.index) == ["canary", own.name]
    assert made.summary["methods"][own.name]["parameters_from"] == "the program"
    assert [each.name for each in as_methods("canary, 007")] == ["canary", "007"]
    assert [each.name for each in as_methods(["canary", "canary"])] == ["canary"]
    with pytest.raises(ValueError, match="methods takes names, and objects with a method localize"):
        as_methods([4])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="empty list"):
        as_methods([])
    with pytest.raises(ValueError, match="there is no method 'canry'"):
        as_methods(["canry"])


# ---- frames --------------------------------------------------------------------------------------


def test_frames_have_one_key(result: Run) -> None:
    links, verdicts = result.links, result.verdicts
    assert list(links.columns[:4]) == ["link", "src", "dst", "tier"]
    assert (links.src + "->" + links.dst == links.link).all()
    assert set(links.tier) == {0, 1} and (links.tier == 0).sum() == 32
    assert set(links.link[links.faulty]) == set(result.faulty)
    assert list(verdicts.columns[:5]) == ["method", "link", "src", "dst", "tier"]
    assert len(verdicts) == len(links) * len(result.figures)
    joined = verdicts.merge(links[["link", "rate"]], on="link")
    assert len(joined) == len(verdicts), "the key is one"
    for name, figures in result.figures.iterrows():
        own = verdicts[verdicts.method == name]
        if figures.native == "directed":
            assert (own.blamed & own.faulty).sum() == figures.true_positives
            assert (own.blamed & ~own.faulty).sum() == figures.false_positives


def test_flows_name_their_switches(result: Run) -> None:
    flows = result.flows
    assert len(flows) == len(result.table("flows"))
    names = result.record.fabric.switch_names
    assert [names[tor] for tor in flows.src_tor[:50]] == flows.src[:50].tolist()


def test_each_flow_has_its_own_path(tmp_path: Path) -> None:
    made = canary.run(path=tmp_path / "run", methods="mle", **QUICK)
    flows, links = made.flows, made.links
    assert made.table("flows").path.map(list).tolist() == flows.path.map(list).tolist()
    for src, dst, path in zip(flows.src[:50], flows.dst[:50], flows.path[:50], strict=True):
        assert links.src[path[0]] == src and links.dst[path[-1]] == dst


# ---- notebooks -----------------------------------------------------------------------------------


def test_a_run_is_shown_as_a_drawing_and_a_table(result: Run) -> None:
    html = result._repr_html_()
    page = ElementTree.fromstring(f"<div>{html}</div>")
    assert len(list(page.iter("circle"))) == 20 and len(list(page.iter("line"))) == 32
    titles = {each.text for each in page.iter("title")}
    for link in result.faulty:
        assert any((text or "").startswith(f"{link}: ") for text in titles)
    rows = [[cell.text for cell in row] for row in page.iter("tr")][1:]
    assert {str(row[0]).split(" ")[0] for row in rows} <= set(result.figures.index)
    assert "<script" not in html


def test_names_of_a_stranger_are_no_markup(result: Run) -> None:
    from scenarios.notebook import as_html

    methods = {"<img onerror=x>": result.summary["methods"]["canary"]}
    html = as_html(result.record.fabric, dict(result.summary) | {"methods": methods})
    assert "<img" not in html and "&lt;img" in html


def test_a_large_fabric_is_drawn_by_its_broken_links_alone() -> None:
    from scenarios.notebook import drawing
    from testbed.fabric.fat_tree import FatTree

    fabric = FatTree(16)
    svg = drawing(fabric, {fabric.link_names[7]: 0.25})
    assert svg.count("<line") == 1 and len(svg) < 100_000


def test_a_run_has_plots(result: Run) -> None:
    assert isinstance(result.plot.fabric(), Figure)
    figure = result.plot.rates("mle")
    assert isinstance(figure, Figure) and figure.axes[0].get_ylabel().endswith("mle")
    with pytest.raises(ValueError, match="no verdict of 'ml'.*did you mean mle"):
        result.plot.rates("ml")
    assert result.plot.rates().axes[0].get_ylabel().endswith("canary-mle")
    with pytest.raises(ValueError, match="007 estimates no loss rates: choose from canary, "):
        result.plot.rates("007")


def test_rates_are_drawn_of_a_method_that_the_run_has(tmp_path: Path) -> None:
    few = canary.run(methods=["flock", "canary"], path=tmp_path / "few", **QUICK)
    assert few.plot.rates().axes[0].get_ylabel().endswith("by canary")


# ---- comparisons ---------------------------------------------------------------------------------


def test_a_comparison_has_means_and_paired_differences(compared: Comparison) -> None:
    assert compared.methods == ["canary", "canary-mle", "any-loss"] and compared.seeds == [1, 2, 3]
    rows = compared.rows
    assert len(rows) == 9
    mean = rows[rows.method == "canary"].f1.mean()
    assert compared.figures.f1["canary"] == pytest.approx(mean)
    assert (compared.figures.low <= compared.figures.f1).all()
    paired = compared.paired("canary-mle")
    wide = rows.pivot(index="seed", columns="method", values="f1")
    apart = wide["canary-mle"] - wide["any-loss"]
    assert paired.difference["any-loss"] == pytest.approx(apart.mean())
    assert bool(paired.differs["any-loss"]) and paired.low["any-loss"] > 0
    assert str(compared.paired().index.name).endswith(" less")
    with pytest.raises(ValueError, match="there is no method 'canry': did you mean canary"):
        compared.paired("canry")


def test_a_comparison_prints_as_the_command_and_is_read_again(compared: Comparison) -> None:
    assert str(compared).startswith("3 runs   here") and "differs" in str(compared)
    assert "<table" in compared._repr_html_()
    assert load_comparison(compared.path).rows.equals(compared.rows)
    assert re.match(r"<comparison .*: 3 methods, 3 seeds>", repr(compared))


def test_what_cannot_be_compared_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(ValueError, match="seed is for one run"):
        compare(seeds=2, path=path, seed=3, **QUICK)
    with pytest.raises(ValueError, match="methods takes names and files here"):
        compare(seeds=2, path=path, methods=[Mle()], **QUICK)
    with pytest.raises(ValueError, match="seeds is empty"):
        compare(seeds=[], path=path, **QUICK)
    assert not path.exists()


def test_a_script_that_compares_needs_no_guard(tmp_path: Path) -> None:
    """A process that does the work does not run the script again."""
    script = tmp_path / "script.py"
    script.write_text(
        "from canary import compare\n"
        "found = compare(seeds=2, methods='canary', backend='flow', epochs=1, path='here')\n"
        "print(found.seeds, __file__)\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (f"[1, 2] {script}\n", "")
