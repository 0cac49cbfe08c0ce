"""Zamba and Zamba2: Mamba layers, some with a block of attention and feed-forward of shared weights.

The fields are those of ZambaConfig and Zamba2Config (huggingface/transformers@00511f5); where a file does not
list the layers, their order is in that code.
"""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values
from fastflow.physics.workload.models.transformer.config_json.families.mamba_hybrids import (
    MAMBA,
    MAMBA2,
    mamba2_sizes,
    mamba_sizes,
)
from fastflow.physics.workload.models.transformer.dimensions import NO_POSITIONS, ROTARY
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import NO_FEED_FORWARD, TIED, LayerKind

ZAMBA, ZAMBA2, ADAPTED = "zamba", "zamba2", "adapted_zamba2"
_RANK = 128  # of an adapter by default
_LONG = 16384  # tokens of a sequence with use_long_context
_MODES = (
    "hybrid_layer_ids", "attention_hidden_size", "num_query_groups", "kv_channels", "mamba_headdim",
    "add_bias_linear", "use_mem_eff_path", "n_mamba_heads", "use_shared_mlp_adapter",
)  # fmt: skip
"""Fields that follow from others, or change no size."""


def _heads(fields: Fields, known: Values) -> Values:
    """Return the sizes of the block: its heads have the columns of token and embedding."""
    fields.skip(*_MODES)
    columns = fields.count("attention_head_dim", default=max(2 * known["hidden"] // known["heads"], 1))
    return {"head_dim": columns, "ffn": known["ffn"] or 4 * known["hidden"]}


def _sizes(fields: Fields, known: Values) -> Values:
    return _heads(fields, known) | mamba_sizes(fields, known)


def _sizes2(fields: Fields, known: Values) -> Values:
    rotary = fields.flag("use_mem_rope")
    most = _LONG if fields.flag("use_long_context") else known["positions"]
    return {
        **_heads(fields, known),
        **mamba2_sizes(fields, known),
        "adapter_rank": fields.count("adapter_rank", default=_RANK),
        "position": ROTARY if rotary else NO_POSITIONS,
        "positions": most,
    }


def _kinds(is_hybrid: list[bool], mamba: str, hybrid: str, blocks: int) -> list[LayerKind]:
    """Return the kind of each layer; blocks: blocks of weights, which the hybrid layers take in turns."""
    kinds, hybrids = [], 0
    for has_block in is_hybrid:
        tied = has_block and hybrids >= blocks
        kinds.append(LayerKind((hybrid if has_block else mamba,), NO_FEED_FORWARD, (TIED,) if tied else ()))
        hybrids += has_block
    return kinds


_WORDS = {"mamba": False, "hybrid": True}


def _layers(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    layers = len(kinds)
    period = fields.count("attn_layer_period", default=6)
    offset = fields.count("attn_layer_offset", default=4, least=0)
    listed = fields.choices(_WORDS, "layers_block_type", layers)
    by_period = [False, False, True, *(i % period == offset for i in range(layers - 3))][:layers]
    return _kinds(listed or by_period, MAMBA, ZAMBA, 1)


def _layers2(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    layers, ids = len(kinds), fields.counts("hybrid_layer_ids")
    listed = fields.choices(_WORDS, "layers_block_type", layers)
    if listed is None:
        numbers = range(6, layers, 6) if ids is None else ids
        listed = [i in numbers for i in range(layers)]
    hybrid = ADAPTED if fields.flag("use_shared_attention_adapter") else ZAMBA2
    return _kinds(listed, MAMBA2, hybrid, fields.count("num_mem_blocks", default=1))


_ZAMBA = LLAMA._replace(position=NO_POSITIONS, tied=True, activation="gelu")
TYPES = {
    "zamba": _ZAMBA._replace(extra_fields=_sizes, layers=_layers),
    "zamba2": _ZAMBA._replace(extra_fields=_sizes2, layers=_layers2),
}
