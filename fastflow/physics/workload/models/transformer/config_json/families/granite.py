"""Granite, dense and with experts; Granite 4's hybrids are among those of Mamba."""

from __future__ import annotations

from fastflow.physics.workload.models.transformer.config_json.architecture import LLAMA

TYPES = dict.fromkeys(
    (
        "granite", "granitemoe", "granitemoeshared", "granite_swa", "granitemoe_swa",
    ),
    LLAMA,
)  # fmt: skip
