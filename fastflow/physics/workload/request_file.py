"""Files of requests: CSV, or JSON Lines with an object a line, read a part at a time (docs/serving.md).

Columns have the names of published traces and servers' logs. Names ignore case, and spaces count as
underscores. Times are numbers of seconds (of milliseconds where a name ends in `_ms`, and with Mooncake's
names), or dates with a time of day.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from itertools import accumulate, chain, compress, islice, zip_longest
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from fastflow.core.tables import Bools, Floats, Ints
from fastflow.core.yaml_file import MistakeError, shown

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
"""Columns of prompt and output tokens."""
TIMES = ("arrival_time", "arrived_at", "timestamp", "arrival_time_ms", "arrived_at_ms", "timestamp_ms")
PARENT = "parent_chat_id"
"""Alibaba's Bailian traces: Mooncake's names, but `timestamp` is in seconds."""
NAMES = frozenset({name for pair in TOKENS for name in pair} | set(TIMES) | {PARENT})
MAX_TOKENS = 10**9  # of a prompt or an answer, as of serve.isl and serve.osl
MAX_SECONDS = 1e12  # of a time
MILLI = 1e-3
TIME = "times, as numbers or as 2026-01-31 12:00:00.5"
_PART = 2048  # lines: their objects of Python are small next to the arrays of a long file
_PEEK = 4096  # characters
_NAMED = "whose first line names"
_BREAK = re.compile(r"\r\n|\r|\n")


class Part(NamedTuple):
    """Some successive lines of a file, without empty ones."""

    where: str  # in words: what has to have the columns
    lines: list[int]  # their numbers from 1; of a line with line breaks in quotes, the last
    values: dict[str, list[Any]]  # by column, an entry a line; None or "" for nothing


class LengthColumns(NamedTuple):
    """Names of the columns of a file."""

    tokens: tuple[str, str]
    time: str  # "" if absent
    scale: float  # of times [s]


def read_parts(path: str, known: Collection[str]) -> Iterator[Part]:
    """Yield the known columns of a file, some thousand lines at a time; raises MistakeError.

    known: normalised names of columns; others are skipped. There is a part even where no line follows the
    names of the columns.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            is_json = file.read(_PEEK).lstrip()[:1] in ("{", "[")
            file.seek(0)
            yield from (_objects if is_json else _cells)(file, known)
    except (UnicodeDecodeError, csv.Error) as error:
        raise MistakeError(f"a file of comma-separated values or JSON Lines ({error})") from None


def check_size(size: int, limit: int) -> None:
    """Raise MistakeError for a file of more bytes than the limit."""
    if size > limit:
        raise MistakeError(f"a file of at most {limit:,} bytes, not {size:,}")


def check_rows(rows: Ints) -> None:
    """Raise MistakeError for a file without requests."""
    if not rows.size:
        raise MistakeError("a file with a line for each request; this one has none")


def columns_of(part: Part) -> LengthColumns:
    """Return the columns of lengths and times; raises MistakeError where a length is missing."""
    for pair in TOKENS:
        if pair[0] in part.values and pair[1] in part.values:
            time = next((name for name in TIMES if name in part.values), "")
            is_milli = time.endswith("_ms") or (pair == MOONCAKE and PARENT not in part.values)
            return LengthColumns(pair, time, MILLI if is_milli else 1.0)
    pairs = ", ".join(f"{a} and {b}" for a, b in TOKENS)
    raise MistakeError(f"a file {part.where} the tokens of prompts and answers: one of {pairs}")


def column_of(part: Part, name: str) -> list[Any]:
    """Return the values of a column; None where this part has none."""
    return part.values.get(name) or [None] * len(part.lines)


def given_of(part: Part, name: str) -> tuple[Bools, list[Any], list[int]]:
    """Return where a column has values, (lines,), these values, and the numbers of their lines."""
    values, lines = part.values.get(name), part.lines
    if values is None:
        return np.zeros(len(lines), dtype=bool), [], []
    if None not in values and "" not in values:
        return np.ones(len(lines), dtype=bool), values, lines
    given = [value is not None and value != "" for value in values]
    return np.array(given, dtype=bool), list(compress(values, given)), list(compress(lines, given))


