"""Names as text: what a name holds is shown, and never done."""

from __future__ import annotations

__all__ = ["plain"]


def plain(text: str) -> str:
    """The text in one line that a terminal or a plot can show: what cannot be seen is escaped.

    Control characters (escape sequences of terminals, line ends), marks that turn the direction of
    writing, and bytes of file names that are no text become ``\\x1b``, ``\\n``, ``\\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
