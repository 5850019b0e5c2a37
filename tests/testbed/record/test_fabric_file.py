# SPDX-License-Identifier: Apache-2.0
"""Names of switches in a fabric file, as other programs change them."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.record.fabric_file import read_fabric
from testbed.record.schema import TableError


def fabric(path: Path, leaf: str, also: str) -> Path:
    """A leaf-spine fabric in which one cable of the first leaf has another name for it."""
    cables = [(leaf, "spine0"), (also, "spine1"), ("leaf1", "spine0"), ("leaf1", "spine1")]
    lines = ["# localization-telemetry fabric 1", "link,src,dst,src_tier,dst_tier"]
    for number, (low, high) in enumerate(cables):
        low = '"' + low.replace('"', '""') + '"'
        lines += [f"{2 * number},{low},{high},0,1", f"{2 * number + 1},{high},{low},1,0"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


CHANGES = {
    "a blank behind": lambda name: name + " ",
    "a blank before": lambda name: " " + name,
    "a tabulator": lambda name: name + "\t",
    "a blank inside": lambda name: name[:3] + " " + name[3:],
    "a blank that does not break": lambda name: name + "\u00a0",
    "a blank without width": lambda name: name + "\u200b",
    "a mark of byte order": lambda name: "\ufeff" + name,
    "capitals": str.upper,
    "a capital": str.capitalize,
    "letters apart": lambda name: unicodedata.normalize("NFD", name),
    "a wide digit": lambda name: name.replace("0", "\uff10"),
}


NAMES = ["leafä0", "Straße-0", "ÉTAGE 0", "ﬁber0", "İst0"]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        pytest.param(name, changed, id=f"{name}: {change}")
        for name in NAMES
        for change in CHANGES
        if (changed := CHANGES[change](name)) != name
    ],
)
def test_a_name_that_was_changed_on_its_way_is_refused_with_both_forms(tmp_path, name, other):
    with pytest.raises(TableError, match=r"row 2 \(link 2\): switches '.*' and '.*' differ only"):
        read_fabric(fabric(tmp_path / "fabric.csv", name, other))


@pytest.mark.parametrize("other", ["leaf10", "leaf-0", "leaf_0", "leafo", "læaf0", "leäf0", "葉0"])
def test_names_that_differ_for_a_reader_are_two_switches(tmp_path, other):
    read = read_fabric(fabric(tmp_path / "fabric.csv", "leaf0", other))
    assert {"leaf0", other} < set(read.fabric.switch_names)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1))
def test_any_name_is_taken_or_refused_in_one_line(tmp_path_factory, name):
    path = fabric(tmp_path_factory.mktemp("names") / "fabric.csv", "leaf0", name)
    try:
        read_fabric(path)
    except TableError as error:
        assert len(str(error).splitlines()) == 1
