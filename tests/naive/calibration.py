"""Robust least squares by its definition, in plain Python: what predictions cost, and the best by trying.

Triggs et al., "Bundle Adjustment: A Modern Synthesis" (2000), section 3.2; the soft L1 loss of a squared
residual z is 2 (sqrt(1 + z) - 1), residuals counted in units of 0.1.
"""

from math import exp, log, sqrt


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


def standard_error(predict, measured, value):
    """Return the relative standard error of the best scalar, and the variance of the rows, by definition.

    By the Jacobian of log times by the scalar's logarithm, and by the spread of the residuals; the loss gives
    every row the curvature that it has there (section 4.3 there; Gauss-Newton's, of a soft L1).
    """
    before, here, after = (predict(value * factor) for factor in (exp(-0.01), 1.0, exp(0.01)))
    curvature = 0.0
    for left, p, right, t in zip(before, here, after, measured, strict=True):
        z = (log(p / t) / 0.1) ** 2
        weight = 1.0 / sqrt(1.0 + z) - z / (1.0 + z) ** 1.5  # second derivative of the loss by the residual
        curvature += weight * (log(right / left) / 0.02) ** 2
    variance = 2.0 * cost(here, measured) / (len(measured) - 1)
    return sqrt(variance / curvature), variance


def is_determined(predict, measured, low, high, own):
    """Say whether rows determine a scalar, or None where that hangs by a hair.

    They do not where its relative standard error is above 20% and its own figure explains them as well,
    within two standard errors.
    """
    value = best(predict, measured, low, high)
    error, variance = standard_error(predict, measured, value)
    apart = 2.0 * (cost(predict(own), measured) - cost(predict(value), measured)) / variance
    if abs(error / 0.2 - 1.0) < 0.03 or abs(apart / 2.0**2 - 1.0) < 0.03:
        return None
    return error <= 0.2 or apart > 2.0**2