def invalid_cell(name: str, allowed: str, line: int, value: Any) -> MistakeError:
    """Return the error for a value of a column that is not allowed."""
    shown_value = "nothing" if value is None or value == "" else shown(str(value))
    return MistakeError(f"a file whose column {name} has {allowed}; line {line} has {shown_value}")


def token_counts(part: Part, name: str) -> Ints:
    """Return the numbers of tokens of a column, (lines,); raises MistakeError."""
    return whole_numbers(column_of(part, name), part.lines, name, 1, "whole numbers of tokens")


def whole_numbers(values: list[Any], lines: list[int], name: str, least: int, what: str) -> Ints:
    """Return whole numbers from `least` to MAX_TOKENS, (lines,); raises MistakeError.

    what: the numbers in words. Each value has to be there.
    """
    numbers = _whole_at_once(values)
    if numbers is not None and ((numbers >= least) & (numbers <= MAX_TOKENS)).all():
        return numbers
    allowed = f"{what} from {least} to {MAX_TOKENS:.0e}"
    pairs = zip(values, lines, strict=True)
    return np.array([_whole(value, least, name, allowed, line) for value, line in pairs], dtype=np.int64)


def _whole_at_once(values: list[Any]) -> Ints | None:
    """Return the numbers of a plain column of digits; None where each value needs a look."""
    types = set(map(type, values))
    try:
        if types == {str}:
            digits = "".join(values)  # one test of all of them
            is_plain = digits.isascii() and digits.isdigit() and "" not in values
            return np.fromstring(",".join(values), dtype=np.int64, sep=",") if is_plain else None
        return np.array(values, dtype=np.int64) if types <= {int} else None
    except (ValueError, OverflowError):
        return None


def _whole(value: Any, least: int, name: str, allowed: str, line: int) -> int:
    text = str(value).strip().removesuffix(".0")  # pandas writes columns with missing values so
    if isinstance(value, bool) or not (
        text.isascii() and text.isdigit() and least <= int(text[:12]) <= MAX_TOKENS
    ):
        raise invalid_cell(name, allowed, line, value)
    return int(text)


def times(part: Part, name: str) -> Floats:
    """Return the times of a column, in its unit, (lines,); raises MistakeError. Each has to be there."""
    return _times(column_of(part, name), part.lines, name, -MAX_SECONDS / MILLI, TIME)


def times_given(part: Part, name: str, least: float, allowed: str, dates: bool = True) -> Floats:
    """Return the times of a column, in its unit, (lines,), NaN for nothing; raises MistakeError.

    least: the least allowed time; allowed: the times in words; dates: whether they may be dates.
    """
    given, values, lines = given_of(part, name)
    result = np.full(given.size, np.nan)
    result[given] = _times(values, lines, name, least, allowed, dates)
    return result


def _times(
    values: list[Any], lines: list[int], name: str, least: float, allowed: str, dates: bool = True
) -> Floats:
    if bool not in set(map(type, values)):
        try:
            numbers = np.fromiter(map(float, values), dtype=np.float64, count=len(values))
            if ((numbers >= least) & (numbers <= MAX_SECONDS / MILLI)).all():
                return numbers
        except (TypeError, ValueError, OverflowError):
            pass  # a date, or a mistake
    return np.array(
        [_time(value, dates, least, name, allowed, line) for value, line in zip(values, lines, strict=True)]
    )


def _time(value: Any, dates: bool, least: float, name: str, allowed: str, line: int) -> float:
    try:
        time = float(value) if not isinstance(value, bool) else np.nan
    except (TypeError, ValueError, OverflowError):
        time = _date(value) if dates else np.nan
    if not isfinite(time) or not least <= time <= MAX_SECONDS / MILLI:
        raise invalid_cell(name, allowed, line, value)
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


def _name(text: str) -> str:
    """Return a column's normalised name."""
    return text.strip().lower().replace(" ", "_")


