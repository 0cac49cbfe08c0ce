"""`model=transformer`: a decoder-only language model, described by its dimensions (docs/models.md)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastflow.core.tables import Bools, Floats, Inputs, Ints, Texts
from fastflow.physics.workload.family import Family, Order
from fastflow.physics.workload.models.transformer import layer_pattern
from fastflow.physics.workload.models.transformer.dimensions import SIZES, STRUCTURE, extra_structure
from fastflow.physics.workload.models.transformer.distillation import (
    GRAPH_LAYERS,
    distilled,
    divided_of_teachers,
    has_teacher,
    invalid_teachers,
    layers_of_teachers,
    teacher_layers,
    teacher_structure,
)
from fastflow.physics.workload.models.transformer.distillation import LAYERS as TEACHER_LAYERS
from fastflow.physics.workload.models.transformer.encoder.dimensions import (
    invalid_sizes as invalid_encoder_sizes,
)
from fastflow.physics.workload.models.transformer.encoder.network import parameters as of_encoder
from fastflow.physics.workload.models.transformer.encoder.network import tower_layers
from fastflow.physics.workload.models.transformer.encoder.vision import (
    FROZEN,
    FROZEN_LANGUAGE,
    IMAGES,
    LAYERS,
    PREFIX,
    as_tower_key,
    freezes_language,
    frozen_projector,
    has_tower,
    tower_inputs,
    tower_structure,
    trained_grid,
    trains_images,
)
from fastflow.physics.workload.models.transformer.lora import (
    RANK,
    adapter_structure,
    has_adapters,
    invalid_adapters,
    without_adapters,
)
from fastflow.physics.workload.models.transformer.network import network
from fastflow.physics.workload.models.transformer.packing import invalid_documents
from fastflow.physics.workload.models.transformer.parameters import parameters
from fastflow.physics.workload.models.transformer.preference import (
    invalid_preferences,
    preference_structure,
    sequences_of,
)
from fastflow.physics.workload.models.transformer.valid_sizes import (
    InvalidSizes,
    divided_of_layers,
    invalid_sizes,
)
from fastflow.physics.workload.network import Network
from fastflow.physics.workload.precision import TRAINED

OTHER_LAYERS = 2  # embedding and head
LAYERS_PER_MTP_MODULE = 2  # of an MTP module (multi-token prediction): its block and its head


def _rows(inputs: Inputs) -> tuple[Ints, Bools]:
    """Return the sequences of each point, whose tokens belong together."""
    return inputs["model.batch"], np.ones(inputs["model.batch"].size, dtype=np.bool_)


def _network(points: Inputs) -> Network:
    """Return the network of models with the same structure, with the tower of training sequences' images."""
    teacher = (teacher_layers, distilled) if has_teacher(points)[0] else None
    if not trains_images(points)[0]:
        return network(points, teacher=teacher)
    return network(points, tower_layers, freezes_language(points), teacher)


def _tower_layers(inputs: Inputs) -> Ints:
    """Return the layers of each point's tower in an iteration, with its first and its last."""
    images = trains_images(inputs)
    layers: Ints = np.where(images, inputs[LAYERS] + OTHER_LAYERS, 0) if images.any() else 0 * images
    return layers


def _order(inputs: Inputs) -> Order:
    """Return the layers of each model, those of a teacher before them."""
    order, has = _order_of_model(inputs), has_teacher(inputs)
    if not has.any():
        return order
    layers = []
    for p in range(has.size):
        of_model = order.layer[order.offset[p] : order.offset[p + 1]]
        stack = np.ones(inputs[TEACHER_LAYERS][p], dtype=np.int64)
        below = np.concatenate([[0], stack, [2]]) if has[p] else of_model[:0]
        layers.append(np.concatenate([below, of_model + (GRAPH_LAYERS if has[p] else 0)]))
    offset = np.concatenate([[0], np.cumsum([layer.size for layer in layers])])
    return Order(offset.astype(np.int64), np.concatenate(layers))


