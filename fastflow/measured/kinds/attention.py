"""Fused attention: as heads of their own keys, or over a latent cache that all heads share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from fastflow.measured.kind import Measurements, register

_SIZES = {"phase": "model.phase", "batch": "model.batch", "q_len": "model.q_len", "kv_len": "model.kv_len",
    "heads": "model.heads", "dtype": "model.dtype", "kv_dtype": "precision.cache"}  # fmt: skip


@register
class Attentions(Measurements):
    """Attention, with what a layer does beside it."""

    name = "attention"
    model = "attention"
    needed = ("q_len", "kv_len", "heads", "kv_heads")
    inputs_of_columns: ClassVar[Mapping[str, str]] = _SIZES | {
        "kv_heads": "model.kv_heads", "head_dim": "model.head_dim", "window": "model.window",
        "causal": "model.causal",
    }  # fmt: skip
    named_by = ("phase", "batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "window", "kv_dtype")


@register
class LatentAttentions(Measurements):
    """Latent attention, with what a layer does beside it."""

    name = "latent attention"
    model = "latent_attention"
    needed = ("q_len", "kv_len", "heads")
    inputs_of_columns: ClassVar[Mapping[str, str]] = _SIZES
    named_by = ("phase", "batch", "q_len", "kv_len", "heads", "kv_dtype")

    @classmethod
    def claims(cls, columns: Collection[str], keys: Collection[str]) -> bool:
        """A file whose heads have keys of their own is of the other kind."""
        return super().claims(columns, keys) and "kv_heads" not in columns
