"""Latent attention, whose heads share a cache of latent vectors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from itertools import product
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.collector_queue import Waits, left_of_cases
from fastflow.analysis.measurements.kind import Measurements, register
from fastflow.analysis.measurements.kinds.attention import SIZES, pauses, whole_prompts
from fastflow.core.tables import Columns, Floats, Ints, take
from fastflow.physics.workload.precision import precision

_PAUSE, _PAUSE_OF_TOKEN = 0.5, 20e-9
"""Rest before a run of decoding, and more for each token of the cache, which the host makes one by one [s].
Calibrated on the powers of B200 (ai-dynamo/aiconfigurator@095f58a)."""
_PROMPT_WAITS = Waits(pause=0.04, disk=0.025)
"""Waits around the runs of prompts; calibrated on the same powers."""
_LENGTHS = (
    1, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 10240, 12288, 16384, 32768,
)  # fmt: skip
_PROMPTS, _MOST_TOKENS, _HEADS = [2**i for i in range(9)], 65536, [2**i for i in range(7, -1, -1)]
"""Prompts of a case, their tokens at most, and heads: with the lengths, the cases of the collector, in their
order (collector/cases/base_ops/mla.yaml, case_generator.py and trtllm/collect_mla.py)."""


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
        tokens = 1.0 * inputs["model.batch"] * inputs["model.kv_len"]
        return pauses(inputs, _PROMPT_WAITS.pause, _PAUSE + _PAUSE_OF_TOKEN * tokens)

    def left_before(self, inputs: Columns) -> tuple[Ints, Floats]:
        """Return which rows are prompts, and what their readings have of the collector's cases before [W].

        Prompts of other sizes are taken as the next case.
        """
        which = whole_prompts(inputs)
        if not which.size:
            return super().left_before(inputs)
        element = precision(inputs).cache[which]
        types = dict(zip(element.tolist(), inputs["precision.cache"][which].tolist(), strict=True))
        cases = [
            (length, prompts, -size, -heads)
            for length, prompts, size, heads in product(_LENGTHS, _PROMPTS, sorted(types)[::-1], _HEADS)
            if length * prompts <= _MOST_TOKENS
        ]
        lengths, prompts, sizes, heads = (np.array(column) for column in zip(*cases, strict=True))
        sizes_of_cases = {
            "model.q_len": lengths, "model.kv_len": lengths, "model.batch": prompts, "model.heads": -heads,
            "precision.cache": np.array([types[-size] for size in sizes.tolist()]),
        }  # fmt: skip
        left = left_of_cases(take(inputs, which[:1]), sizes_of_cases, _PROMPT_WAITS)
        kv_len, batch, of_heads = (inputs[f"model.{key}"][which] for key in ("kv_len", "batch", "heads"))
        keys = zip(*(column.tolist() for column in (kv_len, batch, -element, -of_heads)), strict=True)
        at = [bisect_left(cases, key) for key in keys]
        return which, left[np.minimum(at, len(cases) - 1)]

    @classmethod
    def claims(cls, columns: Collection[str], keys: Collection[str]) -> bool:
        """Say whether a file is of this kind; with a column kv_heads or gemm_dtype it is of another kind."""
        return super().claims(columns, keys) and not {"kv_heads", "gemm_dtype"} & set(columns)
