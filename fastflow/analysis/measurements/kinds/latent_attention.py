"""Latent attention, whose heads share a cache of latent vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from fastflow.analysis.measurements.kind import Measurements, register
from fastflow.analysis.measurements.kinds.attention import SIZES, pauses
from fastflow.core.tables import Bools, Columns, Floats

_PROMPT_PAUSE, _PAUSE = 0.15, 0.5
"""Rest before a run of a prompt and of decoding [s]. Calibrated on the powers of B200
(ai-dynamo/aiconfigurator@095f58a)."""


@register
class LatentAttentions(Measurements):
    """Latent attention, with the passes of a layer around it."""

    name = "latent attention"
    model = "latent_attention"
    needed = ("q_len", "kv_len", "heads")
    inputs_of_columns: ClassVar[Mapping[str, str]] = SIZES
    naming_keys = ("phase", "batch", "q_len", "kv_len", "heads", "kv_dtype")

    def pauses(self, inputs: Columns) -> Floats | None:
        """Return the rest before the run of a row [s], by its phase, (rows,)."""
        return pauses(inputs, _PROMPT_PAUSE, _PAUSE)

    def largest_first(self, inputs: Columns) -> Bools:
        """Return which rows are single prompts: they follow the most prompts of a length (collect_mla.py)."""
        is_first: Bools = (inputs["model.phase"] == "prefill") & (inputs["model.batch"] == 1)
        return is_first

    @classmethod
    def claims(cls, columns: Collection[str], keys: Collection[str]) -> bool:
        """Say whether a file is of this kind; with a column kv_heads or gemm_dtype it is of another kind."""
        return super().claims(columns, keys) and not {"kv_heads", "gemm_dtype"} & set(columns)
