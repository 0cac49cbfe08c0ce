"""What queries are made from: the columns of a token, or latent queries, a low-rank product of these.

Latent queries are DeepSeek-V2's (arXiv:2405.04434, section 2.1.3), and with keys of one head the factors of
Step-3's queries (multi-matrix factorization attention, arXiv:2412.19255).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fastflow.core.tables import Inputs
from fastflow.physics.workload.models.transformer.building_blocks import HEADS, HIDDEN, gemm, norm
from fastflow.physics.workload.models.transformer.dimensions import RMS, Sizes
from fastflow.physics.workload.network import Node, Size

QUERY_DOWN, QUERY_NORM = "query down", "query norm"


class Source(NamedTuple):
    """What queries are made from."""

    nodes: list[Node]  # that make it
    name: str  # of the last node
    columns: Size
    names: tuple[str, ...]  # of the columns' dimension


def source_of_queries(points: Inputs, size: Sizes, read: str) -> Source:
    """Return the norm of latent queries, with the product before it, or the layer's input."""
    if not points["model.query_latent"][0]:
        return Source([], read, size.hidden, HIDDEN)
    columns, names = size.query_latent, ("query_latent",)
    down = gemm(QUERY_DOWN, size, size.hidden, columns, read, (HIDDEN, names))
    normed = norm(QUERY_NORM, size, RMS, down.name, columns, names)
    return Source([down, normed], normed.name, columns, names)


def query_product(size: Sizes, source: Source, columns: Size, **fields: Any) -> Node:
    """Return the product that makes the queries of all heads; columns: of all heads."""
    return gemm("query up", size, source.columns, columns, source.name, (source.names, HEADS), **fields)
