"""Bytes of a number: operands, master weights, optimizer state (mixed precision training).

With 2-byte operands, weights and gradients have 2 bytes and every weight a 4-byte master copy that
the optimizer updates (Micikevicius et al., Mixed Precision Training, ICLR 2018). Momentum keeps
one 4-byte state a weight, Adam two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.distinct import look_up
from fastflow.tables import Floats, Inputs

DTYPE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
MASTER_BYTES = 4.0
STATES = {"sgd": 0, "momentum": 1, "adam": 2}
# operations a weight: scale by the clip factor, then the rule itself
UPDATE_FLOP = {"sgd": 3.0, "momentum": 5.0, "adam": 13.0}


class Precision(NamedTuple):
    """Bytes by use, shape (points,)."""

    operand: Floats
    master: Floats  # of a separate master weight; 0 where operands are fp32
    state: Floats  # optimizer state a weight
    update_flop: Floats

    @property
    def update_traffic(self) -> Floats:
        """Return the bytes that updating one weight moves: gradient in, weight and states in and out."""
        weight = np.where(self.master > 0.0, 2.0 * self.master + self.operand, 2.0 * self.operand)
        return self.operand + weight + 2.0 * self.state


def precision(inputs: Inputs) -> Precision:
    """Look the model's data type and optimizer up."""
    operand = look_up(DTYPE_BYTES, inputs["model.dtype"])
    states = look_up(STATES, inputs["model.optimizer"])
    flop = look_up(UPDATE_FLOP, inputs["model.optimizer"])
    training = inputs["model.training"]
    master = np.where(training & (operand < MASTER_BYTES), MASTER_BYTES, 0.0)
    return Precision(
        operand=operand, master=master, state=np.where(training, MASTER_BYTES * states, 0.0), update_flop=flop
    )
