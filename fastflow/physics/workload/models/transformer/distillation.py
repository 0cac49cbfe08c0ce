"""Distillation: a student learns the logits of a larger, frozen teacher (Hinton et al., arXiv:1503.02531).

The teacher goes through the same sequences on the same devices, forward alone, and keeps nothing for a
backward pass. It is a decoder of sizes of its own, all of whose layers are equal. Both have the same
vocabulary: the loss is the divergence of the two distributions of every token, beside the student's own loss,
as in NVIDIA's ModelOpt (LogitsKLLoss, modelopt/torch/distill/losses.py) and TRL's GKDTrainer
(generalized_jsd_loss).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fastflow.core.field import count
from fastflow.core.tables import Bools, Inputs, Ints, single
from fastflow.physics.workload.graph import EMBEDDING, HEAD, HIDDEN, Dims
from fastflow.physics.workload.models.transformer.building_blocks import TOKENS, VOCABULARY, mask
from fastflow.physics.workload.models.transformer.dimensions import LOSSES, PREFERENCE, TEACHER, sizes_of
from fastflow.physics.workload.models.transformer.layer_kind import ATTENTION, DENSE, EXPERTS, MOST_LAYERS
from fastflow.physics.workload.models.transformer.layer_pattern import KEY as PATTERN
from fastflow.physics.workload.models.transformer.layer_pattern import times
from fastflow.physics.workload.models.transformer.lora import adapted_layers, without_adapters
from fastflow.physics.workload.models.transformer.losses import KEY as LOSS
from fastflow.physics.workload.models.transformer.network import block, embedding, logits_of
from fastflow.physics.workload.models.transformer.valid_sizes import patterns_of
from fastflow.physics.workload.network import INPUT, Layer, Node, PassCost
from fastflow.physics.workload.ops import pointwise
from fastflow.physics.workload.recompute_modules import NEVER

LAYERS, _EXPERTS = f"{TEACHER}layers", f"{TEACHER}experts"
_MEANINGS = {
    "layers": "layers of a frozen teacher, whose logits the model learns; 0: no teacher",
    "hidden": "its columns of a token", "heads": "its attention heads",
    "kv_heads": "its heads of keys and values", "head_dim": "the size of its heads",
    "ffn": "columns of its feed-forward part", "experts": "its experts; 1: none",
    "topk": "its choices of experts for a token", "expert_ffn": "columns of one of its experts",
}  # fmt: skip
TEACHERS = tuple(
    count(
        f"{TEACHER}{name}",
        meaning if name == "layers" else f"{meaning}; 0: as the model's",
        low=0,
        high=MOST_LAYERS if name == "layers" else 1e9,
    )._replace(absent="the model has no teacher")
    for name, meaning in _MEANINGS.items()
)
"""Inputs of teachers."""
DEFAULTS: Mapping[str, int] = {column.name: 0 for column in TEACHERS}
GRAPH_LAYERS = 3
"""Layers of a teacher in a graph: embedding, the run of its layers, and the head."""
_ENDS = 2  # layers of a teacher beside those of its stack: embedding and head
# Bytes of a logit of each model in fp32, eager: conversion (6), logarithm of the softmax (12); then their
# divergence (12) and its sum (4). Backward the gradients of divergence (8) and softmax (12), conversion (6)
_FORWARD_BYTES, _BACKWARD_BYTES, _FLOP = 2 * 18.0 + 16.0, 26.0, 10.0
_KEPT_BYTES = 8  # log-probabilities of both in fp32


def has_teacher(inputs: Inputs) -> Bools:
    """Return which points have a teacher, (points,)."""
    if LAYERS not in inputs:
        return np.zeros(inputs["model.layers"].size, dtype=np.bool_)
    has: Bools = inputs[LAYERS] > 0
    return has


def teacher_structure(inputs: Inputs) -> tuple[Bools, ...]:
    """Return columns in which models whose teachers have the same kernels agree."""
    if LAYERS not in inputs:
        return ()
    return has_teacher(inputs), has_teacher(inputs) & (_inputs_of(inputs)["model.experts"] > 1)


def _inputs_of(inputs: Inputs) -> Inputs:
    """Return the inputs of teachers as those of a model."""
    stated = {key.removeprefix(TEACHER): inputs[key] for key in DEFAULTS}
    model = dict(without_adapters(inputs))
    for name, values in stated.items():
        model[f"model.{name}"] = np.where(values > 0, values, model[f"model.{name}"])
    has_experts = model["model.experts"] > 1
    model[PATTERN] = np.where(has_experts, EXPERTS, DENSE)
    model["model.mtp"] = np.zeros_like(model["model.mtp"])
    return model


def teacher_layers(points: Inputs) -> list[Layer]:
    """Return the layers of the teacher of models with the same structure, below the student's first one."""
    points = _inputs_of(points)
    size, counts = sizes_of(points), times(str(points[PATTERN][0]), single(points["model.layers"]))
    layers = [
        Layer("embedding", EMBEDDING, embedding(points, size)),
        *(
            Layer(kind.text, HIDDEN, tuple(block(points, size, kind, INPUT)), times=number)
            for kind, number in counts.items()
        ),
        Layer("head", EMBEDDING, logits_of(points, size, INPUT, bool(points["model.tied"][0]))),
    ]
    return [
        layer._replace(
            name=f"teacher {layer.name}", kind=EMBEDDING,
            nodes=tuple(
                node._replace(keeps=0, keeps_whole=0, modules=NEVER, below_run=False) for node in layer.nodes
            ),
        )
        for layer in adapted_layers(points, size, layers, counts, targeted=False)
    ]  # fmt: skip


