"""LongCat-Flash: layers of two latent attentions and two dense parts, with a mixture beside the first."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values
from fastflow.physics.workload.models.transformer.config_json.families.deepseek import latent_sizes
from fastflow.physics.workload.models.transformer.json_fields import Fields
from fastflow.physics.workload.models.transformer.layer_kind import ATTENTION, DENSE, EXPERTS, LayerKind

_MODES = ("zero_expert_type", "zero_expert_num", "mla_scale_q_lora", "mla_scale_kv_lora", "attention_method")


def _flash(fields: Fields, known: Values) -> Values:
    """Return the sizes; experts that do nothing take the share of a token's choices that they are of all."""
    fields.skip(*_MODES)
    experts, columns = fields.count("n_routed_experts"), fields.count("ffn_hidden_size", "intermediate_size")
    idle = fields.count("zero_expert_num", default=0, least=0)
    topk = fields.count("moe_topk", "num_experts_per_tok")
    return latent_sizes(fields, known) | {
        "ffn": columns, "shared_ffn": columns, "shared_experts": 0, "experts": experts,
        "topk": max(round(topk * experts / (experts + idle)), 1),
        "expert_ffn": fields.count("expert_ffn_hidden_size", "moe_intermediate_size"),
    }  # fmt: skip


def _halves(fields: Fields, values: Values, kinds: list[LayerKind]) -> list[LayerKind]:
    """Return two kinds for each layer: the first has the mixture, and a dense layer as its shared expert."""
    halves = [LayerKind((ATTENTION,), EXPERTS), LayerKind((ATTENTION,), DENSE)]
    return halves * len(kinds)


TYPES = {"longcat_flash": LLAMA._replace(extra_fields=_flash, layers=_halves)}
