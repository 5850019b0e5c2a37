"""Loss rates of healthy links: ``NOISE=0.0001`` on all, ``NOISE=0..0.0001`` drawn for each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from testbed.faults.plan import FaultError


def noise_range(text: str) -> tuple[float, float]:
    """Return the lowest and the highest loss rate that NOISE describes; equal for a single rate.

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
    """Return the loss rate of each directed link while it is healthy, float64[n_links].

    A single rate applies to every link. From a range, the rate of each link is drawn uniformly
    (Flock, section 6.3). Equal seeds give equal rates, with packets and without.

    Raises:
        FaultError: See `noise_range`.
    """
    low, high = noise_range(text)
    if low == high:
        return np.full(n_links, low)
    return np.random.default_rng([seed, 0x2015E]).uniform(low, high, n_links)
