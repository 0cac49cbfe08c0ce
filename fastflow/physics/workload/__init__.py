"""Compute graphs: the kernels of one training iteration, before any parallelism."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fastflow.core.dedupe import factorize, unique_rows
from fastflow.core.reasons.codes import Code, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.registry import Registry
from fastflow.core.tables import (
    Bools,
    Floats,
    Inputs,
    Ints,
    Values,
    broadcast_column,
    columns_of,
    single,
    take,
    values_of,
)
from fastflow.physics.workload.family import OTHERS, WORK, Family, Order
from fastflow.physics.workload.graph import (
    FORWARD,
    HIDDEN,
    PRODUCT,
    Form,
    Graph,
    Kernel,
    join,
    stack,
    take_points,
)
from fastflow.physics.workload.models import (
    attention,
    encoder_decoder,
    gemm,
    graph_file,
    latent_attention,
    linear_attention,
    lstm_lm,
    moe_layer,
    operator,
    rnn,
    sparse_attention,
    transformer,
)
from fastflow.physics.workload.models.transformer import serving_pass
from fastflow.physics.workload.models.transformer.encoder import family as encoder
from fastflow.physics.workload.network import Layer
from fastflow.physics.workload.ops import TYPES
from fastflow.physics.workload.optimizers import orthogonalizes
from fastflow.physics.workload.precision import ATTENTION_WEIGHTS, UNSIZED, Precision

__all__ = ["OTHERS", "WORK"]
MAX_PRODUCT = 1e18  # of a product of sizes: int64 counts nine times as many
FAMILIES: Registry[Family] = Registry(
    "model.name",
    "model_families",
    lambda thing: isinstance(thing, Family),
    "a fastflow.physics.workload.family.Family",
    {
        module.FAMILY.name: module.FAMILY
        for module in (
            gemm,
            operator,
            attention,
            latent_attention,
            linear_attention,
            sparse_attention,
            moe_layer,
            rnn,
            lstm_lm,
            serving_pass,
            transformer,
            encoder,
            encoder_decoder,
            graph_file,
        )
    },
)
STRUCTURE = tuple(column.name for family in FAMILIES.built_ins() for column in family.structure)
"""The inputs that decide which kernels a model of fastflow has, and how many layers."""


_EMPTY = stack([Kernel(label="", form=Form(TYPES["gemm"]), phase=FORWARD, kind=PRODUCT, rows=0)], points=0)


def family_of(inputs: Inputs) -> Family:
    """Return the family of points, at least one point: all points of a call have the same family."""
    return FAMILIES[inputs["model.name"][0]]


def build_graph(inputs: Inputs, precision: Precision, by_layer: bool = False) -> Graph:
    """Return the compute graph of every point's model; the graph of a repeated model is built once.

    by_layer: every described layer is a separate layer kind.
    """
    model = {key: column for key, column in inputs.items() if key.startswith("model.")}
    points = inputs["model.training"].size
    index, inverse = unique_rows([*model.values(), *precision], points)
    if index.size == 1 and graph_file.KEY not in model:
        graph = _build_single_model(values_of(model), values_of(precision._asdict()), by_layer)
        return graph if points == 1 else take_points(graph, inverse)
    if 2 * index.size > points:  # few models repeat: copying takes longer than building
        return _build(model, precision, by_layer)
    return take_points(_build(take(model, index), take(precision, index), by_layer), inverse)


@lru_cache(maxsize=64)
def _build_single_model(model: Values, precision: Values, by_layer: bool) -> Graph:
    """Return the graph of a single model, cached: Python calls repeat models; graphs are read-only."""
    return _build(columns_of(model), Precision(**columns_of(precision)), by_layer)


def _build(inputs: Inputs, precision: Precision, by_layer: bool) -> Graph:
    """Return the compute graph of every point's model.

    Points that share the structure of their graph are built together, and the graphs joined in the order of
    the points.
    """
    graphs, members = [], []
    for rows in _structures(inputs):
        kernels = _kernels(take(dict(inputs), rows), take(precision, rows), by_layer)
        graphs.append(stack(kernels, rows.size))
        members.append(rows)
    return join(graphs, members) if graphs else _EMPTY


def _kernels(points: Inputs, precision: Precision, by_layer: bool = False) -> list[Kernel]:
    """Return the kernels of points that share the structure of their graph."""
    family = family_of(points)
    network = family.network(points)
    network = network.by_layer() if by_layer else network
    return family.kernels(network, points, Precision(*map(single, precision)))


def layers_of(inputs: Inputs) -> tuple[list[tuple[Layer, ...]], Ints]:
    """Return the described layers of each model structure, and the structure index of every point, (points,).

    inputs: the columns of `model`.
    """
    by_structure: list[tuple[Layer, ...]] = []
    structure = np.zeros(inputs["model.training"].size, dtype=np.int64)
    for rows in _structures(inputs):
        structure[rows] = len(by_structure)
        point = take(dict(inputs), rows[:1])
        by_structure.append(family_of(point).network(point).layers)
    return by_structure, structure


def count_kernels(inputs: Inputs) -> Ints:
    """Return the number of kernels of each point's graph, (points,); builds a graph for each structure.

    inputs: the columns of `model`.
    """
    count = np.zeros(inputs["model.training"].size, dtype=np.int64)
    for rows in _structures(inputs):
        point = take(dict(inputs), rows[:1])
        count_quickly = family_of(point).quick_count
        count[rows] = count_quickly(point) if count_quickly else _count(values_of(point))
    return count


@lru_cache(maxsize=64)
def _count(model: Values) -> int:
    return len(_kernels(columns_of(model), UNSIZED))


def count_layers(inputs: Inputs) -> Ints:
    """Return the number of layers of each point's model that a pipeline can split between, (points,).

    inputs: at least `model.name`, and the columns of the family's structure.
    """
    layers = family_of(inputs).layers
    return layers(inputs) if layers else np.ones(inputs["model.name"].size, dtype=np.int64)


def layer_order(inputs: Inputs) -> Order | None:
    """Return the layers of every point's model in order, None where the graph holds every layer separately.

    inputs: the columns of `model`.
    """
    order = family_of(inputs).order if inputs["model.name"].size else None
    return order(inputs) if order else None


def count_hidden_layers(inputs: Inputs) -> Ints:
    """Return the hidden layers of every point's model, which has layer runs; (points,).

    inputs: the columns of `model`.
    """
    order, (layers, structure) = layer_order(inputs), layers_of(inputs)
    assert order is not None
    hidden = [np.array([layer.kind == HIDDEN for layer in described]) for described in layers]
    return np.array([
        hidden[structure[i]][order.layer[start:end]].sum()
        for i, (start, end) in enumerate(itertools.pairwise(order.offset.tolist()))
    ], dtype=np.int64)  # fmt: skip


def has_layer_runs(inputs: Inputs) -> bool:
    """Say whether the graph of the points' models has layer runs: layers that stand for several.

    inputs: at least `model.name`; all points of a call are of one family.
    """
    return bool(inputs["model.name"].size) and family_of(inputs).order is not None


def default_microbatch(inputs: Inputs) -> int:
    """Return the sequences of a micro-batch of the points' models by default, 0 for those of a device.

    inputs: at least `model.name`; all points of a call are of one family.
    """
    return family_of(inputs).microbatch if inputs["model.name"].size else 0


def is_iteration(inputs: Inputs) -> bool:
    """Say whether points are iterations of whole models, rather than single operations.

    inputs: at least `model.name`; all points of a call are of one family.
    """
    return bool(inputs["model.name"].size) and family_of(inputs).layers is not None


def point_has_layer_runs(inputs: Mapping[str, Any]) -> bool:
    """Say whether a single point's model has layer runs; inputs: by dotted keys. Unknown models have none."""
    family = FAMILIES.get(inputs.get("model.name", ""))
    return family is not None and family.order is not None


