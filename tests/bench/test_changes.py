"""`analysis/CHANGES.md` has the words of the methods' classes."""

from analysis.methods.registry import make_method
from tests.bench.bench_changes import FILE, HEAD, changes, words


def test_the_table_is_the_code_s() -> None:
    lines = FILE.read_text().splitlines()
    begin = lines.index(HEAD) + 2
    rows = lines[begin : lines.index("", begin)]
    assert rows == words(), "python -m tests.bench changes"


def test_every_change_is_named_and_off_in_the_published_method() -> None:
    for name, change in changes():
        published, changed = make_method(name), make_method(f"{name}+{change.name}")
        assert published.name == name and changed.name == f"{name}+{change.name}"
        assert getattr(published, change.parameter) != getattr(changed, change.parameter)
