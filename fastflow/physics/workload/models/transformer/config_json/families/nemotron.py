"""Nemotron: squared ReLU without a gate; hybrids with Mamba-2; layers from an architecture search."""

from __future__ import annotations

from collections import Counter

from fastflow.core.yaml_file import shown, wrong
from fastflow.physics.workload.models.transformer.config_json.architecture import (
    GPT,
    LLAMA,
    STATE_TYPES,
    Values,
    sized,
)
from fastflow.physics.workload.models.transformer.config_json.families.mamba_hybrids import MAMBA_MODES
from fastflow.physics.workload.models.transformer.dimensions import NO_BIAS, NO_POSITIONS
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import (
    ATTENTION,
    DENSE,
    EXPERTS,
    NO_FEED_FORWARD,
    LayerKind,
)

_LETTERS = {
    "M": (("mamba2",), NO_FEED_FORWARD), "-": ((), DENSE), "*": ((ATTENTION,), NO_FEED_FORWARD),
    "E": ((), EXPERTS),
}  # fmt: skip
_WORDS = {
    "mamba": "M", "mamba2": "M", "linear_attention": "M", "mlp": "-", "dense": "-", "attention": "*",
    "full_attention": "*", "moe": "E", "sparse": "E",
}  # fmt: skip


def _hybrid(fields: Fields, known: Values) -> Values:
    """Return the sizes of Mamba-2, and the experts; the feed-forward layers are layers of their own."""
    fields.skip(*MAMBA_MODES, "mtp_hybrid_override_pattern", "mtp_layers_block_type", "expand")
    return {
        "linear_heads": fields.count("mamba_num_heads"),
        "linear_value_dim": fields.count("mamba_head_dim"),
        "linear_key_dim": fields.count("ssm_state_size"),
        "linear_key_heads": fields.count("n_groups", "mamba_n_groups", default=1),
        "conv_width": fields.count("conv_kernel", "mamba_d_conv", default=4),
        "state_dtype": fields.choice(STATE_TYPES, "mamba_ssm_cache_dtype", default="fp32"),
    }


def _hybrid_layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return the kinds that letters or words list: each layer is a mixer or a feed-forward part."""
    name, pattern = fields.value("hybrid_override_pattern")
    if pattern is None:
        where, words = fields.value("layers_block_type", "layer_types")
        if not isinstance(words, list) or not all(isinstance(word, str) and word in _WORDS for word in words):
            raise wrong(where, f"a list of {', '.join(_WORDS)}", shown(words))
        pattern = "".join(_WORDS[word] for word in words)
    if not isinstance(pattern, str) or not pattern or set(pattern) - {*_LETTERS, "|"}:
        raise wrong(name, f"letters of {' '.join(_LETTERS)}", shown(pattern))
    return [LayerKind(*_LETTERS[letter]) for letter in pattern if letter != "|"]


_FFN_MULTIPLE = 256
_LINEAR_OF_GATED = 3
"""A linear layer of hidden x hidden has the weights of a gated layer of hidden / 3 columns."""


def _searched(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return the kinds of DeciLM's `block_configs`; a block without any part is left out."""
    name, blocks = fields.value("block_configs")
    if not isinstance(blocks, list) or len(blocks) != values["layers"]:
        raise wrong(name, f"a list with an entry for each of the {values['layers']} layers", shown(blocks))
    read_kinds = [_block(Fields({"block": block}, f"{name}.").inside("block"), values) for block in blocks]
    kinds = [kind for kind in read_kinds if kind is not None]
    for size in ("kv_heads", "ffn"):
        most = Counter(dict(kind.sizes).get(size, 0) for kind in kinds).most_common()
        values[size] = next((columns for columns, _ in most if columns), values[size])
    return [sized(kind, values) for kind in kinds]


def _block(block: Fields, values: Values) -> LayerKind | None:
    attention, ffn = block.inside("attention"), block.inside("ffn")
    hidden, heads = values["hidden"], values["heads"]
    linear = sum(part.flag("replace_with_linear") for part in (attention, ffn)) * hidden // _LINEAR_OF_GATED
    has_attention = not (attention.flag("no_op") or attention.flag("replace_with_linear"))
    columns = linear
    if not (ffn.flag("no_op") or ffn.flag("replace_with_linear")):
        columns += _columns(ffn, hidden)
    if not has_attention and not columns:
        return None
    kind = LayerKind((ATTENTION,) if has_attention else (), DENSE if columns else NO_FEED_FORWARD)
    kv_heads = 0
    if has_attention:
        group = attention.count("n_heads_in_group", default=1)
        kv_heads = attention.count("num_key_value_heads", default=heads // group if heads % group == 0 else 0)
        if not kv_heads:
            raise wrong("block_configs.n_heads_in_group", f"a divisor of its {heads} heads", group)
    return sized(kind, {}, kv_heads=kv_heads, ffn=columns)


def _columns(ffn: Fields, hidden: int) -> int:
    """Return the columns of a feed-forward layer, from its width or from ffn_mult."""
    if "intermediate_size" in ffn:
        return ffn.count("intermediate_size")
    columns = int(2 * ffn.factor("ffn_mult", default=4.0) * hidden / 3)
    return -(-columns // _FFN_MULTIPLE) * _FFN_MULTIPLE


TYPES = {
    "nemotron": GPT._replace(biases=NO_BIAS, tied=False, activation="relu2"),
    "nemotron_h": LLAMA._replace(
        gated=False, activation="relu2", position=NO_POSITIONS, extra_fields=_hybrid, layers=_hybrid_layers
    ),
    "nemotron-nas": LLAMA._replace(layers=_searched),
}
