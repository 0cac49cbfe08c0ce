"""Requests and texts that are loaded: the simulation of a long trace has some of them at a time.

Its tables have a slot for each loaded request, and for each loaded node of a text. Requests are loaded in the
order of arrival, WINDOW at a time, each with those that follow it, and with its text and all ancestors. Where
all of them have arrived, the simulation stops before the next event. What became of requests that have ended
is written down then. Their slots are free, and those of nodes that are in no store and that no request needs.
So results are the same with any WINDOW.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastflow.core.jit import lean_kernel
from fastflow.core.tables import Bools, Floats, Ints, map_columns
from fastflow.performance.serving.fleet.prefix_cache import ABSENT
from fastflow.performance.serving.fleet.server import Caches, Log
from fastflow.performance.serving.fleet.state import (
    FURTHER,
    NONE,
    TAKEN,
    Fleet,
    Served,
    Texts,
    Trace,
    is_follower,
    no_requests,
    not_served,
)

WINDOW = 16_384
"""Requests that are loaded at a time at most, on average: those that follow others come with them."""
LEAST_WINDOW = 1024
"""Requests that are loaded at a time at least, where there are as many."""
_GROWTH = 1.25  # of a table that is full
_KINDS = {"i": np.int64, "f": np.float64, "b": np.bool_}
"""Types that kernels take, by the kind of a column: a whole trace may have narrower ones."""


class Tables(NamedTuple):
    """The tables of a simulation."""

    fleet: Fleet
    caches: Caches
    log: Log


class Times(NamedTuple):
    """When requests of a whole trace started and ended; (requests,)."""

    isl: Ints  # of the trace
    osl: Ints
    admitted: Floats  # [s]; negative: not yet, as `first` and `end`
    first: Floats  # [s]
    end: Floats  # [s]


class Loader:
    """Loads a trace into tables, and writes down what became of its requests."""

    def __init__(self, trace: Trace, texts: Texts, parts: int) -> None:
        """Begin with nothing loaded; parts: in which the trace is loaded, as far as it is long enough."""
        count = trace.isl.size
        self._window = min(WINDOW, max(LEAST_WINDOW, -(-count // parts)))
        self._trace, self._texts = trace, texts
        self._heads = np.flatnonzero(~is_follower(trace)).astype(np.int32)  # by arrival
        self._loaded = 0  # of these
        self._slots = np.full(texts.parent.size, NONE, dtype=np.int32)  # of nodes; NONE: it is not loaded
        self.times = Times(trace.isl, trace.osl, *(np.full(count, -1.0) for _ in range(3)))
        # memory is used as values are written, not before; -1: it has not arrived
        served = Served(*(_narrow(column, count) for column in not_served(rows_of(trace, _NOTHING))))
        self.served = served._replace(arrived=np.full(count, -1.0))

    def load(self, tables: Tables, most_nodes: int) -> Tables | None:
        """Return tables with the next requests, and without those that have ended.

        None: they would have more nodes than `most_nodes`.
        """
        number, end = tables.log.arrivals.number, tables.fleet.requests.end
        slots = np.flatnonzero((number != NONE) & (end >= 0.0))
        self._write(tables, slots)
        number[slots] = NONE
        self._unload_nodes(tables)
        heads = self._next_heads()
        numbers = self._with_followers(heads)
        caches = self._load_nodes(tables.caches, numbers, most_nodes)
        if caches is None:
            return None
        return self._load_requests(tables._replace(caches=caches), heads, numbers)

    def write_all(self, tables: Tables) -> None:
        """Write down what became of all requests that are loaded."""
        self._write(tables, np.flatnonzero(tables.log.arrivals.number != NONE))

    def _write(self, tables: Tables, slots: Ints) -> None:
        """Write down what became of the requests in some slots."""
        numbers, requests = tables.log.arrivals.number[slots], tables.fleet.requests
        for name in ("admitted", "first", "end"):
            getattr(self.times, name)[numbers] = getattr(requests, name)[slots]
        for of_trace, loaded in zip(self.served, tables.log.served, strict=True):
            if (values := loaded[slots]).any() or of_trace[numbers].any():
                of_trace[numbers] = values

    def _unload_nodes(self, tables: Tables) -> None:
        """Free the slots of nodes that are in no store and that no request needs."""
        log, texts, stores = tables.log, tables.caches.texts, tables.caches.stores
        needed = np.zeros(stores.number.size, dtype=np.bool_)
        _mark_needed(stores.uses, texts.parent, log.trace.text, log.trace.answer, log.arrivals.number, needed)
        dropped = np.flatnonzero(~needed & (stores.number != NONE))
        self._slots[stores.number[dropped]] = NONE
        stores.number[dropped] = NONE

    def _next_heads(self) -> Ints:
        """Return the next requests that are nobody's follower."""
        count = max(1, self._window * self._heads.size // max(self._trace.isl.size, 1))
        begin, self._loaded = self._loaded, min(self._loaded + count, self._heads.size)
        return self._heads[begin : self._loaded].astype(np.int64)

    def _with_followers(self, heads: Ints) -> Ints:
        """Return requests with all that follow them, by number."""
        numbers, last = [heads], heads
        while last.size:
            last = self._trace.follower[last].astype(np.int64)
            last = last[last != NONE]
            numbers.append(last)
        return np.sort(np.concatenate(numbers))

    def _load_nodes(self, caches: Caches, numbers: Ints, most_nodes: int) -> Caches | None:
        """Return caches with the nodes of requests; None: they would have more than `most_nodes`."""
        parent, slot_of = self._texts.parent, self._slots
        new = np.empty(parent.size, dtype=np.int32)  # memory is used as nodes are written, not before
        text, answer = rows_of((self._trace.text, self._trace.answer), numbers)
        count = _find_nodes(parent, text, answer, slot_of, new)
        nodes = np.sort(new[:count]).astype(np.int64)
        texts, stores = caches.texts, caches.stores
        loaded = int((stores.number != NONE).sum())
        if loaded + count > most_nodes:
            return None
        rows = _rows(stores.number.size, loaded + count, most_nodes)
        texts = _longer(texts, rows)
        stores = stores._replace(
            uses=_longer(stores.uses, rows), older=_longer(stores.older, rows),
            newer=_longer(stores.newer, rows), number=_longer(stores.number, rows, NONE),
        )  # fmt: skip
        slots = np.flatnonzero(stores.number == NONE)[:count]
        stores.number[slots], slot_of[nodes] = nodes, slots
        of_trace = rows_of(self._texts, nodes)
        _put(texts, slots, of_trace._replace(parent=_mapped(of_trace.parent, slot_of)))
        return caches._replace(texts=texts, stores=stores)

    def _load_requests(self, tables: Tables, heads: Ints, numbers: Ints) -> Tables:
        """Return tables with requests, whose nodes are loaded."""
        fleet, log = tables.fleet, tables.log
        arrivals = log.arrivals
        loaded = int((arrivals.number != NONE).sum())
        rows = _rows(arrivals.number.size, loaded + numbers.size, self._trace.isl.size)
        number = _longer(arrivals.number, rows, NONE)
        slots = np.flatnonzero(number == NONE)[: numbers.size]
        number[slots] = numbers
        counts = arrivals.counts
        counts[TAKEN], counts[FURTHER] = 0, self._loaded < self._heads.size
        arrivals = arrivals._replace(
            order=slots[np.searchsorted(numbers, heads)], when=_longer(arrivals.when, rows),
            request=_longer(arrivals.request, rows), number=number,
        )  # fmt: skip
        fleet = fleet._replace(
            requests=_longer(fleet.requests, rows),
            pools=fleet.pools._replace(next=_longer(fleet.pools.next, rows)),
        )
        log = Log(_longer(log.trace, rows), _longer(log.served, rows), arrivals)
        trace = rows_of(self._trace, numbers)
        follows = np.where(trace.follower == NONE, 0, np.searchsorted(numbers, trace.follower))
        trace = trace._replace(
            text=_mapped(trace.text, self._slots), answer=_mapped(trace.answer, self._slots),
            follower=np.where(trace.follower == NONE, NONE, slots[follows]),
        )  # fmt: skip
        for table, rows_of_table in (
            (log.trace, trace), (log.served, not_served(trace)), (fleet.requests, no_requests(trace)),
        ):  # fmt: skip
            _put(table, slots, rows_of_table)
        return tables._replace(fleet=fleet, log=log)


_NOTHING = np.zeros(0, dtype=np.int64)


def rows_of(table: Any, numbers: Ints) -> Any:
    """Return some rows of a trace or its texts, in the types that kernels take."""
    return map_columns(lambda column: column[numbers].astype(_KINDS[column.dtype.kind]), table)


def _narrow(column: NDArray[Any], count: int) -> NDArray[Any]:
    """Return a column of a whole trace before any request is served: 0."""
    return np.zeros(count, dtype=np.int32 if column.dtype.kind == "i" else column.dtype)


def _rows(rows: int, needed: int, most: int) -> int:
    """Return how many rows a table has that needs some; most: that it may ever need."""
    return rows if needed <= rows else max(needed, min(int(_GROWTH * rows), most))


def _longer(table: Any, rows: int, value: int = 0) -> Any:
    """Return a column or a table with as many rows; new ones have a value."""

    def longer(column: NDArray[Any]) -> NDArray[Any]:
        if column.shape[0] == rows:
            return column
        result = np.zeros((rows, *column.shape[1:]), dtype=column.dtype)  # memory is used once it is written
        result[: column.shape[0]] = column
        if value:
            result[column.shape[0] :] = value
        return result

    return map_columns(longer, table)


def _put(table: Any, slots: Ints, rows: Any) -> None:
    """Write rows of a table into slots."""
    for column, values in zip(table, rows, strict=True):
        column[slots] = values


def _mapped(nodes: NDArray[Any], slot_of: NDArray[np.int32]) -> Ints:
    """Return the slots of nodes; NONE for no node."""
    return np.where(nodes == NONE, NONE, slot_of[nodes]).astype(np.int64)


@lean_kernel
def _mark_needed(
    uses: NDArray[np.int32], parent: Ints, text: Ints, answer: Ints, number: Ints, needed: Bools
) -> None:
    """Mark the nodes that a store has or a request needs, and their ancestors; number: of each request."""
    for slot in range(parent.size):
        store = 0
        while store < uses.shape[1] and uses[slot, store] == ABSENT:
            store += 1
        if store < uses.shape[1]:
            _mark(parent, slot, needed)
    for request in range(number.size):
        if number[request] != NONE:
            _mark(parent, text[request], needed)
            _mark(parent, answer[request], needed)


@lean_kernel
def _mark(parent: Ints, node: int, marks: Bools) -> None:
    """Mark a node and its ancestors, up to one that is marked."""
    while node != NONE and not marks[node]:
        marks[node] = True
        node = parent[node]


@lean_kernel
def _find_nodes(
    parent: NDArray[Any], text: Ints, answer: Ints, slot_of: NDArray[np.int32], nodes: NDArray[np.int32]
) -> int:
    """Write the nodes of requests that are not loaded; returns how many. They are no longer NONE then."""
    count = 0
    for request in range(text.size):
        for node in (text[request], answer[request]):
            while node != NONE and slot_of[node] == NONE:
                slot_of[node], nodes[count] = 0, node
                count += 1
                node = parent[node]
    return count
