"""Devices of encoders: their inputs, and what does not go with them.

`serve.encoder.devices` of the devices run the vision tower alone, each as a server of its own; the others
have the language model alone (Singh et al., EPD Disaggregation, arXiv:2501.05460, section 3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons, no_reasons
from fastflow.core.tables import Bools, Columns, Inputs
from fastflow.performance.serving.images import IMAGES
from fastflow.performance.serving.layout import STRATEGY, ServerLayouts
from fastflow.performance.serving.other_chips import with_chip
from fastflow.physics.hardware.packages import DEVICES
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.schema import OF_ENCODER
from fastflow.schema.serving import CONTINUOUS, DISAGGREGATED

ENCODER_DEVICES, BANDWIDTH = f"{OF_ENCODER}devices", f"{OF_ENCODER}bandwidth"
ONE_DEVICE = "TP-1"
"""The strategy of an encoder."""


def has_encoders(inputs: Inputs) -> Bools:
    """Say which points have devices of encoders."""
    return np.asarray(inputs[ENCODER_DEVICES] > 0, dtype=np.bool_)


def without_encoders(inputs: Inputs) -> Inputs:
    """Return inputs with the devices of the language model."""
    if not has_encoders(inputs).any():
        return inputs
    return {**inputs, DEVICES: np.maximum(inputs[DEVICES] - inputs[ENCODER_DEVICES], 1)}


def encoder_inputs(inputs: Inputs) -> Columns:
    """Return inputs of one encoder, with its chip; of points that have encoders."""
    points = inputs[DEVICES].size
    return with_chip(inputs, OF_ENCODER) | {
        STRATEGY: np.full(points, ONE_DEVICE), DEVICES: np.ones(points, dtype=np.int64),
    }  # fmt: skip


class _Rule(NamedTuple):
    """An input that does not go with devices of encoders."""

    code: Code
    key: str
    rows: Bools
    allowed: str


def invalid_encoders(inputs: Inputs, layouts: ServerLayouts) -> ReasonColumn:
    """Say for every point why encoders cannot have devices of their own, (points,).

    inputs: with all devices; layouts: of servers that compute prompts.
    """
    has = has_encoders(inputs)
    if not has.any():
        return no_reasons(has.size)
    reason, number = Reasons(has.size), inputs[ENCODER_DEVICES]
    for rule in _rules(inputs, layouts):
        for i in reason.without(has & rule.rows):
            reason.add(i, rejected(rule.code, rule.key, inputs[rule.key][i].item(), rule.allowed))
    for i in reason.without(has & (number >= inputs[DEVICES])):
        allowed = f"fewer than the {inputs[DEVICES][i]} devices of which they are, or 0"
        reason.add(i, rejected(Code.STRATEGY, ENCODER_DEVICES, int(number[i]), allowed))
    if TRACE not in inputs:
        servers = np.maximum(layouts.replicas, 1)
        is_shared = inputs["serve.mode"] == CONTINUOUS
        for i in reason.without(has & is_shared & (number % servers > 0)):
            allowed = f"a multiple of {servers[i]}, the servers of {STRATEGY}={layouts.printed[i]}; or 0"
            reason.add(i, rejected(Code.STRATEGY, ENCODER_DEVICES, int(number[i]), allowed))
    return reason.column()


def _rules(inputs: Inputs, layouts: ServerLayouts) -> list[_Rule]:
    """Return what does not go with devices of encoders."""
    whole, mode = f"; or {ENCODER_DEVICES}=0", inputs["serve.mode"]
    return [
        _Rule(
            Code.LOAD, ENCODER_DEVICES, inputs[IMAGES] == 0,
            "0 where serve.images is 0; or serve.images of at least 1",
        ),
        _Rule(
            Code.LOAD, "serve.mode", ~np.isin(mode, (CONTINUOUS, DISAGGREGATED)),
            f"{CONTINUOUS} or {DISAGGREGATED}: a single pass has no queue of encoders{whole}",
        ),
        _Rule(
            Code.STRATEGY, STRATEGY, layouts.slots > 1,
            f"servers that compute prompts without pipeline stages{whole}",
        ),
    ]  # fmt: skip
