"""Known ways to split a network: which axis of the mesh cuts which dimensions, and what that is called."""

from __future__ import annotations

import threading
from typing import NamedTuple

from fastflow.physics.workload.sharding_rules import COLS, INNER, ROWS

Assignment = tuple[tuple[str, tuple[str, ...]], ...]
"""Axes, and the dimensions that each of them cuts: a kernel's first one that it has. Beside the names that a
network gives its dimensions, the sides of a kernel are dimensions: "rows", "inner" (of a product), "cols".
"activations.heads" are heads of kernels without weights, "groups.experts" experts to whom rows are dealt,
"inner.experts" those over which kernels deal copies of rows out or sum them up, "dense.feed_forward" columns
of kernels whose rows are not dealt."""


class Cut(NamedTuple):
    """What an axis cuts, in a known way to split a network."""

    axis: str
    dimensions: tuple[str, ...]
    source: str


_TENSOR = ("heads", "feed_forward", "gates", "vocabulary")
_DATA = Cut("dp", (ROWS,), "data parallelism")
_DEEPFLOW, _OPTIMUS, _3D = "DeepFlow, section 3.3", "Optimus, arXiv:2104.05343", "3-D, arXiv:2105.14450"
WAYS = {
    "": (_DATA,),
    "RC": (Cut("kp1", (ROWS,), _DEEPFLOW), Cut("kp2", (COLS,), _DEEPFLOW), _DATA),
    "CR": (Cut("kp1", (INNER, COLS), _DEEPFLOW), _DATA),
    "TP": (
        Cut("tp", _TENSOR, "Megatron-LM, arXiv:1909.08053"),
        Cut("cp", ("sequence",), "ring attention, arXiv:2310.01889"),
        Cut("ep", ("groups.experts", ROWS), "GShard, arXiv:2006.16668"),
        _DATA,
    ),
    "2D": (Cut("kp1", (INNER, COLS), _OPTIMUS), Cut("kp2", (COLS,), _OPTIMUS), _DATA),
    "3D": (Cut("kp1", (ROWS,), _3D), Cut("kp2", (COLS,), _3D), Cut("tp", (INNER, COLS), _3D), _DATA),
}
"""Known ways, by what a strategy calls them; its degrees are those of the axes, in their order."""
SEQUENCE = Cut("tp", (*_TENSOR, "sequence"), "sequence parallelism, arXiv:2205.05198")
"""Tensor parallelism that splits the tokens wherever it splits nothing else."""
ULYSSES = Cut("cp", ("activations.heads", "sequence"), "DeepSpeed Ulysses, arXiv:2309.14509")
"""Context parallelism that deals heads out in attention, by all-to-all."""
NAMES = tuple(WAYS)


def assignment_of(way: str, *others: Cut) -> Assignment:
    """Return the assignment of a known way, with other cuts of some of its axes."""
    cuts = {cut.axis: cut.dimensions for cut in (*WAYS[way], *others)}
    return tuple(cuts.items())


_known = {assignment_of(way): number for number, way in enumerate(WAYS)}
_lock = threading.Lock()


def assignments() -> tuple[Assignment, ...]:
    """Return all assignments that are known in this process; columns have their places here."""
    return tuple(_known)


def number_of(assignment: Assignment) -> int:
    """Return the place of an assignment among those known, after the last if it is new."""
    with _lock:
        return _known.setdefault(assignment, len(_known))
