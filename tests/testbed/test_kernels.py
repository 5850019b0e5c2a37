# SPDX-License-Identifier: Apache-2.0
"""Kernels: arguments by name are checked, and C does what it says with them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary_softswitch.compiler.build import FLAGS as LIBRARY_FLAGS
from canary_softswitch.compiler.build import compiler
from canary_softswitch.errors import CompileError
from testbed.kernels import FLAGS, Kernels, c_text, has_kernels

ROOT = Path(__file__).parents[2]

CODE = """
typedef struct {
    const int64_t *ptr;
    int64_t n;
} Rows;

typedef struct {
    Rows rows;
    double *x;
    double scale;
} Fit;

/* KERNEL is no prototype in a comment: KERNEL void no(int x); */
KERNEL double total(int64_t a, int64_t b, const int32_t m[a][b], double scale) {
    double sum = 0;
    for (int64_t i = 0; i < a; i++)
        for (int64_t j = 0; j < b; j++) sum += m[i][j];
    return sum * scale;
}

KERNEL void lengths(int64_t n, const int64_t ptr[n + 1], int64_t length[n]) {
    for (int64_t i = 0; i < n; i++) length[i] = ptr[i + 1] - ptr[i];
}

KERNEL int64_t fit(Fit *fit, bool twice) {
    for (int64_t i = 0; i < fit->rows.ptr[fit->rows.n]; i++) fit->x[i] *= fit->scale * (1 + twice);
    return fit->rows.n;
}

KERNEL void draw(const Random *rng, int64_t n, double mean, int64_t packets, double p,
                 double even[n], int64_t many[n], int64_t lost[n]) {
    Binomial prepared = {0};
    for (int64_t i = 0; i < n; i++) {
        even[i] = uniform(rng);
        many[i] = poisson(rng, mean);
        lost[i] = binomial(rng, packets, p, &prepared);
    }
}

