"""`serve.lengths=FILE`: requests of servers, their lengths and when they arrive (docs/serving.md)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints, concat_tables
from fastflow.core.yaml_file import read_current
from fastflow.physics.workload.request_file import (
    NAMES,
    check_rows,
    check_size,
    columns_of,
    read_parts,
    times,
    token_counts,
)

KEY = "serve.lengths"
SERVES = "serve.isl"
"""An input that only serving points have."""
MAX_BYTES = 64 * 1024 * 1024


class RequestLengths(NamedTuple):
    """Requests; (rows,)."""

    isl: Ints  # tokens of a prompt
    osl: Ints  # tokens of its answer
    sent: Floats  # arrivals after the first [s], in order; (0,) where the file has none


def read_lengths(path: str) -> RequestLengths:
    """Return the requests of a file in the order of their arrivals, or else of lines; raises InputError."""
    return read_current(KEY, _parse_version, path)


@lru_cache(maxsize=16)
def _parse_version(path: str, changed: int, size: int) -> RequestLengths:
    check_size(size, MAX_BYTES)
    columns = None
    parts = []
    for part in read_parts(path, NAMES):
        columns = columns or columns_of(part)
        isl, osl = (token_counts(part, name) for name in columns.tokens)
        sent = columns.scale * times(part, columns.time) if columns.time else np.zeros(0)
        parts.append(RequestLengths(isl, osl, sent))
    requests = concat_tables(parts)
    check_rows(requests.isl)
    if not requests.sent.size:
        return requests
    order = np.argsort(requests.sent, kind="stable")
    return RequestLengths(
        requests.isl[order], requests.osl[order], requests.sent[order] - requests.sent.min()
    )
