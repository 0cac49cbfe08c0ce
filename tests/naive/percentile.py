"""A percentile of some values, from the definition."""


def percentile(values, share):
    """Return what lies that share [%] of the way through the values in order, linear between two of them."""
    ordered = sorted(values)
    position = share / 100 * (len(ordered) - 1)
    below = [value for i, value in enumerate(ordered) if i <= position + 1e-9]
    above = [value for i, value in enumerate(ordered) if i >= position - 1e-9]
    weight = position - int(position + 1e-9)
    return max(below) * (1 - weight) + min(above) * weight
