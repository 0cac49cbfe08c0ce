"""Parts of a dataset as Arrow reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq


def read_part(file: IO[bytes], columns: Sequence[str] | None = None) -> pa.Table:
    """Return columns of a part in the order of the argument, or all columns; raises Arrow's exceptions.

    The calling thread reads. Arrow's own threads may hold a Python file for a moment after they
    have read from it: a process that ends just then is aborted.
    """
    with pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False) as part:
        if columns is None:
            return part.read(use_threads=False)
        return part.read(columns=list(columns), use_threads=False).select(columns)
