"""Gemma."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import Architecture
from fastflow.physics.workload.models.transformer.dimensions import SANDWICH

_GEMMA = Architecture(tied=True, activation="gelu")
TYPES = {
    "gemma": _GEMMA,
    "gemma2": _GEMMA._replace(block=SANDWICH, windows=2),
    "gemma3_text": _GEMMA._replace(block=SANDWICH, qk_norm=True, windows=6),
}
