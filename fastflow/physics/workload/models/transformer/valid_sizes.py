"""Checks of a transformer's dimensions: sizes that contradict each other or the pattern, or are too large."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import factorize
from fastflow.core.tables import Bools, Inputs, Ints
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    OF_ATTENTION,
    PARALLEL,
    PARALLEL_NORMS,
)
from fastflow.physics.workload.models.transformer.layer_kind import (
    EXPERTS,
    OWN_SIZES,
    SHARED_KV,
    TIED,
    LayerKind,
)
from fastflow.physics.workload.models.transformer.layer_pattern import (
    KEY,
    KV_HEADS,
    fewest_layers,
    kinds_of,
    largest_own,
    unused_if_latent,
    unused_sizes,
    users_of,
)
from fastflow.physics.workload.models.transformer.mixer import MIXERS
from fastflow.physics.workload.ops.attention import MAX_QUERIES

MAX_ELEMENTS = 4e18  # of a tensor, as of a network from a file
_MAX_WIDE = 1e12
_MOST_PAIRS = 256.0  # of a token with those of its chunk, in a linear-time mixer

InvalidSizes = tuple[Bools, str, str, str]


class Patterns(NamedTuple):
    """The different patterns of points, and the one of each point, (points,)."""

    texts: list[str]
    kinds: list[tuple[LayerKind, ...]]  # of each
    inverse: Ints

    def each(self, value: Callable[[tuple[LayerKind, ...]], Any]) -> NDArray[Any]:
        """Return a value of the kinds of every point's pattern, (points,)."""
        return np.array([value(kinds) for kinds in self.kinds])[self.inverse]

    def largest(self, name: str) -> Ints:
        """Return the largest own size of the kinds of every point's pattern, 0 for none."""
        sizes: Ints = np.array([largest_own(text, name) for text in self.texts])[self.inverse]
        return sizes


def patterns_of(inputs: Inputs) -> Patterns:
    """Return the patterns of points."""
    names, inverse = factorize(inputs[KEY])
    return Patterns(names, [kinds_of(name) for name in names], inverse)


