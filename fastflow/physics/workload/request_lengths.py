"""`serve.lengths=FILE`: requests of servers, their lengths and when they arrive (docs/serving.md).

CSV, or JSON Lines with an object a line. Columns have the names of published traces and servers'
logs. Times are numbers of seconds (of milliseconds where a name ends in `_ms`, and with
Mooncake's names), or dates with a time of day.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastflow.core.tables import Floats, Ints
from fastflow.core.yaml_file import MistakeError, read_current, shown

KEY = "serve.lengths"
SERVES = "serve.isl"
"""An input that only serving points have."""
MOONCAKE = ("input_length", "output_length")
"""Qin et al., Mooncake, FAST 2025: its traces, whose `timestamp` is in milliseconds."""
TOKENS = (
    ("isl", "osl"),
    MOONCAKE,
    ("prompt_tokens", "completion_tokens"),  # OpenAI's usage
    ("input_tokens", "output_tokens"),  # Anthropic's usage
    ("contexttokens", "generatedtokens"),  # Azure's LLM inference traces
    ("num_prefill_tokens", "num_decode_tokens"),  # Vidur
    ("request_tokens", "response_tokens"),  # BurstGPT
    ("prompt_len", "output_len"),  # vLLM's benchmarks
)
"""Columns of prompt and output tokens; names ignore case, and spaces count as underscores."""
TIMES = ("arrival_time", "arrived_at", "timestamp", "arrival_time_ms", "arrived_at_ms", "timestamp_ms")
MAX_BYTES = 64 * 1024 * 1024
MAX_TOKENS = 10**9  # of a prompt or an answer, as of serve.isl and serve.osl
MAX_SECONDS = 1e12  # of a time of arrival
_MILLI = 1e-3


class RequestLengths(NamedTuple):
    """Requests; (rows,)."""

    isl: Ints  # tokens of a prompt
    osl: Ints  # tokens of its answer
    sent: Floats  # arrivals after the first [s], in order; (0,) where the file has none


class _Columns(NamedTuple):
    """Names of the columns of a file."""

    tokens: tuple[str, str]
    time: str  # "" if absent
    scale: float  # of times [s]


def read_lengths(path: str) -> RequestLengths:
    """Return the requests of a file in the order of their arrivals, or else of lines; raises InputError."""
    return read_current(KEY, _parse_version, path)


@lru_cache(maxsize=16)
def _parse_version(path: str, changed: int, size: int) -> RequestLengths:
    if size > MAX_BYTES:
        raise MistakeError(f"a file of at most {MAX_BYTES:,} bytes, not {size:,}")
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        rows = list(_requests(_objects(text) if text.lstrip()[:1] in ("{", "[") else _cells(text)))
    except (UnicodeDecodeError, csv.Error) as error:
        raise MistakeError(f"a file of comma-separated values or JSON Lines ({error})") from None
    if not rows:
        raise MistakeError("a file with a line for each request; this one has none")
    isl, osl = np.array([row[:2] for row in rows], dtype=np.int64).T
    if rows[0][2] is None:
        return RequestLengths(np.ascontiguousarray(isl), np.ascontiguousarray(osl), np.zeros(0))
    sent = np.array([row[2] for row in rows], dtype=np.float64)
    order = np.argsort(sent, kind="stable")
    return RequestLengths(isl[order], osl[order], sent[order] - sent.min())


def _name(text: str) -> str:
    """Return a column's normalised name."""
    return text.strip().lower().replace(" ", "_")


def _cells(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield number and cells of every line of comma-separated values; raises MistakeError."""
    reader = csv.reader(StringIO(text, newline=""), skipinitialspace=True, strict=True)
    names = [_name(cell) for cell in next(reader, [])]
    known = {name for pair in TOKENS for name in pair} | set(TIMES)
    for name in names:
        if name in known and names.count(name) > 1:
            raise MistakeError(f"a file whose first line names each column once; it names {name} twice")
    _columns(names, "whose first line names")
    for cells in reader:
        if any(cell.strip() for cell in cells):
            filled = [cell.strip() for cell in cells] + [""] * max(0, len(names) - len(cells))
            yield reader.line_num, dict(zip(names, filled, strict=False))


def _objects(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield number and members of every line of a file of JSON Lines; raises MistakeError."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            members = json.loads(line)
        except (ValueError, RecursionError):
            members = None
        if not isinstance(members, dict):
            raise MistakeError(f"a file with a JSON object in each line; line {number} has {shown(line)}")
        yield number, {_name(name): value for name, value in members.items()}


def _columns(names: Mapping[str, Any] | list[str], where: str) -> _Columns:
    """Return the column names of a file; raises MistakeError where they are missing."""
    for pair in TOKENS:
        if pair[0] in names and pair[1] in names:
            time = next((name for name in TIMES if name in names), "")
            is_milli = time.endswith("_ms") or pair == MOONCAKE
            return _Columns(pair, time, _MILLI if is_milli else 1.0)
    pairs = ", ".join(f"{a} and {b}" for a, b in TOKENS)
    raise MistakeError(f"a file {where} the tokens of prompts and answers: one of {pairs}")


def _requests(
    lines: Iterator[tuple[int, Mapping[str, Any]]],
) -> Iterator[tuple[int, int, float | None]]:
    """Yield prompt, answer and arrival of every line; raises MistakeError."""
    columns: _Columns | None = None
    for number, values in lines:
        if columns is None:
            columns = _columns(values, f"whose line {number} has")
        isl, osl = (_tokens(values.get(name), name, number) for name in columns.tokens)
        sent = None
        if columns.time:
            sent = columns.scale * _time(values.get(columns.time), columns.time, number)
        yield isl, osl, sent


def _invalid_cell(name: str, allowed: str, number: int, value: Any) -> MistakeError:
    shown_value = "nothing" if value is None or value == "" else shown(str(value))
    return MistakeError(f"a file whose column {name} has {allowed}; line {number} has {shown_value}")


def _tokens(value: Any, name: str, number: int) -> int:
    """Return a number of tokens; raises MistakeError."""
    text = str(value).strip().removesuffix(".0")  # pandas writes columns with missing values so
    if isinstance(value, bool) or not (
        text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= MAX_TOKENS
    ):
        raise _invalid_cell(name, f"whole numbers of tokens from 1 to {MAX_TOKENS:.0e}", number, value)
    return int(text)


def _time(value: Any, name: str, number: int) -> float:
    """Return a time of arrival, in the column's unit; raises MistakeError."""
    try:
        time = float(value) if not isinstance(value, bool) else np.nan
    except (TypeError, ValueError):
        time = _date(value)
    if not isfinite(time) or abs(time) > MAX_SECONDS / _MILLI:
        raise _invalid_cell(name, "times, as numbers or as 2026-01-31 12:00:00.5", number, value)
    return time


def _date(value: Any) -> float:
    """Return the seconds of a date with a time of day, UTC without a zone; NaN if it is no date."""
    if not isinstance(value, str):
        return float("nan")
    whole, point, rest = value.strip().partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    try:
        date = datetime.fromisoformat(whole + rest[digits:])
    except ValueError:
        return float("nan")
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return date.timestamp() + (float(f"0.{rest[:digits]}") if point and digits else 0.0)
