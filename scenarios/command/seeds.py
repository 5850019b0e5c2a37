"""Reads and writes lists of seeds in the form ``1-50`` or ``1,2,10-12``."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.errors import UserError

MOST_SEEDS = 100_000


def parse_seeds(text: str) -> list[int]:
    """Return the seeds in a text such as ``1-50`` or ``1,2,10-12``, ascending and without
    repetition.

    Raises:
        ValueError: The text has another form (one line).
    """
    seeds: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or part.strip().endswith("-"):
            raise UserError(f"--seeds {text!r}: {part.strip()!r} is no seed: use 1-50 or 1,2,7")
        if max(len(first), len(last)) > 10 or max(int(first), int(last or 0)) >= 2**32:
            raise UserError(f"--seeds {text!r}: seeds are 0 to {2**32 - 1:,}")
        low, high = int(first), int(last or first)
        if high < low:
            raise UserError(f"--seeds {text!r}: {part.strip()!r} runs backwards: use {high}-{low}")
        if len(seeds) + high - low >= MOST_SEEDS:
            raise UserError(
                f"--seeds {text!r}: that is more than {MOST_SEEDS:,} seeds: compare fewer at a time"
            )
        seeds.update(range(low, high + 1))
    return sorted(seeds)


def in_ranges(seeds: Sequence[int]) -> str:
    """Return ascending seeds as the text that `parse_seeds` reads: ``1-3,7``."""
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][1] + 1:
            runs[-1][1] = seed
        else:
            runs.append([seed, seed])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