def invalid_sizes(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with invalid sizes, as `Family.invalid_sizes`."""
    yield from invalid_heads(inputs)
    most = inputs["model.positions"]
    wrong = (most > 0) & (inputs["model.sequence"] > most)
    yield wrong, "model.sequence", "model.positions", "at most the {} tokens of model.positions"
    wrong = inputs["model.loss_chunks"] > inputs["model.sequence"]
    yield wrong, "model.loss_chunks", "model.sequence", "at most the {} tokens of model.sequence"
    yield from _invalid_layers(inputs)


def invalid_pass_sizes(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield invalid passes; their tokens are of many sequences: positions limit requests, not passes."""
    yield from invalid_heads(inputs)
    yield from _invalid_layers(inputs)


def invalid_heads(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with invalid heads."""
    size = {name: inputs[f"model.{name}"] for name in ("heads", "kv_heads", "hidden", "head_dim")}
    derived = size["head_dim"] == 0
    uneven = derived & (size["hidden"] % size["heads"] > 0)
    yield uneven, "model.heads", "model.hidden", "a divisor of model.hidden, {}, or model.head_dim beside it"
    wrong = size["heads"] % np.where(size["kv_heads"] > 0, size["kv_heads"], 1) > 0
    yield wrong, "model.kv_heads", "model.heads", "a divisor of model.heads, {}"


def _invalid_layers(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points whose layers lack sizes, have those of others, or are too large."""
    patterns = patterns_of(inputs)
    yield from _invalid_patterns(inputs, patterns)
    yield from _too_large(inputs, patterns)


def _invalid_patterns(inputs: Inputs, patterns: Patterns) -> Iterator[InvalidSizes]:
    """Yield points whose sizes do not match the kinds of their layers."""
    for number, text in enumerate(patterns.texts):
        least = fewest_layers(text)
        wrong = (patterns.inverse == number) & (inputs["model.layers"] < least)
        yield wrong, "model.layers", "model.layers", f"at least {least}, so that each kind of {KEY} has one"
    has_experts = patterns.each(lambda kinds: any(kind.has_experts for kind in kinds))
    for key in ("model.experts", "model.topk"):
        # a kind may have sizes of its own
        stated = patterns.each(partial(_all_have, key))
        wrong = has_experts & (inputs[key] < 1) & ~stated
        yield wrong, key, key, f"at least 1, since {KEY} has layers with experts"
        wrong = ~has_experts & (inputs[key] > 0)
        yield wrong, key, key, f"0, unless {KEY} says which layers have experts"
    yield from _invalid_mixers(inputs, patterns)
    wrong = has_experts & (inputs["model.experts"] > 0) & (inputs["model.topk"] > inputs["model.experts"])
    yield wrong, "model.topk", "model.experts", "at most the {} of model.experts"
    yield from _invalid_expert_groups(inputs, patterns, has_experts)
    yield from _invalid_kinds(inputs, patterns)
    yield from _invalid_residuals(inputs)


def _invalid_expert_groups(inputs: Inputs, patterns: Patterns, has_experts: Bools) -> Iterator[InvalidSizes]:
    """Yield points with invalid expert groups; has_experts: (points,)."""
    groups, topk_groups = inputs["model.expert_groups"], inputs["model.topk_groups"]
    for key in ("model.expert_groups", "model.topk_groups"):
        yield ~has_experts & (inputs[key] > 0), key, key, f"0, unless {KEY} says which layers have experts"
    mixtures = [
        ((patterns.inverse == number) & (groups > 0), *mixture)
        for number, kinds in enumerate(patterns.kinds)
        for mixture in dict.fromkeys(_experts_of(kind) for kind in kinds if kind.has_experts)
    ]
    for has, experts, _ in mixtures:
        wrong = has & ((experts or inputs["model.experts"]) % np.maximum(groups, 1) > 0)
        other, size = (KEY, f"{experts} in a kind of {KEY}") if experts else ("model.experts", "{}")
        yield wrong, "model.expert_groups", other, f"a divisor of model.experts, {size}, or 0 for no groups"
    wrong = has_experts & ((topk_groups > groups) | ((topk_groups == 0) & (groups > 0)))
    allowed = "from 1 to model.expert_groups, {}; or 0, where that is 0"
    yield wrong, "model.topk_groups", "model.expert_groups", allowed
    for has, experts, topk in mixtures:
        each = (experts or inputs["model.experts"]) // np.maximum(groups, 1)
        wrong = has & (topk_groups * each < (topk or inputs["model.topk"]))
        other, size = (KEY, f"{topk} in a kind of {KEY}") if topk else ("model.topk", "{}")
        allowed = f"so many that their experts are at least model.topk, {size}"
        yield wrong, "model.topk_groups", other, allowed


def _experts_of(kind: LayerKind) -> tuple[int, int]:
    """Return the experts of a kind, and those that a token chooses; 0: the model's."""
    stated = dict(kind.sizes)
    return stated.get("experts", 0), stated.get("topk", 0)


def _too_large(inputs: Inputs, patterns: Patterns) -> Iterator[InvalidSizes]:
    """Yield points with too many tokens, or with tensors too large for 64-bit integers."""
    size = {name: 1.0 * inputs[f"model.{name}"] for name in (
        "batch", "sequence", "layers", "hidden", "heads", "head_dim", "value_dim", "rotary", "ffn",
        "expert_ffn", "topk", "shared_ffn", "vocabulary", "linear_heads", "linear_key_dim",
        "linear_value_dim", "linear_rank", "latent", "query_latent", "index_heads", "index_dim",
        "output_latent", "output_groups", "expert_latent", "streams", "layer_embedding",
        "adapter_rank",
    )}  # fmt: skip
    if any(kind.sizes for kinds in patterns.kinds for kind in kinds):
        for name in size.keys() & set(OWN_SIZES):
            size[name] = np.maximum(size[name], patterns.largest(name))
    wrong = size["sequence"] > MAX_QUERIES
    yield wrong, "model.sequence", "model.sequence", f"at most {MAX_QUERIES:g} tokens"
    wide = size["head_dim"] + size["value_dim"] + size["rotary"] + size["hidden"] / size["heads"]
    wrong = size["heads"] * wide > _MAX_WIDE
    yield (
        wrong,
        "model.heads",
        "model.heads",
        f"so small that all heads have at most {_MAX_WIDE:.0e} columns",
    )
    columns = 64.0 * (size["ffn"] + size["expert_ffn"] + 4.0 * size["hidden"]) + size["shared_ffn"]
    columns = columns + 4.0 * size["heads"] * wide + size["vocabulary"]
    columns = columns * np.maximum(size["topk"], 1.0) + 8.0 * (size["linear_rank"] + size["adapter_rank"])
    of_state = size["linear_key_dim"] + size["linear_value_dim"] + _MOST_PAIRS
    columns = columns + 8.0 * size["linear_heads"] * of_state
    columns = columns + 4.0 * (size["latent"] + size["query_latent"] + size["expert_latent"])
    columns = (
        columns + size["index_heads"] * size["index_dim"] + size["output_latent"] * size["output_groups"]
    )
    columns = columns + size["layers"] * size["layer_embedding"] + 4.0 * size["streams"] * size["hidden"]
    columns = columns + np.where(inputs["model.fused_attention"], 0.0, size["heads"] * size["sequence"])
    wrong = size["batch"] * size["sequence"] * columns > MAX_ELEMENTS
    allowed = f"so small that no tensor has more than {MAX_ELEMENTS:.0e} elements"
    yield wrong, "model.batch", "model.batch", allowed


def _invalid_kinds(inputs: Inputs, patterns: Patterns) -> Iterator[InvalidSizes]:
    """Yield points with a kind of layer whose own sizes contradict each other, or the model's."""
    for number, kinds in enumerate(patterns.kinds):
        has = patterns.inverse == number
        for kind in kinds:
            if kind.of_keys:
                allowed = f"no {' or '.join(kind.of_keys)} where keys are latent (model.latent)"
                yield has & (inputs["model.latent"] > 0), KEY, KEY, allowed
            if SHARED_KV in kind.modifiers:
                allowed = f"no {SHARED_KV} where queries are latent (model.query_latent)"
                yield has & (inputs["model.query_latent"] > 0), KEY, KEY, allowed
            stated = dict(kind.sizes)
            for name in unused_sizes(kind):
                allowed = f"no {name} in {kind.text}, since only layers with {users_of(name)} use it"
                yield has, KEY, KEY, allowed
            if unused_if_latent(kind):
                allowed = f"no {KV_HEADS} in {kind.text}, where keys are latent (model.latent)"
                yield has & (inputs["model.latent"] > 0), KEY, KEY, allowed
            if kind.has_experts and "ffn" in stated:
                allowed = f"no ffn in {kind.text}, whose experts have the columns of model.expert_ffn"
                yield has & (inputs["model.expert_ffn"] > 0), KEY, KEY, allowed
            for whole, part, relation in _PAIRS:
                if not stated.keys() & {whole, part} or (whole == EXPERTS and not kind.has_experts):
                    continue
                size, of_part = (
                    np.asarray(stated.get(name, inputs[f"model.{name}"])) for name in (whole, part)
                )
                wrong = of_part > size if whole == EXPERTS else size % np.maximum(of_part, 1) > 0
                yield has & wrong, KEY, KEY, f"{relation}, in {kind.text}"


_PAIRS = (
    ("heads", "kv_heads", "heads that their kv_heads divide"),
    (EXPERTS, "topk", "a topk of at most its experts"),
    ("linear_heads", "linear_key_heads", "linear_heads that their linear_key_heads divide"),
)
"""Sizes of a kind that depend on each other; of heads 0 stands for as many as the first."""
_OF_MIXERS = (
    "model.density", "model.query_latent", "model.index_heads", "model.index_dim", "model.index_block",
    "model.output_latent", "model.output_groups", "model.window", "model.index_topk", "model.compression",
    "model.linear_heads", "model.linear_key_heads", "model.linear_key_dim", "model.linear_value_dim",
    "model.linear_rank", "model.conv_width", "model.adapter_rank",
)  # fmt: skip
"""Sizes that only some mixers use."""


def _invalid_residuals(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points whose residual has streams or embeddings of layers that their blocks do not have."""
    parallel = np.isin(inputs["model.block"], (PARALLEL, PARALLEL_NORMS))
    for key in ("model.streams", "model.layer_embedding"):
        wrong = parallel & (inputs[key] > 1)
        yield wrong, key, key, f"0 with model.block={PARALLEL} or {PARALLEL_NORMS}"
    several = inputs["model.streams"] > 1
    wrong = several & (inputs["model.layer_embedding"] > 0)
    yield wrong, "model.layer_embedding", "model.streams", "0 with model.streams={}"
    biased = np.isin(inputs["model.biases"], (OF_ATTENTION, ALL))
    yield several & inputs["model.dropout"], "model.streams", "model.streams", "0 with model.dropout=true"
    yield several & biased, "model.streams", "model.streams", "0 where projections have biases (model.biases)"
    groups = inputs["model.output_groups"]
    wrong = (groups > 0) & (inputs["model.heads"] % np.maximum(groups, 1) > 0)
    yield wrong, "model.output_groups", "model.heads", "a divisor of model.heads, {}"


def _invalid_mixers(inputs: Inputs, patterns: Patterns) -> Iterator[InvalidSizes]:
    """Yield points without the sizes that their mixers need, or with those of mixers that they lack."""
    for key, feature in sorted(set().union(*(_sizes_of_mixers(kinds).needed for kinds in patterns.kinds))):
        has = patterns.each(partial(_need, key, feature))
        wrong = has & (inputs[key] < 1)
        yield wrong, key, key, f"at least 1, since {KEY} has layers with {feature}"
    for key in _OF_MIXERS:
        if not inputs[key].any():
            continue
        uses = patterns.each(partial(_use, key))
        words = [name for name in MIXERS.built_in if key in MIXERS[name].uses] if (~uses).any() else []
        allowed = f"0, unless {KEY} has layers with {' or '.join(words)}"
        yield ~uses & (inputs[key] > 0), key, key, allowed
    topk = np.maximum(inputs["model.index_topk"], patterns.largest("index_topk"))
    selects = patterns.each(partial(_use, "model.index_heads"))
    wrong = selects & (topk > 0) & (inputs["model.index_heads"] < 1)
    yield wrong, "model.index_heads", "model.index_heads", "at least 1, since an indexer selects keys"
    heads, key_heads = inputs["model.linear_heads"], inputs["model.linear_key_heads"]
    wrong = (key_heads > 0) & (heads % np.maximum(key_heads, 1) > 0)
    yield wrong, "model.linear_key_heads", "model.linear_heads", "a divisor of model.linear_heads, {}"
    wrong = (inputs["model.latent"] == 0) & (inputs["model.rotary"] > inputs["model.head_dim"])
    wrong &= inputs["model.head_dim"] > 0
    yield wrong, "model.rotary", "model.head_dim", "at most model.head_dim, {}, where keys are not latent"


def divided_of_layers(inputs: Inputs) -> Iterator[tuple[str, str, Ints]]:
    """Yield sizes of layers that degrees must divide, as `Family.divided_of_layers`."""
    patterns = patterns_of(inputs)
    for axis, name, uses in _DIVIDED:
        of_kinds = [
            {dict(kind.sizes).get(name, 0) for kind in kinds if uses(kind)} for kinds in patterns.kinds
        ]
        key = f"model.{name}"
        yield axis, key, np.where(patterns.each(partial(_need_models, name, uses)), inputs[key], 0)
        for size in sorted(set().union(*of_kinds) - {0}):
            has = np.array([size in sizes for sizes in of_kinds])[patterns.inverse]
            yield axis, f"{name} of {KEY}, {name}", np.where(has, size, 0)
    tied = patterns.each(lambda kinds: any(kind.is_tied for kind in kinds))
    yield "pp", f"the number of stages with {TIED} layers ({KEY})", np.where(tied, 1, 0)


class _Roles(NamedTuple):
    """The sizes that the mixers of a pattern use."""

    needed: frozenset[tuple[str, str]]  # keys of the model, with the words that name their use
    used: frozenset[str]


@lru_cache(maxsize=4096)
def _sizes_of_mixers(kinds: tuple[LayerKind, ...]) -> _Roles:
    """Return the sizes that the mixers of some kinds use; needed: unless every kind has one of its own."""
    mixers = [MIXERS[name] for name in dict.fromkeys(name for kind in kinds for name in kind.mixers)]
    needed = {need for mixer in mixers for need in mixer.needs if not _all_have(need[0], kinds)}
    return _Roles(frozenset(needed), frozenset(key for mixer in mixers for key in mixer.uses))


@lru_cache(maxsize=4096)
def _has_attention(kind: LayerKind) -> bool:
    """Say whether a layer has a mixer with heads of attention; a linear-time mixer has others, or none."""
    others = {"model.linear_heads", "model.conv_width"}
    return any(MIXERS[name].attends or others.isdisjoint(MIXERS[name].uses) for name in kind.mixers)


def _need(key: str, feature: str, kinds: tuple[LayerKind, ...]) -> bool:
    """Say whether a mixer of some kinds needs a size."""
    return (key, feature) in _sizes_of_mixers(kinds).needed


def _use(key: str, kinds: tuple[LayerKind, ...]) -> bool:
    """Say whether a mixer of some kinds uses a size."""
    return key in _sizes_of_mixers(kinds).used


def _all_have(key: str, kinds: tuple[LayerKind, ...]) -> bool:
    """Say whether every kind of a pattern that uses a size has one of its own."""
    name = key.removeprefix("model.")
    using = [kind for kind in kinds if _uses(kind, key)]
    return bool(using) and all(name in dict(kind.sizes) for kind in using)


def _need_models(name: str, uses: Callable[[LayerKind], bool], kinds: tuple[LayerKind, ...]) -> bool:
    """Say whether some kinds use a size of the model, since a kind that uses it has none of its own."""
    return any(uses(kind) and name not in dict(kind.sizes) for kind in kinds)


@lru_cache(maxsize=4096)
def _uses(kind: LayerKind, key: str) -> bool:
    of_experts = key in ("model.experts", "model.topk") and kind.has_experts
    return of_experts or any(key in MIXERS[name].uses for name in kind.mixers)


_DIVIDED: tuple[tuple[str, str, Callable[[LayerKind], bool]], ...] = (
    ("tp", "heads", _has_attention),
    ("tp", "linear_heads", partial(_uses, key="model.linear_heads")),
    ("ep", "experts", lambda kind: kind.has_experts),
)
"""Sizes of kinds that a degree of an axis must divide, and which kinds use them."""