def tokens_of(inputs: Inputs) -> Ints:
    """Return the tokens of an iteration of every point's model, 1 for families without tokens; (points,).

    inputs: the columns of `model`.
    """
    tokens = family_of(inputs).tokens
    return tokens(inputs) if tokens else np.ones(inputs["model.name"].size, dtype=np.int64)


def parameters_of(inputs: Inputs) -> tuple[Floats, Floats]:
    """Return total and active parameters of every point's model; NaN for families without a count.

    inputs: the columns of `model`. Both of shape (points,).
    """
    total, active = np.full((2, inputs["model.training"].size), np.nan)
    count = family_of(inputs).parameters if total.size else None
    if count is not None:
        model = {key: column for key, column in inputs.items() if key.startswith("model.")}
        model["model.batch"] = broadcast_column(np.ones(1, np.int64), total.size)  # it changes no count
        for rows in _structures(model):
            points = take(model, rows)
            first, inverse = unique_rows(points.values(), rows.size)
            is_single = first.size == 1 and graph_file.KEY not in model
            counts = _count_parameters(values_of(points)) if is_single else count(take(points, first))
            total[rows], active[rows] = take(counts, inverse)
    return total, active


@lru_cache(maxsize=64)
def _count_parameters(model: Values) -> tuple[Floats, Floats]:
    """Return total and active parameters of a single model, cached; (1,) each."""
    points = columns_of(model)
    count = family_of(points).parameters
    assert count is not None
    return count(points)


