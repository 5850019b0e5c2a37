# SPDX-License-Identifier: Apache-2.0
"""``python -m testbed.record`` prints the schema as Markdown, for ``docs/reference/record.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import TypeAdapter

from testbed.record.documents import DOCUMENTS
from testbed.record.exchange import OBSERVATIONS
from testbed.record.run_tables import TABLES
from testbed.record.schema import FORMAT, VERSION, Column, Schema, interval

_ONE_OF = {
    "every link": "a link",
    "tors": "a ToR",
    "switches": "a switch",
}  # the others lose their s


def render() -> str:
    """Return the schema as Markdown, with a table for each table and each JSON file."""
    every = [_table(table) for table in (*TABLES, OBSERVATIONS)]
    documents = [_document(name) for name in DOCUMENTS]
    return "\n\n".join([f"Format `{FORMAT}`, version {VERSION}.", *documents, *every]) + "\n"


def _table(table: Schema) -> str:
    file = "" if table is OBSERVATIONS else f" (`{table.file or table.name}.parquet`)"
    optional = "" if table.required or table is OBSERVATIONS else " Optional."
    rows = [
        (
            f"`{column.name}`",
            column.type + ("" if column.required else ", optional"),
            column.unit,
            _values(column),
            column.help,
            column.null,
        )
        for column in table.columns
    ]
    head = "column", "type", "unit", "values", "", "missing, nan or -1"
    return f"### {table.name}{file}\n\n{_sentence(table.help)}{optional}\n\n{_rows(head, rows)}"


def _values(column: Column) -> str:
    if column.words:
        return ", ".join(f"`{word}`" for word in column.words)
    if column.numbers is not None:
        what = column.numbers
        if what in ("flows", "probe_paths"):
            return f"row of `{what}`"
        one = _ONE_OF.get(what, f"a{'n' * (what[0] == 'e')} {what.removesuffix('s')}")
        return one if column.type != "path" else "links"
    return interval(column.low, column.high)


def _document(name: str) -> str:
    schema = TypeAdapter(DOCUMENTS[name]).json_schema()
    rest = " Other settings beside them." if schema.get("additionalProperties") else ""
    head = "field", "type", "unit", "values", ""
    rows = list(_fields(schema, schema.get("$defs", {}), "", set()))
    return f"### {name}\n\n{schema['description']}{rest}\n\n{_rows(head, rows)}"


def _fields(
    schema: dict[str, Any], known: dict[str, Any], prefix: str, seen: set[str]
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each field; a field of a nested object is named by its path."""
    for name, field in schema["properties"].items():
        place = f"{prefix}{name}"
        inner = field.get("additionalProperties", {})
        if isinstance(inner, dict) and "$ref" in inner:
            field, place = inner, f"{place}.NAME"
        if "$ref" in field:
            one = field["$ref"].rpartition("/")[2]
            if one not in seen:
                seen.add(one)
                yield from _fields(known[one], known, f"{place}.", seen)
            else:
                yield f"`{place}`", "", "", "", "likewise"
            continue
        kind = _kind(field) + ("" if name in schema.get("required", ()) else ", optional")
        words = ", ".join(f"`{word}`" for word in field.get("enum", ()))
        range_ = words or interval(field.get("minimum"), field.get("maximum"))
        yield f"`{place}`", kind, field.get("unit", ""), range_, field.get("description", "")


def _kind(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_kind(each) for each in field["anyOf"])
    kind: str = field["type"]
    if kind == "array":
        inner = field.get("items", {})
        if "type" not in inner or "prefixItems" in inner:
            return "list"
        element = _kind(inner)
        return (
            f"list of {element.replace('list', 'lists', 1) if 'list' in element else element + 's'}"
        )
    return "text" if kind == "string" else kind


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


if __name__ == "__main__":
    print(render(), end="")
