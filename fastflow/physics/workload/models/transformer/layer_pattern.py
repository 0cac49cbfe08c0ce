"""`model.pattern`: the kinds of a transformer's layers in their order, such as "3*dense, 58*experts"."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import InputError
from fastflow.core.tables import Ints, Texts
from fastflow.physics.workload.family import Order

KEY = "model.pattern"
DENSE, EXPERTS, WINDOW = "dense", "experts", "window"
KINDS = (DENSE, EXPERTS, f"{WINDOW} {DENSE}", f"{WINDOW} {EXPERTS}")
"""Kinds of layers."""
MAX_LAYERS = 10_000
_ALLOWED = (
    "kinds of layers in their order, dense or experts, each perhaps with window, perhaps several times, such"
    ' as "dense", "3*dense, 58*experts" or "window experts, experts"'
)
_ENTRY = re.compile(r"\s*(?:(?P<times>[1-9]\d{0,4})\s*\*)?\s*(?P<words>[a-z]+(?:\s+[a-z]+)?)\s*", re.ASCII)
_KINDS = {frozenset(kind.split()): kind for kind in KINDS} | {frozenset((WINDOW,)): f"{WINDOW} {DENSE}"}


@lru_cache(maxsize=4096)
def parse(text: str) -> tuple[str, ...]:
    """Return the kind of each layer of a pattern, which repeats over the layers of a model.

    Raises InputError.
    """
    kinds: list[str] = []
    for part in text.split(","):
        entry = _ENTRY.fullmatch(part)
        words = entry["words"].split() if entry else []
        kind = _KINDS.get(frozenset(words), "")
        if entry is None or not kind or len({*words}) < len(words):
            raise InputError(KEY, text, _ALLOWED)
        kinds += [kind] * int(entry["times"] or 1)
        if len(kinds) > MAX_LAYERS:
            raise InputError(KEY, text, f"a pattern of at most {MAX_LAYERS:,} layers")
    return tuple(kinds)


def pattern_text(layers: list[str]) -> str:
    """Return the shortest pattern text that expands to these kinds of layers."""
    period = next(
        size for size in range(1, len(layers) + 1) if layers == (layers[:size] * len(layers))[: len(layers)]
    )
    runs: list[list[str]] = []
    for kind in layers[:period]:
        if runs and runs[-1][0] == kind:
            runs[-1].append(kind)
        else:
            runs.append([kind])
    return ", ".join(run[0] if len(run) == 1 else f"{len(run)}*{run[0]}" for run in runs)


def kinds_of(text: str) -> tuple[str, ...]:
    """Return the kinds of layers of a pattern, in the order of their first layers."""
    return tuple(dict.fromkeys(parse(text)))


def fewest_layers(text: str) -> int:
    """Return the minimum number of layers that includes every kind of a pattern."""
    pattern = parse(text)
    return 1 + max(pattern.index(kind) for kind in kinds_of(text))


def times(text: str, layers: Ints | int) -> dict[str, Ints | int]:
    """Return how many layers of each kind models of a pattern have.

    layers: of each model, a number or a column; the counts have the same type.
    """
    pattern = parse(text)
    counts: dict[str, Ints | int] = {}
    for kind in kinds_of(text):
        cumulative = np.cumsum([0, *(layer == kind for layer in pattern)])
        rounds, rest = layers // len(pattern), cumulative[layers % len(pattern)]
        count = rounds * cumulative[-1] + rest
        counts[kind] = int(count) if isinstance(layers, int) else count
    return counts


def order(patterns: Texts, layers: Ints, further: Ints) -> Order:
    """Return the described layer of every layer of each model, from its embedding to its head.

    patterns, layers, further (number of MTP modules): (points,). The described layers are the embedding, the
    kinds of the pattern, an MTP module and its head if there are any, and the head.
    """
    first, inverse = unique_rows([patterns, layers, further], layers.size)
    orders = []
    for i in first.tolist():
        pattern, names = parse(str(patterns[i])), kinds_of(str(patterns[i]))
        hidden = np.resize([1 + names.index(kind) for kind in pattern], int(layers[i]))
        module = 1 + len(names)
        modules = np.tile([module, module + 1], int(further[i]))
        head = module + (2 if further[i] else 0)
        orders.append(np.concatenate([[0], hidden, modules, [head]]).astype(np.int64))
    offset = np.concatenate([[0], np.cumsum([orders[i].size for i in inverse.tolist()])])
    layer = np.concatenate([orders[i] for i in inverse.tolist()]) if inverse.size else np.zeros(0, np.int64)
    return Order(offset.astype(np.int64), layer)
