"""What healthy links lose: ``NOISE=0.0001`` on every link, ``NOISE=0..0.0001`` drawn for each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.faults.plan import FaultError


def noise_range(text: str) -> tuple[float, float]:
    """The lowest and the highest loss rate that NOISE means; equal for one exact rate.

    Raises:
        FaultError: It is neither a rate nor a range of rates. One line.
    """
    low, dots, high = text.partition("..")
    try:
        rates = float(low), float(high if dots else low)
    except ValueError:
        raise FaultError(
            f"NOISE={text} is no loss rate: use 0.0001, or 0..0.0001 for one drawn for each link"
        ) from None
    if not 0 <= rates[0] <= rates[1] <= 1:
        raise FaultError(f"NOISE={text} is out of range: use 0 to 1, the lower one first")
    return rates


def noise_rates(text: str, n_links: int, seed: int) -> npt.NDArray[np.float64]:
    """The loss rate of each directed link while it is healthy, float64[n_links].

    One rate is that of every link. A range is drawn from uniformly, a rate for each link (Flock,
    section 6.3). Equal seeds draw equal rates, on packets and without.

    Raises:
        FaultError: See `noise_range`.
    """
    low, high = noise_range(text)
    if low == high:
        return np.full(n_links, low)
    return np.random.default_rng([seed, 0x2015E]).uniform(low, high, n_links)
