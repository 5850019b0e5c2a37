# SPDX-License-Identifier: Apache-2.0
"""Text as LaTeX, and the five papers as BibTeX."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from testbed.fabric.names import plain

_SPECIAL = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "’": "'",
    "“": "``",
    "”": "''",
    "×": r"$\times$",
    "−": "$-$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "→": r"$\to$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "≈": r"$\approx$",
    "±": r"$\pm$",
    "\xa0": "~",
}
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True))


def escaped(text: str) -> str:
    """Return a text as LaTeX that prints it: no command in it is run."""
    return "".join(map(_letter, plain(text)))


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter in _SUPERSCRIPTS:
        return f"$^{{{_SUPERSCRIPTS[letter]}}}$"
    if ord(letter) < 0x180:
        return letter
    name = unicodedata.name(letter, "")
    if name.startswith("GREEK SMALL LETTER ") and name.split()[-1].isalpha():
        word = name.split()[-1].lower().replace("lamda", "lambda")
        return letter if word in ("omicron",) else f"$\\{word}$"
    return f"[U+{ord(letter):04X}]"


REFERENCES = (Path(__file__).parent / "refs.bib").read_text(encoding="utf-8")
"""The papers as BibTeX, by the first word of their experiments' names."""
