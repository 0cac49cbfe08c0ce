"""`model=encoder_decoder`: an encoder, and a decoder with cross attention (docs/encoder_decoder.md)."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.workload.family import Family
from fastflow.physics.workload.models.encoder_decoder.dimensions import (
    DECODE,
    ENCODE,
    FORWARD,
    NAME,
    SIZES,
    STRUCTURE,
    extra_structure,
    invalid_sizes,
)
from fastflow.physics.workload.models.encoder_decoder.network import network, order
from fastflow.physics.workload.models.transformer.parameters import count_parameters
from fastflow.physics.workload.precision import TRAINED


def _rows(inputs: Inputs) -> tuple[Ints, Bools]:
    """Return the pairs of sequences of each point, whose tokens belong together."""
    return inputs["model.batch"], np.ones(inputs["model.batch"].size, dtype=np.bool_)


def _layers(inputs: Inputs) -> Ints:
    """Return the layers of each point's step, embedding and head among them."""
    return np.diff(order(inputs).offset)


def _tokens(inputs: Inputs) -> Ints:
    """Return the tokens of each point's step: of source and target, or of one of them."""
    step = inputs["model.step"]
    source, target = (
        np.where(step != other, inputs[key], 0)
        for other, key in ((DECODE, "model.source_sequence"), (ENCODE, "model.sequence"))
    )
    tokens: Ints = inputs["model.batch"] * (source + target)
    return tokens


def _sequences(inputs: Inputs) -> tuple[Ints, ...]:
    """Return the tokens of sequences that devices share: of both sides, or of the encoder; none in decode."""
    step = inputs["model.step"]
    source = np.where(step != DECODE, inputs["model.source_sequence"], 0)
    return source, np.where(step == FORWARD, inputs["model.sequence"], 0)


def parameters(points: Inputs) -> tuple[Floats, Floats]:
    """Return total and active parameters of models with the same structure, whatever their step."""
    step = np.full(points["model.step"].size, FORWARD)
    return count_parameters(network({**points, "model.step": step}), step.size)


FAMILY = Family(
    name=NAME,
    work="training",
    microbatch=1,
    network=network,
    rows=_rows,
    sizes=SIZES,
    structure=STRUCTURE,
    extra_structure=extra_structure,
    layers=_layers,
    order=order,
    tokens=_tokens,
    sequences=_sequences,
    parameters=parameters,
    invalid_sizes=invalid_sizes,
    quantizes=True,
    instead_of_serving="serve=none model.training=false with model.step=encode, and with model.step=decode,"
    " predicts its passes",
    trained=TRAINED,
    divided={"tp": "model.heads"},
    copied={"tp": "model.kv_heads"},
    multiplied=("model.batch", "model.sequence"),
)
