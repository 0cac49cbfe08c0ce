"""Llama and the models of its kind: RMS norms, rotary embedding, a gated feed-forward layer."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import (
    ABOVE,
    EVERY,
    LLAMA,
    Architecture,
)
from fastflow.physics.workload.models.transformer.dimensions import ALL, SANDWICH

TYPES = {
    "llama": LLAMA,
    "mistral": LLAMA._replace(windows=EVERY),
    "mixtral": LLAMA._replace(windows=EVERY),
    "ministral": LLAMA._replace(windows=EVERY),
    "ministral3": LLAMA._replace(windows=EVERY),
    "smollm3": LLAMA._replace(windows=ABOVE),
    "arcee": LLAMA._replace(gated=False, activation="relu2"),
    "internlm2": LLAMA,
    "seed_oss": LLAMA,
    "dots1": LLAMA._replace(qk_norm=True, windows=ABOVE),
    "gpt_oss": LLAMA._replace(biases=ALL, windows=2),
    "grok-1": Architecture(block=SANDWICH, activation="gelu"),
}
