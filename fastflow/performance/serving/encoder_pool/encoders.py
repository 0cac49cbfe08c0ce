"""What encoders on devices of their own do for a request: time, energy, memory, transfers of embeddings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import compute_unique
from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons, first_reasons, no_reasons
from fastflow.core.reasons.forms import short_of_encoder
from fastflow.core.tables import Columns, Floats, Inputs, Ints, replace_rows, take
from fastflow.performance.kernel_times import HARDWARE
from fastflow.performance.serving.encoder_pool.devices import (
    BANDWIDTH,
    ENCODER_DEVICES,
    encoder_inputs,
    has_encoders,
)
from fastflow.performance.serving.energy import Pool, Work
from fastflow.performance.serving.images import image_tokens, tower_passes
from fastflow.performance.serving.layout import server_layouts
from fastflow.performance.serving.passes.step_time import Intakes, Servers
from fastflow.performance.validity import MAX_VALUE
from fastflow.physics.hardware.chip import Chip, generate
from fastflow.physics.hardware.power import Power, power_of
from fastflow.physics.parallelism.memory.process import offered
from fastflow.physics.workload.models.transformer.encoder.vision import PREFIX

EMBEDDING_BYTES = 2.0
"""Of each number of an embedding: a tower computes in 16 bits (`images`)."""


class Encoders(NamedTuple):
    """Encoders on devices of their own; (points,), 0 where there are none."""

    devices: Ints
    encode_s: Floats  # of the images of a request on one of them [s]
    exchange_s: Floats  # of it, exposed transfers [s]
    throttled_s: Floats  # of it, in kernels that a power limit slows down [s]
    joules: Floats  # of it, rest included [J]
    embeddings: Floats  # of a request [B]
    bandwidth: Floats  # of an encoder's links [B/s]
    weights: Floats  # of a device [B]
    power: Power  # of a device
    reason: ReasonColumn  # why they encode nothing

    def send_s(self, inputs: Inputs, bandwidth: Floats) -> Floats:
        """Return the time to send a request's embeddings [s]; bandwidth: of a device that has them [B/s]."""
        stated = inputs[BANDWIDTH]
        links = np.where(stated > 0.0, stated, np.minimum(self.bandwidth, bandwidth))
        rows = self.devices > 0
        with np.errstate(divide="ignore"):  # `unconnected` names it
            sends_s = self.embeddings / np.where(rows, links, 1.0)
        return np.where(rows, inputs["net.inter.latency"] + sends_s, 0.0)


def no_encoders(power: Power) -> Encoders:
    """Return what points without encoders have; power: of their devices."""
    zeros = np.zeros(power.idle.size)
    return Encoders(
        zeros.astype(np.int64), zeros, zeros, zeros, zeros, zeros, zeros, zeros, power, no_reasons(zeros.size)
    )


def encoders_of(inputs: Inputs, power: Power) -> Encoders:
    """Predict the encoders of points; power: of other devices, for points without encoders."""
    none, rows = no_encoders(power), np.flatnonzero(has_encoders(inputs))
    if not rows.size:
        return none
    columns = take(dict(inputs), rows)
    of_encoder = encoder_inputs(columns)
    tower = tower_passes(of_encoder, server_layouts(of_encoder))
    chip = compute_unique(generate, of_encoder, *HARDWARE, cached=True)
    # of the last layer, and of each earlier one with a projector (DeepStack)
    numbers: Ints = image_tokens(columns) * columns["model.hidden"] * (1 + columns[f"{PREFIX}mergers"])
    encoders = Encoders(
        devices=columns[ENCODER_DEVICES],
        encode_s=tower.part.time,
        exchange_s=tower.part.exchange,
        throttled_s=tower.part.throttled,
        joules=tower.part.energy,
        embeddings=EMBEDDING_BYTES * numbers.astype(np.float64),
        bandwidth=chip.inter.bandwidth * of_encoder["net.inter.utilization"],
        weights=tower.weights,
        power=power_of(of_encoder, chip),
        reason=first_reasons(tower.reason, _short_of(of_encoder, tower.weights, chip)),
    )
    return replace_rows(none, rows, encoders)


def _short_of(inputs: Inputs, weights: Floats, chip: Chip) -> ReasonColumn:
    """Say which encoders have too little memory for their weights and their process."""
    reason, available = Reasons(weights.size), offered(inputs, chip.dram.capacity)
    needed = weights + inputs["memory.context"]
    for i in np.flatnonzero(needed > available).tolist():
        sizes = float(needed[i]), float(available[i]), float(weights[i])
        reason.add(i, short_of_encoder(needed=sizes[0], capacity=sizes[1], weights=sizes[2]))
    return reason.column()


def with_encoders(
    servers: Servers, encoders: Encoders, number: Ints, inputs: Inputs, bandwidth: Floats
) -> Servers:
    """Return servers to which requests come from encoders; number: of these, that a server has.

    inputs: of points; bandwidth: of the links of a device that computes prompts [B/s]; (points,).
    """
    intake: Intakes = servers.intake._replace(
        encoders=number, encode_s=encoders.encode_s, send_s=encoders.send_s(inputs, bandwidth)
    )
    return servers._replace(intake=intake)


def unconnected(inputs: Inputs, send_s: Floats) -> ReasonColumn:
    """Say for every point why its embeddings do not come to the servers; send_s: [s]."""
    reason = Reasons(send_s.size)
    for i in reason.without(~(send_s <= MAX_VALUE)):
        value = float(inputs[BANDWIDTH][i])
        allowed = f"a bandwidth with which embeddings come to a server in at most {MAX_VALUE:g} s"
        if value == 0.0:
            allowed = "a bandwidth, since these devices have no links between packages"
        reason.add(i, rejected(Code.NETWORK, BANDWIDTH, value, allowed))
    return reason.column()


def encoder_columns(encoders: Encoders, send_s: Floats, wait_s: Floats, rate: Floats) -> Columns:
    """Return the result columns of encoders; none where no point has any.

    send_s: of a request's embeddings [s]; wait_s: of a request for an encoder, mean [s]; rate: of requests,
    of all servers [1/s]; (points,).
    """
    rows = encoders.devices > 0
    if not rows.any():
        return {}
    columns = {
        "encode_wait_s": wait_s, "embedding_transfer_s": send_s,
        "encoder_utilization": rate * encoders.encode_s / np.maximum(encoders.devices, 1),
        "encoder_weight_B": encoders.weights,
    }  # fmt: skip
    return {name: np.where(rows, column, 0.0) for name, column in columns.items()}


def encoder_pools(encoders: Encoders) -> list[Pool]:
    """Return the encoders with the work of a request, for its energy; none where no point has any."""
    if not encoders.devices.any():
        return []
    kernels_s = encoders.encode_s - encoders.exchange_s
    host_s = np.zeros(kernels_s.size)
    work = Work(encoders.joules, encoders.encode_s, host_s, kernels_s, encoders.throttled_s)
    return [Pool(encoders.power, encoders.devices, work)]
