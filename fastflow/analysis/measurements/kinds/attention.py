"""Fused attention: multi-head, grouped-query or multi-query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.collector_queue import Waits, left_of_cases
from fastflow.analysis.measurements.kind import Options, TimedRows, register
from fastflow.analysis.measurements.memory_limit import LimitedByMemory
from fastflow.analysis.measurements.prompt_cases import prompt_cases
from fastflow.core.tables import Columns, Floats, Ints, take
from fastflow.physics.timing.warm_cache import COPIES
from fastflow.physics.workload.precision import precision

SIZES = {
    "phase": "model.phase", "batch": "model.batch", "q_len": "model.q_len", "kv_len": "model.kv_len",
    "heads": "model.heads", "dtype": "model.dtype", "kv_dtype": "precision.cache",
}  # fmt: skip
_PAUSE = 0.15
"""Rest before a run of decoding, whose cache is filled first [s]. Calibrated on the powers of B200
(ai-dynamo/aiconfigurator@095f58a)."""
_PROMPT_WAITS = Waits(pause=0.02, disk=0.003)
"""Waits around the runs of prompts; calibrated on the same powers."""
_LONGER = 16
"""Keys of a run of decoding over those of the run before on its device: a batch's lengths, each twice the one
before, come in order, over a cache of two types each, and go to eight devices (collect_attn.py)."""


def pauses(inputs: Columns, of_prompts: float, of_decoding: Floats | float) -> Floats:
    """Return the rest before the run of rows of attention [s], (rows,).

    of_prompts, of_decoding: of rows of these [s].
    """
    return np.where(inputs["model.phase"] == "decode", of_decoding, of_prompts)


def whole_prompts(inputs: Columns) -> Ints:
    """Return which rows of attention are prompts without tokens before them."""
    is_prompt = inputs["model.phase"] == "prefill"
    return np.flatnonzero(is_prompt & (inputs["model.q_len"] == inputs["model.kv_len"]))


@register
class Attentions(LimitedByMemory):
    """Attention, with the passes of a layer around it."""

    name = "attention"
    model = "attention"
    needed = ("q_len", "kv_len", "heads", "kv_heads")
    inputs_of_columns: ClassVar[Mapping[str, str]] = SIZES | {
        "kv_heads": "model.kv_heads", "head_dim": "model.head_dim", "window": "model.window",
        "causal": "model.causal", "shared": "model.shared", "copies": COPIES,
    }  # fmt: skip
    naming_keys = ("phase", "batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim", "window", "kv_dtype")

    inferred_key = "model.shared"
    inferred_value = True
    inferred_note = "values lie where the keys do: main memory is too slow to read both (model.shared=true)"
    peak_share = 1.05
    batch_size = 16384  # since the cases of the collector's queue are predicted for each batch

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read whether the cache of a device holds a layer from the run before, too; raises InputError."""
        super().__init__(rows, options)
        repeats = (self.timed == "kernel").astype(np.int64)  # collectors repeat a single layer
        self.assume(COPIES, repeats, np.ones(self.rows, dtype=np.bool_), options)

    def pauses(self, inputs: Columns) -> Floats | None:
        """Return the rest before the run of a row [s], by its phase, (rows,)."""
        return pauses(inputs, _PROMPT_WAITS.pause, _PAUSE)

    def left_before(self, inputs: Columns) -> tuple[Ints, Floats]:
        """Return which rows are prompts, and what their readings have of the collector's cases before [W]."""
        which = whole_prompts(inputs)
        if not which.size:
            return super().left_before(inputs)
        sizes, case = prompt_cases(take(inputs, which))
        return which, left_of_cases(take(inputs, which[:1]), sizes, _PROMPT_WAITS)[case]

    def smaller_before(self, inputs: Columns) -> tuple[Ints, Columns]:
        """Return which rows decode, and their runs before with fewer keys of as many sequences."""
        keys = inputs["model.kv_len"]
        which = np.flatnonzero((inputs["model.phase"] == "decode") & (keys >= 2 * _LONGER))
        return which, take(inputs, which) | {"model.kv_len": keys[which] // _LONGER}

    def bytes_moved(self, inputs: Columns) -> Floats:
        """Return the bytes of separate keys and values that decoding reads.

        Benchmarks may keep both in the same pages (ai-dynamo/aiconfigurator@095f58a).
        """
        window, kv_len = inputs["model.window"], inputs["model.kv_len"]
        visible = np.where(window > 0, np.minimum(window, kv_len), kv_len)
        tokens = 1.0 * inputs["model.batch"] * visible * inputs["model.kv_heads"]
        moved: Floats = 2.0 * tokens * inputs["model.head_dim"] * precision(inputs).cache
        return np.where(inputs["model.phase"] == "decode", moved, 0.0)
