"""The search methods by name, all behind one interface of batches: ask for designs, tell their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from fastflow.analysis.search.optimizers.cma_es import Evolution
from fastflow.analysis.search.optimizers.design_space import Space, random_designs
from fastflow.analysis.search.optimizers.gradient import Gradient
from fastflow.analysis.search.optimizers.mirror_descent import Mirror
from fastflow.analysis.search.optimizers.simplex import project
from fastflow.core.registry import Registry
from fastflow.core.tables import Floats


class Method(Protocol):
    """One start of one search. It depends on start, seed and scores alone."""

    def ask(self) -> Floats:
        """Return the next step's designs, all within their budgets, shape (evaluations, |W|)."""

    def tell(self, score: Floats) -> None:
        """Take their scores: shape (evaluations,), lower is better, finite."""


class Random:
    """Uniform designs without slack, as many a step as the gradient takes; the first is the start."""

    def __init__(self, space: Space, start: Floats, seed: int) -> None:
        """Begin at a design, shape (|W|,)."""
        self._space, self._start, self._seed, self._steps = space, start, seed, 0

    def ask(self) -> Floats:
        """Return the next step's designs, shape (1 + |W|, |W|)."""
        designs = random_designs(1 + self._start.size, self._space, (self._seed, self._steps))
        if self._steps == 0:
            designs[0] = self._start
        return designs

    def tell(self, score: Floats) -> None:
        """Count the step; the scores change nothing."""
        self._steps += 1


class MethodDefaults(NamedTuple):
    """A method, with its default number of starts and steps."""

    start: Callable[[Space, Floats, int], Method]
    """Of the space, a design to begin at, shape (|W|,), and a seed."""
    starts: int
    steps: int


METHODS = Registry(
    "method",
    "search_methods",
    lambda thing: isinstance(thing, MethodDefaults),
    "a fastflow.analysis.search.optimizers.methods.MethodDefaults",
    {
        "mirror": MethodDefaults(Mirror, 1, 150),
        "cma": MethodDefaults(Evolution, 1, 150),
        "gradient": MethodDefaults(Gradient, 10, 100),  # S and T of Section 7
        "random": MethodDefaults(Random, 10, 100),
    },
)
"""By the names that `method` takes."""


def make(name: str, space: Space, start: Floats, seed: int) -> Method:
    """Return one start of a method; start: a design, shape (|W|,), projected onto the budgets.

    Raises InputError where the method is none of METHODS.
    """
    return METHODS.find(name).start(space, project(start[None], space)[0], seed)


def defaults(name: str) -> tuple[int, int]:
    """Return a method's default number of starts and steps. Raises InputError as `make`."""
    of_method = METHODS.find(name)
    return of_method.starts, of_method.steps
