"""Errors of predictions, one number after the other."""

from math import floor, log, sqrt


def quantile(values, share):
    """The value that a share of the values does not exceed, between two of them in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = min(floor(place), len(ordered) - 2) if len(ordered) > 1 else 0
    if len(ordered) == 1:
        return ordered[0]
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])


def correlation(first, second):
    """Pearson's."""
    mean = sum(first) / len(first), sum(second) / len(second)
    together = sum((a - mean[0]) * (b - mean[1]) for a, b in zip(first, second, strict=True))
    alone = [sum((a - m) ** 2 for a in values) for values, m in zip((first, second), mean, strict=True)]
    return together / sqrt(alone[0] * alone[1])


def figures(measured, predicted):
    """Mean, median and 90th percentile of the error, bias, and correlation of logs."""
    pairs = list(zip(measured, predicted, strict=True))
    errors = [abs(p - t) / t for t, p in pairs]
    return (
        sum(errors) / len(errors),
        quantile(errors, 0.5),
        quantile(errors, 0.9),
        quantile([p / t for t, p in pairs], 0.5),
        correlation([log(t) for t, _ in pairs], [log(p) for _, p in pairs]),
    )
