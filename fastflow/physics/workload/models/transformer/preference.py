"""Training on preferences: pairs of a chosen and a rejected sequence (DPO, arXiv:2305.18290).

`model.batch` counts pairs, as TRL's `per_device_train_batch_size` does; both sequences of a pair go through
the model in one batch. DPO takes the log-probabilities of both from a reference model too: the model as it
was before, frozen, which has a forward pass alone and keeps nothing for a backward pass. Its layers run on
the devices of the model's, layer by layer. With adapters the reference is the model itself with its adapters
switched off (TRL's DPOTrainer with `peft_config`), whose weights are in memory once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fastflow.core.field import text
from fastflow.core.tables import Bools, Inputs, Ints, Texts
from fastflow.physics.workload.models.transformer.dimensions import PREFERENCE
from fastflow.physics.workload.network import INPUT, Layer, Node
from fastflow.physics.workload.recompute_modules import NEVER

NONE, DPO, REFERENCE_FREE = "none", "dpo", "reference_free"
METHOD = text(
    PREFERENCE,
    "training on pairs of a chosen and a rejected sequence, of which model.batch is the number: with a"
    " reference model (dpo), or without one, as SimPO, ORPO, or DPO of log-probabilities computed before"
    " (reference_free)",
    (NONE, DPO, REFERENCE_FREE),
)._replace(absent="sequences are no pairs")
_PREFIX = "reference "


def sequences_of(inputs: Inputs) -> Ints:
    """Return the sequences of the batch of every point, (points,): two of each pair."""
    batch: Ints = inputs["model.batch"]
    return np.where(inputs[PREFERENCE] != NONE, 2 * batch, batch) if PREFERENCE in inputs else batch


def preference_structure(inputs: Inputs) -> tuple[Bools | Texts, ...]:
    """Return columns in which models whose preference training has the same kernels agree."""
    return (inputs[PREFERENCE],) if PREFERENCE in inputs else ()


def has_reference(points: Inputs) -> bool:
    """Say whether models with the same structure are trained beside a reference model."""
    return PREFERENCE in points and str(points[PREFERENCE][0]) == DPO


def invalid_preferences(inputs: Inputs) -> Iterator[tuple[Bools, str, str, str]]:
    """Yield points whose preference training contradicts other inputs, as `Family.invalid_sizes`."""
    if PREFERENCE not in inputs:
        return
    key, prefers = PREFERENCE, inputs[PREFERENCE] != NONE
    yield prefers & ~inputs["model.training"], key, "model.training", f"{NONE} with model.training=false"
    yield prefers & (inputs["model.mtp"] > 0), key, "model.mtp", f"{NONE} with model.mtp={{}}"
    if "model.vision.images" in inputs:
        images = inputs["model.vision.images"] > 0
        yield prefers & images, key, "model.vision.images", f"{NONE} with model.vision.images={{}}"


def with_reference(layers: Sequence[Layer], base: Sequence[Layer], shares: bool) -> list[Layer]:
    """Return layers with the nodes of the reference model's layers, before the last node of each.

    base: the layers as the reference has them, with frozen weights; shares: these are the model's own.
    """
    result: list[Layer] = []
    for number, (layer, frozen) in enumerate(zip(layers, base, strict=True)):
        below = base[number - 1]
        before = f"{below.name}.{_PREFIX}{below.nodes[-1].name}"
        nodes = [_of_reference(node, before, shares) for node in frozen.nodes]
        *first, last = layer.nodes
        result.append(layer._replace(nodes=(*first, *nodes, last)))
    return result


def _of_reference(node: Node, below: str, shares: bool) -> Node:
    """Return a node of the reference model; below: the node that makes the input of its layer."""

    def renamed(read: str) -> str:
        if read == INPUT:
            return below
        layer, dot, name = read.rpartition(".")
        return f"{layer}{dot}{_PREFIX}{name}"

    return node._replace(
        name=f"{_PREFIX}{node.name}", reads=tuple(map(renamed, node.reads)), keeps=0, keeps_whole=0,
        frozen=True, shares_base=shares, modules=NEVER, below_run=False,
    )  # fmt: skip
