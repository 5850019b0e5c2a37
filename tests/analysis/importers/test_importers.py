# SPDX-License-Identifier: Apache-2.0
"""Files of other tools: read without a line of glue, and the truth named by methods that can."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from analysis.importers import registry
from analysis.importers.registry import IMPORTERS, find_importer, importer_names
from scenarios import localize
from scenarios.command.imports import import_to
from tests.analysis.importers import world
from tests.analysis.importers.world import FABRIC, FAULTY, RULE, write

TO_LEAF2 = sorted(name for name in FABRIC.link_names if "leaf2" in name)
ONE, CLASS = [FAULTY], TO_LEAF2
UP = [name for name in TO_LEAF2 if name.startswith("leaf2")]
"""What hidden paths can tell: the class of the uplinks, with the ways back also the downlinks."""

# Of each format: its files, and what the methods that can read it blame.
CASES: dict[str, tuple[str, Callable[[], object], dict[str, list[str]]]] = {
    "flock": ("flock", world.flock, {"flock": ONE, "mle": ONE}),
    "matrix": ("matrix", world.matrix, dict.fromkeys(
        ["netbouncer", "detector", "netscope", "flock", "mle"], ONE)),
    "007": ("007", world.vigil, {"007": ONE}),
    "int": ("int", world.inband, {"flock": ONE, "mle": ONE}),
    "int of InfluxDB": ("int", world.inband_influx, {"flock": ONE, "mle": ONE}),
    "pingmesh": ("pingmesh", world.pingmesh, {"mle": CLASS}),
    "pingmesh of lines": ("pingmesh", world.pingmesh_json, {"mle": CLASS}),
    "scamper": ("scamper", world.scamper, {"mle": CLASS}),
    "atlas": ("atlas", world.atlas, {"mle": CLASS}),
    "mtr": ("mtr", world.mtr, {"mle": CLASS}),
    "gnmi": ("gnmi", world.gnmi, {"canary": ONE, "canary-mle": ONE, "mle": ONE}),
    "gnmic": ("gnmi", world.gnmic, {"canary": ONE, "canary-mle": ONE, "mle": ONE}),
    "iplink": ("iplink", world.iplink, {"canary": ONE, "mle": ONE}),
    "prometheus": ("prometheus", world.prometheus, {"canary": ONE, "mle": ONE}),
    "prometheus of the API": ("prometheus", world.prometheus_json, {"canary": ONE, "mle": ONE}),
    "influx": ("influx", world.influx, {"canary": ONE, "mle": ONE}),
    "nfdump": ("nfdump", world.nfdump, {"flock": UP, "mle:kinds=P": UP}),
    "ipfix": ("ipfix", world.ipfix, {"flock": UP, "mle:kinds=P": UP}),
    "pmacct": ("pmacct", world.pmacct, {"flock": UP, "mle:kinds=P": UP}),
    "iperf3": ("iperf3", world.iperf3, {"flock": UP, "mle:kinds=P": UP}),
}  # fmt: skip


def written(folder: Path, content: object) -> list[Path]:
    if isinstance(content, dict):
        return [write(folder, name, text) for name, text in content.items()]
    texts = content if isinstance(content, tuple) else (content,)
    return [write(folder, f"theirs{i}.json", str(text)) for i, text in enumerate(texts)]


@pytest.mark.parametrize("case", CASES)
def test_the_methods_that_can_read_a_format_name_the_truth(case: str, tmp_path: Path) -> None:
    name, content, wanted = CASES[case]
    topology = write(tmp_path, "fabric.csv", world.fabric_table())
    out = tmp_path / "out"
    import_to(name, written(tmp_path, content()), out, topology, RULE)
    for method, blamed in wanted.items():
        assert sorted(localize(out, out, method).blamed) == blamed, method


def test_a_verdict_on_a_small_fabric_says_that_its_paper_has_larger_ones(tmp_path: Path) -> None:
    topology = write(tmp_path, "fabric.csv", world.fabric_table())
    import_to("007", written(tmp_path, world.vigil()), tmp_path / "out", topology, RULE)
    line = "outside what 007, 6 evaluates: 32 links (it: 4,160 or more)"
    out = tmp_path / "out"
    assert line in localize(out, out, "007").diagnosis.remarks
    healthy = write(tmp_path, "healthy.csv", "src,dst,sent,recv\nleaf0,leaf1,9999,9999\n")
    import_to("pingmesh", [healthy], tmp_path / "none", topology)
    found = localize(tmp_path / "none", tmp_path / "none", "mle").diagnosis
    assert not found.flagged.size and not any("outside" in line for line in found.remarks)


def test_every_format_of_observations_has_a_case_and_an_example_that_is_read(
    tmp_path: Path,
) -> None:
    made = {name for name, each in IMPORTERS.items() if each.makes == "observations"}
    assert made == {name for name, _, _ in CASES.values()}
    topology = write(tmp_path, "fabric.csv", world.fabric_table())
    addresses = write(tmp_path, "addresses.json", world.vigil()[1])
    for name in made:
        text = find_importer(name).example
        file = {"iplink": "leaf0.json"}.get(name, "example.txt")
        if name in ("matrix", "int"):
            continue  # shortened, or of two forms
        path = write(tmp_path, file, text)
        if name in ("ipfix", "pmacct", "influx", "iplink"):
            path = write(tmp_path, file, text)  # one end alone: no link and no loss is known
            with pytest.raises(ValueError, match=f"no {name} rows in it"):
                import_to(name, [path], tmp_path / name, topology, RULE)
            continue
        import_to(name, [path, addresses], tmp_path / name, topology, RULE)
        assert pq.read_table(tmp_path / name / "observations.parquet").num_rows > 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("clab", world.clab),
        ("batfish", world.batfish),
        ("nodelink", world.nodelink),
        ("graphml", world.graphml),
        ("gml", world.gml),
        ("htsim", world.htsim),
        ("dot", world.dot),
        ("edgelist", world.edgelist),
    ],
)
def test_fabrics_of_other_tools_are_the_fabric(
    name: str, content: Callable[[], str], tmp_path: Path
) -> None:
    ending = {"clab": "yml", "batfish": "json", "nodelink": "json", "htsim": "topo"}.get(name, name)
    file = write(tmp_path, f"theirs.{ending}", content())
    found, files = import_to(name, [file], tmp_path / "out")
    fabric = found.numbered.fabric
    assert fabric.tier.tolist() == FABRIC.tier.tolist() and fabric.n_links == FABRIC.n_links
    if name not in ("edgelist", "htsim"):
        assert fabric.link_names == FABRIC.link_names
    assert files[0] == tmp_path / "out" / "fabric.parquet"
    # The file itself is a topology, too, and its hosts are known.
    pings = write(tmp_path, "pings.csv", "src,dst,sent,recv\nleaf0,leaf1,9,9\n".replace(
        "leaf0,leaf1",
        {"clab": "client0,client1", "edgelist": "1000,1002", "htsim": "h0,h2"}.get(
            name, "leaf0,leaf1"
        ),
    ))  # fmt: skip
    for topology in (file, tmp_path / "out"):
        made, _ = import_to("pingmesh", [pings], tmp_path / "o2", topology)
        assert made.observations is not None
        ends = made.observations.select(["src", "dst"]).to_pylist()[0]
        assert list(ends.values()) == [fabric.switch_names[0], fabric.switch_names[1]]


def test_interfaces_without_names_are_known_from_the_fabric(tmp_path: Path) -> None:
    text = world.gnmi()
    for leaf in world.LEAVES:
        for spine in world.SPINES:
            for a, b, port in ((f"leaf{leaf}", f"spine{spine}", spine + 1),
                               (f"spine{spine}", f"leaf{leaf}", leaf + 1)):  # fmt: skip
                text = text.replace(
                    f'"{a}", "path": "/interfaces/interface[name=to-{b}]',
                    f'"{a}", "path": "/interfaces/interface[name=eth{port}]',
                )
    assert "to-" not in text
    file, topology = write(tmp_path, "g.json", text), write(tmp_path, "c.yml", world.clab())
    import_to("gnmi", [file], tmp_path / "out", topology)
    assert localize(tmp_path / "out", tmp_path / "out", "mle").blamed == [FAULTY]
    with pytest.raises(ValueError, match="no interface is known to lead to a switch"):
        plain = write(tmp_path, "fabric.csv", world.fabric_table())
        import_to("gnmi", [file], tmp_path / "o2", plain)


def test_a_ping_mesh_of_k_8(tmp_path: Path) -> None:
    from testbed.fabric.fat_tree import FatTree
    from testbed.record.fabric_file import write_fabric

    fabric, rng = FatTree(8), np.random.default_rng(1)
    write_fabric(tmp_path / "f.csv", fabric)
    rows, names = ["src,dst,sent,recv"], fabric.switch_names
    for a in range(fabric.n_tors):
        for b in range(fabric.n_tors):
            if a != b:  # tor1_2->agg1_3 loses 2 %: a quarter of the packets that leave tor1_2
                rate = (
                    16e-5 / 4
                    + (0.02 / 4) * (names[a] == "tor1_2")
                    + (0.02 / 4) * (names[b] == "tor1_2")
                )
                rows.append(f"{names[a]},{names[b]},4000,{4000 - rng.binomial(4000, rate)}")
    file = write(tmp_path, "mesh.csv", "\n".join([*rows, ""]))
    import_to("pingmesh", [file], tmp_path / "out", tmp_path / "f.csv")
    blamed = localize(tmp_path / "out", tmp_path / "out", "mle").blamed
    assert sorted(blamed) == sorted(name for name in fabric.link_names if "tor1_2" in name)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "pingmesh",
            "src,dst,sent,recv\nleaf0,leaf1,9,x\n",
            "record 1: not as the format pingmesh",
        ),
        ("pingmesh", "src,dst,sent,recv\nleaf0,leaf1,9,12\n", "record 1: lost is -3"),
        ("pingmesh", "src,dst,sent,recv\nleaf0,leaf9,9,9\n", "record 1: 'leaf9' is not a switch"),
        ("pingmesh", "src,dst,recv\nleaf0,leaf1,9\n", "record 1: 'sent' is missing"),
        ("pingmesh", "src,dst,sent,recv\n10.0.0.1,10.9.0.1,9,9\n", "record 1: 'leaf9' is not"),
        ("pingmesh", "src,dst,sent,recv\n172.1.0.1,leaf0,9,9\n", "no ToR is known of the address"),
        ("pingmesh", "[1, 2]", "record 1 is 1: an object is needed"),
        ("pingmesh", "[" * 100_000, "nested too deeply"),
        ("pingmesh", '{"src": ', "is no JSON"),
        ("pingmesh", "", "no pingmesh rows in it"),
        ("matrix", "1 0 1\n", "line 1: not as the format matrix has it (3 columns"),
        ("matrix", " ".join(["0"] * 32) + "\n", "1 paths, but 0 rows"),
        ("flock", "FID 1 2 0 77 5 0\nSS 1 2 0 0\n", "line 1: '77' is not a switch"),
        ("flock", "SS 1\n", "line 1: not as the format flock"),
        ("007", '[{"retx": 1}]', "record 1: 'five_tuple' is missing"),
        ("gnmi", '[{"prefix": "leaf0"}]', "record 1: 'path' is missing"),
        ("iperf3", '{"error": "unable to connect"}', "'start' is missing"),
        ("mtr", '{"report": {"mtr": {}, "hubs": []}}', "record 1: not as the format mtr"),
        ("ipfix", '{"sourceIPv4Address": "10.0.0.1"}', "record 1: 'da' is missing"),
        ("int", '{"path": ["leaf0", "leaf1"], "sent": 1, "lost": 0}', "no link leads from"),
        ("int", '{"path": 7, "sent": 1, "lost": 0}', "record 1: not as the format int"),
        ("prometheus", "{}", "'data' is missing"),
        ("influx", "nonsense\n", "line 1: not as the format influx"),
        ("scamper", "\xff", "no scamper rows"),
    ],
)
def test_a_wrong_file_is_one_line(name: str, text: str, reason: str, tmp_path: Path) -> None:
    topology = write(tmp_path, "fabric.csv", world.fabric_table())
    file = write(tmp_path, "theirs.txt", text)
    with pytest.raises(ValueError) as raised:
        import_to(name, [file], tmp_path / "out", topology, RULE)
    message = str(raised.value)
    assert reason in message and "theirs.txt" in message
    assert message.isprintable() and len(message) < 400
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", IMPORTERS)
def test_damaged_files_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """Pieces of a small file, with characters exchanged: no traceback, nothing left behind."""
    rng = np.random.default_rng(sum(map(ord, name)))
    topology = write(tmp_path, "fabric.csv", world.fabric_table())
    text = IMPORTERS[name].example * 2
    refused = 0
    for i in range(60):
        made = list(text[: rng.integers(1, len(text))]) if i % 2 else list(text)
        for _ in range(int(rng.integers(4))):
            made[rng.integers(len(made))] = str(rng.choice(list('{}[]",:.-\x00\n0a9*\u202e ')))
        file = tmp_path / "damaged.json"
        file.write_text("".join(made))
        of_fabric = IMPORTERS[name].makes == "fabric"
        try:
            import_to(name, [file], tmp_path / "out", None if of_fabric else topology, RULE)
        except ValueError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1 and str(error).isprintable(), str(error)
        left = {path.name for path in (tmp_path / "out").glob("*")}
        assert left <= {"fabric.parquet", "observations.parquet", "places.json"}
    assert refused


def test_what_is_not_wanted_is_refused(tmp_path: Path) -> None:
    topology = write(tmp_path, "fabric.csv", world.fabric_table())
    file = write(tmp_path, "p.csv", world.pingmesh())
    with pytest.raises(ValueError, match="there is no format pingmsh: did you mean pingmesh"):
        import_to("pingmsh", [file], tmp_path / "out", topology)
    with pytest.raises(ValueError, match="name their fabric with --topology"):
        import_to("pingmesh", [file], tmp_path / "out")
    with pytest.raises(ValueError, match="leave --topology out"):
        import_to("clab", [file], tmp_path / "out", topology)
    with pytest.raises(ValueError, match=r"is no rule: write --hosts 'leaf\{1\}=10"):
        import_to("pingmesh", [file], tmp_path / "out", topology, "leaf{1}=10.0.0.0/16")
    with pytest.raises(ValueError, match="does not say which switches are ToRs"):
        import_to("dot", [write(tmp_path, "x.dot", "a -- b\n")], tmp_path / "out")
    with pytest.raises(ValueError, match="names none of 'a', 'b'"):
        import_to("dot", [tmp_path / "x.dot"], tmp_path / "out", tors="z*")
    made, _ = import_to("dot", [tmp_path / "x.dot"], tmp_path / "out", tors="a")
    assert made.numbered.fabric.link_names == ["a->b", "b->a"]
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine", "thesis.txt", "text")
    with pytest.raises(ValueError, match="exists and is no import"):
        import_to("pingmesh", [file], tmp_path / "mine", topology)
    bomb = tmp_path / "bomb.json"
    bomb.write_bytes(gzip.compress(b"[" + b" " * (65 << 20)))
    with pytest.raises(ValueError, match="unpacks to more than 64 MiB"):
        import_to("pingmesh", [bomb], tmp_path / "out", topology)
    laughs = "a0: &0 [1]\n" + "".join(
        f"a{i + 1}: &{i + 1} [{','.join([f'*{i}'] * 9)}]\n" for i in range(9)
    )
    with pytest.raises(ValueError, match="more than 200,000 keys and values"):
        import_to("clab", [write(tmp_path, "b.yml", laughs)], tmp_path / "out")


def test_packages_register_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    def point(value: str) -> EntryPoint:
        return EntryPoint("theirs", value, registry.GROUP)

    points = [point("analysis.importers.pings:atlas")]
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group, name=None: [each for each in points if name in (None, each.name)],
    )
    assert importer_names()[-1] == "theirs" and find_importer("theirs").name == "atlas"
    points[0] = point("analysis.importers.pings:count")
    with pytest.raises(ValueError, match="'theirs' of a package is no Importer"):
        find_importer("theirs")
    points[0] = point("nowhere:thing")
    with pytest.raises(ValueError, match="cannot be loaded: ModuleNotFoundError"):
        find_importer("theirs")
