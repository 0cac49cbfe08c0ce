"""Checks of a transformer's dimensions: sizes that contradict each other or the pattern, or are too large."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.tables import Bools, Inputs, Ints
from fastflow.physics.workload.models.transformer.dimensions import (
    ALL,
    OF_ATTENTION,
    PARALLEL,
    PARALLEL_NORMS,
)
from fastflow.physics.workload.models.transformer.layer_kind import EXPERTS, OWN_SIZES, LayerKind
from fastflow.physics.workload.models.transformer.layer_pattern import (
    KEY,
    fewest_layers,
    kinds_of,
)
from fastflow.physics.workload.models.transformer.mixer import MIXERS
from fastflow.physics.workload.ops.attention import MAX_QUERIES

MAX_ELEMENTS = 4e18  # of a tensor, as of a network from a file
_MAX_WIDE = 1e12
_MOST_PAIRS = 256.0  # of a token with those of its chunk, in a linear-time mixer

InvalidSizes = tuple[Bools, str, str, str]


def invalid_sizes(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with invalid sizes, as `Family.invalid_sizes`."""
    yield from invalid_heads(inputs)
    most = inputs["model.positions"]
    wrong = (most > 0) & (inputs["model.sequence"] > most)
    yield wrong, "model.sequence", "model.positions", "at most the {} tokens of model.positions"
    yield from _invalid_patterns(inputs)
    yield from _too_large(inputs)


