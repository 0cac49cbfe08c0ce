"""Parallel plans: which axis of the mesh shards which dimensions of a network, and the name of each plan."""

from __future__ import annotations

import threading
from typing import NamedTuple

from fastflow.physics.workload.sharding_rules import COLS, INNER, ROWS

Assignment = tuple[tuple[str, tuple[str, ...]], ...]
"""Axes, and the dimensions that each of them shards: the first one that a kernel has. The sides of a
kernel are dimensions too, as those that a network names: "rows", "inner" (of a product), "cols".
"activations.heads" are heads of kernels without weights, "groups.experts" experts that rows are dispatched
to, "inner.experts" those over which kernels dispatch copies of rows or sum them up, "dense.feed_forward"
columns of kernels without experts."""


class AxisSharding(NamedTuple):
    """The dimensions that an axis shards, in a plan."""

    axis: str
    dimensions: tuple[str, ...]
    source: str


_TENSOR = ("heads", "feed_forward", "gates", "vocabulary")
_DATA = AxisSharding("dp", (ROWS,), "data parallelism")
_DEEPFLOW, _OPTIMUS, _3D = "DeepFlow, section 3.3", "Optimus, arXiv:2104.05343", "3-D, arXiv:2105.14450"
PLANS = {
    "": (_DATA,),
    "RC": (AxisSharding("kp1", (ROWS,), _DEEPFLOW), AxisSharding("kp2", (COLS,), _DEEPFLOW), _DATA),
    "CR": (AxisSharding("kp1", (INNER, COLS), _DEEPFLOW), _DATA),
    "TP": (
        AxisSharding("tp", _TENSOR, "Megatron-LM, arXiv:1909.08053"),
        AxisSharding("cp", ("sequence",), "ring attention, arXiv:2310.01889"),
        AxisSharding("ep", ("groups.experts", ROWS), "GShard, arXiv:2006.16668"),
        _DATA,
    ),
    "2D": (AxisSharding("kp1", (INNER, COLS), _OPTIMUS), AxisSharding("kp2", (COLS,), _OPTIMUS), _DATA),
    "3D": (
        AxisSharding("kp1", (ROWS,), _3D),
        AxisSharding("kp2", (COLS,), _3D),
        AxisSharding("tp", (INNER, COLS), _3D),
        _DATA,
    ),
}
"""Plans by their names in strategies; a strategy's degrees are those of the axes, in their order."""
SEQUENCE = AxisSharding("tp", (*_TENSOR, "sequence"), "sequence parallelism, arXiv:2205.05198")
"""Tensor parallelism that shards the tokens wherever it shards nothing else."""
ULYSSES = AxisSharding("cp", ("activations.heads", "sequence"), "DeepSpeed Ulysses, arXiv:2309.14509")
"""Context parallelism that shards the heads of attention, by all-to-all."""
NAMES = tuple(PLANS)


def assignment_of(plan: str, *others: AxisSharding) -> Assignment:
    """Return the assignment of a plan, with other dimensions for some of its axes."""
    dimensions = {sharding.axis: sharding.dimensions for sharding in (*PLANS[plan], *others)}
    return tuple(dimensions.items())


_known = {assignment_of(plan): number for number, plan in enumerate(PLANS)}
_lock = threading.Lock()


def assignments() -> tuple[Assignment, ...]:
    """Return all assignments known in this process; columns have their indices."""
    return tuple(_known)


def number_of(assignment: Assignment) -> int:
    """Return the index of an assignment among those known; a new one is added at the end."""
    with _lock:
        return _known.setdefault(assignment, len(_known))
