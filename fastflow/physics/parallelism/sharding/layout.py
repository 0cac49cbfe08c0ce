"""Layouts of layers on the devices of a pipeline stage.

A strategy's kernel and data parallelism holds for all layers, unless a kind of layer (embedding,
hidden, softmax) or a layer has another one: an LSTM with a vocabulary of 800K needs other shards of its
softmax than of its cells. Every layout takes all devices of the stage. Layouts have a column for each kind;
only where some point names a layer, one for each layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import InputError
from fastflow.core.reasons.codes import Code, invalid_degree, rejected
from fastflow.core.reasons.columns import ReasonColumn, Reasons
from fastflow.core.tables import Bools, Inputs, Ints, Texts
from fastflow.core.yaml_file import listed, shown
from fastflow.physics.parallelism.layout_file import KEY as FILE
from fastflow.physics.parallelism.layout_file import read_layout
from fastflow.physics.parallelism.mesh import AXES, DATA, axes, devices_along
from fastflow.physics.parallelism.options import A2A, AUTO, TRUE
from fastflow.physics.parallelism.plans import (
    PLANS,
    SEQUENCE,
    ULYSSES,
    Assignment,
    assignment_of,
    assignments,
    number_of,
)
from fastflow.physics.parallelism.sharding.propagation import axes_that_shard
from fastflow.physics.parallelism.strategy import COLUMN_ROW, TENSOR, Strategies, Strategy, parse
from fastflow.physics.workload import family_of, layers_of
from fastflow.physics.workload.graph import LAYER_KINDS
from fastflow.physics.workload.sharding_rules import COLS, ROWS

SAME = "same"  # the layout of `parallel.strategy`
LAYERS = "parallel.layers"
_NAMED = re.compile(r"\s*(?P<name>[^\s,:].*?)\s*:\s*(?P<layout>[^\s:,]+)\s*(?:,|$)", re.ASCII)


class Layouts(NamedTuple):
    """The layout of each kind of layer, or of each layer; int64."""

    assignment: Ints  # dimensions that every axis shards, of plans.assignments, (points, columns)
    degrees: Ints  # of mesh.AXES, the same stages for all, (points, columns, axes)
    replicas: Ints  # parts of dp, each of which has all weights, (points,)

    def _along(self, side: str) -> Ints:
        """Return the devices over which a side of an activation is sharded, (points, columns)."""
        devices_of, known = np.ones_like(self.assignment), assignments()
        for number in np.flatnonzero(np.bincount(self.assignment.ravel())).tolist():
            devices = devices_along(self.degrees, axes_that_shard(known[number], side))
            devices_of = np.where(self.assignment == number, devices, devices_of)
        return devices_of

    @property
    def row_shards(self) -> Ints:
        """Shards of the rows of a layer (data parallelism, RC's KP1), as ranks."""
        return self._along(ROWS)

    @property
    def ranks(self) -> Ints:
        """Devices that share the columns of a layer (RC's KP2, CR's KP1), (points, columns)."""
        return self._along(COLS)

    @property
    def differ(self) -> Bools:
        """Whether layers have different layouts, shape (points,)."""
        same = (self.degrees == self.degrees[:, :1]).all(axis=(1, 2))
        differ: Bools = ~(same & (self.assignment == self.assignment[:, :1]).all(axis=1))
        return differ


class Sections(NamedTuple):
    """The columns of layouts; a structure with fewer columns than others repeats its first one."""

    names: Texts  # of every structure, (structures, columns)
    kinds: Ints  # of layer, (structures, columns)
    structure: Ints  # of every point's structure, (points,)


def names_layers(inputs: Inputs) -> bool:
    """Say whether some point has the layout of a layer by its name; raises InputError."""
    if LAYERS in inputs and (inputs[LAYERS] != SAME).any():
        return True
    return FILE in inputs and any(read_layout(path).layers for path in set(inputs[FILE].tolist()))


def sections(inputs: Inputs) -> Sections:
    """Return the columns of points' layouts: kinds of layer, or layers where some are named.

    inputs: as `names_layers` takes them, and those of `model` where layers are named.
    """
    if not names_layers(inputs):
        structure = np.zeros(inputs["parallel.strategy"].size, dtype=np.int64)
        return Sections(np.array([LAYER_KINDS]), np.arange(len(LAYER_KINDS))[None], structure)
    layers, structure = layers_of(inputs)
    max_layers = max((len(model_layers) for model_layers in layers), default=0)
    padded = [
        (*model_layers, *[model_layers[0]] * (max_layers - len(model_layers))) for model_layers in layers
    ]
    names = np.array([[layer.name for layer in model_layers] for model_layers in padded], dtype=np.str_)
    kinds = np.array([[layer.kind for layer in model_layers] for model_layers in padded], dtype=np.int64)
    return Sections(names.reshape(len(layers), max_layers), kinds.reshape(len(layers), max_layers), structure)


def resolve_layouts(inputs: Inputs, strategies: Strategies) -> tuple[Layouts, ReasonColumn]:
    """Return every point's layouts, and why a layout does not suit its strategy.

    inputs: `parallel.embedding`, `.hidden` and `.softmax`, each `same` or a strategy without stages; without
    data parallelism in it, the remaining devices share the batch. `parallel.layers`, in place of these, as
    `parse_layers` takes it. `parallel.hybrid_shard_size`. Raises InputError.
    """
    columns, reason = sections(inputs), Reasons(strategies.assignment.size)
    layouts = _same_layouts(strategies, columns)
    _write_tensor_parallel(inputs, strategies, layouts)
    _write_overrides(inputs, strategies, columns, layouts, reason)
    _check_mixed_layouts(inputs, layouts, reason)
    for p in np.flatnonzero(inputs["parallel.per_layer"]).tolist():  # no search has chosen the layouts
        allowed = "false, unless parallel.strategy=auto and parallel.layout=null"
        reason.add(p, rejected(Code.LAYOUT, "parallel.per_layer", "true", allowed))
    _write_files(inputs, columns, layouts, reason)
    _write_replicas(inputs["parallel.hybrid_shard_size"], layouts, layouts.differ | (FILE in inputs), reason)
    return layouts, reason.column()


def _same_layouts(strategies: Strategies, columns: Sections) -> Layouts:
    """Return the layouts of the strategies, the same for all layers."""
    count = columns.kinds.shape[1]
    assignment, degrees = (np.repeat(column[:, None], count, axis=1) for column in strategies[:2])
    return Layouts(assignment, degrees, np.ones_like(columns.structure))


def _write_tensor_parallel(inputs: Inputs, strategies: Strategies, layouts: Layouts) -> None:
    """Write the assignment of each point with tensor parallelism, which depends on its options."""
    rows = np.flatnonzero(strategies.assignment == TENSOR)
    options = (
        _shards_tokens(inputs, strategies), inputs["parallel.cp_comm_type"] == A2A, strategies.expert_axes,
        ~inputs["parallel.expert_tensor_parallel"],
    )  # fmt: skip
    first, inverse = unique_rows([option[rows] for option in options], rows.size)
    for number, point in enumerate(rows[first].tolist()):
        assignment = tensor_parallel(*(option[point].item() for option in options))
        layouts.assignment[rows[inverse == number]] = number_of(assignment)


def _write_overrides(
    inputs: Inputs, strategies: Strategies, columns: Sections, layouts: Layouts, reason: Reasons
) -> None:
    """Write the layouts of kinds of layers, or of layers, that replace their strategy's."""
    stages, per_stage = strategies.pp, strategies.devices // strategies.pp
    for override in _overrides(inputs, columns):
        p, strategy, devices = override.point, override.strategy, int(per_stage[override.point])
        sharded = strategy.devices // strategy.dp
        if strategy.dp == 1 and devices % sharded == 0:
            strategy = strategy._replace(dp=devices // sharded)
        if override.key == LAYERS and not override.columns.any():
            allowed = _layer_names(columns.names[columns.structure[p]])
            reason.add(p, rejected(Code.LAYOUT, override.key, override.text, allowed))
        elif strategy.devices != devices:
            count = "one device" if devices == 1 else f"{devices} devices"
            allowed = f"a cut that uses the {count} of a layer under the strategy"
            reason.add(p, rejected(Code.LAYOUT, override.key, override.text, allowed))
        elif strategy.ep > 1:  # expert parallelism is the same for all layers
            allowed = "a cut without e, which parallel.strategy has"
            reason.add(p, rejected(Code.LAYOUT, override.key, override.text, allowed))
        layouts.assignment[p, override.columns] = strategy.kernel
        layouts.degrees[p, override.columns] = strategy._replace(pp=int(stages[p])).degrees


def _check_mixed_layouts(inputs: Inputs, layouts: Layouts, reason: Reasons) -> None:
    """Refuse points whose layers have different layouts between which no transfer is known."""
    mixed = layouts.differ & (layouts.assignment > COLUMN_ROW).any(axis=1)
    keys = (*(f"parallel.{name}" for name in LAYER_KINDS), LAYERS)
    for p in np.flatnonzero(mixed).tolist():
        allowed = "same for all layers, but where all are cut by RC, by CR or not at all"
        key = next(key for key in keys if inputs[key][p] != SAME)
        reason.add(p, rejected(Code.LAYOUT, key, inputs[key][p], allowed))


def _write_files(inputs: Inputs, columns: Sections, layouts: Layouts, reason: Reasons) -> None:
    """Write the layouts of points with a layout file."""
    for p, path in enumerate(inputs.get(FILE, ())):
        layout, structure = read_layout(str(path)), columns.structure[p]
        names = columns.names[structure]
        layouts.assignment[p] = np.array(layout.kinds)[columns.kinds[structure]]
        for name, number in layout.layers.items():
            layouts.assignment[p, names == name] = number
            if name not in names:
                allowed = f"a file whose layers are {_layer_names(names)}, not {shown(name)}"
                reason.add(p, rejected(Code.LAYOUT, FILE, path, allowed))


def _write_replicas(shards: Ints, layouts: Layouts, by_layer: Bools, reason: Reasons) -> None:
    """Write the replicas of all weights on a stage's devices.

    shards: devices over which a weight is sharded, 0 for all; by_layer: whether a point's layers have
    different layouts, (points,).
    """
    if not shards.any():
        return
    sharing = devices_along(layouts.degrees, axes("cp", "ep", "dp")).max(axis=1)
    shard_group = np.where((shards > 0) & (shards < sharing), shards, sharing)
    replicas = sharing // shard_group
    invalid = (sharing % shard_group > 0) | (layouts.degrees[:, 0, DATA] % replicas > 0)
    for p in np.flatnonzero(invalid | (by_layer & (replicas > 1))).tolist():
        allowed = f"0, or a divisor of the {sharing[p]} devices along dp, cp and ep that cp and ep divide"
        if by_layer[p]:
            allowed = "0, where layers have cuts of their own"
        reason.add(p, rejected(Code.LAYOUT, "parallel.hybrid_shard_size", int(shards[p]), allowed))
        replicas[p] = 1
    layouts.replicas[:] = replicas


@lru_cache(maxsize=64)
def tensor_parallel(
    sequence: bool, ulysses: bool, expert_axes: int = 0, whole_experts: bool = False
) -> Assignment:
    """Return the assignment of tensor parallelism with its options.

    sequence: it shards tokens too; ulysses: context parallelism shards heads; expert_axes: axes other than
    ep that shard experts, as bits; whole_experts: tensor parallelism does not shard each expert. Tokens that
    all devices along tp have are not dispatched along tp: each device takes those of its experts, and their
    sums are summed up.
    """
    dispatched = "groups.experts"
    tensor, context = (SEQUENCE if sequence else PLANS["TP"][0]), (ULYSSES if ulysses else PLANS["TP"][1])
    if expert_axes & axes("tp"):
        expert_dims = (dispatched,) if sequence else (dispatched, "inner.experts")
        tensor = tensor._replace(dimensions=(*expert_dims, *tensor.dimensions))
    elif whole_experts:
        names = ("dense.feed_forward" if name == "feed_forward" else name for name in tensor.dimensions)
        tensor = tensor._replace(dimensions=tuple(names))
    if expert_axes & axes("cp"):
        context = context._replace(dimensions=(dispatched, *context.dimensions))
    return assignment_of("TP", tensor, context)


def _shards_tokens(inputs: Inputs, strategies: Strategies) -> Bools:
    """Return whether tensor parallelism shards the tokens too, (points,).

    By default in models that are known to name their dimensions: those with layer runs. A file may not.
    """
    requested = inputs["parallel.sequence_parallel"]
    shards_tokens: Bools = requested == TRUE
    if requested.size and family_of(inputs).order is not None:
        shards_tokens |= (requested == AUTO) & (strategies.degrees[:, AXES.index("tp")] > 1)
    return shards_tokens


def indivisible_dims(inputs: Inputs, strategies: Strategies) -> ReasonColumn:
    """Say for every point which size of its model a degree of its strategy does not divide, (points,).

    inputs: of the family's `divided`.
    """
    points = strategies.assignment.size
    reason, divided = Reasons(points), family_of(inputs).divided if points else {}
    for axis, key in (family_of(inputs).copied if points else {}).items():
        degree, size = strategies.degrees[:, AXES.index(axis)], inputs[key]
        for i in reason.without((size > 0) & (size % degree > 0) & (degree % np.maximum(size, 1) > 0)):
            allowed = f"a divisor or a multiple of {key}={size[i]}"
            reason.add(i, invalid_degree(Code.STRATEGY, axis, int(degree[i]), allowed))
    of_layers = [*family_of(inputs).divided_of_layers(inputs)] if points else []
    for axis, key in divided.items():
        degree = strategies.experts if axis == "ep" else strategies.degrees[:, AXES.index(axis)]
        size, has_layers = inputs[key], np.zeros(points, dtype=np.bool_)
        for layers_axis, _, size_of_layers in of_layers:
            has_layers |= (size_of_layers > 0) & (layers_axis == axis)
        wrong = (size % degree > 0) | ((size == 0) & (degree > 1))
        for i in reason.without(wrong & ~has_layers):
            allowed = f"a divisor of {key}={size[i]}" if size[i] else f"1, since {key}=0"
            reason.add(i, invalid_degree(Code.STRATEGY, axis, int(degree[i]), allowed))
    for axis, key, size in of_layers:
        degree = strategies.experts if axis == "ep" else strategies.degrees[:, AXES.index(axis)]
        for i in reason.without((size > 0) & (size % degree > 0)):
            allowed = f"a divisor of {key}={size[i]}" if size[i] > 1 else f"1, since {key}=1"
            reason.add(i, invalid_degree(Code.STRATEGY, axis, int(degree[i]), allowed))
    return reason.column()


def _layer_names(names: Texts) -> str:
    return f"layers of the model: {listed(dict.fromkeys(names.tolist()))}"


class _LayoutOverride(NamedTuple):
    """A layout of some layers of a point that replaces the strategy's."""

    point: int
    columns: Bools  # of layouts, for those layers
    strategy: Strategy
    key: str  # of the input, and its value
    text: str


def _overrides(inputs: Inputs, columns: Sections) -> Iterator[_LayoutOverride]:
    """Yield the layouts of kinds of layers, then those of layers."""
    for kind, name in enumerate(LAYER_KINDS):
        key = f"parallel.{name}"
        for i in np.flatnonzero(inputs[key] != SAME).tolist():
            text = str(inputs[key][i])
            selected = columns.kinds[columns.structure[i]] == kind
            yield _LayoutOverride(i, selected, parse_layout(text, key), key, text)
    for i, text in enumerate(inputs.get(LAYERS, ())):
        for name, strategy in parse_layers(str(text)).items():
            selected = columns.names[columns.structure[i]] == name
            yield _LayoutOverride(i, selected, strategy, LAYERS, f"{name}: {strategy}")


@lru_cache(maxsize=4096)
def parse_layers(text: str) -> Mapping[str, Strategy]:
    """Return layouts of layers by name, of a text such as "tower: RC-1-8, head: CR-8"; raises InputError."""
    if text == SAME:
        return {}
    matches = list(_NAMED.finditer(text))
    layouts = {match["name"]: parse_layout(match["layout"], LAYERS) for match in matches}
    written = "".join(match[0] for match in matches)
    if not matches or written != text or text.endswith(",") or len(layouts) < len(matches):
        allowed = "layers by name, each once, with their cuts, such as tower: RC-1-8, head: CR-8"
        raise InputError(LAYERS, text, allowed)
    return layouts


def parse_layout(text: str, key: str) -> Strategy:
    """Read the layout of a kind of layer; raises InputError for invalid texts and for pipeline stages."""
    if text == SAME:
        return Strategy()
    strategy = parse(text, key)
    if strategy.pp > 1:
        raise InputError(
            key, text, "a cut without pipeline stages; parallel.strategy sets those for all layers"
        )
    return strategy
