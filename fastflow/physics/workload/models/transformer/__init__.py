"""`model=transformer`: a decoder-only language model, described by its dimensions (docs/models.md)."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Bools, Inputs, Ints
from fastflow.physics.workload.family import Family
from fastflow.physics.workload.models.transformer import layer_pattern
from fastflow.physics.workload.models.transformer.dimensions import SIZES, STRUCTURE, extra_structure
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


FAMILY = Family(
    name="transformer",
    work="training",
    network=network,
    rows=_rows,
    sizes=SIZES,
    structure=STRUCTURE,
    extra_structure=extra_structure,
    layers=_layers,
    order=lambda inputs: layer_pattern.order(
        inputs[layer_pattern.KEY], inputs["model.layers"], inputs["model.mtp"]
    ),
    tokens=lambda inputs: inputs["model.batch"] * inputs["model.sequence"],
    parameters=parameters,
    invalid_sizes=invalid_sizes,
    quantizes=True,
    serves=True,
    trained=TRAINED,
    divided={"tp": "model.heads", "ep": "model.experts"},
    copied={"tp": "model.kv_heads"},
    divided_of_layers=divided_of_layers,
    multiplied=("model.batch", "model.sequence"),
)
