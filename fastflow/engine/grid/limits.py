"""Limits of the size of a grid, checked before it is expanded.

Points are decoded when they are wanted, and cost nothing until then. These limits are on what takes memory
and time before the first point is evaluated.
"""

from __future__ import annotations

from decimal import Decimal
from math import ceil

from hydra.core.override_parser.types import RangeSweep

from fastflow.core.errors import InputError

MAX_WHOLE = 20_000_000
"""Values of an axis that are whole numbers of a range: 8 bytes each."""
MAX_WRITTEN = 1_000_000
"""Values of any other axis: parsing one takes 1 to 2 us."""
MAX_COMPOSED = 100_000
"""Combinations of groups, and of leaves that other keys depend on: composing one takes 1 to 2 ms."""
MAX_POINTS = 10_000_000_000
"""Points of a grid: half a million parts of a dataset have a name each."""
MAX_COLLECTED = 10_000_000
"""Points of a DataFrame, which memory holds: about half a kilobyte each."""
MAX_SEARCHED = 100_000
"""Points of a search, which scores a history of designs for each."""


def values_of(sweep: RangeSweep) -> int:
    """Return how many values a range has, without making them; raises ValueError where it cannot have any."""
    start, stop, step = (Decimal(str(number)) for number in (sweep.start, sweep.stop, sweep.step))
    if not (start.is_finite() and stop.is_finite() and step.is_finite()):
        raise ValueError("a range from a number to a number")
    if step == 0:
        raise ValueError("a range whose step is not 0")
    return max(0, ceil((stop - start) / step))


def check(key: str, written: object, count: int, limit: int, unit: str, origin: str = "") -> None:
    """Refuse a count above a limit; raises InputError."""
    if count > limit:
        raise InputError(key, written, f"at most {limit:,} {unit}; these are {count:,}", origin)
