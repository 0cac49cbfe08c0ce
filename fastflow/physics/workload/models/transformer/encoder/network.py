"""The network of an encoder: its input, a layer of each kind with its count, and its output."""

from __future__ import annotations

import numpy as np

from fastflow.core.tables import Floats, Inputs, single
from fastflow.physics.workload.graph import EMBEDDING, HIDDEN, SOFTMAX
from fastflow.physics.workload.models.transformer.dimensions import sizes_of
from fastflow.physics.workload.models.transformer.encoder.dimensions import NO_ENCODERS, encoder_sizes
from fastflow.physics.workload.models.transformer.encoder.inputs import first_layer
from fastflow.physics.workload.models.transformer.encoder.outputs import last_layer
from fastflow.physics.workload.models.transformer.layer_pattern import KEY, times
from fastflow.physics.workload.models.transformer.network import block, finished
from fastflow.physics.workload.models.transformer.parameters import count_parameters
from fastflow.physics.workload.network import INPUT, Layer, Network


def parameters(points: Inputs) -> tuple[Floats, Floats]:
    """Return total and active parameters of models with the same structure; each (points,)."""
    return count_parameters(network(points), points["model.layers"].size)


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
