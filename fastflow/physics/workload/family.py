"""Workload families: an entry holds everything that depends on a model's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from fastflow.core.field import Column
from fastflow.core.tables import Bools, Floats, Inputs, Ints, Texts
from fastflow.physics.workload.autodiff import backward, forward, kernels
from fastflow.physics.workload.graph import Kernel
from fastflow.physics.workload.network import Network
from fastflow.physics.workload.precision import Precision

OTHERS = "others"
WORK = ("products", "attention", "experts", "recurrent", "training", "serving", "first_token", OTHERS)
"""Kinds of work with separate error statistics.

Serving is a single kind, whatever its family; its time to first token has separate errors.
"""
Rows = Callable[[Inputs], tuple[Ints, Bools]]


class Order(NamedTuple):
    """The layers of the points' models in order; layers of point p are offset[p] to offset[p + 1]."""

    offset: Ints  # (points + 1,)
    layer: Ints  # index into the network's layers, (layers,)


def iteration(network: Network, points: Inputs, precision: Precision) -> list[Kernel]:
    """Return the kernels of an iteration of a whole model."""
    return kernels(network, bool(points["model.training"][0]), precision)


def single_operation(network: Network, points: Inputs, precision: Precision) -> list[Kernel]:
    """Return the kernels of a single operation.

    Its saved activations are in memory, training or not, and its weights are not updated.
    """
    launches = forward(network, True, precision)
    return launches + backward(network, precision) if points["model.training"][0] else launches


def independent_rows(key: str) -> Rows:
    """Return the rows of a family with independent rows, the column `key`; devices may share a row."""
    return lambda inputs: (inputs[key], np.zeros(inputs[key].size, dtype=np.bool_))


class Family(NamedTuple):
    """A kind of model. Its functions take the columns of `model`, of points of this family.

    `network`, `kernels` and `quick_count` take points that agree in `model.training` and in the structure.
    Fields are flat, since a family sets some by name, and the others have defaults.
    """

    name: str  # as `model.name` has it
    network: Callable[[Inputs], Network]
    rows: Rows  # see `row_shard_limit`
    sizes: tuple[Column, ...] = ()  # its inputs, in addition to those of every model
    structure: tuple[Column, ...] = ()  # its inputs that decide which kernels there are
    # further columns that decide which kernels there are
    extra_structure: Callable[[Inputs], Sequence[Bools | Texts]] = lambda inputs: ()
    quantizes: bool = False  # whether `model.dtype` decides which kernels there are, too
    trained: tuple[str, ...] = ()  # GEMM-only data types that it trains in
    kernels: Callable[[Network, Inputs, Precision], list[Kernel]] = iteration
    layers: Callable[[Inputs], Ints] | None = None  # that a pipeline can split between; None: a single layer
    # of points that agree in the structure: total and active parameters, each (points,)
    parameters: Callable[[Inputs], tuple[Floats, Floats]] | None = None
    quick_count: Callable[[Inputs], int] | None = None  # number of kernels, where building them takes long
    # incompatible inputs: invalid points, the two keys, and the allowed values of the first ({}: the second)
    invalid_sizes: Callable[[Inputs], Iterable[tuple[Bools, str, str, str]]] = lambda inputs: ()
    # of models whose network has layer runs: all layers in order
    order: Callable[[Inputs], Order] | None = None
    tokens: Callable[[Inputs], Ints] | None = None  # of an iteration, of models with layer runs
    # tokens of each point's sequences, of which context and sequence parallelism give devices equal parts
    sequences: Callable[[Inputs], Sequence[Ints]] = lambda inputs: (inputs["model.sequence"],)
    divided: Mapping[str, str] = MappingProxyType({})  # sizes, by the mesh axis whose degree must divide them
    # sizes, by the mesh axis whose degree must divide them or be a multiple; 0: no size
    copied: Mapping[str, str] = MappingProxyType({})
    # sizes of some layers that an axis's degree must divide, instead of the one in `divided`: axis, words
    # that name the size, and the size of every point; 0: none
    divided_of_layers: Callable[[Inputs], Iterable[tuple[str, str, Ints]]] = lambda inputs: ()
    multiplied: tuple[str, str] | None = None  # two sizes whose integer product must not overflow
    microbatch: int = 0  # sequences of a micro-batch in training; 0: without a pipeline, a device's batch
    serves: bool = False  # whether a server's passes through it are modelled
    instead_of_serving: str = ""  # what to write instead, where they are not
    work: str = OTHERS  # the kind of work of its error statistics, of `WORK`
    transposed: str = ""  # the input that says whether B of its products is stored as n x k
