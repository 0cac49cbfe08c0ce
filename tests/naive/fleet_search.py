"""A search over fleets that simulates every configuration, from definitions. Rows are dictionaries."""

COMPARE = {
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
}


def meets(row, constraints):
    """Say whether a row is feasible and within all limits; constraints: column, sense, limit."""
    if not row["feasible"]:
        return False
    for name, sense, limit in constraints:
        if row[name] is None or row[name] != row[name] or not COMPARE[sense](row[name], limit):
            return False
    return True


def best(rows, objective, constraints, sign=1):
    """Return the index of the row with the lowest objective, the first of equal ones; None for none."""
    found = None
    for index, row in enumerate(rows):
        if not meets(row, constraints):
            continue
        if found is None or sign * row[objective] < sign * rows[found][objective]:
            found = index
    return found


def front(rows, first, second, constraints):
    """Return the indices of rows that no other is as good as in both and better in one, less is better.

    In the order of the first objective; of equal rows the first.
    """
    kept = []
    for index, row in enumerate(rows):
        if not meets(row, constraints):
            continue
        beaten = False
        for other_index, other in enumerate(rows):
            if not meets(other, constraints):
                continue
            no_worse = other[first] <= row[first] and other[second] <= row[second]
            better = other[first] < row[first] or other[second] < row[second]
            equal_before = no_worse and not better and other_index < index
            beaten = beaten or (no_worse and better) or equal_before
        if not beaten:
            kept.append(index)
    return sorted(kept, key=lambda index: rows[index][first])


def fixed(tables, objective, weights, constraints):
    """Return the index with the lowest weighted sum over tables that meets the constraints in each; None.

    tables: a list of rows for each period; weights: a number for each.
    """
    found, least = None, None
    for index in range(len(tables[0])):
        if not all(meets(rows[index], constraints) for rows in tables):
            continue
        total = sum(weight * rows[index][objective] for rows, weight in zip(tables, weights, strict=True))
        if found is None or total < least:
            found, least = index, total
    return found


def periods(arrivals, length):
    """Return the indices of requests in each period from the first arrival on; arrivals: rising [s]."""
    count = int(arrivals[-1] // length) + 1
    return [
        [index for index, at in enumerate(arrivals) if number * length <= at < (number + 1) * length]
        for number in range(count)
    ]
