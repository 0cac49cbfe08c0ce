"""Ways to fit a model into less memory: a record each, of overrides and words.

A package, or a script, adds one by `WAYS.register`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastflow.core.registry import Registry

TRAINING, SERVING = "training", "serving"
AS_GIVEN = "as given"


class Way(NamedTuple):
    """A way to fit a model into less memory."""

    words: str
    """What it is called in tables."""
    work: str
    """Where it applies: TRAINING or SERVING."""
    overrides: tuple[str, ...] = ()
    """As on a command line; they replace the user's of the same keys."""
    factors: Mapping[str, float] = {}
    """Inputs that it multiplies, rounded down to whole numbers."""
    of_transformers: bool = True
    """Whether it applies to transformers alone."""

    def overrides_of(self, inputs: Mapping[str, Any]) -> tuple[str, ...]:
        """Return its overrides for a point; inputs: of the point as given, by key."""
        scaled = (f"{key}={int(inputs[key] * factor)}" for key, factor in self.factors.items())
        return (*self.overrides, *scaled)


WAYS: Registry[Way] = Registry(
    "way", "ways", lambda thing: isinstance(thing, Way), "a fastflow.performance.auto.ways.Way"
)
"""All ways by name, in the order of the table."""

for _name, _way in {
    "recompute": Way("with recomputation (full)", TRAINING, ("parallel.recompute=full",)),
    "int8_state": Way(
        "with 8-bit optimizer state", TRAINING, ("precision.state=int8",), of_transformers=False
    ),
    "fused_loss": Way("loss in chunks (fused)", TRAINING, ("model.loss=fused",)),
    "zero_3": Way("ZeRO 3", TRAINING, ("parallel.zero_stage=3",), of_transformers=False),
    "offload_optimizer": Way("with optimizer offloaded", TRAINING, ("parallel.offload=optimizer",)),
    "offload_all": Way(
        "everything offloaded (ZeRO 3)", TRAINING, ("parallel.offload=all", "parallel.zero_stage=3")
    ),
    "lora": Way("adapters (LoRA rank 16)", TRAINING, ("model.lora.rank=16",)),
    "qlora": Way("QLoRA (rank 16, nf4)", TRAINING, ("model.lora.rank=16", "model.lora.base_dtype=nf4")),
    "fp8": Way("weights in fp8", SERVING, ("model.dtype=fp8",)),
    "w4a16": Way("weights in 4 bits (w4a16)", SERVING, ("model.dtype=w4a16",)),
    "fp8_cache": Way("KV cache in fp8", SERVING, ("precision.cache=fp8",)),
    "utilization": Way("gpu_memory_utilization 0.95", SERVING, ("server.gpu_memory_utilization=0.95",)),
    "half_context": Way("half the context", SERVING, factors={"serve.isl": 0.5, "serve.osl": 0.5}),
}.items():
    WAYS.register(_name, _way)
