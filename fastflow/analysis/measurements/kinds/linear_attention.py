"""Kernels of linear-time mixers: convolutions and recurrences, of prompts and of single tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fastflow.analysis.measurements.csv_file import InputColumn
from fastflow.analysis.measurements.kind import Options, TimedRows, register
from fastflow.analysis.measurements.memory_limit import LimitedByMemory
from fastflow.core.dedupe import map_values
from fastflow.core.tables import Columns, Floats, Ints, Texts
from fastflow.physics.workload.models.linear_attention import (
    CONVOLUTION,
    CONVOLUTION_STEP,
    KERNEL,
    STATE,
    STATE_BYTES,
    STEPS,
)
from fastflow.physics.workload.ops.recurrence import DELTA, SCAN

_RULES = {"gdn": DELTA, "mamba2": SCAN}
_PHASES = ("prefill", "decode")


@register
class LinearAttentions(LimitedByMemory):
    """Kernels of linear-time mixers, one a row."""

    name = "linear attention"
    model = "linear_attention"
    needed = ("kernel", "phase", "batch", "tokens", "k_heads", "k_dim", "v_heads", "v_dim")
    inputs_of_columns: ClassVar[Mapping[str, str]] = {
        "batch": "model.batch", "tokens": "model.tokens", "conv": "model.conv_width",
        "k_heads": "model.key_heads", "k_dim": "model.key_dim", "v_heads": "model.value_heads",
        "v_dim": "model.value_dim", "dtype": "model.dtype", "state_dtype": STATE.name,
    }  # fmt: skip
    other_columns = ("kind", "kernel", "phase")
    naming_keys = ("kind", "kernel", "batch", "tokens", "k_heads", "k_dim", "v_heads", "v_dim")
    inferred_key = STATE.name
    inferred_value = "bf16"
    inferred_note = f"states are of 2 bytes: main memory is too slow for fp32 ({STATE.name}=bf16)"
    peak_share = 1.0

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read which kernel each row is of, and the channels of convolutions; raises InputError."""
        super().__init__(rows, options)
        file, all_rows = self.file, np.ones(self.file.rows, dtype=np.bool_)
        rules = np.array([_RULES[kind] for kind in file.choices("kind", tuple(_RULES), "gdn").tolist()])
        decodes = file.choices("phase", _PHASES, "prefill") == "decode"
        convolves = np.array(["conv" in name.lower() for name in file.frame["kernel"]], dtype=np.bool_)
        suffix = np.where(decodes, "_step", "_chunks")
        kernels = np.where(
            convolves,
            np.where(decodes, CONVOLUTION_STEP, CONVOLUTION),
            np.char.add(rules.astype(np.str_), suffix),
        )
        self.inputs[KERNEL.name] = InputColumn(kernels, all_rows)
        self.inputs["model.channels"] = InputColumn(self._channels(rules), all_rows)

    def bytes_moved(self, inputs: Columns) -> Floats:
        """Return the bytes of states, of their data type, that steps read and write."""
        elements = 1.0 * inputs["model.batch"] * inputs["model.value_heads"]
        elements = elements * inputs["model.key_dim"] * inputs["model.value_dim"]
        moved: Floats = 2.0 * elements * map_values(STATE_BYTES, inputs[STATE.name])
        return np.where(np.isin(inputs[KERNEL.name], tuple(STEPS)), moved, 0.0)

    def _channels(self, rules: Texts) -> Ints:
        """Return the channels of each row's convolution.

        Mamba-2 convolves values, keys and queries together. Rows of gated delta nets are of one of the three,
        the keys: times are equal whatever the heads of values (ai-dynamo/aiconfigurator@095f58a).
        """
        keys, values = (
            self.inputs[f"model.{side}_heads"].values * self.inputs[f"model.{side}_dim"].values
            for side in ("key", "value")
        )
        channels: Ints = np.where(rules == SCAN, values + 2 * keys, keys)
        return channels
