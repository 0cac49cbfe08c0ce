"""Captured graphs (CUDA graphs) of iterations that only decode: which sizes servers have, and what others do.

Servers capture graphs of some numbers of requests. Another number is padded to the next captured one, or the
host launches its kernels one by one, as it does beyond the largest. Padded requests have no attention, and
choose no experts of other ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Bools, Floats, Ints

_SINGLE, _NEXT = 2, 4
"""Numbers of requests up to the first are captured one by one, and so is the second."""
_ROUNDING = 1e-9


class Graphs(NamedTuple):
    """Captured graphs of servers; shape (points,)."""

    step: Ints  # graphs are of 1, 2 and 4 requests and of its multiples; 1: of every number; 0: of none
    largest: Ints  # requests of the largest
    pads: Bools  # numbers between are padded; else the host launches their kernels
    launch_s: Floats  # time in which it does [s]


class Graph(NamedTuple):
    """Captured graphs of one point."""

    step: int
    largest: int
    pads: bool
    launch_s: float


@lean_kernel
def captured_size(graph: Graph, requests: float) -> float:
    """Return the requests of the graph that decodes some requests of a rank; 0: no graph does."""
    if graph.step == 0 or requests > graph.largest:
        return 0.0
    if graph.step == 1:
        return requests
    whole = np.ceil(requests - _ROUNDING)
    size = np.ceil(whole / graph.step) * graph.step
    if whole <= _SINGLE:
        size = whole
    elif whole <= _NEXT:
        size = min(size, float(_NEXT))
    if size > graph.largest:
        return 0.0
    return float(size) if graph.pads or size == whole else 0.0


class Decoded(NamedTuple):
    """An iteration that decodes, as its graph has it, or as the host launches it."""

    requests: float  # of the fullest rank, with those that pad it
    mean: float  # of all ranks, whose tokens go to experts
    least_s: float  # time of the launches; 0 with a graph [s]


@lean_kernel
def decoded(graph: Graph, ranks: int, requests: float, mean: float) -> Decoded:
    """Return an iteration that decodes some requests; requests: of the fullest rank; mean: of all ranks."""
    size = captured_size(graph, requests)
    if size == 0.0:
        return Decoded(requests, mean, graph.launch_s)
    return Decoded(size, size if ranks == 1 else mean, 0.0)


def captured_sizes(graphs: Graphs, requests: Floats) -> Floats:
    """As `captured_size`, of numbers of points; (points,)."""
    step, whole = np.maximum(graphs.step, 1), np.ceil(requests - _ROUNDING)
    multiple = np.ceil(whole / step) * step
    size = np.where(whole <= _SINGLE, whole, np.where(whole <= _NEXT, np.minimum(multiple, _NEXT), multiple))
    exact = graphs.step == 1
    size = np.where(exact, requests, size)
    has_graph = (graphs.step > 0) & (size <= graphs.largest) & (graphs.pads | exact | (size == whole))
    sizes: Floats = np.where(has_graph, size, 0.0)
    return sizes
