# SPDX-License-Identifier: Apache-2.0
"""Match keys and action parameters as the 64-bit words of a table's rows."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from canary_softswitch.compiler.bmv2_program import Action, Bmv2Program, KeyField
from canary_softswitch.compiler.rows import TableLayout, field_words, pack_params
from canary_softswitch.errors import TableError
from canary_softswitch.errors import TableErrorCode as Code

Match = Sequence[Any]
Words = NDArray[np.uint64]
Column = NDArray[np.unsignedinteger] | tuple[NDArray[np.unsignedinteger] | int, ...]
"""A field of many matches, see ``TablesAlike``."""


def number(value: Any, width: int, what: str, code: Code = Code.ERROR) -> int:
    """Return ``value`` (int or big-endian bytes) as an int of at most ``width`` bits.

    Raises:
        TableError: It is of another type or does not fit; the error has the code ``code``.
    """
    if type(value) is int and 0 <= value < 1 << width:  # the usual case
        return value
    if isinstance(value, (bytes, bytearray)):
        value = int.from_bytes(value, "big")
    elif hasattr(value, "__index__"):
        value = value.__index__()
    else:
        raise TableError(code, f"{what}: {value!r} is not an int or bytes")
    if not 0 <= value < 1 << width:
        raise TableError(code, f"{what}: {value} does not fit in {width} bits")
    return value


def words(values: list[int]) -> Any:
    """Return a C array of 64-bit words."""
    return (ctypes.c_uint64 * max(len(values), 1))(*values)


def is_sequence(value: Any) -> bool:
    """Return True if a value is a sequence other than a string or bytes."""
    return type(value) in (list, tuple) or (
        isinstance(value, Sequence) and not isinstance(value, (bytes, str))
    )


def checked_params(action: Action, params: Sequence[Any]) -> tuple[int, ...]:
    """Return the checked values of an action's parameters."""
    if not is_sequence(params):
        raise TableError(Code.BAD_ACTION_DATA, f"action {action.name!r}: params must be a sequence")
    if len(params) != len(action.params):
        names = ", ".join(f"{n}: {w} bits" for n, w in action.params) or "none"
        raise TableError(
            Code.BAD_ACTION_DATA,
            f"action {action.name!r} takes {len(action.params)} parameters "
            f"({names}), not {len(params)}",
        )
    return tuple(
        number(v, w, f"action {action.name!r} parameter {n!r}", Code.BAD_ACTION_DATA)
        for v, (n, w) in zip(params, action.params, strict=True)
    )


def packed_params(program: Bmv2Program, action: Action, values: tuple[int, ...], size: int) -> Any:
    """Return a C array of ``size`` words that holds an action's checked parameters."""
    packed = pack_params(program, action.id, values)
    return words(packed + [0] * (size - len(packed)))


