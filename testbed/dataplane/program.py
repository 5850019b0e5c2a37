# SPDX-License-Identifier: Apache-2.0
"""What p4c made of the program, looked up by name; what it lacks is an error of one line.

Tables, actions, registers, counters and header fields are read from the BMv2 JSON, the names of a
digest's fields, which the JSON does not keep, from P4Info, constants and the bits of what is put
together of fields from the sources. P4Info is read as text: protobuf takes ten times as long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

P4INFO_SUFFIX = ".p4info.txtpb"
"""Of a program's P4Info, in place of the ``.json`` of the BMv2 JSON beside it."""


class DataPlaneError(ImportError):
    """The compiled program lacks an object that Python refers to. The message is one line."""


@dataclass(frozen=True)
class Bits:
    """The position of a field in an integer: its lowest bit and its width in bits."""

    shift: int
    width: int

    def of(self, word: Any) -> Any:
        """Return the field's value in an integer, or in each element of an array."""
        return word >> self.shift & (1 << self.width) - 1


@dataclass(frozen=True)
class Digest:
    """A digest: its name, and its fields with their widths, in order."""

    name: str
    fields: Mapping[str, int]

    def position(self, field: str) -> int:
        """Return the index of a field among the digest's values.

        Switches may call the fields by other names, but they keep the order.
        """
        return list(self.fields).index(field)


