"""The network of an encoder: its input, a layer of each kind with its count, and its output."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Inputs, single
from fastflow.physics.workload.graph import EMBEDDING, HEAD, HIDDEN, SOFTMAX, Dims
from fastflow.physics.workload.models.transformer.building_blocks import HIDDEN as HIDDEN_COLUMNS
from fastflow.physics.workload.models.transformer.building_blocks import TOKENS
from fastflow.physics.workload.models.transformer.dimensions import Sizes, sizes_of
from fastflow.physics.workload.models.transformer.encoder.dimensions import NO_ENCODERS, encoder_sizes
from fastflow.physics.workload.models.transformer.encoder.inputs import first_layer
from fastflow.physics.workload.models.transformer.encoder.outputs import last_layer
from fastflow.physics.workload.models.transformer.encoder.vision import (
    FROZEN,
    IMAGES,
    frozen_projector,
    tower_inputs,
    trained_grid,
)
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, times
from fastflow.physics.workload.models.transformer.network import block, finished
from fastflow.physics.workload.models.transformer.parameters import count_parameters
from fastflow.physics.workload.network import INPUT, Layer, Network, Node, PassCost
from fastflow.physics.workload.ops import pointwise


def parameters(points: Inputs) -> tuple[Floats, Floats]:
    """Return total and active parameters of models with the same structure; each (points,)."""
    return count_parameters(network(points), points["model.layers"].size)


def tower_layers(points: Inputs, size: Sizes, embedding: str) -> list[Layer]:
    """Return the layers of a vision tower, between the embedding of tokens and the first layer.

    points, size: of the language model; embedding: the node whose output has places for images' tokens.
    """
    grid = trained_grid(points)
    is_frozen = {"head": bool(frozen_projector(points)[0])}  # the projector is in the last layer
    sequences = points["model.batch"] * points[IMAGES] * grid.pieces
    tower = network(tower_inputs(points, sequences, grid.patches))
    layers = [
        Layer(
            f"vision {layer.name}", EMBEDDING,
            tuple(
                node._replace(frozen=is_frozen.get(layer.name, bool(points[FROZEN][0])))
                for node in layer.nodes
            ),
            times=layer.times,
        )
        for layer in tower.layers
    ]  # fmt: skip
    add = pointwise.OPERATORS["add"]
    placed = Node(
        name="image tokens", type=add.base, rows=size.tokens, cols=size.hidden,
        reads=(layers[-1].nodes[-1].name, embedding), cost=PassCost(moves=3.0, backward_moves=3.0),
        keeps=0, keeps_whole=0, dims=Dims(TOKENS, (), HIDDEN_COLUMNS), part=HEAD,
    )  # fmt: skip
    *nodes, last = layers[-1].nodes
    last = last._replace(keeps=0, keeps_whole=0)  # places need no saved output
    return [*layers[:-1], layers[-1]._replace(nodes=(*nodes, last, placed))]


def network(points: Inputs) -> Network:
    """Return the network of models with the same structure."""
    points = {**points, **{key: np.zeros_like(points[key]) for key in NO_ENCODERS if key in points}}
    size, ends = sizes_of(points), encoder_sizes(points)
    counts = times(str(points[KEY][0]), single(points["model.layers"]))
    return finished(
        points,
        size,
        [
            Layer("embedding", EMBEDDING, first_layer(points, size, ends)),
            *(
                Layer(kind.text, HIDDEN, tuple(block(points, size, kind, INPUT)), times=count)
                for kind, count in counts.items()
            ),
            Layer("head", SOFTMAX, last_layer(points, size, ends)),
        ],
    )