def _order_of_model(inputs: Inputs) -> Order:
    """Return the layers of each model, those of a tower after its embedding."""
    text = layer_pattern.order(inputs[layer_pattern.KEY], inputs["model.layers"], inputs["model.mtp"])
    images = trains_images(inputs)
    if not images.any():
        return text
    none = np.zeros(images.size, dtype=np.int64)
    tower = layer_pattern.order(inputs[f"{PREFIX}pattern"], inputs[LAYERS], none)
    layers = []
    for p in range(images.size):
        of_text = text.layer[text.offset[p] : text.offset[p + 1]]
        of_tower = tower.layer[tower.offset[p] : tower.offset[p + 1]] if images[p] else text.layer[:0]
        layers.append(np.concatenate([of_text[:1], 1 + of_tower, of_text[1:] + of_tower.max(initial=-1) + 1]))
    offset = np.concatenate([[0], np.cumsum([layer.size for layer in layers])])
    return Order(offset.astype(np.int64), np.concatenate(layers))


def _invalid_sizes(inputs: Inputs) -> Iterator[InvalidSizes]:
    """Yield points with invalid sizes, those of towers among them."""
    yield from invalid_sizes(inputs)
    yield from invalid_adapters(inputs)
    yield from invalid_documents(inputs)
    yield from invalid_preferences(inputs)
    yield from invalid_teachers(inputs)
    images = trains_images(inputs)
    if has_tower(inputs):
        wrong = inputs[FROZEN_LANGUAGE] & ~images
        yield wrong, FROZEN_LANGUAGE, IMAGES, "false without images of training sequences"
    if not images.any():
        return
    grid = trained_grid(inputs)
    tower = tower_inputs(inputs, inputs["model.batch"] * inputs[IMAGES] * grid.pieces, grid.patches)
    for wrong, *texts in invalid_encoder_sizes(tower):
        key, other_key, allowed = map(as_tower_key, texts)
        yield images & wrong, key, other_key if other_key in inputs else key, allowed
    many = images & (inputs[IMAGES] * grid.tokens > inputs["model.sequence"])
    frozen_language = inputs[FROZEN_LANGUAGE]
    wrong = frozen_language & inputs[FROZEN] & frozen_projector(inputs)
    yield wrong, FROZEN_LANGUAGE, FROZEN, "false where the tower and its projector are frozen too ({})"
    if has_adapters(inputs):
        wrong = frozen_language & (inputs[RANK] > 0)
        yield wrong, FROZEN_LANGUAGE, RANK, f"false with {RANK}={{}}, which freezes its weights"
    yield many, IMAGES, "model.sequence", "so few that their tokens are at most the {} of model.sequence"


def _layers(inputs: Inputs) -> Ints:
    """Return the layers of each point, embedding and head among them."""
    layers: Ints = inputs["model.layers"] + OTHER_LAYERS + LAYERS_PER_MTP_MODULE * inputs["model.mtp"]
    return layers + _tower_layers(inputs) + layers_of_teachers(inputs)


def _divided_of_layers(inputs: Inputs) -> Iterator[tuple[str, str, Ints]]:
    """Yield sizes of layers that degrees must divide, those of teachers among them."""
    yield from divided_of_layers(inputs)
    yield from divided_of_teachers(inputs)


def _extra_structure(inputs: Inputs) -> tuple[Bools | Texts, ...]:
    towers = (*extra_structure(inputs), *tower_structure(inputs))
    return (
        *towers, *adapter_structure(inputs), *preference_structure(inputs), *teacher_structure(inputs)
    )  # fmt: skip


def _parameters(points: Inputs) -> tuple[Floats, Floats]:
    """Return total and active parameters, without adapters.

    A vision tower's are not active, as a token of text needs none.
    """
    points = without_adapters(points)
    if not has_tower(points):
        return parameters(points)
    total, active = parameters({key: column for key, column in points.items() if not key.startswith(PREFIX)})
    ones = np.ones(total.size, dtype=np.int64)
    return total + of_encoder(tower_inputs(points, ones, ones))[0], active


FAMILY = Family(
    name="transformer",
    work="training",
    microbatch=1,
    serves=True,
    network=_network,
    rows=_rows,
    sizes=SIZES,
    structure=STRUCTURE,
    extra_structure=_extra_structure,
    layers=_layers,
    order=_order,
    tokens=lambda inputs: sequences_of(inputs) * inputs["model.sequence"],
    parameters=_parameters,
    invalid_sizes=_invalid_sizes,
    quantizes=True,
    trained=TRAINED,
    divided={"ep": "model.experts"},
    copied={"tp": "model.kv_heads"},
    divided_of_layers=_divided_of_layers,
    multiplied=("model.batch", "model.sequence"),
)