class CompiledProgram:
    """The program in a folder of P4 sources, and in the folder's ``build``.

    Every method raises DataPlaneError for what is not there or is something else.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.json = folder / "build" / f"{name}.json"
        self.p4info = self.json.with_suffix(P4INFO_SUFFIX)
        self._folder = folder
        try:
            program: dict[str, Any] = json.loads(self.json.read_text())
            self._p4info = self.p4info.read_text()
        except (OSError, ValueError) as error:
            raise DataPlaneError(f"the compiled P4 program cannot be read: {error}") from None
        pipelines = program["pipelines"]
        self._tables = {t["name"]: t for p in pipelines for t in p["tables"]}
        self._profiles = {a["name"]: a for p in pipelines for a in p["action_profiles"]}
        self._actions = {a["name"]: a for a in program["actions"]}
        self._registers = {r["name"]: r for r in program["register_arrays"]}
        self._counters = {c["name"]: c for c in program["counter_arrays"] if not c["is_direct"]}
        self._digests = {d["name"] for d in program["learn_lists"]}
        types = {t["name"]: t["fields"] for t in program["header_types"]}
        self._headers = {
            h["name"]: {f: width for f, width, *_ in types[h["header_type"]]}
            for h in program["headers"]
        }

    def table(self, name: str, *key: str) -> str:
        """Return ``name`` if it is a table whose key has these fields, in this order."""
        found = tuple(field["name"] for field in self._known(self._tables, "table", name)["key"])
        if found != key:
            raise self._error(f"the key of table {name} is {_list(found)}, not {_list(key)}")
        return name

    def capacity(self, table: str) -> int:
        """Return the number of entries that a table can hold."""
        return int(self._known(self._tables, "table", table)["max_size"])

    def action(self, table: str, name: str, *params: str) -> str:
        """Return ``name`` if it is an action of ``table`` with these parameters, in this order."""
        action = self._known(self._actions, "action", name)
        if name not in self._tables[table]["actions"]:
            raise self._error(f"table {table} has no action {name}")
        found = tuple(param["name"] for param in action["runtime_data"])
        if found != params:
            raise self._error(f"action {name} takes {_list(found)}, not {_list(params)}")
        return name

    def profile(self, name: str) -> str:
        """Return ``name`` if the program has an action profile of that name."""
        self._known(self._profiles, "action profile", name)
        return name

    def counter(self, name: str) -> str:
        """Return ``name`` if the program has an indirect counter of that name."""
        self._known(self._counters, "counter", name)
        return name

    def register(self, name: str, size: int) -> str:
        """Return ``name`` if it is a register array with this number of elements.

        Raises DataPlaneError if it has another size, or if there is none.
        """
        found = self._known(self._registers, "register", name)["size"]
        if found != size:
            raise self._error(f"register {name} has {found} elements, not {size}")
        return name

    def registers(self, block: str) -> dict[str, int]:
        """Return the width in bits of each register array of a control block, by name."""
        inside = f"{block}."
        return {n: r["bitwidth"] for n, r in self._registers.items() if n.startswith(inside)}

    def digest(self, name: str, *fields: str) -> Digest:
        """Return the digest ``name`` if it has these fields, in this order."""
        self._known(dict.fromkeys(self._digests), "digest", name)
        described = re.search(rf'\bkey: "{name}"(.*?)^  }}', self._p4info, re.S | re.M)
        members = re.findall(
            r'name: "(\w+)"\s+type_spec {\s+bitstring {\s+bit {\s+bitwidth: (\d+)',
            described[1] if described else "",
        )
        found = {field: int(width) for field, width in members}
        if tuple(found) != fields:
            raise self._error(f"digest {name} is of {_list(found)}, not {_list(fields)}")
        return Digest(name, found)

    def header(self, name: str) -> dict[str, int]:
        """Return the width in bits of each field of a header, in the order of the wire."""
        return self._known(self._headers, "header", name)

    def metadata(self, field: str) -> str:
        """Return ``meta.FIELD`` if the program's metadata has that field."""
        self._known(self._headers["scalars"], "metadata field", f"metadata_t.{field}")
        return f"meta.{field}"

    def constants(self, source: str) -> dict[str, int]:
        """Return the numeric ``const bit<n>`` and ``#define`` constants of a source, by name."""
        text = self._source(source)
        found = re.findall(r"^const bit<\d+> (\w+) = (\w+);", text, re.M)
        found += re.findall(r"^#define (\w+) (\d\w*)\s*(?://.*)?$", text, re.M)
        return {name: int(value, 0) for name, value in found}

    def joined(self, source: str, field: str, *parts: str) -> dict[str, Bits]:
        """Return the position of each part of a metadata field that a source joins with ``++``.

        A part is called by the last component of its name: ``counted`` is ``hdr.shim.counted``.
        """
        text = self._source(source)
        statement = re.search(rf"meta\.{field} = ([^;]*\+\+[^;]*);", text)
        terms = re.split(r"\s*\+\+\s*", statement[1].strip()) if statement else []
        at = width = self._headers["scalars"].get(f"metadata_t.{field}", 0)
        found: dict[str, Bits] = {}
        for term in terms:
            bits = self._width(term, text)
            at -= bits
            if not re.fullmatch(r"\d+w\d+", term):
                found[term.rpartition(".")[2]] = Bits(at, bits)
        if at or tuple(found) != parts:
            raise self._error(
                f"{source}: the {width} bits of meta.{field} are not {_list(parts)}, "
                f"but {_list(terms)}"
            )
        return found

    def _width(self, term: str, text: str) -> int:
        """Return the width in bits of a literal, a field, or a macro's argument; 0 if unknown."""
        if literal := re.fullmatch(r"(\d+)w\d+", term):
            return int(literal[1])
        scope, _, field = term.rpartition(".")
        if scope == "meta":
            return self._headers["scalars"].get(f"metadata_t.{field}", 0)
        if scope.startswith("hdr."):
            return self._headers.get(scope.removeprefix("hdr."), {}).get(field, 0)
        # a macro's argument: as wide as the constants that are given for it
        widths = set(re.findall(rf"^const bit<(\d+)> {term.upper()}_\w+ =", text, re.M))
        return int(widths.pop()) if len(widths) == 1 else 0

    def _source(self, name: str) -> str:
        try:
            return (self._folder / name).read_text()
        except OSError as error:
            raise DataPlaneError(f"a source of the P4 program cannot be read: {error}") from None

    def _known(self, things: Mapping[str, Any], kind: str, name: str) -> Any:
        if name not in things:
            known = [thing for thing in things if "." in thing or kind == "digest"]
            raise self._error(f"there is no {kind} {name}, but {_list(known)}")
        return things[name]

    def _error(self, text: str) -> DataPlaneError:
        return DataPlaneError(f"{self.json.name} is another program: {text}")


def _list(names: Any) -> str:
    return ", ".join(names) or "nothing"
