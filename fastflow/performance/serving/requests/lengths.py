"""Loads whose requests come from a file (`serve.lengths`, `serve.trace`): means, longest, arrivals.

A point uses the arrival times of the file where `serve.concurrency` and `serve.request_rate` are both 0. It
sends the first `serve.num_requests` requests of the file, or all of them. Else requests are sent as
`serve.concurrency` or `serve.request_rate` say, and drawn evenly from the whole file. A closed loop of as
many requests as the file has sends each of them, in the order of the file. Requests of a file are simulated:
the analytic form has uniform lengths only. It gets the means, and the range that gives answers the same
coefficient of variation (standard deviation over mean), as far as uniform lengths can have it.

A trace (`serve.trace`) goes before `serve.lengths`, and its arrivals before `serve.concurrency` and
`serve.request_rate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.dedupe import factorize, unique_rows
from fastflow.core.tables import Floats, Inputs, Ints, take
from fastflow.performance.serving.requests.load import Loads
from fastflow.physics.workload.request_lengths import KEY, RequestLengths, read_lengths
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.physics.workload.request_trace import read_trace

REQUESTS = 10
"""Requests for each concurrent one of a closed loop, where `serve.num_requests` is 0."""
BATCHED = ("continuous", "disaggregated")  # modes with continuous batching
MAX_SENT = 4096  # distinct requests of a file; of longer files, so many at even distances
MAX_ARRIVALS = 65_536  # of a file whose arrival times are used; of longer files, the first ones
_CELLS = 4_000_000  # requests of points that are in memory at a time


class LongestLengths(NamedTuple):
    """The longest lengths of requests [tokens]; (points,)."""

    isl: Floats  # a prompt
    osl: Floats  # an answer
    both: Floats  # a prompt plus its answer


class _File(NamedTuple):
    """A file as points use it."""

    requests: RequestLengths
    has_arrivals: bool  # its arrival times are used
    in_order: bool  # each request is sent, in order, in a closed loop


def file_key(inputs: Inputs) -> str:
    """Return the key of the files that points take their requests from; "" without files."""
    return next((key for key in (TRACE, KEY) if key in inputs), "")


def read_requests(key: str, path: str) -> RequestLengths:
    """Return the requests of a file that a key names; raises InputError."""
    if key == KEY:
        return read_lengths(path)
    trace = read_trace(path)
    return RequestLengths(trace.isl, trace.osl, trace.sent)


def arrivals_of_files(inputs: Inputs) -> Ints:
    """Return how many requests points send at the times of their files; 0: at other times, (points,)."""
    points, requests = inputs["serve.isl"].size, inputs["serve.num_requests"]
    if not file_key(inputs):
        return np.zeros(points, dtype=np.int64)
    key = file_key(inputs)
    names, inverse = factorize(inputs[key])
    arrivals = np.array([read_requests(key, str(name)).sent.size for name in names], dtype=np.int64)[inverse]
    is_batched = np.isin(inputs["serve.mode"], BATCHED)
    if key == TRACE:
        return np.where(is_batched, np.where(requests > 0, requests, arrivals), 0)
    free = (inputs["serve.concurrency"] == 0) & (inputs["serve.request_rate"] == 0.0)
    has_arrivals = free & is_batched & (arrivals > 0)
    return np.where(has_arrivals, np.where(requests > 0, requests, np.minimum(arrivals, MAX_ARRIVALS)), 0)


def with_lengths(inputs: Inputs) -> Inputs:
    """Return inputs with a file's lengths for `serve.isl`, `serve.osl` and `serve.length_range_ratio`.

    With a trace, also without a concurrency and a rate. Raises InputError for a file that cannot be read.
    """
    if not file_key(inputs):
        return inputs
    means = _file_statistics(
        inputs, lambda file: (file.isl.mean(), file.osl.mean(), _uniform_range(file.osl))
    )
    with_means = dict(inputs) | dict(
        zip(("serve.isl", "serve.osl", "serve.length_range_ratio"), means.T, strict=True)
    )
    if TRACE in inputs:
        with_means |= {key: np.zeros_like(inputs[key]) for key in ("serve.concurrency", "serve.request_rate")}
    return with_means


def longest_of(inputs: Inputs) -> LongestLengths:
    """Return the longest lengths of points with files, and the means of others."""
    if not file_key(inputs):
        isl, osl = inputs["serve.isl"], inputs["serve.osl"]
        return LongestLengths(isl, osl, isl + osl)
    lengths = _file_statistics(
        inputs, lambda file: (file.isl.max(), file.osl.max(), (file.isl + file.osl).max())
    )
    return LongestLengths(*lengths.T)


def num_known_requests(inputs: Inputs) -> Ints:
    """Return how many requests of a file points send or draw from; 0: no file, (points,)."""
    if not file_key(inputs):
        return np.zeros(inputs["serve.isl"].size, dtype=np.int64)
    files, inverse = _files(inputs)
    sizes = [file.requests.isl.size for file in files]
    known = [
        size if file.has_arrivals or file.in_order else min(size, MAX_SENT)
        for file, size in zip(files, sizes, strict=True)
    ]
    return np.array(known, dtype=np.int64)[inverse]


def blocks_with_requests(
    inputs: Inputs, loads: Loads, servers: Ints, rows: Ints
) -> Iterator[tuple[Ints, Loads]]:
    """Yield blocks of rows with their loads and the requests of files; as many rows as memory holds.

    servers: that share the requests of each point round-robin; the loads are those of the first server.
    """
    if not file_key(inputs):
        yield rows, take(loads, rows)
        return
    size = max(1, _CELLS // max(int(loads.known[rows].max(initial=1)), 1))
    for start in range(0, rows.size, size):
        block = rows[start : start + size]
        yield block, _with_requests(take(dict(inputs), block), take(loads, block), servers[block])


def _with_requests(inputs: Inputs, loads: Loads, servers: Ints) -> Loads:
    """Return loads with the requests of files."""
    files, file = _files(inputs)
    first, inverse = unique_rows([file, servers], file.size)
    tables = [_server_requests(files[file[i]], int(servers[i])) for i in first.tolist()]
    counts = np.array([table.isl.size for table in tables], dtype=np.int64)
    lengths = np.zeros((len(tables), 2, counts.max()), dtype=np.int64)
    arrivals = np.zeros((len(tables), max(table.sent.size for table in tables)))
    for index, table in enumerate(tables):
        lengths[index, 0, : table.isl.size], lengths[index, 1, : table.osl.size] = table.isl, table.osl
        arrivals[index, : table.sent.size] = table.sent
    in_order = np.array([each.in_order for each in files])
    return loads._replace(
        known=counts[inverse], in_order=in_order[file], lengths=lengths[inverse], arrivals=arrivals[inverse]
    )


def _server_requests(file: _File, servers: int) -> RequestLengths:
    """Return the requests that are sent to the first of some servers; without order, those it draws from.

    The latter are sorted by their total tokens, so that neighbours are alike.
    """
    requests = file.requests
    if file.has_arrivals or file.in_order:
        return RequestLengths(requests.isl[::servers], requests.osl[::servers], requests.sent[::servers])
    order = np.lexsort((requests.osl, requests.isl + requests.osl))
    if order.size > MAX_SENT:
        order = order[((np.arange(MAX_SENT) + 0.5) * order.size / MAX_SENT).astype(np.int64)]
    return RequestLengths(requests.isl[order], requests.osl[order], np.zeros(0))


def _files(inputs: Inputs) -> tuple[list[_File], Ints]:
    """Return the distinct files of points, truncated where arrival times are used, and each point's index."""
    count = arrivals_of_files(inputs)
    is_closed = (inputs["serve.concurrency"] > 0) & (inputs["serve.request_rate"] == 0.0)
    sent = np.where(is_closed, inputs["serve.num_requests"], 0)
    key = file_key(inputs)
    first, inverse = unique_rows([inputs[key], count, sent], count.size)
    files = []
    for i in first.tolist():
        requests = read_requests(key, str(inputs[key][i]))
        has_arrivals, size = bool(count[i] > 0), requests.isl.size
        in_order = bool(sent[i] == size) and size <= MAX_ARRIVALS
        if 0 < count[i] < size:
            requests = take(requests, np.arange(count[i]))
        files.append(_File(requests, has_arrivals, in_order))
    return files, inverse


def _file_statistics(inputs: Inputs, statistics: Callable[[RequestLengths], tuple[float, ...]]) -> Floats:
    """Return statistics of each point's file, (points, statistics)."""
    files, inverse = _files(inputs)
    values: NDArray[np.float64] = np.array([statistics(file.requests) for file in files], dtype=np.float64)
    return values[inverse]


def _uniform_range(lengths: Ints) -> float:
    """Return the relative range of uniform lengths of the same mean and standard deviation, at most 1.

    Uniform lengths from (1 - r) x to x have the mean (1 - r / 2) x and the standard deviation r x / sqrt(12).
    """
    variation = float(lengths.std() / lengths.mean())
    return min(1.0, variation / (1.0 / sqrt(12.0) + variation / 2.0))


def longest_lengths(inputs: Inputs, relative_range: Floats) -> LongestLengths:
    """Return the longest lengths of requests, of a file or uniform [tokens]."""
    lengths = longest_of(inputs)
    if file_key(inputs):
        return lengths
    return LongestLengths(*(mean / (1.0 - 0.5 * relative_range) for mean in lengths))
