# SPDX-License-Identifier: Apache-2.0
"""The first screen of a run: what is broken and who overlooked it, who found what, what to do next.

It is made from a run's ``summary.json`` alone. At the default settings it has at most 26 lines and
80 columns. `analysis.evaluation.report` prints everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.evaluation.columns import has_hosts, is_tied, shown_name
from analysis.evaluation.report import COSTS, failed_device, parameters_line, slowdown_lines
from testbed.fabric.names import plain, some_of

FAINTEST = 5
"""The lines that the screen has for broken links; how many more there are takes one of them."""
ROWS = 9
"""With more methods than this, variants of methods of the table are left out."""
LINE_WIDTH = 80
"""The columns of a table of figures, also on wider terminals."""
BACKENDS = {
    "virtual": "virtual time",
    "flow": "without packets",
    "softswitch": "on soft switches",
    "bmv2": "on BMv2",
}
UNDIRECTED = "* no direction"
_NOBODY = "–"
_GAP = 2


Places = Mapping[str, tuple[str, str]]
"""The last lines of a screen: by heading, such as ``page``, a text to be copied, and a remark."""


def screen(summary: Mapping[str, Any], width: int) -> RenderableType:
    """Return the first screen of a run but for its last lines.

    Args:
        summary: The content of ``summary.json``.
        width: The columns of the terminal.
    """
    methods, _ = shown_methods(summary)
    parts: list[RenderableType] = [*_headlines(summary, width), Text()]
    if summary["faulty_links"]:
        parts += [broken_links(summary, methods, width, FAINTEST), Text()]
    return Group(*parts, _methods(summary, methods, width), *_notes(summary, methods, width))


def print_screen(
    what: RenderableType, places: Places, console: Console, width: int | None = None
) -> None:
    """Print a screen, by default 80 columns wide if the console is no terminal.

    Args:
        what: What it shows.
        places: The last lines. Their texts are not broken, and remarks that do not fit are left
            out.
        console: The console.
        width: Its columns, if they are not the default.
    """
    width = width or (console.width if console.is_terminal else LINE_WIDTH)
    print_trimmed(what, console, width)
    if places:
        console.print()
    for heading, (text, remark) in places.items():
        line = plain(f"{heading:<8}{text}")
        more = f"   {plain(remark)}" if remark else ""
        shown = line + more if len(line) + len(more) <= width else line
        console.print(Text(shown), soft_wrap=True, highlight=False)


def print_trimmed(what: RenderableType, console: Console, width: int) -> None:
    """Print something ``width`` columns wide, without the blanks at the ends of lines."""
    options = console.options.update(width=width, highlight=False)
    for segments in console.render_lines(what, options, pad=False):
        text = Text.assemble(*((each.text, each.style or "") for each in segments))
        text.rstrip()
        console.print(text, soft_wrap=True, highlight=False)


def shown_methods(summary: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the methods of the table, and those that it leaves out.

    If there are more than `ROWS`, a variant (``NAME+CHANGE``) is left out if ``NAME`` is there.
    """
    return without_variants(list(summary["methods"]))


