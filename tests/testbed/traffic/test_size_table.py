# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import UserError
from testbed.traffic.distributions import flow_sizes, read_sizes

GRID = (np.arange(100_000) + 0.5) / 100_000


def written(folder, text):
    path = folder / "sizes.txt"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "0 0\n10000 15\n20000 100\n",  # HPCC
        "0 0.0\n10000 0.15\n20000 1.0\n",
        "11500\n0 0\n10000 0.15\n20000 1\n",  # Homa: the mean comes first
        "0 1 0\n10000 1 0.15\n20000 1 1\n",  # pFabric
        "# bytes, share\n\n0,0\n10000,0.15 # of the flows\n20000,1\n",
        "0 0\r\n10000 15\r\n20000 99.999\r\n",  # as rounded tables end
    ],
)
def test_the_formats_of_simulators_mean_the_same(tmp_path, text):
    sizes = flow_sizes(str(written(tmp_path, text)))
    assert sizes.quantile(np.array([0.15]))[0] == pytest.approx(10_000, rel=1e-4)
    assert sizes.mean == pytest.approx(0.15 * 5_000 + 0.85 * 15_000, rel=1e-4)


def test_flows_of_the_smallest_size_are_counted_in_the_mean(tmp_path):
    sizes = read_sizes(written(tmp_path, "1000 0.5\n1000 0.75\n3000 1\n"))
    assert sizes.quantile(np.array([0.0, 0.4, 0.75])).tolist() == [1000, 1000, 1000]
    assert sizes.mean == pytest.approx(0.75 * 1000 + 0.25 * 2000)
    assert sizes.quantile(GRID).mean() == pytest.approx(sizes.mean, rel=1e-3)
    by_bytes = (sizes.quantile(GRID) ** 2).mean() / sizes.mean
    assert sizes.quantile_by_bytes(GRID).mean() == pytest.approx(by_bytes, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has 0 lines of a size and a share"),
        ("5\n", "has 0 lines"),
        ("0 0\n", "has 1 lines"),
        ("0 0\n10 x\n", "line 2: the share is 'x', no number"),
        ("0 0\nten 1\n", "line 2: the size is 'ten', no number"),
        ("0 0\n10 nan\n", "line 2: the share is nan: use 0 to"),
        ("0 0\n-5 1\n", "line 2: the size is -5: use 0 to"),
        ("0 0\n1e30 1\n", "line 2: the size is 1e\\+30: use 0 to"),
        ("0 0\n10 200\n", "line 2: the share is 200: use 0 to"),
        ("0 0\n20 0.5\n10 1\n", "line 3: the size is smaller than in the line before"),
        ("0 0\n10 0.5\n20 0.4\n30 1\n", "line 3: the share is smaller than in the line before"),
        ("0 0\n10 0.5\n", "line 2: the last share is 0.5: 1 or 100"),
        ("0 0\n0 1\n", "has only flows of 0 bytes"),
        ("0 0 0 0\n1 1 1 1\n", "line 1: 4 columns"),
        ("0 0\n5\n10 1\n", "line 2: 1 columns"),
    ],
)
def test_what_makes_no_sense_is_one_line_with_its_number(tmp_path, text, reason):
    with pytest.raises(UserError, match=reason) as refused:
        read_sizes(written(tmp_path, text))
    assert len(str(refused.value).splitlines()) == 1


def test_what_is_no_file_of_text_is_said(tmp_path):
    for path, reason in ((tmp_path / "no.txt", "check TRAFFIC"), (tmp_path, "it is not a file")):
        with pytest.raises(UserError, match=reason):
            read_sizes(path)
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe0 0")
    with pytest.raises(UserError, match="is not a text file"):
        read_sizes(tmp_path / "x.txt")
    with pytest.raises(UserError, match="TRAFFIC=what is unknown"):
        flow_sizes("what")


@settings(max_examples=300)
@given(st.text() | st.lists(st.tuples(st.floats(), st.floats())).map(str))
def test_any_text_is_taken_or_refused_in_one_line(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("sizes") / "sizes.txt"
    path.write_text(text.encode("utf-8", "replace").decode(), newline="")
    try:
        sizes = read_sizes(path)
    except UserError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert np.isfinite(sizes.quantile(GRID[::100])).all()


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 10**9), min_size=2, max_size=20),
    st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
def test_a_table_that_is_written_is_read_back(tmp_path_factory, sizes, shares):
    size = sorted(sizes)[: len(shares) + 1]
    size[-1] = max(size[-1], 1)
    share = [*sorted(shares)[: len(size) - 1], 1.0]
    path = tmp_path_factory.mktemp("sizes") / "sizes.txt"
    path.write_text("".join(f"{a} {b!r}\n" for a, b in zip(size, share, strict=True)))
    read = read_sizes(path)
    at = np.array(share)
    strict = np.flatnonzero(np.diff(np.concatenate(([-1.0], at))) > 1e-9)
    assert read.quantile(at)[strict] == pytest.approx(np.maximum(size, 1)[strict], abs=1.0) or any(
        np.diff(at) == 0
    )
