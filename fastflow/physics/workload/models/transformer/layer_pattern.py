"""`model.pattern`: the kinds of a transformer's layers in their order, such as "3*dense, 58*experts"."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import InputError
from fastflow.core.tables import Ints, Texts
from fastflow.physics.workload.family import Order
from fastflow.physics.workload.models.transformer.layer_kind import (
    ATTENTION,
    DENSE,
    EXPERTS,
    FEED_FORWARDS,
    MODIFIERS,
    MOST_LAYERS,
    NO_FEED_FORWARD,
    NO_MIXER,
    OWN_SIZES,
    PATTERN,
    TIED,
    LayerKind,
)
from fastflow.physics.workload.models.transformer.mixer import MIXERS

KEY, MAX_LAYERS = PATTERN, MOST_LAYERS
_MAX_SIZE, _MAX_COUNT = 10**9, 10**6
"""Of a size of a kind; of experts, and of linear-time mixers, whose sizes are multiplied with each other."""
_ENTRY = re.compile(
    r"\s*(?:(?P<times>[1-9]\d{0,4})\s*\*)?\s*(?P<words>[a-z_0-9]+(?:\s+[a-z_0-9]+)*)\s*(?:\((?P<sizes>[^()]*)\)\s*)?",
    re.ASCII,
)
_SIZE = re.compile(r"([a-z_]+)=(\d{1,10})", re.ASCII)


@lru_cache(maxsize=4096)
def parse(text: str) -> tuple[LayerKind, ...]:
    """Return the kind of each layer of a pattern, which repeats over the layers of a model.

    Raises InputError.
    """
    kinds: list[LayerKind] = []
    for part in text.split(","):
        entry = _ENTRY.fullmatch(part)
        if entry is None:
            raise InputError(KEY, text, _allowed())
        kinds += [_kind(text, entry["words"].split(), entry["sizes"] or "")] * int(entry["times"] or 1)
        if len(kinds) > MAX_LAYERS:
            raise InputError(KEY, text, f"a pattern of at most {MAX_LAYERS:,} layers")
    _check_tied(text, kinds)
    return tuple(kinds)


def _check_tied(text: str, kinds: list[LayerKind]) -> None:
    """Reject tied layers without an earlier layer that has their weights; raises InputError."""
    distinct = list(dict.fromkeys(kinds))
    for i, kind in enumerate(distinct):
        others = tuple(word for word in kind.modifiers if word != TIED)
        if kind.is_tied and kind._replace(modifiers=others) not in distinct[:i]:
            allowed = f"a layer of the same kind without {TIED} before those with it"
            raise InputError(KEY, text, allowed)


def _kind(text: str, words: list[str], sizes: str) -> LayerKind:
    """Return the kind of a layer that some words and sizes describe; raises InputError."""
    feed_forward = [word for word in words if word in FEED_FORWARDS]
    modifiers = tuple(word for word in MODIFIERS if word in words)
    others = {*FEED_FORWARDS, *MODIFIERS}  # which no package's entry point is read for
    mixers = tuple(word for word in words if word not in others and (word == NO_MIXER or word in MIXERS))
    known = len(feed_forward) + len(modifiers) + len(mixers) == len(words)
    if not known or len({*words}) < len(words) or len(feed_forward) > 1:
        raise InputError(KEY, text, _allowed())
    stated = [_own_size(text, part) for part in sizes.split()]
    sizes_by_name = dict(stated)
    if len(sizes_by_name) < len(stated):
        raise InputError(KEY, text, "each size of a kind once")
    if NO_MIXER in mixers:
        if len(mixers) > 1 or modifiers or feed_forward == [NO_FEED_FORWARD]:
            raise InputError(KEY, text, f"{NO_MIXER} with {DENSE} or experts alone")
        mixers = ()
    kind = LayerKind(
        mixers or (() if NO_MIXER in words else (ATTENTION,)),
        feed_forward[0] if feed_forward else DENSE,
        modifiers,
        tuple((name, sizes_by_name[name]) for name in OWN_SIZES if name in sizes_by_name),
    )
    if kind.of_keys and not any(MIXERS[name].attends for name in kind.mixers):
        raise InputError(KEY, text, f"{' and '.join(kind.of_keys)} in layers with attention")
    if kind.is_tied and kind.has_experts:
        raise InputError(KEY, text, f"{TIED} in layers without {EXPERTS}")
    return kind


def _allowed() -> str:
    """Return what a pattern may be."""
    words = ", ".join((*MIXERS, NO_MIXER, *MODIFIERS, *FEED_FORWARDS))
    return (
        'kinds of layers in their order, such as "3*dense, 58*experts" or "5*window dense(kv_heads=8), dense"'
        f"; words of a kind: {words}"
    )


def _most(name: str) -> int:
    """Return the largest size of a kind."""
    return _MAX_COUNT if name.startswith("linear_") or name == EXPERTS else _MAX_SIZE


def _own_size(text: str, part: str) -> tuple[str, int]:
    """Return the name and value of a size of a kind; raises InputError."""
    match = _SIZE.fullmatch(part)
    if match is None or match[1] not in OWN_SIZES or not 0 < int(match[2]) <= _most(match[1]):
        allowed = f"sizes of a kind as NAME=NUMBER, in parentheses, of {', '.join(OWN_SIZES)}"
        raise InputError(KEY, text, allowed)
    return match[1], int(match[2])


def pattern_text(layers: list[LayerKind]) -> str:
    """Return the shortest pattern text that expands to these kinds of layers."""
    runs: list[list[LayerKind]] = []
    for kind in layers[: _period(layers)]:
        if runs and runs[-1][0] == kind:
            runs[-1].append(kind)
        else:
            runs.append([kind])
    return ", ".join(run[0].text if len(run) == 1 else f"{len(run)}*{run[0].text}" for run in runs)


def _period(layers: list[LayerKind]) -> int:
    """Return the least number of layers that repeat, the last time perhaps in part.

    That is all but the longest beginning that is an end too (Knuth, Morris and Pratt, SIAM J. Comput. 6).
    """
    longest = [0] * len(layers)  # beginning of the layers so far that is their end
    for i in range(1, len(layers)):
        size = longest[i - 1]
        while size and layers[i] != layers[size]:
            size = longest[size - 1]
        longest[i] = size + (layers[i] == layers[size])
    return len(layers) - longest[-1]


@lru_cache(maxsize=4096)
def kinds_of(text: str) -> tuple[LayerKind, ...]:
    """Return the kinds of layers of a pattern, in the order of their first layers."""
    return tuple(dict.fromkeys(parse(text)))


@lru_cache(maxsize=4096)
def largest_own(text: str, name: str) -> int:
    """Return the largest own size of the kinds of a pattern; 0 where none has one."""
    return max(dict(kind.sizes).get(name, 0) for kind in kinds_of(text))


@lru_cache(maxsize=4096)
def keys_of_attention(text: str) -> frozenset[str]:
    """Return the keys of sizes that attention of heads in the layers of a pattern uses."""
    mixers = [MIXERS[name] for kind in kinds_of(text) for name in kind.mixers]
    return frozenset(key for mixer in mixers if mixer.attends for key in mixer.uses)


KV_HEADS = "kv_heads"
_OF_FEED_FORWARD = {
    DENSE: ("ffn",), EXPERTS: ("experts", "topk", "expert_ffn", "shared_ffn"), NO_FEED_FORWARD: (),
}  # fmt: skip
"""Sizes that feed-forward parts use; `ffn` is the default of `expert_ffn`, too."""


@lru_cache(maxsize=4096)
def unused_sizes(kind: LayerKind) -> tuple[str, ...]:
    """Return the own sizes of a kind that neither its mixers nor its feed-forward part use."""
    used = {*_OF_FEED_FORWARD[kind.feed_forward]}.union(*(MIXERS[name].sizes for name in kind.mixers))
    stated = [name for name, _ in kind.sizes]
    if kind.has_experts and "expert_ffn" not in stated:
        used.add("ffn")
    return tuple(name for name in stated if name not in used)


@lru_cache(maxsize=4096)
def unused_if_latent(kind: LayerKind) -> bool:
    """Say whether a kind has heads of keys of its own that none of its mixers uses where keys are latent."""
    users = [MIXERS[name] for name in kind.mixers if KV_HEADS in MIXERS[name].sizes]
    return KV_HEADS in dict(kind.sizes) and all(mixer.latent for mixer in users)


@lru_cache(maxsize=64)
def users_of(name: str) -> str:
    """Return the words of a pattern whose layers use a size."""
    words = [mixer for mixer in MIXERS.built_in if name in MIXERS[mixer].sizes]
    words += [word for word, sizes in _OF_FEED_FORWARD.items() if name in sizes]
    return ", ".join(words) + (f", or {EXPERTS} without expert_ffn" if name == "ffn" else "")


def fewest_layers(text: str) -> int:
    """Return the minimum number of layers that includes every kind of a pattern."""
    pattern = parse(text)
    return 1 + max(pattern.index(kind) for kind in kinds_of(text))


def times(text: str, layers: Ints | int) -> dict[LayerKind, Ints | int]:
    """Return how many layers of each kind models of a pattern have.

    layers: of each model, a number or a column; the counts have the same type.
    """
    pattern = parse(text)
    counts: dict[LayerKind, Ints | int] = {}
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