def _cells(file: TextIO, known: Collection[str]) -> Iterator[Part]:
    """Yield the lines of comma-separated values; raises MistakeError."""
    reader = csv.reader(file, skipinitialspace=True, strict=True)
    names = [_name(cell) for cell in next(reader, [])]
    for name in names:
        if name in known and names.count(name) > 1:
            raise MistakeError(f"a file whose first line names each column once; it names {name} twice")
    kept = {name: i for i, name in enumerate(names) if name in known}
    before = reader.line_num
    while columns := _plain_columns(lines := list(islice(file, _PART)), len(names)):
        numbers = list(range(before + 1, before + 1 + len(lines)))
        yield Part(_NAMED, numbers, {name: columns[i] for name, i in kept.items()})
        before += len(lines)
    if lines or before == reader.line_num:
        yield from _any_cells(chain(lines, file), kept, before)


def _plain_columns(lines: list[str], width: int) -> list[list[str]]:
    """Return the cells of lines by column, (width,), where a comma always ends a cell; else nothing.

    So there are no quotes, no spaces around cells, no empty lines, and as many cells in each line.
    """
    text = "".join(lines).removesuffix("\n")
    rows = text.split("\n")
    is_plain = '"' not in text and " " not in text and "".join(rows).isprintable()
    if not is_plain or "," * (width - 1) in rows or {row.count(",") for row in rows} != {width - 1}:
        return []
    cells = ",".join(rows).split(",")
    return [cells[i::width] for i in range(width)]


def _any_cells(lines: Iterable[str], kept: dict[str, int], before: int) -> Iterator[Part]:
    """Yield lines of any comma-separated values; raises MistakeError.

    kept: columns, from 0; before: how many lines came before.
    """
    reader = csv.reader(lines, skipinitialspace=True, strict=True)
    last, is_first = before, True
    while (rows := list(islice(reader, _PART))) or is_first:
        numbers = list(range(last + 1, before + reader.line_num + 1))
        if len(numbers) != len(rows):  # a cell has line breaks
            breaks = (1 + sum(len(_BREAK.findall(cell)) for cell in row) for row in rows)
            numbers = list(accumulate(breaks, initial=last))[1:]
        if not all(map(any, rows)):  # an empty line has no cells, or empty ones
            numbers = [number for number, row in zip(numbers, rows, strict=True) if any(row)]
            rows = [row for row in rows if any(row)]
        columns = list(zip_longest(*rows, fillvalue=""))
        nothing = ("",) * len(rows)
        values = {name: _stripped(columns[i] if i < len(columns) else nothing) for name, i in kept.items()}
        yield Part(_NAMED, numbers, values)
        last, is_first = before + reader.line_num, False


def _stripped(cells: tuple[str, ...]) -> list[str]:
    """Return cells without spaces around them."""
    text = "".join(cells)
    has_space = " " in text or not text.isprintable()  # printable text has no other white space
    return [cell.strip() for cell in cells] if has_space else list(cells)


def _objects(file: TextIO, known: Collection[str]) -> Iterator[Part]:
    """Yield the lines of a file of JSON Lines; raises MistakeError."""
    objects: list[dict[str, Any]] = []
    lines: list[int] = []
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            members = json.loads(line)
        except (ValueError, RecursionError):
            members = None
        if not isinstance(members, dict):
            raise MistakeError(f"a file with a JSON object in each line; line {number} has {shown(line)}")
        objects.append(members)
        lines.append(number)
        if len(objects) == _PART:
            yield _part_of_objects(objects, known, lines)
            objects, lines = [], []
    if objects:
        yield _part_of_objects(objects, known, lines)


def _part_of_objects(objects: list[dict[str, Any]], known: Collection[str], lines: list[int]) -> Part:
    written = dict.fromkeys(name for members in objects for name in members)  # in order
    values: dict[str, list[Any]] = {}
    for name in written:
        if _name(name) in known:
            column = [members.get(name) for members in objects]
            before = values.get(_name(name))  # another line may write the name in capitals
            values[_name(name)] = column if before is None else _either(before, column)
    return Part(f"whose line {lines[0]} has", lines, values)


def _either(first: list[Any], second: list[Any]) -> list[Any]:
    return [b if a is None else a for a, b in zip(first, second, strict=True)]
