"""Section 7, Equation 6, one share at a time; designs are lists, `budgets` lists of places in them."""

from tests.naive.simplex import project


def difference(share, width):
    """Return how much larger a share is taken for its finite difference: `width` of it, at least 0.01."""
    return max(width * share, 0.01)


def larger(design, budgets, place, by):
    """Return the design with one share larger, its budget scaled back to 1 where it is overdrawn."""
    design = list(design)
    design[place] += by
    for budget in budgets:
        total = sum(design[i] for i in budget)
        if total > 1.0:
            for i in budget:
                design[i] /= total
    return design


def step(design, average, widths, budgets, score, rate, memory, clip):
    """Return W_t, M_t and the widths of the next differences, from those of t - 1."""
    here = score(design)
    moved, next_widths = [], []
    for place, share in enumerate(design):
        by = difference(share, widths[place])
        change = score(larger(design, budgets, place, by)) - here
        gradient = change / by
        moved.append(share - min(max(rate * gradient, -clip), clip))
        next_widths.append(min(2.0 * widths[place], 1.6) if change == 0.0 else 0.1)
    found, averages = [0.0] * len(design), [0.0] * len(design)
    for budget in budgets:
        norm = sum(abs(moved[i]) for i in budget)
        for i in budget:
            averages[i] = memory * average[i] + (1.0 - memory) * moved[i] / norm
        for i, share in zip(budget, project([averages[i] for i in budget]), strict=True):
            found[i] = float(share)
    return found, averages, next_widths