def read_params(action: Action, row: list[int]) -> tuple[int, ...]:
    """Return the values of an action's parameters from the 64-bit words of a row."""
    out, i = [], 0
    for _, width in action.params:
        n = field_words(width)
        if width > 128:
            data = b"".join(word.to_bytes(8, "little") for word in row[i : i + n])
            out.append(int.from_bytes(data[: (width + 7) // 8], "big"))
            i += n
            continue
        out.append(sum(row[i + k] << 64 * k for k in range(n)))
        i += n
    return tuple(out)


class KeyEncoding:
    """Converts the match elements of a table's key, as ``Table`` takes them, to and from words."""

    def __init__(self, table: str, key: tuple[KeyField, ...], layout: TableLayout) -> None:
        self.table = table
        self.key = key
        self.layout = layout
        self._shifts = [64 * place.word + place.shift for place in layout.places]

    def _element(self, k: KeyField, m: Any) -> tuple[int, int, int]:
        """Return (value, mask, prefix length) of a match element, or (low, high, 0) of a range."""
        full = (1 << k.width) - 1
        if k.match == "exact" and type(m) is int and 0 <= m <= full:
            return m, full, 0
        what = self._what(k)
        if k.match == "exact":
            return number(m, k.width, what, Code.BAD_MATCH_KEY), full, 0
        single = m is None or isinstance(m, (int, bytes, bytearray)) or hasattr(m, "__index__")
        if k.match in ("optional", "ternary") and single:  # p4c writes optional as ternary
            return (
                (0, 0, 0) if m is None else (number(m, k.width, what, Code.BAD_MATCH_KEY), full, 0)
            )
        if k.match == "optional":
            raise TableError(
                Code.BAD_MATCH_KEY, f"{what}: expected an int, bytes or None, not {m!r}"
            )
        shapes = {"lpm": "(value, prefix_len)", "ternary": "(value, mask)", "range": "(lo, hi)"}
        if not isinstance(m, (tuple, list)) or len(m) != 2:
            raise TableError(Code.BAD_MATCH_KEY, f"{what}: expected {shapes[k.match]}, not {m!r}")
        value = number(m[0], k.width, what, Code.BAD_MATCH_KEY)
        if k.match == "range":
            hi = number(m[1], k.width, what, Code.BAD_MATCH_KEY)
            if hi < value:
                raise TableError(Code.BAD_MATCH_KEY, f"{what}: range {value}..{hi} is empty")
            return value, hi, 0
        if k.match == "lpm":
            plen = number(m[1], 32, what, Code.BAD_MATCH_KEY)
            if plen > k.width:
                raise TableError(
                    Code.BAD_MATCH_KEY, f"{what}: prefix length {plen} exceeds {k.width} bits"
                )
            mask = full ^ (full >> plen)
            return value & mask, mask, plen
        mask = number(m[1], k.width, what, Code.BAD_MATCH_KEY)
        return value & mask, mask, 0

    def encode(self, match: Match) -> tuple[bytes, bytes, int]:
        """Return the words of the value and of the mask (bytes), and the lpm prefix length or 0."""
        key = self.key
        if not is_sequence(match):
            raise TableError(Code.BAD_MATCH_KEY, f"table {self.table!r}: match must be a sequence")
        if len(match) != len(key):
            names = ", ".join(f"{k.name} ({k.match}, {k.width} bits)" for k in key) or "none"
            raise TableError(
                Code.BAD_MATCH_KEY,
                f"table {self.table!r} has {len(key)} keys ({names}), not {len(match)}",
            )
        if not key:
            raise TableError(
                Code.NO_TABLE_KEY,
                f"table {self.table!r} has no key: only its default action can be set",
            )
        value = mask = prefix = 0
        for k, m, shift in zip(key, match, self._shifts, strict=True):
            v, x, plen = self._element(k, m)
            if k.mask is not None and k.match != "range":
                v, x = v & k.mask, x & k.mask if self.layout.kind != "exact" else x
            value |= v << shift
            mask |= x << shift
            prefix += plen
        size = 8 * self.layout.words
        return value.to_bytes(size, "little"), mask.to_bytes(size, "little"), prefix

    def encode_columns(self, columns: Sequence[Column]) -> Words:
        """Return the words of the values of many matches and, unless all keys are exact, of their
        masks behind them, uint64[n, words]: see `encode`, and ``TablesAlike`` for ``columns``.
        """
        names = ", ".join(f"{k.name} ({k.match})" for k in self.key)
        if self.layout.kind not in ("exact", "ternary"):
            raise TableError(
                Code.BAD_MATCH_KEY, f"table {self.table!r} ({names}) takes entries one by one"
            )
        if len(columns) != len(self.key):
            raise TableError(
                Code.BAD_MATCH_KEY,
                f"table {self.table!r} has {len(self.key)} keys ({names}), not {len(columns)}",
            )
        n = max(len(each) for c in columns for each in _parts(c) if not isinstance(each, int))
        words, exact = self.layout.words, self.layout.kind == "exact"
        out = np.zeros((n, words if exact else 2 * words), np.uint64)
        for k, column, shift in zip(self.key, columns, self._shifts, strict=True):
            wide = k.match == "range" and k.width > 64
            if (k.match == "exact") == isinstance(column, tuple) or k.match == "optional" or wide:
                raise TableError(
                    Code.BAD_MATCH_KEY,
                    f"{self._what(k)}: {k.match} values of {k.width} bits do not come so",
                )
            first, *second = (self._words_of(k, each) for each in _parts(column))
            if exact and k.mask is None:
                _put(out, first, shift)
                continue
            full = _split((1 << k.width) - 1 if k.mask is None else k.mask, first.shape[1])
            last = second[0] if second else full[None]
            if k.match != "range":
                first, last = first & last & full, last & full
            elif (first > last).any():
                raise TableError(Code.BAD_MATCH_KEY, f"{self._what(k)}: a range is empty")
            _put(out[:, :words], first, shift)
            if not exact:
                _put(out[:, words:], last, shift)
        return out

    def _words_of(self, k: KeyField, values: Words | int) -> Words:
        """Return one or more values of a field as words, uint64[n or 1, words]; check them."""
        if isinstance(values, int):
            value = number(values, k.width, self._what(k), Code.BAD_MATCH_KEY)
            given = _split(value, (k.width + 63) // 64)[None]
        else:
            given = values if values.ndim == 2 else values[:, None]
            if given.dtype.kind != "u" or given.shape[1] != (k.width + 63) // 64:
                raise TableError(
                    Code.BAD_MATCH_KEY,
                    f"{self._what(k)}: {k.width} bits are not {given.dtype}{list(values.shape)}",
                )
        given = given.astype(np.uint64)
        rest = k.width % 64
        if rest and (given[:, -1] >> np.uint64(rest)).any():
            raise TableError(
                Code.BAD_MATCH_KEY, f"{self._what(k)}: a value does not fit in {k.width} bits"
            )
        return given

    def _what(self, k: KeyField) -> str:
        return f"table {self.table!r} key {k.name!r}"

    def plain(self, match: Match) -> tuple[Any, ...]:
        """Return a match that ``encode`` takes, with byte strings converted to integers."""

        def as_number(m: Any) -> Any:
            """Return a match value as an int; byte strings are big-endian."""
            return int.from_bytes(m, "big") if isinstance(m, (bytes, bytearray)) else int(m)

        return tuple(
            (as_number(m[0]), int(m[1])) if k.match == "lpm" else as_number(m)
            for k, m in zip(self.key, match, strict=True)
        )

    def has_more(self, match: Match) -> bool:
        """Return True if the lpm value of a match has bits after its prefix."""
        return any(
            value & ((1 << k.width - n) - 1)
            for k, (value, n) in (
                (k, m) for k, m in zip(self.key, self.plain(match), strict=True) if k.match == "lpm"
            )
        )

    def decode(self, value: Sequence[int], mask: Sequence[int]) -> tuple[Any, ...]:
        """Return the match elements of an entry from its key and mask, words of 64 bits."""
        values = sum(w << 64 * i for i, w in enumerate(value))
        masks = sum(w << 64 * i for i, w in enumerate(mask))
        match: list[Any] = []
        for k, p in zip(self.key, self.layout.places, strict=True):
            v = values >> 64 * p.word + p.shift & (1 << k.width) - 1
            x = masks >> 64 * p.word + p.shift & (1 << k.width) - 1
            if k.match == "exact":
                match.append(v)
            elif k.match == "optional":
                match.append(v if x else None)
            else:
                match.append((v, x.bit_count()) if k.match == "lpm" else (v, x))
        return tuple(match)


def _parts(column: Column) -> tuple[Any, ...]:
    """Return the arrays or numbers of a field of many matches: one, or a pair."""
    return column if isinstance(column, tuple) else (column,)


def _split(value: int, n: int) -> Words:
    """Return the words of a number, low word first, uint64[n]."""
    return np.array([value >> 64 * i & (1 << 64) - 1 for i in range(n)], np.uint64)


def _put(out: Words, given: Words, shift: int) -> None:
    """Put values, uint64[n or 1, words], ``shift`` bits up into the words of keys."""
    first, low = divmod(shift, 64)
    for i, word in enumerate(given.T, first):
        out[:, i] |= word << np.uint64(low)
        if low and i + 1 < out.shape[1]:
            out[:, i + 1] |= word >> np.uint64(64 - low)