def without_variants(every: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the methods that a table of at most `ROWS` rows has, and those that it leaves out, see
    `shown_methods`."""
    if len(every) <= ROWS:
        return list(every), []
    left_out = [name for name in every if "+" in name and name.partition("+")[0] in every]
    return [name for name in every if name not in left_out], left_out


# ---- what is broken ------------------------------------------------------------------------------


def _headlines(summary: Mapping[str, Any], width: int) -> Iterator[RenderableType]:
    """Yield what is broken where, the packets, and what makes the run's figures incomplete."""
    faulty, links = len(summary["faulty_links"]), summary.get("links")
    total = f" of {links:,}" if links else ""
    verb = "drops" if faulty == 1 else "drop"
    title = f"{faulty:,}{total} directed links {verb} packets" if faulty else "no link is broken"
    backend = BACKENDS.get(summary["backend"], plain(summary["backend"]))
    fabric = summary.get("topology", "").removeprefix("a ") or f"K={summary['k']}"
    where = f"{plain(fabric)}, seed {summary['seed']}, {backend}"
    if len(title) + 3 + len(where) <= width:
        yield Text.assemble((title, "bold"), f"   {where}")
    else:
        yield Text(title, "bold")
        yield Text(where)
    packets = summary["conservation"]
    dropped = f"{packets['fault_drops']:,} dropped by faults and noise"
    if packets["queue_drops"]:
        dropped += f", {packets['queue_drops']:,} by full queues"
    yield Text(f"{packets['sent']:,} packets sent, {dropped}, {summary['wall_seconds']:.1f} s")
    if sizes := summary.get("flow_sizes"):
        yield Text(plain(sizes))
    devices = [failed_device(*each) for each in summary.get("failed_devices", {}).items()]
    if devices:
        yield Text(f"failed: {some_of(devices)}")
    if capture := summary.get("capture"):
        yield Text(
            f"traffic of {plain(capture['file'])}: {capture['replayed']:,} of "
            f"{capture['frames']:,} frames replayed"
        )
    yield from (Text(plain(f"event at {what}")) for what in summary.get("events", ()))
    yield from (Text(line) for line in slowdown_lines(summary))
    yield from (Text(plain(f"degraded: {what}"), "red") for what in summary["degraded"])


def broken_links(
    summary: Mapping[str, Any], methods: Sequence[str], width: int, most: int
) -> RenderableType:
    """Return the table of broken links, the faintest last, with the methods that overlooked each.

    Args:
        methods: The methods that are looked at.
        most: The most rows. If there are more links, the last row says how many.
    """
    rates: Mapping[str, float] = summary.get("rates", {})
    matched = set(summary.get("matched_links", ()))
    links = sorted(summary["faulty_links"], key=lambda link: -rates.get(link, 0.0))
    listed = links if len(links) <= most else links[1 - most :]
    overlooked = {link: _overlooking(summary, methods, link) for link in links}
    names = [plain(link) for link in listed]
    loses = [_loses(rates.get(link), link in matched) for link in listed]
    first = max(len("broken link"), *map(len, names))
    second = max(len("loses"), *map(len, loses))
    left = width - first - second - 2 * _GAP
    who = [_fitting(overlooked[link], left) for link in listed]
    columns = [
        ("loses", "right", [Text(loss) for loss in loses]),
        (
            "overlooked by",
            "left",
            [
                Text(text, "red" if overlooked[link] else "")
                for link, text in zip(listed, who, strict=True)
            ],
        ),
    ]
    shown = columns[: (left > 0) + (left >= max(len("overlooked by"), *map(len, who)))]
    table = _bare("broken link")
    for title, side, _ in shown:
        table.add_column(title, justify="right" if side == "right" else "left", no_wrap=True)
    for number, name in enumerate(names):
        table.add_row(Text(name), *(cells[number] for _, _, cells in shown))
    hidden = links[: len(links) - len(listed)]
    if not hidden:
        return table
    return Group(table, Text(_more(hidden, rates, overlooked)))


def _more(
    hidden: Sequence[str], rates: Mapping[str, float], overlooked: Mapping[str, Sequence[str]]
) -> str:
    """Return a line on the broken links that a table leaves out."""
    text = f"and {len(hidden):,} more"
    known = sorted(_percent(rates[link]) for link in hidden if link in rates)
    least = min((rates[link] for link in hidden if link in rates), default=0.0)
    missed = sum(bool(overlooked[link]) for link in hidden)
    if known:
        loses = "which loses" if len(hidden) == 1 else "which lose"
        text += f", {loses} {_percent(least)}" + " or more" * (known[0] != known[-1])
    if missed and len(hidden) == 1:
        return f"{text}; overlooked by {_fitting(overlooked[hidden[0]], 30)}"
    return text + (f"; {missed:,} of them overlooked by a method" if missed else "")


def _overlooking(summary: Mapping[str, Any], methods: Sequence[str], link: str) -> list[str]:
    """Return the methods that do not blame a faulty link; ``(not observed)`` stands behind those
    whose measurements did not cross it."""
    other = "->".join(reversed(link.split("->")))
    either = {link.replace("->", "--"), other.replace("->", "--")}
    found = []
    for name in methods:
        entry = summary["methods"][name]
        own = entry[entry["native"]]
        names = {link} if entry["native"] == "directed" else either
        if names & set(own["missed"]):
            found.append(plain(name))
        elif names & set(own.get("unobserved", ())):
            found.append(f"{plain(name)} (not observed)")
    return found


def _fitting(names: Sequence[str], width: int) -> str:
    """Return as many names as fit into ``width`` characters, and how many more there are."""
    if not names:
        return _NOBODY
    for shown in range(len(names), 0, -1):
        more = len(names) - shown
        text = ", ".join(names[:shown]) + (f" and {more} more" if more else "")
        if len(text) <= width:
            return text
    return f"{len(names)} methods" if len(names) > 1 else names[0]


def _loses(rate: float | None, matched: bool) -> str:
    if rate is None:
        return _NOBODY
    return f"{_percent(rate)} of some flows" if matched else _percent(rate)


def _percent(rate: float) -> str:
    """Return a rate, 0 to 1, as a percentage: ``45.8 %``, ``0.8 %``, ``0.012 %``."""
    share = 100 * rate
    return f"{share:.1f} %" if share >= 0.1 or not share else f"{share:.2g} %"


# ---- who found what ------------------------------------------------------------------------------


def _methods(summary: Mapping[str, Any], methods: Sequence[str], width: int) -> Table:
    """Return the table of methods: the links found, missed and wrongly blamed, F1 and the costs.

    Columns that do not fit are left out from the right, never the name.
    """
    titles = ["found", "missed", "wrong", "F1", "collected", "probes"]
    lost = bool(summary.get("degraded")) and "lost_links" in summary
    if hosts := has_hosts(summary):
        titles.insert(4, "F1 fabric")
    if lost:
        titles.insert(4, "F1 lost")
    names, rows = [], []
    for name in methods:
        entry = summary["methods"][name]
        own = entry[entry["native"]]
        row = [
            Text(f"{own['true_positives']:,}"),
            _count(own["false_negatives"]),
            _count(own["false_positives"]),
            _score(own["f1"]),
            Text(in_units(entry["telemetry_bytes"])),
            Text(f"{entry['probe_packets']:,}"),
        ]
        if hosts:
            row.insert(4, _score(entry["fabric"][entry["native"]]["f1"]))
        if lost:
            row.insert(4, _score(entry["lost"][entry["native"]]["f1"] if "lost" in entry else None))
        shown = shown_name(name, entry.get("own_name"))
        names.append(Text(shown + " *" * (entry["native"] == "undirected")))
        rows.append(row)
    return figures_table(names, titles, rows, min(width, LINE_WIDTH))


def figures_table(
    names: Sequence[Text],
    titles: Sequence[str],
    rows: Sequence[Sequence[Text]],
    width: int,
    first: str = "method",
) -> Table:
    """Return a table of names and their figures, with as many columns from the left as fit.

    Args:
        names: The cells of the first column.
        titles: The titles of the other columns.
        rows: Their cells, a row for each name.
        width: The columns of the terminal.
        first: The title of the first column.
    """
    table = _bare(first)
    used = max((len(name) for name in names), default=0)
    used = max(used, len(first))
    fits = 0
    for number, title in enumerate(titles):
        used += _GAP + max([len(title), *(len(row[number]) for row in rows)])
        fits = number + 1 if used <= width and fits == number else fits
    for title in titles[:fits]:
        table.add_column(title, justify="right", no_wrap=True)
    for name, row in zip(names, rows, strict=True):
        table.add_row(name, *row[:fits])
    return table


def _bare(first: str) -> Table:
    """Return a table without lines, with one column; its cells are cut at the right, if at all."""
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    return table


def _count(number: int) -> Text:
    return Text(f"{number:,}", "red" if number else "")


def _score(share: float | None) -> Text:
    return Text(_NOBODY) if share is None else Text(f"{share:.3f}", "green" if share == 1 else "")


def in_units(size: float) -> str:
    """Return a size with its unit: ``768 B``, ``1.0 kB``, ``14.6 MB``."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB"):
        size /= 1000
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} GB"


def _notes(summary: Mapping[str, Any], methods: Sequence[str], width: int) -> Iterator[Text]:
    """Yield what the mark means and whose figures need a second look; then why methods gave no
    verdict."""
    every = {name: summary["methods"][name] for name in methods}
    undirected = any(entry["native"] == "undirected" for entry in every.values())
    yield from second_look(
        UNDIRECTED if undirected else "",
        {
            "starved": [name for name, entry in every.items() if entry.get("starved")],
            "threshold": [name for name, entry in every.items() if _badly_cut(entry)],
            "unranked": [name for name, entry in every.items() if entry.get("unranked")],
            "unseen": [name for name, entry in every.items() if _unseen(entry)],
            "classes": [name for name, entry in every.items() if is_tied(entry)],
        },
        width,
    )
    origins = {name: entry.get("parameters_from", "default") for name, entry in every.items()}
    if set(origins.values()) - {"default"}:
        yield Text(plain(parameters_line(origins)))
    yield from (Text(plain(why), "yellow") for why in summary.get("missing", ()))


def second_look(mark: str, methods: Mapping[str, Sequence[str]], width: int) -> Iterator[Text]:
    """Yield one line on what a mark means and whose figures need a second look.

    What does not fit is left out: first how to learn more, then the names of methods from the
    right, with their number. Without room for that, the mark has a line of its own.

    Args:
        mark: What the mark means, "" if there is none.
        methods: The methods by the word that ``canary explain`` explains.
        width: The columns of a line.
    """
    found = {word: [plain(name) for name in names] for word, names in methods.items() if names}
    if not found:
        yield from [Text(mark, "dim")] if mark else []
        return
    before = f"{mark}; " if mark else ""
    whole = "; ".join(f"{word}: {', '.join(names)}" for word, names in found.items())
    hint = f" (canary explain {next(iter(found))})"
    room = width - len(before)
    if len(whole) > room:
        if mark and room < 40:
            yield Text(mark, "dim")
            before, room = "", width
        spent = sum(len(f"{word}: ; ") for word in found) - 2
        each = max(room - spent, 0) // len(found)
        whole = "; ".join(f"{word}: {_fitting(names, each)}" for word, names in found.items())
    look = whole + hint * (len(whole) + len(hint) <= room)
    yield Text.assemble((before, "dim"), (look, "yellow"))


def _badly_cut(entry: Mapping[str, Any]) -> bool:
    """Return whether a method's F1 is far below that at the best cut of its ranking."""
    own = entry[entry["native"]]
    f1, best = own["f1"], own.get("best_f1")
    return f1 is not None and best is not None and best > f1 + COSTS


def _unseen(entry: Mapping[str, Any]) -> bool:
    """Return whether a method's measurements did not observe a faulty link."""
    return bool(entry[entry["native"]].get("unobserved"))