def distilled(points: Inputs, head: Layer) -> Layer:
    """Return a head with the divergence of its logits from those of the teacher."""
    size = sizes_of(points)
    divergence = Node(
        name="divergence", type=pointwise.OPERATORS["add"].base, rows=size.tokens, cols=size.vocabulary,
        reads=("logits", "teacher head.logits"), dims=Dims(TOKENS, (), VOCABULARY), part=HEAD,
        cost=PassCost(
            _FORWARD_BYTES / size.activation_bytes, _FLOP, _BACKWARD_BYTES / size.activation_bytes, _FLOP
        ),
        keeps=mask(size, _KEPT_BYTES * size.vocabulary), keeps_whole=0,
    )  # fmt: skip
    return head._replace(nodes=(*head.nodes, divergence))


def layers_of_teachers(inputs: Inputs) -> Ints:
    """Return the layers of every point's teacher, with embedding and head, (points,)."""
    has = has_teacher(inputs)
    return np.where(has, inputs[LAYERS] + _ENDS, 0) if has.any() else 0 * has


def divided_of_teachers(inputs: Inputs) -> Iterator[tuple[str, str, Ints]]:
    """Yield sizes of teachers that degrees must divide, as `Family.divided_of_layers`."""
    has = has_teacher(inputs)
    if not has.any():
        return
    teachers = _inputs_of(inputs)
    for axis, name in (("tp", "heads"), ("ep", "experts")):
        size = np.where(has, teachers[f"model.{name}"], 0)
        yield axis, f"{TEACHER}{name}", np.where((name == "heads") | (size > 1), size, 0)
    yield "pp", f"the number of stages with a teacher ({LAYERS})", np.where(has, 1, 0)


def invalid_teachers(inputs: Inputs) -> Iterator[tuple[Bools, str, str, str]]:
    """Yield points whose teachers contradict other inputs, as `Family.invalid_sizes`."""
    has = has_teacher(inputs)
    if not has.any():
        return
    teachers = _inputs_of(inputs)
    yield has & ~inputs["model.training"], LAYERS, "model.training", "0 with model.training=false"
    if PREFERENCE in inputs:
        pairs = inputs[PREFERENCE] != "none"
        yield has & pairs, LAYERS, PREFERENCE, f"0 with {PREFERENCE}={{}}"
    if LOSS in inputs:
        whole = np.isin(inputs[LOSS], LOSSES[:2])
        yield has & ~whole, LAYERS, LOSS, f"0 with {LOSS}={{}}, whose logits are never all in memory"
    hidden, heads = teachers["model.hidden"], teachers["model.heads"]
    plain = patterns_of(inputs).each(lambda kinds: all(kind.mixers == (ATTENTION,) for kind in kinds))
    plain &= (inputs["model.latent"] == 0) & (inputs["model.query_latent"] == 0)
    yield has & ~plain, LAYERS, LAYERS, "0, unless all layers of the model have attention without latent keys"
    wrong = has & (teachers["model.head_dim"] == 0) & (hidden % np.maximum(heads, 1) > 0)
    yield (
        wrong,
        f"{TEACHER}heads",
        f"{TEACHER}hidden",
        f"a divisor of {TEACHER}hidden, or of model.hidden if that is 0",
    )
    groups = np.where(teachers["model.kv_heads"] > 0, teachers["model.kv_heads"], heads)
    yield (
        has & (heads % groups > 0),
        f"{TEACHER}kv_heads",
        f"{TEACHER}heads",
        f"a divisor of {TEACHER}heads, or of model.heads if that is 0",
    )
    topk, experts = teachers["model.topk"], teachers["model.experts"]
    wrong = has & (experts > 1) & ((topk > experts) | (topk < 1))
    yield wrong, f"{TEACHER}topk", _EXPERTS, f"from 1 to {_EXPERTS}, or to model.experts if that is 0"
