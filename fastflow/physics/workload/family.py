"""What a workload family is: one entry, which serves all that depends on a model's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from fastflow.core.field import Column
from fastflow.core.tables import Bools, Floats, Inputs, Ints
from fastflow.physics.workload.autodiff import backward, forward, kernels
from fastflow.physics.workload.graph import Kernel
from fastflow.physics.workload.network import Network
from fastflow.physics.workload.precision import Precision

OTHERS = "others"
WORK = ("products", "attention", "experts", "recurrent", "training", "serving", "first_token", OTHERS)
"""Kinds of work whose errors are known apart.

What serves is of one kind, whatever its family; its time to the first token has errors of its own.
"""
Rows = Callable[[Inputs], tuple[Ints, Bools]]


class Order(NamedTuple):
    """The layers of points' models in their order; those of point p are offset[p] to offset[p + 1]."""

    offset: Ints  # (points + 1,)
    layer: Ints  # which of the layers that the network has, (layers,)


def iteration(network: Network, points: Inputs, precision: Precision) -> list[Kernel]:
    """Return the kernels of one iteration of a whole model."""
    return kernels(network, bool(points["model.training"][0]), precision)


def single_operation(network: Network, points: Inputs, precision: Precision) -> list[Kernel]:
    """Return the kernels of a single operation.

    What its nodes keep lies in memory, training or not, and nothing updates its weights.
    """
    launches = forward(network, True, precision)
    return launches + backward(network, precision) if points["model.training"][0] else launches


def independent_rows(key: str) -> Rows:
    """Return how far the rows of a column can be cut: into single ones, of which devices may share one."""
    return lambda inputs: (inputs[key], np.zeros(inputs[key].size, dtype=np.bool_))


class Family(NamedTuple):
    """A kind of model. Its functions take the columns of `model`, of points of this family.

    `network`, `kernels` and `quick_count` take points that agree in `model.training` and in the structure.
    """

    name: str  # as `model.name` has it
    network: Callable[[Inputs], Network]
    rows: Rows  # see `fewest_rows`
    sizes: tuple[Column, ...] = ()  # its inputs, beside those of every model
    structure: tuple[Column, ...] = ()  # its other inputs: points that differ there have other kernels
    # whether points differ in more: columns, those of one graph agree in all of them
    extra_structure: Callable[[Inputs], Sequence[Bools]] = lambda inputs: ()
    quantizes: bool = False  # so do points that differ in `model.dtype`
    trained: tuple[str, ...] = ()  # types of products alone that it trains in
    kernels: Callable[[Network, Inputs, Precision], list[Kernel]] = iteration
    layers: Callable[[Inputs], Ints] | None = None  # that a pipeline can cut between; None: it is one
    # of points that agree in the structure: weights, and those that a row meets, each (points,)
    parameters: Callable[[Inputs], tuple[Floats, Floats]] | None = None
    quick_count: Callable[[Inputs], int] | None = None  # of kernels, where making them takes long
    # inputs that do not go together: which points, which two, and what the first may be beside the other, {}
    invalid_sizes: Callable[[Inputs], Iterable[tuple[Bools, str, str, str]]] = lambda inputs: ()
    # of models whose network has layers that stand for several: all of them in their order
    order: Callable[[Inputs], Order] | None = None
    tokens: Callable[[Inputs], Ints] | None = None  # of an iteration; of those too
    divided: Mapping[str, str] = MappingProxyType({})  # sizes, by the axis whose degree has to divide them
    copied: Mapping[str, str] = MappingProxyType({})  # the same, where a multiple does too; 0: no such size
    multiplied: tuple[str, str] | None = None  # two sizes that are multiplied as integers
    work: str = OTHERS  # the kind of work that its error is of, one of `WORK`
    transposed: str = ""  # the input that says whether B of its products is stored as n x k
