"""`serve.trace=FILE`: requests of servers with sessions, turns, and blocks of equal text (docs/serving.md).

The file is one of `serve.lengths`, with more columns (`trace_columns`). Formats:

- Mooncake (Qin et al., FAST 2025): `hash_ids` has a number for each block of 512 tokens of the prompt. The
  column `block_size` gives another size.
- NVIDIA AIPerf and Dynamo: `session_id`, and `delay` [ms] from the end of the turn before.
- Alibaba's Bailian traces (Wang et al., USENIX ATC 2025): `chat_id` and `parent_chat_id` chain the turns of
  a session, `timestamp` is in seconds, and a block has 16 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.core.collector import paused_collector
from fastflow.core.tables import compact, concat_tables, narrow
from fastflow.core.yaml_file import MistakeError, read_current
from fastflow.physics.workload.request_file import check_rows, check_size, read_parts
from fastflow.physics.workload.request_order import Requests, RequestTrace, order_requests
from fastflow.physics.workload.trace_columns import COLUMNS, TraceColumns

KEY = "serve.trace"
MAX_BYTES = 1024**3
"""Some four million lines with the hashes of Mooncake's mean prompt, of about 250 B each. Arrays take about
as many bytes as the file, and two or three times as many while it is read, which takes about a minute."""

_PARTS = 64


def read_trace(path: str, new_tokens: bool = False) -> RequestTrace:
    """Return the requests of a file by time of arrival; raises InputError, which names the line.

    path: of a file of CSV or JSON Lines, in UTF-8, with the columns of this module's head.
    new_tokens: whether the prompts of later turns are given without the turns before them, as in AIPerf's
    synthetic sessions and Dynamo's `mooncake_delta`; the trace has whole prompts.
    """
    return read_current(KEY, _parse_version, path, new_tokens)


@lru_cache(maxsize=2)
def _parse_version(path: str, changed: int, size: int, new_tokens: bool) -> RequestTrace:
    check_size(size, MAX_BYTES)
    trace = order_requests(*_read(path))
    return _with_history(trace) if new_tokens else trace


def _read(path: str) -> tuple[Requests, int, tuple[str, ...]]:
    """Return the requests of a file, the tokens of a block, names of classes; raises MistakeError."""
    columns = TraceColumns()
    with paused_collector():  # cells have no cycles, and to look for some takes a third of the time
        requests = columns.whole(_joined(columns.requests(part) for part in read_parts(path, COLUMNS)))
    check_rows(requests.line)
    return requests, columns.block_tokens(), columns.class_names()


def _joined(parts: Iterator[Requests]) -> Requests:
    """Return the requests of all parts.

    Parts are joined some at a time, since many small arrays waste memory; then a column at a time.
    """
    columns: list[list[NDArray[Any]]] = [[] for _ in Requests._fields]
    while some := list(islice(parts, _PARTS)):
        for column, values in zip(columns, concat_tables(some), strict=True):
            column.append(compact(values))
    return Requests(*(compact(np.concatenate(columns.pop(0))) for _ in Requests._fields))


def _with_history(trace: RequestTrace) -> RequestTrace:
    """Return a trace of whole prompts, from one of their new tokens; raises MistakeError."""
    if trace.hash_ids.size:
        raise MistakeError("a file without hash_ids, where prompts are given as new tokens")
    rows = np.lexsort((trace.turn, trace.session))  # requests without session are each a first turn
    both = (trace.isl + trace.osl)[rows]
    before = np.cumsum(both) - both
    starts = np.maximum.accumulate(np.where(trace.turn[rows] == 0, np.arange(rows.size), 0))
    isl = trace.isl.astype(np.int64)
    isl[rows] += before - before[starts]
    return trace._replace(isl=narrow(isl))
