"""Granite."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA

TYPES = {
    "granite": LLAMA,
    "granitemoe": LLAMA,
    "granitemoeshared": LLAMA,
}
