"""Layouts of DeepGEMM's tiles, compared in pairs, and a collector's cases one after the other."""

from math import ceil

SMS, DEVICES = 148, 8


def better(one, other):
    """Return whether a layout is better than another: both (waves, last, pairs, rows, columns, swapped)."""
    if (one[0] == 1) != (other[0] == 1):
        return one[0] == 1
    if one[2] != other[2]:
        return one[2]
    if one[0] != other[0]:
        return one[0] < other[0]
    if one[1] != other[1]:
        return one[1] > other[1]
    if one[3] + one[4] != other[3] + other[4]:
        return one[3] + one[4] < other[3] + other[4]
    return one[3] * one[4] < other[3] * other[4]


def layout(m, n):
    """Return the best layout of C of m x n."""
    best = None
    for swapped in (False, True):
        rows_of_tiles = range(16, 257, 16) if swapped else [32 if m <= 32 else 64 if m <= 64 else 128]
        columns_of_tiles = [128] if swapped else [16, 32, 64, 96, 128, 160, 192, 224, 256]
        for rows in rows_of_tiles:
            for columns in columns_of_tiles:
                down, across = ceil(m / rows), ceil(n / columns)
                waves = ceil(down * across / SMS)
                last = (down * across) % SMS or SMS
                pairs = (across if swapped else down) % 2 == 0
                each = (waves, last, pairs, rows, columns, swapped)
                if best is None or better(each, best):
                    best = each
    return best[2:]


def found(cases, n):
    """Return which of a weight's cases find a kernel, by their rows: needed at least eight cases before."""
    needed, result = {}, {}
    for number, m in enumerate(cases):
        first = needed.setdefault(layout(m, n), number)
        result[m] = number >= first + DEVICES
    return result