KERNEL double rounded(double a, double b, double c) { return a * b + c; }
KERNEL uint8_t small(uint8_t x) { return x; }
KERNEL bool nothing(const double *x) { return x == NULL; }
"""


class Rows(NamedTuple):
    """Made into the C struct of that name, as the next."""

    ptr: np.ndarray
    n: int


class Fit(NamedTuple):
    """A struct with another in it."""

    rows: Rows
    x: np.ndarray
    scale: float


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    source = tmp_path_factory.mktemp("kernels") / "example.c"
    source.write_text(CODE)
    return Kernels(source)


MATRIX = np.arange(6, dtype=np.int32).reshape(2, 3)


def test_lengths_are_those_of_the_arrays(kernels: Kernels) -> None:
    assert kernels.total(m=MATRIX, scale=2) == 30.0
    assert kernels.total(a=2, b=3, m=MATRIX, scale=2.0) == 30.0
    length = np.zeros(2, np.int64)
    kernels.lengths(ptr=np.array([0, 4, 5]), length=length)
    assert length.tolist() == [4, 1]


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"m": MATRIX.astype(float)}, TypeError, "total: m must be an array of int32.*float64"),
        ({"m": [[1, 2]]}, TypeError, "m must be an array of int32, not of list"),
        ({"m": MATRIX.T}, TypeError, "m must be contiguous"),
        ({"m": MATRIX[0]}, ValueError, "m must have 2 dimensions"),
        ({"a": 3}, ValueError, r"m\[a\]\[b\] has the shape \(2, 3\), where a is 3"),
        ({"scales": 1}, TypeError, "unexpected keyword argument 'scales'"),
        ({"scale": "2x"}, ValueError, "total: "),
    ],
)
def test_wrong_arguments_are_refused(
    kernels: Kernels, change: dict, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        kernels.total(**({"m": MATRIX, "scale": 2.0} | change))


def test_what_is_missing_or_unknown_is_named(kernels: Kernels) -> None:
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'scale'"):
        kernels.total(m=MATRIX)
    with pytest.raises(TypeError, match="the argument 'a' is missing"):
        kernels.total(m=None, scale=1.0)
    with pytest.raises(AttributeError, match=r"example.c has no kernel 'totals'"):
        kernels.totals()
    with pytest.raises(ValueError, match=r"length\[n\] has the shape \(2,\), where n is 1"):
        kernels.lengths(ptr=np.array([0, 1]), length=np.zeros(2, np.int64))


def test_integers_must_fit(kernels: Kernels) -> None:
    assert kernels.small(x=np.int64(255)) == 255
    with pytest.raises(ValueError, match="x is 256, outside 0 to 255"):
        kernels.small(x=256)
    with pytest.raises(TypeError, match="float"):
        kernels.small(x=1.0)


def test_only_writable_arrays_are_written_to(kernels: Kernels) -> None:
    ptr, length = np.array([0, 4]), np.zeros(1, np.int64)
    ptr.flags.writeable = False
    kernels.lengths(ptr=ptr, length=length)
    length.flags.writeable = False
    with pytest.raises(TypeError, match="length must be writable"):
        kernels.lengths(ptr=ptr, length=length)


def test_none_is_a_null_pointer(kernels: Kernels) -> None:
    assert kernels.nothing(x=None) is True
    assert kernels.nothing(x=np.zeros(0)) is False


@pytest.mark.parametrize("bound", [False, True])
def test_structs_are_made_of_attributes(kernels: Kernels, bound: bool) -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    made = Fit(Rows(np.array([0, 1, 3]), 2), x, 10.0)
    given = kernels.bound("Fit", made) if bound else made
    assert kernels.fit(fit=given, twice=True) == 2
    assert x.tolist() == [20.0, 40.0, 60.0, 4.0]
    with pytest.raises(TypeError, match="ptr must be an array of int64"):
        kernels.fit(fit=Fit(Rows(np.zeros(3), 2), x, 1.0), twice=False)
    with pytest.raises(TypeError, match="a Fit is needed, not a Rows"):
        kernels.fit(fit=kernels.bound("Rows", made.rows), twice=False)


@given(
    seed=st.integers(0, 2**32),
    mean=st.floats(0, 1e4),
    packets=st.integers(0, 10**6),
    p=st.floats(0, 1),
)
def test_kernels_draw_what_numpy_draws(
    kernels: Kernels, seed: int, mean: float, packets: int, p: float
) -> None:
    n = 20
    even, (many, lost) = np.zeros(n), np.zeros((2, n), np.int64)
    rng = np.random.default_rng(seed)
    kernels.draw(rng=rng, mean=mean, packets=packets, p=p, even=even, many=many, lost=lost)
    again = np.random.default_rng(seed)
    for i in range(n):
        wanted = again.random(), again.poisson(mean), again.binomial(packets, p)
        assert (even[i], many[i], lost[i]) == wanted
    assert rng.random() == again.random()


def test_products_are_rounded_before_sums(kernels: Kernels) -> None:
    """No fused multiply-add, which some processors have: equal runs have equal bytes."""
    a = 1 + 2.0**-30
    assert kernels.rounded(a=a, b=a, c=-1 - 2.0**-29) == a * a - (1 + 2.0**-29) == 0.0


def test_bad_code_names_the_error(tmp_path: Path) -> None:
    source = tmp_path / "bad.c"
    source.write_text("KERNEL int64_t f(int64_t x) { return nonsense; }\n")
    with pytest.raises(CompileError, match="nonsense"):
        Kernels(source).f(x=1)
    source.write_text("KERNEL int64_t f(struct s *x) { return 1; }\n")
    with pytest.raises(TypeError, match="a kernel cannot have the argument"):
        Kernels(source).f(x=1)


# ---- all kernels ---------------------------------------------------------------------------------

SOURCES = [
    file
    for room in ("testbed", "analysis", "scenarios")
    for file in sorted((ROOT / room).rglob("*.c"))
    if has_kernels(file)
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_every_file_compiles_without_a_warning(source: Path, tmp_path: Path) -> None:
    code, library = tmp_path / "code.c", tmp_path / "code.so"
    code.write_text(c_text(source))
    warnings = ["-Wall", "-Wextra", "-Wshadow", "-Werror"]
    command = [*compiler(), *LIBRARY_FLAGS, *FLAGS, *warnings, "-o", str(library), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


def declared() -> list[str]:
    return [
        name
        for source in SOURCES
        for name in re.findall(r"^KERNEL \w+ (\w+)\(", source.read_text(), re.M)
    ]


def test_every_kernel_is_called() -> None:
    text = "\n".join(
        path.read_text()
        for room in ("testbed", "analysis", "scenarios", "tests")
        for path in (ROOT / room).rglob("*.py")
    )
    unused = [name for name in declared() if not re.search(rf"\.{name}\b", text)]
    assert not unused


def test_a_kernel_calls_those_of_its_file(tmp_path: Path) -> None:
    """The loader would look for its name in the C library first, which has an `error`."""
    source = tmp_path / "named.c"
    source.write_text(
        "KERNEL int64_t error(int64_t n);\n"
        "KERNEL int64_t twice(int64_t n) { return 2 * error(n); }\n"
        "__attribute__((noinline)) int64_t error(int64_t n) { return n + 1; }\n"
    )
    assert Kernels(source).twice(n=20) == 42
