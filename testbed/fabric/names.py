# SPDX-License-Identifier: Apache-2.0
"""Text for messages: names made safe to print, shortened, and the nearest known name."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Sequence

_LONG_WORD = 250
"""Characters; paths are rarely as long."""


def plain(text: str) -> str:
    """Return a text as one printable line for a terminal or a plot; other characters are escaped.

    Control characters (escape sequences of terminals, line ends), marks that turn the direction of
    writing, and bytes of file names that are no text become ``\\x1b``, ``\\n``, ``\\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def command(*words: str) -> str:
    """Return the line of a shell that calls a program with these words, to be read and copied.

    What cannot be seen is escaped, see `plain`, so that nothing is copied that is not shown. The
    Makefile takes values as they are: a ``$`` is not doubled for make.

    >>> print(command("make", "analyze", "RUN=my runs/$1"))
    make analyze 'RUN=my runs/$1'
    """
    return shlex.join(plain(word) for word in words)


def shortened(text: str) -> str:
    """Return the text of a message without the middle of a very long word or of a very long text.

    Such a word is a value of 100 kB or a path of a thousand folders.

    >>> shortened(f"no scenario {'x' * 1000}: choose flap")[:60]
    'no scenario xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'
    >>> len(shortened("x" * 1000)), len(shortened("x " * 1000))
    (100, 1000)
    """
    words = re.sub(rf"\S{{{_LONG_WORD},}}", lambda word: _cut(word[0], 100), text)
    return _cut(words, 1000)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most * 3 // 5]}…{text[1 - most * 2 // 5 :]}"


_NAMES_SHOWN = 6


def some_of(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are.

    >>> some_of(["a", "b"]), some_of(list("abcdefgh"))
    ('a, b', 'a, b, c, d, e, f and 2 more')
    """
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean K?``, or a list of all known names; case is ignored.

    >>> nearest("kk", ["K", "FAULTS"])
    'did you mean K?'
    >>> nearest("colour", ["K", "FAULTS"])
    'choose from K, FAULTS'
    """
    names = list(known)
    folded = {each.upper(): each for each in names}
    near = difflib.get_close_matches(name.upper(), folded, n=1)
    return f"did you mean {folded[near[0]]}?" if near else f"choose from {', '.join(names)}"
