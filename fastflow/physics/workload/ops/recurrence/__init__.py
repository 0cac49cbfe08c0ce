"""Kernels of linear-time mixers: short causal convolutions, and recurrences in chunks or by single tokens.

`rule` says what a rule is, `rules` lists them, `nodes` and `convolution` make kernels of them.
"""

from fastflow.physics.workload.ops.recurrence.convolution import (
    convolution,
    convolution_step,
    window_elements,
)
from fastflow.physics.workload.ops.recurrence.nodes import (
    RecurrenceSizes,
    recurrence,
    recurrence_step,
    state_bytes,
)
from fastflow.physics.workload.ops.recurrence.rule import Rule
from fastflow.physics.workload.ops.recurrence.rules import DELTA, RULES, SCAN

__all__ = [
    "DELTA", "RULES", "SCAN", "RecurrenceSizes", "Rule", "convolution", "convolution_step", "recurrence",
    "recurrence_step", "state_bytes", "window_elements",
]  # fmt: skip
