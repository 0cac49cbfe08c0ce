"""Optimizers, a record each: the state that a weight has, and what its update computes and moves.

Every rule begins with the clipping of the gradient, and none has weight decay. Adam is that of Kingma and Ba
(arXiv:1412.6980). The others:

- Lion (Chen et al., arXiv:2302.06675, algorithm 2) keeps a momentum and moves by the sign of its mean with
  the gradient.
- LAMB (You et al., arXiv:1904.00962, algorithm 2) scales Adam's direction by the norm of a tensor's weights
  over that of its direction. Its kernels write the direction, sum its squares and those of the weights, and
  apply it (NVIDIA/apex, csrc/multi_tensor_lamb.cu).
- Adafactor (Shazeer and Stern, arXiv:1804.04235, algorithm 4) keeps the sums of a matrix's squared gradients
  over its rows and over its columns, and no momentum. One pass sums the squares, one writes the direction and
  sums its squares, one applies it, and a pass over the weights gives the size of the step.
- Muon (Keller Jordan, kellerjordan.github.io/posts/muon) keeps a momentum for each matrix of hidden layers,
  and moves by the nearest orthogonal matrix, from five Newton-Schulz iterations in bf16. All other weights
  have Adam's rule. Momentum and gradient are mixed (Nesterov), written, normalised and written once more.
  Where devices shard the optimizer state, they gather the mixed momentum in bf16, and a device iterates on
  the matrices of its own shard (Moonlight, arXiv:2502.16982, section 2.3, Distributed Muon). A matrix that
  tensor parallelism cuts is iterated on by parts, with no exchange (`--muon-tp-mode blockwise`, the default
  of NVIDIA/Megatron-LM).
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import factorize
from fastflow.core.registry import Registry
from fastflow.core.tables import Bools, Floats, Inputs, Texts

KEY = "model.optimizer"
NEWTON_SCHULZ, MOVED, PASSED, GATHERED = "newton_schulz", "moved", "passed", "gathered"
"""Attributes of an update that orthogonalises: iterations; of a weight, bytes that its passes move, their
operations, and bytes that devices gather of each other's shards."""


class Rule(NamedTuple):
    """How a weight is updated."""

    states: float  # numbers of state for a weight
    flop: float  # operations of a weight, without those of iterations
    gradient_reads: float = 1.0  # passes over the gradient
    weight_reads: float = 1.0  # passes over the weight, or over its master
    scratch: float = 0.0  # written and read between the passes [B a weight]
    factored: bool = False  # a matrix has a number of state for each row and for each column
    iterations: float = 0.0  # of Newton-Schulz, on whole matrices
    gathered: float = 0.0  # where devices shard the state, gathered for the iterations [B a weight]


class Optimizer(NamedTuple):
    """An optimizer."""

    name: str
    rule: Rule
    matrix: Rule | None = None  # of matrices in hidden layers; None: `rule`
    on_host: bool = False  # whether hosts have it (csrc of deepspeedai/DeepSpeed: cpu_adam, cpu_lion)


_ADAM = Rule(states=2.0, flop=13.0)
OPTIMIZERS: Registry[Optimizer] = Registry(
    KEY,
    "optimizers",
    lambda thing: isinstance(thing, Optimizer),
    "a fastflow.physics.workload.optimizers.Optimizer",
    {
        optimizer.name: optimizer
        for optimizer in (
            Optimizer("sgd", Rule(states=0.0, flop=3.0)),
            Optimizer("momentum", Rule(states=1.0, flop=5.0)),
            Optimizer("adam", _ADAM, on_host=True),
            Optimizer("lion", Rule(states=1.0, flop=10.0), on_host=True),
            Optimizer("lamb", Rule(states=2.0, flop=17.0, weight_reads=2.0, scratch=12.0)),
            Optimizer(
                "adafactor",
                Rule(0.0, flop=13.0, gradient_reads=2.0, weight_reads=2.0, scratch=8.0, factored=True),
            ),
            Optimizer("muon", _ADAM, matrix=Rule(1.0, flop=10.0, scratch=8.0, iterations=5.0, gathered=2.0)),
        )
    },
)
"""Optimizers by name."""


class StateNumbers(NamedTuple):
    """Numbers of state for a weight, by the kind of its tensor; shape (points,)."""

    matrix: Floats  # of matrices in hidden layers
    other: Floats
    factored: Bools  # each matrix has one for each row and each column, instead


def _name_of(number: int) -> str:
    """Return the name of an optimizer's number; those of packages, which take time to find, come last."""
    built_in = OPTIMIZERS.built_in
    return built_in[number] if number < len(built_in) else next(itertools.islice(OPTIMIZERS, number, None))


def _number_of(name: str) -> float:
    """Return the number of an optimizer's name, as `_name_of` takes it."""
    names = OPTIMIZERS.built_in
    return float((names if name in names else tuple(OPTIMIZERS)).index(name))


def index_of(names: Texts) -> Floats:
    """Return the number of every point's optimizer among `OPTIMIZERS`, (points,)."""
    distinct, index = factorize(names)
    numbers: Floats = np.array([_number_of(name) for name in distinct], dtype=np.float64)
    return numbers[index]


def rule_of(optimizer: Optimizer, is_matrix: bool) -> Rule:
    """Return the rule of an optimizer for matrices in hidden layers, or for other weights."""
    return optimizer.matrix if is_matrix and optimizer.matrix is not None else optimizer.rule


def _table_of_rules(is_matrix: bool, count: int) -> Floats:
    """Return the values of the rules of the first optimizers, (count, fields of `Rule`)."""
    rules = [rule_of(OPTIMIZERS[_name_of(number)], is_matrix) for number in range(count)]
    return np.array(rules, dtype=np.float64)


_table_of_built_ins = lru_cache(maxsize=2)(_table_of_rules)


def of_rules(index: Floats | float, is_matrix: bool, field: str) -> Floats:
    """Return a field of the rule of optimizers, shaped as `index`: their numbers among `OPTIMIZERS`."""
    numbers = np.asarray(index).astype(np.int64)
    count, built_in = int(numbers.max(initial=0)) + 1, len(OPTIMIZERS.built_in)
    has_package = count > built_in
    table = _table_of_rules(is_matrix, count) if has_package else _table_of_built_ins(is_matrix, built_in)
    selected: Floats = table[numbers, Rule._fields.index(field)]
    return selected


def state_numbers(index: Floats) -> StateNumbers:
    """Return the numbers of state of weights; index: of every point's optimizer, (points,)."""
    matrix, other = (of_rules(index, is_matrix, "states") for is_matrix in (True, False))
    return StateNumbers(matrix, other, of_rules(index, False, "factored") > 0.0)


def orthogonalizes(inputs: Inputs) -> Bools:
    """Return which points' optimizers iterate on whole matrices, (points,)."""
    training: Bools = inputs["model.training"]
    if KEY not in inputs:
        return np.zeros(training.size, dtype=np.bool_)
    iterations: Floats = of_rules(index_of(inputs[KEY]), True, "iterations")
    return training & (iterations > 0.0)
