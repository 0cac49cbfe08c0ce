"""Experts that tokens draw pass by pass, and a device that keeps some of them."""

from tests.naive.experts import popularities


def chances(tokens, topk, experts, exponent):
    """Return the chance that a token chooses each expert, the most popular first."""
    weights = [1.0] * experts if exponent == 0 else popularities(tokens, topk, experts, exponent)
    sure = []
    while True:
        rest = [weights[e] for e in range(experts) if e not in sure]
        scale = (topk - len(sure)) / sum(rest) if rest else 0.0
        above = [e for e in range(experts) if e not in sure and weights[e] * scale > 1.0]
        if not above:
            return [1.0 if e in sure else weights[e] * scale for e in range(experts)]
        sure.append(above[0])


def draw(chance, rng):
    """Return different experts, as many as chances sum to, each with its chance (systematic sampling)."""
    order = list(range(len(chance)))
    rng.shuffle(order)
    mark, passed, chosen = rng.random(), 0.0, []
    for expert in order:
        passed += chance[expert]
        while mark < passed - 1e-12:
            if not chosen or chosen[-1] != expert:
                chosen.append(expert)
            mark += 1.0
    return chosen


def passes(tokens, topk, experts, exponent, resident, policy, count, rng):
    """Return the mean experts that a pass chooses, and those it has to get, over count passes.

    Those that a device has come first in a pass.
    """
    chance = chances(tokens, topk, experts, exponent)
    kept = list(range(resident))  # lru: the one used last comes last
    distinct = missed = 0
    warm = count // 4
    for number in range(count + warm):
        chosen = {expert for _ in range(tokens) for expert in draw(chance, rng)}
        hits = [expert for expert in kept if expert in chosen]
        misses = [expert for expert in chosen if expert not in kept]
        rng.shuffle(misses)
        if policy == "lru":
            order = [expert for expert in kept if expert not in chosen] + hits
            for expert in misses:
                order.append(expert)
                if len(order) > resident:
                    order.pop(0)
            kept = order
        if number >= warm:
            distinct += len(chosen)
            missed += len(misses)
    return distinct / count, missed / count
