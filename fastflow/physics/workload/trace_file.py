"""Writing of a trace to a file that `serve.trace` reads: the same trace comes back."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from fastflow.physics.workload.request_order import RequestTrace

SUFFIXES = {".csv": False, ".jsonl": True, ".json": True, ".ndjson": True}
"""Whether a file is of JSON Lines."""
_PART = 65_536  # requests


def write_trace(trace: RequestTrace, path: str | Path) -> None:
    """Write a trace as CSV or JSON Lines, by the suffix: .csv, or .jsonl, .json, .ndjson.

    Times are in seconds, in full precision. Columns that no request needs are left out, and so are members
    of objects. Raises ValueError for another suffix, and OSError.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"expected a file with one of {', '.join(SUFFIXES)}, not {path.name}")
    is_json = SUFFIXES[path.suffix.lower()]
    names = _names(trace)
    with path.open("w", encoding="utf-8", newline="") as file:
        if is_json:
            for row in _rows(trace, names):
                members = {name: value for name, value in zip(names, row, strict=True) if value is not None}
                file.write(json.dumps(members) + "\n")
        else:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(names)
            hashes = names.index("hash_ids") if "hash_ids" in names else -1
            for row in _rows(trace, names):
                if hashes >= 0 and row[hashes] is not None:
                    row[hashes] = " ".join(map(str, row[hashes]))
                writer.writerow(row)


def _names(trace: RequestTrace) -> list[str]:
    """Return the columns that the trace needs."""
    names = ["arrival_time", "isl", "osl"]
    for needed, columns in (
        ((trace.session >= 0).any(), ["session", "turn"]),
        (trace.waits.any(), ["think_time"]),
        ((trace.service_class >= 0).any(), ["class"]),
        ((trace.adapter >= 0).any(), ["adapter"]),
        ((~np.isnan(trace.deadline)).any(), ["deadline"]),
        (trace.hash_ids.size, ["block_size", "hash_ids"]),
    ):
        names += columns if needed else []
    return names


def _rows(trace: RequestTrace, names: list[str]) -> Iterator[list[Any]]:
    """Yield the values of each request, None for nothing; some thousands are plain numbers at a time."""
    for start in range(0, trace.isl.size, _PART):
        part = slice(start, start + _PART)
        sent, waits = trace.sent[part].tolist(), trace.waits[part].tolist()
        session, service_class = trace.session[part].tolist(), trace.service_class[part].tolist()
        turn, adapter = trace.turn[part].tolist(), trace.adapter[part].tolist()
        deadline = trace.deadline[part].tolist()
        offsets = trace.hash_offsets[start : start + _PART + 1].tolist()
        ids = trace.hash_ids[offsets[0] : offsets[-1]].tolist()
        hashes = [ids[a - offsets[0] : b - offsets[0]] for a, b in pairwise(offsets)]
        columns: dict[str, list[Any]] = {
            "arrival_time": [None if wait else time for time, wait in zip(sent, waits, strict=True)],
            "isl": trace.isl[part].tolist(),
            "osl": trace.osl[part].tolist(),
            "session": [None if number < 0 else number for number in session],
            "turn": [None if number < 0 else k for k, number in zip(turn, session, strict=True)],
            "think_time": [time if wait else None for time, wait in zip(sent, waits, strict=True)],
            "class": [None if i < 0 else trace.class_names[i] for i in service_class],
            "adapter": [None if i < 0 else i for i in adapter],
            "deadline": [None if isnan(limit) else limit for limit in deadline],
            "block_size": [trace.block_tokens] * len(sent),
            "hash_ids": [some or None for some in hashes],
        }
        yield from map(list, zip(*(columns[name] for name in names), strict=True))
