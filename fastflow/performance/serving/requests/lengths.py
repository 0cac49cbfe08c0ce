"""Loads whose requests come from a file (`serve.lengths`): their means, their longest, and what is sent.

A point follows the file's own arrivals where it asks for no other ones: `serve.concurrency` and `serve.rate`
are both 0. It sends the first `serve.requests` of the file, or all of them. Else requests are sent as
`serve.concurrency` or `serve.rate` say, and drawn evenly from all of the file. What a file has is simulated:
the fast form knows uniform lengths alone, and has means, and a spread that makes answers differ as much
(their standard deviation over their mean), as far as uniform ones can.
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

REQUESTS = 10
"""Requests that are sent for each of a closed loop at a time, where `serve.requests` is 0."""
BATCHED = ("continuous", "disaggregated")  # modes in which requests come and go
MOST_SENT = 4096  # requests of a file that are told apart; of more, so many at even distances
MOST_ARRIVALS = 65_536  # of a file whose arrivals are followed; of more, the first ones
_CELLS = 4_000_000  # requests of points that are held at a time


class Longest(NamedTuple):
    """The longest lengths of requests [tokens]; (points,)."""

    isl: Floats  # a prompt
    osl: Floats  # an answer
    both: Floats  # a prompt with its answer


class _File(NamedTuple):
    """A file as points ask for it."""

    requests: RequestLengths
    follows: bool  # its arrivals are followed


def arrivals_of_files(inputs: Inputs) -> Ints:
    """Return how many requests points send as they arrive in their files; 0 where they do not, (points,)."""
    points, asked = inputs["serve.isl"].size, inputs["serve.requests"]
    if KEY not in inputs:
        return np.zeros(points, dtype=np.int64)
    names, place = factorize(inputs[KEY])
    arrivals = np.array([read_lengths(str(name)).sent.size for name in names], dtype=np.int64)[place]
    free = (inputs["serve.concurrency"] == 0) & (inputs["serve.rate"] == 0.0)
    follows = free & np.isin(inputs["serve.mode"], BATCHED) & (arrivals > 0)
    return np.where(follows, np.where(asked > 0, asked, np.minimum(arrivals, MOST_ARRIVALS)), 0)


def with_lengths(inputs: Inputs) -> Inputs:
    """Return inputs with what a file says in place of `serve.isl`, `serve.osl`, `serve.spread`.

    Raises InputError for a file that cannot be read.
    """
    if KEY not in inputs:
        return inputs
    found = _of_files(inputs, lambda one: (one.isl.mean(), one.osl.mean(), _spread_of(one.osl)))
    return dict(inputs) | dict(zip(("serve.isl", "serve.osl", "serve.spread"), found.T, strict=True))


def longest_of(inputs: Inputs) -> Longest:
    """Return the longest lengths of points as far as files say; else the means."""
    if KEY not in inputs:
        isl, osl = inputs["serve.isl"], inputs["serve.osl"]
        return Longest(isl, osl, isl + osl)
    lengths = _of_files(inputs, lambda file: (file.isl.max(), file.osl.max(), (file.isl + file.osl).max()))
    return Longest(*lengths.T)


def known_of(inputs: Inputs) -> Ints:
    """Return how many requests of a file points send or choose from, 0 where there is no file; (points,)."""
    if KEY not in inputs:
        return np.zeros(inputs["serve.isl"].size, dtype=np.int64)
    files, place = _files(inputs)
    return np.array([min(one.requests.isl.size, _most(one)) for one in files], dtype=np.int64)[place]


def has_layer_runs(inputs: Inputs, loads: Loads, servers: Ints, rows: Ints) -> Iterator[tuple[Ints, Loads]]:
    """Yield some of the rows with their loads, which have the requests of files; so many as memory holds.

    servers: that share the requests of each point in turns; the first one's are sent.
    """
    if KEY not in inputs:
        yield rows, take(loads, rows)
        return
    size = max(1, _CELLS // max(int(loads.known[rows].max(initial=1)), 1))
    for start in range(0, rows.size, size):
        block = rows[start : start + size]
        yield block, _filled(take(dict(inputs), block), take(loads, block), servers[block])


def _filled(inputs: Inputs, loads: Loads, servers: Ints) -> Loads:
    """Return loads with the requests of files."""
    files, place = _files(inputs)
    shared, point = unique_rows([place, servers], place.size)
    every = [_sent(files[place[i]], int(servers[i])) for i in shared.tolist()]
    counts = np.array([one.isl.size for one in every], dtype=np.int64)
    lengths = np.zeros((len(every), 2, counts.max()), dtype=np.int64)
    arrivals = np.zeros((len(every), max(one.sent.size for one in every)))
    for number, one in enumerate(every):
        lengths[number, 0, : one.isl.size], lengths[number, 1, : one.osl.size] = one.isl, one.osl
        arrivals[number, : one.sent.size] = one.sent
    return loads._replace(known=counts[point], lengths=lengths[point], arrivals=arrivals[point])


def _sent(file: _File, servers: int) -> RequestLengths:
    """Return the requests that the first of some servers is sent; without arrivals, those that it draws from.

    These have fewest tokens in all first, so that requests nearby are alike.
    """
    one = file.requests
    if file.follows:
        return take(one, np.arange(0, one.isl.size, servers))
    order = np.lexsort((one.osl, one.isl + one.osl))
    if order.size > MOST_SENT:
        order = order[((np.arange(MOST_SENT) + 0.5) * order.size / MOST_SENT).astype(np.int64)]
    return RequestLengths(one.isl[order], one.osl[order], np.zeros(0))


def _most(file: _File) -> int:
    return file.requests.isl.size if file.follows else MOST_SENT


def _files(inputs: Inputs) -> tuple[list[_File], Ints]:
    """Return the files that points ask for, those whose arrivals are followed cut, and each point's place."""
    count = arrivals_of_files(inputs)
    first, place = unique_rows([inputs[KEY], count], count.size)
    found = []
    for i in first.tolist():
        one = read_lengths(str(inputs[KEY][i]))
        follows = bool(count[i] > 0)
        rows = np.arange(min(count[i], one.isl.size))
        found.append(_File(take(one, rows) if follows else one, follows))
    return found, place


def _of_files(inputs: Inputs, tells: Callable[[RequestLengths], tuple[float, ...]]) -> Floats:
    """Return what is told of each point's file, (points, figures)."""
    files, place = _files(inputs)
    told: NDArray[np.float64] = np.array([tells(one.requests) for one in files], dtype=np.float64)
    return told[place]


def _spread_of(lengths: Ints) -> float:
    """Return the spread of uniform lengths of the same mean and standard deviation, at most 1.

    Uniform lengths from (1 - s) x to x have the mean (1 - s / 2) x and the standard deviation s x / sqrt(12).
    """
    varies = float(lengths.std() / lengths.mean())
    return min(1.0, varies / (1.0 / sqrt(12.0) + varies / 2.0))
