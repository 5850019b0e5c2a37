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
        "13500\n0 0\n10000 0.15\n20000 1\n",  # the mean comes first
        "0 1 0\n10000 1 0.15\n20000 1 1\n",  # pFabric
        "# bytes, share\n\n0,0\n10000,0.15 # of the flows\n20000,1\n",
        "0 0\r\n10000 15\r\n20000 99.999\r\n",  # as rounded tables end
    ],
)
def test_the_formats_of_simulators_mean_the_same(tmp_path, text):
    sizes = flow_sizes(f"{written(tmp_path, text)}:bytes")
    assert sizes.quantile(np.array([0.15]))[0] == pytest.approx(10_000, rel=1e-4)
    assert sizes.mean == pytest.approx(0.15 * 5_000 + 0.85 * 15_000, rel=1e-4)


def test_flows_of_the_smallest_size_are_counted_in_the_mean(tmp_path):
    sizes = read_sizes(written(tmp_path, "1000 0.5\n1000 0.75\n3000 1\n"), 1)
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
    read = read_sizes(path, 1)
    at = np.array(share)
    strict = np.flatnonzero(np.diff(np.concatenate(([-1.0], at))) > 1e-9)
    assert read.quantile(at)[strict] == pytest.approx(np.maximum(size, 1)[strict], abs=1.0) or any(
        np.diff(at) == 0
    )


# Homa's web search (W5), made like that file: its mean, then packets of which each line is a step.
HOMA = [(1, 0.1), (10, 0.2), (53, 0.53), (1333, 0.8), (6667, 0.97), (20000, 1.0)]


def homa(steps=HOMA):
    shares = np.diff([0.0, *(share for _, share in steps)])
    mean = sum(size * share for (size, _), share in zip(steps, shares, strict=True))
    return mean, "".join([f"{mean}\n", *(f"{size}  {share}\n" for size, share in steps)])


def test_a_first_line_with_the_mean_of_steps_makes_each_line_a_step(tmp_path):
    mean, text = homa()
    sizes = flow_sizes(f"{written(tmp_path, text)}:packets=1460")
    assert sizes.mean == pytest.approx(1460 * mean)
    drawn = sizes.quantile(GRID)
    assert set((drawn / 1460).round(6)) == {size for size, _ in HOMA}
    assert drawn.mean() == pytest.approx(sizes.mean, rel=1e-3)
    by_bytes = (drawn**2).mean() / drawn.mean()
    assert sizes.quantile_by_bytes(GRID).mean() == pytest.approx(by_bytes, rel=1e-2)
    dip = text.replace("53  0.53", "52  0.53\n53  0.529")  # as an edition of that file has some
    assert flow_sizes(f"{written(tmp_path, dip)}:bytes").mean == pytest.approx(mean, rel=0.01)


@pytest.mark.parametrize(
    ("table", "mean"),
    [
        # The papers' means: 1.7 MB for web search (pFabric draws with 1,138 packets of 1,460).
        ("0 0\n10000 15\n20000 20\n30000 30\n50000 40\n80000 53\n200000 60\n1000000 70\n"
         "2000000 80\n5000000 90\n10000000 97\n30000000 100\n", 1_711_250),
        ("1 1 0\n6 1 0.15\n13 1 0.2\n19 1 0.3\n33 1 0.4\n53 1 0.53\n133 1 0.6\n667 1 0.7\n"
         "1333 1 0.8\n3333 1 0.9\n6667 1 0.97\n20000 1 1.0\n", 1138 * 1460),
    ],
)  # fmt: skip
def test_published_tables_have_their_papers_means(tmp_path, table, mean):
    unit = "packets=1460" if table.startswith("1 ") else "bytes"
    assert flow_sizes(f"{written(tmp_path, table)}:{unit}").mean == pytest.approx(mean, rel=0.01)


def test_a_table_that_is_hardly_one_of_bytes_asks_which_it_is(tmp_path):
    mining = "1 1 0\n1 1 0.5\n2 1 0.6\n7 1 0.8\n2107 1 0.95\n666667 1 1\n"  # pFabric's other one
    for text, largest in ((homa()[1], "20,000"), (mining, "666,667"), ("0 0\n1 1\n", "1")):
        path = written(tmp_path, text)
        with pytest.raises(UserError) as refused:
            flow_sizes(str(path))
        assert str(refused.value) == (
            f"{path}: its largest flow is {largest}: bytes or packets? Name the unit: "
            f"TRAFFIC={path}:packets=1460 or TRAFFIC={path}:bytes"
        )
        packets = flow_sizes(f"{path}:packets=1460").mean
        assert packets == pytest.approx(1460 * flow_sizes(f"{path}:bytes").mean)
    for text in ("0 0\n100 0.3\n29200 1\n", "0 0\n1.5 0.6\n3 1\n"):  # bytes, or no packets
        assert flow_sizes(str(written(tmp_path, text))).mean > 0
    for unit in ("packets=0", "packets", "kB", "packets=1460 "):
        with pytest.raises(UserError, match=r":packets=1460$"):
            flow_sizes(f"{path}:{unit}")
