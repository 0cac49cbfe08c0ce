"""Llama and the models of its kind: RMS norms, rotary embedding, a gated feed-forward layer."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import ABOVE, EVERY, LLAMA

TYPES = {
    "llama": LLAMA,
    "mistral": LLAMA._replace(windows=EVERY),
    "mixtral": LLAMA._replace(windows=EVERY),
    "ministral": LLAMA._replace(windows=EVERY),
    "ministral3": LLAMA._replace(windows=EVERY),
    "smollm3": LLAMA._replace(windows=ABOVE),
}
