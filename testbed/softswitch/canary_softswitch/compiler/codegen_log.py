# SPDX-License-Identifier: Apache-2.0
"""Writes ``log_msg`` as C: a line of text in which a number replaces each ``{}``."""

from __future__ import annotations

from canary_softswitch.compiler.expressions import Expressions
from canary_softswitch.compiler.nodes import Node
from canary_softswitch.compiler.schema_values import Call, Message, Numbers, source_of

MAX_LINE = 1 << 16
"""The most bytes of a line, which is assembled on a thread's stack."""


class WrongFormat(Exception):
    """The format does not fit its arguments; the message is the one with which BMv2 exits."""


def pieces(text: str, arguments: int) -> list[str]:
    r"""Return the text around each placeholder: one piece more than there are arguments.

    A placeholder goes from a ``{`` to the next ``}``; ``\{`` and ``\}`` are braces.

    BMv2 overlooks a ``{`` at the beginning and right after another placeholder, and exits if the
    number of arguments then differs. Here it is a placeholder if that makes the numbers equal.

    Raises:
        WrongFormat: There are more or fewer placeholders, or one has no end.
    """
    found = _pieces(text, arguments, adjacent=False)
    if len(found) != arguments + 1:
        found = _pieces(text, arguments, adjacent=True)
    if len(found) != arguments + 1:
        raise WrongFormat(
            "Not enough arguments for format string in call to log_msg(). Format string expected "
            f"({len(found) - 1}) argument(s) but go ({arguments})"
        )
    return [piece.replace("\\{", "{").replace("\\}", "}") for piece in found]


def _pieces(text: str, arguments: int, adjacent: bool) -> list[str]:
    found, begin = [], 0
    at = text.find("{", 0 if adjacent else 1)
    while at >= 0:
        if at and text[at - 1] == "\\":
            at = text.find("{", at + 1)
            continue
        end = text.find("}", at)
        while end >= 0 and text[end - 1] == "\\":
            end = text.find("}", end + 1)
        if end < 0:
            raise WrongFormat('No matching "}" in call to log_msg()')
        found.append(text[begin:at])
        begin = end + 1
        at = text.find("{", begin if adjacent or len(found) > arguments else begin + 1)
    return [*found, text[begin:]]


def log_msg(e: Expressions, call: Call[tuple[Message, Numbers]]) -> list[str]:
    """Return the C statements of one call, in which all text is written as byte values."""
    message, numbers = call.parameters
    values = [e.read(argument) for argument in numbers.value]
    try:
        around = pieces(message.value, len(values))
    except WrongFormat as wrong:
        text = f"{wrong}: {source_of(call, '{}({})') or '[no source available]'}."
        code, size = _bytes(text)
        return [f"if (sw->log) sw->log(sw->log_ctx, 1, {code}, {size});"]
    out, most = [], 0
    for i, piece in enumerate(around):
        code, size = _bytes(piece)
        if size:
            out.append(f"    at = ss_say_text(at, {code}, {size});")
        most += size
        if i < len(values):
            code, size = _number(e, values[i])
            out.append(f"    at = {code};")
            most += size
    if most > MAX_LINE:
        raise e.refuse(f"log_msg of {most} bytes (at most {MAX_LINE})")
    return [
        "if (__builtin_expect(!!sw->log, 0)) {",
        f"    char text[{most + 1}], *at = text;",
        *out,
        "    sw->log(sw->log_ctx, 0, text, (uint32_t)(at - text));",
        "}",
    ]


def _bytes(text: str) -> tuple[str, int]:
    """Return the C of a text's bytes, and how many there are."""
    data = text.encode("utf-8")
    return f"(const char *)(const uint8_t[]){{{', '.join(map(str, data)) or '0'}}}", len(data)


def _number(e: Expressions, n: Node) -> tuple[str, int]:
    """Return the C that writes a value in decimal at ``at``, and the most characters it takes."""
    f = n.field
    if f and f.wide:
        size, sign = (f.width + 7) // 8, f.width if f.signed else 0
        return f"ss_say_bytes(at, {f.code}, {size}, {sign})", f.width * 31 // 100 + 2
    value = e.exact(n)
    kind = "signed" if n.lo < 0 else "number"
    return f"ss_say_{kind}(at, {value})", max(len(str(n.lo)), len(str(n.hi)))
