"""A claim of the paper: its text, the computed values, and the outcome.

The words "counts", "marginal", "much", "large" and "significant" mean the same in every study; the
thresholds were fixed before any study was run (docs/paper.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

COUNTS = 0.10
"""The smallest gain that counts; a smaller gain is marginal."""
MUCH = 2.0
"""The smallest ratio that is "much" or "large"."""
SIGNIFICANT = 0.25
"""The smallest share that is significant."""


class Claim(NamedTuple):
    """A judged claim."""

    text: str
    figure: str
    """The computed values, in words."""
    holds: bool

    @property
    def line(self) -> str:
        """The claim on a line that ends in yes or no."""
        return f"{self.text}: {self.figure}; {'yes' if self.holds else 'no'}"


def judge(text: str, missing: Sequence[str], decide: Callable[[], tuple[str, bool]]) -> Claim:
    """Judge a claim by `decide`, which returns the figure and whether it holds; `no` if points are missing.

    missing: names of the points that the claim needs and the grid lacks, or that have no time.
    """
    if missing:
        others = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        return Claim(text, f"not judged, no time for {missing[0]}{others}", False)
    return Claim(text, *decide())


def gain(before: float, after: float) -> float:
    """Return the gain of a shorter time: 0.1 if 1.1 times as fast."""
    return before / after - 1.0
