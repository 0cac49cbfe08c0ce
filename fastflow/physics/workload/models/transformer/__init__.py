"""`model=transformer`: a decoder-only language model, described by its dimensions (docs/models.md)."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs, Ints, Texts
from fastflow.physics.workload.family import Family
from fastflow.physics.workload.models.transformer import layer_pattern
from fastflow.physics.workload.models.transformer.dimensions import SIZES, STRUCTURE, extra_structure
from fastflow.physics.workload.models.transformer.encoder.network import parameters as of_encoder
from fastflow.physics.workload.models.transformer.encoder.vision import (
    has_tower,
    tower_inputs,
    tower_structure,
)
from fastflow.physics.workload.models.transformer.network import network
from fastflow.physics.workload.models.transformer.parameters import parameters
from fastflow.physics.workload.models.transformer.valid_sizes import divided_of_layers, invalid_sizes
from fastflow.physics.workload.precision import TRAINED

OTHER_LAYERS = 2  # embedding and head
LAYERS_PER_MTP_MODULE = 2  # of an MTP module (multi-token prediction): its block and its head


def _rows(inputs: Inputs) -> tuple[Ints, Bools]:
    """Return the sequences of each point, whose tokens belong together."""
    return inputs["model.batch"], np.ones(inputs["model.batch"].size, dtype=np.bool_)


def _layers(inputs: Inputs) -> Ints:
    """Return the layers of each point, embedding and head among them."""
    layers: Ints = inputs["model.layers"] + OTHER_LAYERS + LAYERS_PER_MTP_MODULE * inputs["model.mtp"]
    return layers


def _extra_structure(inputs: Inputs) -> tuple[Bools | Texts, ...]:
    return (*extra_structure(inputs), *tower_structure(inputs))


def _parameters(points: Inputs) -> tuple[Floats, Floats]:
    """Return total and active parameters; a vision tower's are not active, as a token of text needs none."""
    total, active = parameters(points)
    if has_tower(points):
        ones = np.ones(total.size, dtype=np.int64)
        total = total + of_encoder(tower_inputs(points, ones, ones))[0]
    return total, active


FAMILY = Family(
    name="transformer",
    work="training",
    microbatch=1,
    serves=True,
    network=network,
    rows=_rows,
    sizes=SIZES,
    structure=STRUCTURE,
    extra_structure=_extra_structure,
    layers=_layers,
    order=lambda inputs: layer_pattern.order(
        inputs[layer_pattern.KEY], inputs["model.layers"], inputs["model.mtp"]
    ),
    tokens=lambda inputs: inputs["model.batch"] * inputs["model.sequence"],
    parameters=_parameters,
    invalid_sizes=invalid_sizes,
    quantizes=True,
    trained=TRAINED,
    divided={"tp": "model.heads", "ep": "model.experts"},
    copied={"tp": "model.kv_heads"},
    divided_of_layers=divided_of_layers,
    multiplied=("model.batch", "model.sequence"),
)
