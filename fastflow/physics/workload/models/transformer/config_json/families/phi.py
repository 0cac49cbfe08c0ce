"""Phi."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import EVERY, GPT, LLAMA, Values
from fastflow.physics.workload.models.transformer.dimensions import LAYER, PARALLEL
from fastflow.physics.workload.models.transformer.json_fields import Fields


def _fused(fields: Fields, known: Values) -> Values:
    fields.skip("vision_lora", "speech_lora", "embd_layer", "img_processor", "audio_processor")
    return {}


TYPES = {
    "phi": GPT._replace(tied=False, block=PARALLEL),
    **dict.fromkeys(
        ("phi3", "phi4mm", "phi4_multimodal", "phi3_v"), LLAMA._replace(windows=EVERY, extra_fields=_fused)
    ),
    "phimoe": LLAMA._replace(norm=LAYER, windows=EVERY),
}
