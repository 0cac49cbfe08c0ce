"""What a rule of a linear-time mixer is: its kernels in chunks, and what they move, compute and keep.

Every rule keeps a matrix of key x value columns for each head and sequence, its state. In chunks, a kernel
writes to main memory what the next ones read. The backward pass recomputes all kernels but the last, and
then, kernel by kernel, the gradients of what each read: it reads the same operands and the gradients of the
results, and writes the gradients of the operands. Every product has two gradients, each as large as the
product (fla-org/flash-linear-attention@0395eef, fla/ops/kda/chunk_bwd.py and gated_delta_rule/chunk.py;
state-spaces/mamba@01b717a, mamba_ssm/ops/triton/ssd_combined.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats


class Sides(NamedTuple):
    """Sizes of a head; columns of shape (kernels,), or numbers."""

    key: Floats  # columns of a key
    value: Floats
    chunk: Floats  # tokens
    shared: Floats  # heads of values that share a key


class Elements(NamedTuple):
    """Numbers of 2 bytes for a token and head; those of 4 bytes count twice."""

    gates: float = 0.0
    keys: float = 0.0  # times the columns of a key
    values: float = 0.0  # times the columns of a value
    pairs: float = 0.0  # times the tokens of a chunk
    states: float = 0.0  # times the elements of a state over the tokens of a chunk


class ChunkKernel(NamedTuple):
    """A kernel of a recurrence in chunks."""

    name: str
    reads: Elements
    writes: Elements
    visits: float = 0.0  # times that it multiplies by, loads or stores an element of a chunk's state


class Work(NamedTuple):
    """What the kernels of a pass do, forward or backward."""

    moved: Floats  # elements of a token and head
    states: Floats  # visits of elements of a state, for each chunk of a head
    columns: Floats  # visits of columns of keys and values, for each token of a head
    flop: Floats  # operations of a token and head
    launches: Floats
    passes: Floats  # from chunk to chunk, one after the other


class Rule(NamedTuple):
    """A recurrence, as the kernels of its authors run it."""

    chunk: int  # tokens
    kernels: tuple[ChunkKernel, ...]  # the last makes the output
    backward_launches: int  # kernels of the authors' backward pass
    flop: Callable[[Sides], Floats]  # operations of a token and head in a chunk
    output_flop: Callable[[Sides], Floats]  # of these: of the output, which the backward pass needs not
    step_flop: float  # operations of an element of the state for a single token
    inputs: Elements  # gates, queries, keys and values of a token: gradients in the backward pass
    saved_pairs: float = 0.0  # numbers of 2 bytes saved for the backward pass, times the tokens of a chunk
    is_grouped: bool = False  # whether kernels work once on keys that heads share
    on_lanes: bool = False  # whether vector lanes compute token by token, without products of chunks

    def forward(self, sides: Sides) -> Work:
        """Return what the forward kernels do."""
        sides = self._grouped(sides)
        parts = [part for kernel in self.kernels for part in (kernel.reads, kernel.writes)]
        visits = sum(kernel.visits for kernel in self.kernels)
        return self._work(sides, parts, visits, self.flop(sides), len(self.kernels), 1.0)

    def backward(self, sides: Sides) -> Work:
        """Return what the backward kernels do: all forward kernels but the last once more, then gradients."""
        sides = self._grouped(sides)
        recomputed = self.kernels[:-1]
        parts = [part for kernel in recomputed for part in (kernel.reads, kernel.writes)]
        parts += [part for kernel in self.kernels for part in (kernel.reads, kernel.reads, kernel.writes)]
        visits = sum(kernel.visits for kernel in recomputed) + 2.0 * sum(
            kernel.visits for kernel in self.kernels
        )
        flop = 3.0 * self.flop(sides) - self.output_flop(sides)
        return self._work(sides, parts, visits, flop, self.backward_launches, 2.0)

    def input_columns(self, sides: Sides) -> Floats:
        """Return the columns of a token and head that the recurrence reads."""
        return _count(self.inputs, sides)

    def _grouped(self, sides: Sides) -> Sides:
        return sides if self.is_grouped else sides._replace(shared=np.ones(()))

    @staticmethod
    def _work(
        sides: Sides, parts: list[Elements], visits: float, flop: Floats, launches: int, passes: float
    ) -> Work:
        total = Elements(*(sum(column) for column in zip(*parts, strict=True)))
        return Work(
            moved=_count(total, sides),
            states=visits * sides.key * sides.value,
            columns=total.keys * sides.key / sides.shared + total.values * sides.value,
            flop=flop,
            launches=np.asarray(float(launches)),
            passes=np.asarray(passes),
        )


def _count(elements: Elements, sides: Sides) -> Floats:
    """Return the numbers of a token and head."""
    of_keys = (elements.keys * sides.key + elements.pairs * sides.chunk) / sides.shared
    of_values = elements.gates + elements.values * sides.value
    return of_values + of_keys + elements.states * sides.key * sides.value / sides.chunk
