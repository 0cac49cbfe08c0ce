"""GLM: partial rotary embedding; GLM-4.5 with experts, and ChatGLM before it. GLM-5 is of DeepSeek's kind."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA, Values
from fastflow.physics.workload.models.transformer.dimensions import LAYER, NO_BIAS, OF_QKV, RMS, SANDWICH
from fastflow.physics.workload.models.transformer.json_fields import Fields


def _chatglm(fields: Fields, known: Values) -> Values:
    """Return the sizes of ChatGLM, whose groups of queries are counted in `multi_query_group_num`."""
    grouped = fields.flag("multi_query_attention")
    fields.skip(
        "original_rope", "rope_ratio", "post_layer_norm", "apply_query_key_layer_scaling", "num_layers"
    )
    rms, heads = fields.flag("rmsnorm", default=True), known["heads"]
    return {
        "kv_heads": fields.count("multi_query_group_num", default=heads) if grouped else heads,
        "biases": OF_QKV if fields.flag("add_qkv_bias") else NO_BIAS,
        "norm": RMS if rms else LAYER,
    }  # fmt: skip


_GLM4 = LLAMA._replace(block=SANDWICH, biases=OF_QKV)
_MOE = LLAMA._replace(biases=OF_QKV)
TYPES = {
    "chatglm": LLAMA._replace(extra_fields=_chatglm),
    "glm": _MOE,
    **dict.fromkeys(("glm4", "glm4v", "glm4v_text", "glm_ocr_text"), _GLM4),
    **dict.fromkeys(("glm4_moe", "glm4v_moe", "glm4v_moe_text"), _MOE),
}