def invalid_pass_sizes(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield invalid passes; their tokens are of many sequences: positions limit requests, not passes."""
    yield from invalid_heads(inputs)
    yield from _invalid_patterns(inputs)
    yield from _too_large(inputs)


def invalid_heads(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with invalid heads."""
    size = {name: inputs[f"model.{name}"] for name in ("heads", "kv_heads", "hidden", "head_dim")}
    derived = size["head_dim"] == 0
    uneven = derived & (size["hidden"] % size["heads"] > 0)
    yield uneven, "model.heads", "model.hidden", "a divisor of model.hidden, {}, or model.head_dim beside it"
    wrong = size["heads"] % np.where(size["kv_heads"] > 0, size["kv_heads"], 1) > 0
    yield wrong, "model.kv_heads", "model.heads", "a divisor of model.heads, {}"


def _invalid_patterns(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points whose sizes do not match the kinds of their layers."""
    names, inverse = factorize(inputs[KEY])
    of_pattern = [kinds_of(name) for name in names]
    fewest = [fewest_layers(name) for name in names]
    for number, least in enumerate(fewest):
        wrong = (inverse == number) & (inputs["model.layers"] < least)
        yield wrong, "model.layers", "model.layers", f"at least {least}, so that each kind of {KEY} has one"
    has_experts = np.array([any(kind.has_experts for kind in kinds) for kinds in of_pattern])[inverse]
    for key in ("model.experts", "model.topk"):
        # a kind may have sizes of its own
        stated = np.array([_all_have(kinds, key) for kinds in of_pattern])[inverse]
        wrong = has_experts & (inputs[key] < 1) & ~stated
        yield wrong, key, key, f"at least 1, since {KEY} has layers with experts"
        wrong = ~has_experts & (inputs[key] > 0)
        yield wrong, key, key, f"0, unless {KEY} says which layers have experts"
    yield from _invalid_mixers(inputs, of_pattern, inverse)
    wrong = has_experts & (inputs["model.experts"] > 0) & (inputs["model.topk"] > inputs["model.experts"])
    yield wrong, "model.topk", "model.experts", "at most the {} of model.experts"
    yield from _invalid_expert_groups(inputs, has_experts)
    yield from _invalid_kinds(inputs, of_pattern, inverse)
    yield from _invalid_residuals(inputs)


def _invalid_expert_groups(inputs: Inputs, has_experts: Bools) -> Iterator[InvalidSizes]:
    """Yield points with invalid expert groups; has_experts: (points,)."""
    experts, topk = inputs["model.experts"], inputs["model.topk"]
    groups, topk_groups = inputs["model.expert_groups"], inputs["model.topk_groups"]
    for key in ("model.expert_groups", "model.topk_groups"):
        yield ~has_experts & (inputs[key] > 0), key, key, f"0, unless {KEY} says which layers have experts"
    each = experts // np.maximum(groups, 1)
    wrong = has_experts & (each * groups != experts) & (groups > 0)
    yield wrong, "model.expert_groups", "model.experts", "a divisor of model.experts, {}, or 0 for no groups"
    wrong = has_experts & ((topk_groups > groups) | ((topk_groups == 0) & (groups > 0)))
    allowed = "from 1 to model.expert_groups, {}; or 0, where that is 0"
    yield wrong, "model.topk_groups", "model.expert_groups", allowed
    wrong = has_experts & (groups > 0) & (topk_groups * each < topk)
    allowed = "so many that their experts are at least model.topk, {}"
    yield wrong, "model.topk_groups", "model.topk", allowed


def _too_large(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with too many tokens, or with tensors too large for 64-bit integers."""
    size = {name: 1.0 * inputs[f"model.{name}"] for name in (
        "batch", "sequence", "layers", "hidden", "heads", "head_dim", "value_dim", "rotary", "ffn",
        "expert_ffn", "topk", "shared_ffn", "vocabulary", "linear_heads", "linear_key_dim",
        "linear_value_dim", "linear_rank", "latent", "query_latent", "index_heads", "index_dim",
        "output_latent", "output_groups", "expert_latent", "streams", "layer_embedding",
    )}  # fmt: skip
    names, inverse = factorize(inputs[KEY])
    of_pattern = [kinds_of(name) for name in names]
    if any(kind.sizes for kinds in of_pattern for kind in kinds):
        for name in size.keys() & set(OWN_SIZES):
            size[name] = np.maximum(size[name], _largest_of_kinds(name, of_pattern, inverse))
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
    columns = columns * np.maximum(size["topk"], 1.0) + 8.0 * size["linear_rank"]
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


def _invalid_kinds(inputs: Inputs, of_pattern: Patterns, inverse: Ints) -> Iterator[InvalidSizes]:
    """Yield points with a kind of layer whose own sizes contradict each other, or the model's."""
    for number, kinds in enumerate(of_pattern):
        for kind in kinds:
            if kind.modifiers:
                wrong = (inverse == number) & (inputs["model.latent"] > 0)
                allowed = f"no {' or '.join(kind.modifiers)} where keys are latent (model.latent)"
                yield wrong, KEY, KEY, allowed
            if not kind.sizes:
                continue
            stated = dict(kind.sizes)
            size = {name: stated.get(name, inputs[f"model.{name}"]) for name in _PAIRS}
            has = inverse == number
            if stated.keys() & {"heads", "kv_heads"}:
                kv_heads = np.where(np.asarray(size["kv_heads"]) > 0, size["kv_heads"], size["heads"])
                wrong = has & (np.asarray(size["heads"]) % kv_heads > 0)
                yield wrong, KEY, KEY, f"heads that their kv_heads divide, in {kind.text}"
            if kind.has_experts and stated.keys() & {EXPERTS, "topk"}:
                topk, experts = np.asarray(size["topk"]), size[EXPERTS]
                wrong = has & (topk > experts)
                yield wrong, KEY, KEY, f"a topk of at most its experts, in {kind.text}"
            if stated.keys() & {"linear_heads", "linear_key_heads"}:
                keys = np.where(np.asarray(size["linear_key_heads"]) > 0, size["linear_key_heads"], 1)
                wrong = has & (np.asarray(size["linear_heads"]) % keys > 0)
                yield wrong, KEY, KEY, f"linear_heads that their linear_key_heads divide, in {kind.text}"


_PAIRS = ("heads", "kv_heads", "experts", "topk", "linear_heads", "linear_key_heads")
Patterns = list[tuple[LayerKind, ...]]
_OF_MIXERS = (
    "model.density", "model.index_heads", "model.index_dim", "model.index_block", "model.output_latent",
    "model.output_groups", "model.window", "model.index_topk", "model.compression", "model.linear_heads",
    "model.linear_key_heads",
    "model.linear_key_dim", "model.linear_value_dim", "model.linear_rank", "model.conv_width",
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


def _invalid_mixers(inputs: Inputs, of_pattern: Patterns, inverse: Ints) -> Iterator[InvalidSizes]:
    """Yield points without the sizes that their mixers need, or with those of mixers that they lack.

    of_pattern: the kinds of each pattern; inverse: the pattern of every point.
    """
    roles = [_sizes_of_mixers(kinds) for kinds in of_pattern]
    for key, feature in sorted(set().union(*(role.needed for role in roles))):
        has = np.array([(key, feature) in role.needed for role in roles])[inverse]
        wrong = has & (inputs[key] < 1)
        yield wrong, key, key, f"at least 1, since {KEY} has layers with {feature}"
    for key in _OF_MIXERS:
        if not inputs[key].any():
            continue
        uses = np.array([key in role.used for role in roles])[inverse]
        words = [name for name in MIXERS.built_in if key in MIXERS[name].uses] if (~uses).any() else []
        allowed = f"0, unless {KEY} has layers with {' or '.join(words)}"
        yield ~uses & (inputs[key] > 0), key, key, allowed
    topk = np.maximum(inputs["model.index_topk"], _largest_of_kinds("index_topk", of_pattern, inverse))
    selects = np.array(["model.index_heads" in role.used for role in roles])[inverse]
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
    names, inverse = factorize(inputs[KEY])
    of_pattern = [kinds_of(name) for name in names]
    attends = np.array([any(map(_has_attention, kinds)) for kinds in of_pattern])[inverse]
    yield "tp", "model.heads", np.where(attends, inputs["model.heads"], 0)
    for axis, name in (("tp", "heads"), ("tp", "linear_heads"), ("ep", "experts")):
        of_kinds = [{dict(kind.sizes).get(name, 0) for kind in kinds} - {0} for kinds in of_pattern]
        for size in sorted(set().union(*of_kinds)):
            has = np.array([size in sizes for sizes in of_kinds])[inverse]
            yield axis, f"{name} of {KEY}, {name}", np.where(has, size, 0)
    heads = "model.linear_heads"
    uses = np.array([any(_uses(kind, heads) for kind in kinds) for kinds in of_pattern])[inverse]
    yield "tp", heads, np.where(uses, inputs[heads], 0)


class _Roles(NamedTuple):
    """The sizes that the mixers of a pattern use."""

    needed: frozenset[tuple[str, str]]  # keys of the model, with the words that name their use
    used: frozenset[str]


@lru_cache(maxsize=4096)
def _sizes_of_mixers(kinds: tuple[LayerKind, ...]) -> _Roles:
    """Return the sizes that the mixers of some kinds use; needed: unless every kind has one of its own."""
    mixers = [MIXERS[name] for name in dict.fromkeys(name for kind in kinds for name in kind.mixers)]
    needed = {need for mixer in mixers for need in mixer.needs if not _all_have(kinds, need[0])}
    return _Roles(frozenset(needed), frozenset(key for mixer in mixers for key in mixer.uses))


@lru_cache(maxsize=4096)
def _has_attention(kind: LayerKind) -> bool:
    """Say whether a layer has a mixer with heads of attention; a linear-time mixer has others, or none."""
    others = {"model.linear_heads", "model.conv_width"}
    return any(others.isdisjoint(MIXERS[name].uses) for name in kind.mixers)


def _largest_of_kinds(name: str, of_pattern: Patterns, inverse: Ints) -> Ints:
    """Return the largest own size of the kinds of every point's pattern, 0 where none has its own."""
    largest = [max((dict(kind.sizes).get(name, 0) for kind in kinds), default=0) for kinds in of_pattern]
    sizes: Ints = np.array(largest, dtype=np.int64)[inverse]
    return sizes


def _all_have(kinds: tuple[LayerKind, ...], key: str) -> bool:
    """Say whether every kind of a pattern that uses a size has one of its own."""
    name = key.removeprefix("model.")
    using = [kind for kind in kinds if _uses(kind, key)]
    return bool(using) and all(name in dict(kind.sizes) for kind in using)


@lru_cache(maxsize=4096)
def _uses(kind: LayerKind, key: str) -> bool:
    of_experts = key in ("model.experts", "model.topk") and kind.has_experts
    return of_experts or any(key in MIXERS[name].uses for name in kind.mixers)