def row_shard_limit(inputs: Inputs) -> tuple[Ints, Bools]:
    """Return how many shards the rows of each point's model allow, and whether that is a hard limit.

    The number is the rows of the forward kernel with the fewest rows (more devices share a row), or the
    sequences, whose rows must stay together. Both of shape (points,). inputs: the columns of `model`.
    """
    return family_of(inputs).rows(inputs)


def transposed(inputs: Inputs) -> Bools:
    """Return whether B of every point's products is stored as n x k, shape (points,).

    inputs: the columns of `model`.
    """
    points = inputs["model.name"].size
    key = family_of(inputs).transposed if points else ""
    return inputs[key] if key else np.zeros(points, dtype=np.bool_)


def invalid_model_dims(inputs: Inputs) -> ReasonColumn:
    """Say for every point which dimensions of its model are invalid or too large, (points,).

    inputs: the columns of `model`. Files get the same checks when they are read.
    """
    reason = Reasons(inputs["model.name"].size)
    for column in family_of(inputs).structure:  # other families may have other choices
        if not column.choices:
            continue
        names, index = factorize(inputs[column.name])
        for i in reason.without(np.array([name not in column.choices for name in names])[index]):
            value = str(inputs[column.name][i])
            reason.add(i, rejected(Code.MODEL, column.name, value, column.allowed()))
    for column in family_of(inputs).sizes:  # other families may allow less
        if column.kind == "str":
            continue
        for i in reason.without(inputs[column.name] < column.low):
            reason.add(i, rejected(Code.MODEL, column.name, inputs[column.name][i], column.allowed()))
    if multiplied := family_of(inputs).multiplied:
        key, other_key = multiplied
        amount = 1.0 * inputs[key] * inputs[other_key]
        for i in reason.without(amount > MAX_PRODUCT):
            allowed = f"at most {MAX_PRODUCT:.0e} {key} x {other_key}, these are {amount[i]:.3g}"
            reason.add(i, rejected(Code.MODEL, key, int(inputs[key][i]), allowed))
    for wrong, key, other_key, allowed in family_of(inputs).invalid_sizes(inputs):
        for i in reason.without(wrong):
            requirement = allowed.format(inputs[other_key][i])
            reason.add(i, rejected(Code.MODEL, key, inputs[key][i].item(), requirement))
    return reason.column()


def trained_types(inputs: Inputs) -> tuple[str, ...]:
    """Return the GEMM-only data types that the points' models train in; inputs: at least `model.name`."""
    return family_of(inputs).trained if inputs["model.name"].size else ()


def _structures(inputs: Inputs) -> Iterator[Ints]:
    """Yield the indices of the points of every model structure."""
    points = inputs["model.training"].size
    of_dtype = ("model.dtype", ATTENTION_WEIGHTS) if points and family_of(inputs).quantizes else ()
    of_structure = [column.name for column in family_of(inputs).structure] if points else []
    shared = [inputs[key] for key in ("model.training", *of_dtype, *of_structure) if key in inputs]
    shared += family_of(inputs).extra_structure(inputs) if points else ()
    if (of_matrices := orthogonalizes(inputs)).any():
        shared.append(of_matrices)
    index, inverse = unique_rows(shared, points)
    for structure in range(index.size):
        yield np.flatnonzero(inverse == structure)
