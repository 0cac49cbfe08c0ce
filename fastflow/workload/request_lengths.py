"""`serve.lengths=FILE.csv`: how long requests of servers are, a row each (docs/serving.md)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastflow.tables import Ints
from fastflow.yaml_file import MistakeError, of_present, shown

KEY = "serve.lengths"
NAMES = ("isl", "osl")
MOST_BYTES = 64 * 1024 * 1024
MOST_TOKENS = 10**9  # of a prompt or an answer, as of serve.isl and serve.osl


class RequestLengths(NamedTuple):
    """Requests that are likely alike, those with fewest tokens in all first; (rows,)."""

    isl: Ints  # tokens of a prompt
    osl: Ints  # tokens of its answer


def read_lengths(path: str) -> RequestLengths:
    """Return the lengths that a file gives; raises InputError."""
    return of_present(KEY, _of_version, path)


@lru_cache(maxsize=16)
def _of_version(path: str, changed: int, size: int) -> RequestLengths:
    if size > MOST_BYTES:
        raise MistakeError(f"a file of at most {MOST_BYTES:,} bytes, not {size:,}")
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        rows = np.array(list(_rows(text)), dtype=np.int64)
    except (UnicodeDecodeError, csv.Error) as error:
        raise MistakeError(f"a file of comma-separated values ({error})") from None
    if not rows.size:
        raise MistakeError("a file with a row for each request; this one has none")
    isl, osl = rows[np.lexsort((rows[:, 1], rows.sum(axis=1)))].T
    return RequestLengths(np.ascontiguousarray(isl), np.ascontiguousarray(osl))


def _rows(text: str) -> Iterator[tuple[int, ...]]:
    """Yield prompt and answer of every row of a file that is not empty; raises MistakeError."""
    reader = csv.reader(StringIO(text, newline=""), skipinitialspace=True, strict=True)
    names = [cell.strip() for cell in next(reader, [])]
    for name in NAMES:
        if names.count(name) != 1:
            raise MistakeError(
                f"a file whose first line names the columns isl and osl; it does not name {name} once"
            )
    places = [names.index(name) for name in NAMES]
    for cells in reader:
        if any(cell.strip() for cell in cells):
            found = [cells[place].strip() if place < len(cells) else "" for place in places]
            for name, cell in zip(NAMES, found, strict=True):
                if not (cell.isascii() and cell.isdigit() and 1 <= int(cell[:12]) <= MOST_TOKENS):
                    allowed = f"whole numbers of tokens from 1 to {MOST_TOKENS:.0e}"
                    said = f"line {reader.line_num} has {shown(cell) or 'nothing'}"
                    raise MistakeError(f"a file whose column {name} has {allowed}; {said}")
            yield tuple(map(int, found))
