"""Bytes of a number by its role: operand, weight, activation, gradient, optimizer state, master weight.

Products compute in the operands' type, `model.dtype`; the group `precision` says in which type each of the
others is held, moved and summed. By default weights, activations and gradients are of the operands' type,
and every 2-byte weight has a 4-byte master copy that the optimizer updates (Micikevicius et al., Mixed
Precision Training, ICLR 2018). Momentum keeps one state a weight, Adam two, of 4 bytes each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.distinct import look_up
from fastflow.tables import Floats, Inputs

DTYPE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
MASTER_BYTES = 4.0
OPERAND, AUTO, NONE = "operand", "auto", "none"
ROLE_TYPES = (OPERAND, *DTYPE_BYTES)
MASTER_TYPES = (AUTO, NONE, *ROLE_TYPES)
STATES = {"sgd": 0, "momentum": 1, "adam": 2}
# operations a weight: scale by the clip factor, then the rule itself
UPDATE_FLOP = {"sgd": 3.0, "momentum": 5.0, "adam": 13.0}
_OWN_BYTES = dict.fromkeys(MASTER_TYPES, 0) | DTYPE_BYTES


class Precision(NamedTuple):
    """Bytes of a number by role, shape (points,)."""

    operand: Floats  # of products
    weight: Floats
    activation: Floats  # and the gradients of activations
    gradient: Floats  # of a weight
    master: Floats  # of a separate master weight; 0 where there is none
    state: Floats  # optimizer state a weight
    update_flop: Floats

    @property
    def update_traffic(self) -> Floats:
        """Return the bytes that updating one weight moves: gradient in, weight and states in and out."""
        weight = np.where(self.master > 0.0, 2.0 * self.master + self.weight, 2.0 * self.weight)
        return self.gradient + weight + 2.0 * self.state


UNSIZED = Precision(*np.zeros((len(Precision._fields), 1)))
"""Of one point, where kernels are only counted."""


def precision(inputs: Inputs) -> Precision:
    """Look the types of all roles and the optimizer up.

    Without training there are no masters and no states.
    """
    training, how = inputs["model.training"], inputs["precision.master"]
    operand = look_up(DTYPE_BYTES, inputs["model.dtype"])

    def of(role: str) -> Floats:
        own = look_up(_OWN_BYTES, inputs[f"precision.{role}"])
        return np.where(own > 0.0, own, operand)

    weight = of("weight")
    needed = np.where(weight < MASTER_BYTES, MASTER_BYTES, 0.0)
    master = np.where(how == AUTO, needed, np.where(how == NONE, 0.0, of("master")))
    return Precision(
        operand=operand,
        weight=weight,
        activation=of("activation"),
        gradient=of("gradient"),
        master=np.where(training, master, 0.0),
        state=np.where(training, of("state") * look_up(STATES, inputs["model.optimizer"]), 0.0),
        update_flop=look_up(UPDATE_FLOP, inputs["model.optimizer"]),
    )
