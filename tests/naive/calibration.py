"""Robust least squares by its definition, in plain Python: what predictions cost, and the best by trying.

Triggs et al., "Bundle Adjustment: A Modern Synthesis" (2000), section 3.2; the soft L1 loss of a squared
residual z is 2 (sqrt(1 + z) - 1), residuals counted in units of 0.1.
"""

from math import log, sqrt


def cost(predicted, measured):
    """Return the cost of predictions: half the losses of log(predicted / measured)."""
    total = 0.0
    for p, t in zip(predicted, measured, strict=True):
        z = (log(p / t) / 0.1) ** 2
        total += 2.0 * (sqrt(1.0 + z) - 1.0)
    return 0.5 * 0.1**2 * total


def best(predict, measured, low, high):
    """Return the scalar from low to high whose predictions cost least, by trying ever finer ones."""
    for _ in range(6):
        tried = [low * (high / low) ** (i / 40) for i in range(41)]
        place = min(range(41), key=lambda i: cost(predict(tried[i]), measured))
        low, high = tried[max(place - 2, 0)], tried[min(place + 2, 40)]
    return tried[place]
