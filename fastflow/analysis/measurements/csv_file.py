"""A user's CSV file: its cells as texts, and errors that name the cell.

A cell is converted to a number, a time, a choice or the value of a model's input, and checked then. An error
names the file, its line, the column, the value and what is allowed.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fastflow.config.messages import one_of, pluralize
from fastflow.config.model_inputs import Scalar, convert, to_column
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Floats, Ints, Texts
from fastflow.schema import find_input
from fastflow.schema.quantities import TIME, Quantity

MAX_BYTES = 64 * 2**20  # of a file [B]: about two million rows, which take two gigabytes of memory
MAX_COLUMNS = 1000
_TIME = f"a time above 0, from {TIME.lowest:g} to {TIME.highest:g} seconds"
_MAX_SHOWN = 60  # characters of a cell, in a message
# without digits of other scripts, 1_000 and 0x10
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_BOOLS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1", "1.0"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0", "0.0"), False),
}
"""Spellings in any case. pandas writes 1.0 and 0.0 where other cells of the column are empty."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # all but tab and the ends of lines


Refusal = Callable[[str], InputError]
"""From the reason to the error."""


class InputColumn(NamedTuple):
    """Values of an input of the model, from a column; shape (rows,)."""

    values: NDArray[Any]
    is_set: Bools  # False where the cell is empty


def merge_columns(first: InputColumn | None, second: InputColumn) -> InputColumn:
    """Merge two columns of the same input; the second has precedence."""
    if first is None:
        return second
    values = np.where(second.is_set, second.values, first.values)
    return InputColumn(values, first.is_set | second.is_set)


class CsvFile(NamedTuple):
    """A file that was read, or rows of it. A row may come several times, once for each time in it."""

    path: str
    digest: str  # SHA-256 of the file
    header: int  # line of the file, the first being 1
    frame: pd.DataFrame  # cells as texts
    line: Ints  # of the file, that each row begins in

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return list(map(str, self.frame))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.frame)

    def take(self, rows: NDArray[Any]) -> CsvFile:
        """Return some rows, by number or by a mask."""
        return self._replace(frame=self.frame.iloc[rows], line=self.line[rows])

    def each_once(self, column: str) -> list[str]:
        """Return the texts of a column, each once; empty if it is missing."""
        return self.frame[column].unique().tolist() if column in self.frame else []

    def filled(self, column: str) -> Bools:
        """Return which cells of a column are not empty; all False if it is missing."""
        if column not in self.frame:
            return np.zeros(self.rows, dtype=np.bool_)
        return (self.frame[column] != "").to_numpy(np.bool_)

    def cell_error(self, column: str, row: int, allowed: str) -> InputError:
        """Return the error of a cell."""
        value = shown(self.frame[column].iloc[row]) or "nothing"
        return InputError(shown(column), value, allowed, f"{self.path}, line {self.line[row]}")

    def column_error(self, column: str, allowed: str) -> InputError:
        """Return the error of a name in the header."""
        return InputError("column", shown(column), allowed, f"{self.path}, line {self.header}")

    def refuse(self, column: str, wrong: NDArray[np.bool_], allowed: str) -> None:
        """Raise InputError for the first wrong cell, if there is any."""
        if wrong.any():
            raise self.cell_error(column, int(wrong.argmax()), allowed)

    def numbers(self, column: str) -> Floats:
        """Return a column of numbers, NaN where a cell is no number, or beyond the range of floats."""
        values = [_number(text) for text in self.frame[column]]
        numbers = np.array(values, dtype=np.float64)
        return np.where(np.isfinite(numbers), numbers, np.nan)

    def whole_numbers(self, column: str, low: int, high: float) -> Ints:
        """Return a column of whole numbers within bounds; raises InputError."""
        return self.whole_numbers_where(column, low, high, np.ones(self.rows, dtype=np.bool_), low)

    def whole_numbers_where(
        self, column: str, low: int, high: float, needed: Bools, default: int
    ) -> Ints:  # fmt: skip
        """Return a column of whole numbers within bounds, `default` where a cell is empty that is not needed.

        Raises InputError.
        """
        filled = self.filled(column)
        if column not in self.frame:
            if needed.any():
                raise self.column_error(column, "a column of this file")
            return np.full(self.rows, default)
        values = np.where(filled | needed, self.numbers(column), default)
        fits = (values >= low) & (values <= high) & (values == np.floor(values))
        self.refuse(column, ~fits, f"a whole number at least {low:,} and at most {high:g}")
        return values.astype(np.int64)

    def times(self, column: str, needed: Bools) -> Floats:
        """Return a column of times [s]; needed: which cells are checked. Raises InputError."""
        values = self.numbers(column)
        self.refuse(column, needed & ~((values >= TIME.lowest) & (values <= TIME.highest)), _TIME)
        return values

    def quantities(self, column: str, quantity: Quantity) -> Floats:
        """Return a column of a quantity, NaN where a cell is empty; raises InputError for a wrong cell."""
        values = self.numbers(column)
        fits = (values >= quantity.lowest) & (values <= quantity.highest)
        bounds = f"from {quantity.lowest:g} to {quantity.highest:g} {quantity.unit}"
        self.refuse(column, self.filled(column) & ~fits, f"{quantity.name} above 0, {bounds}, or nothing")
        return values

    def choices(self, column: str, choices: tuple[str, ...], default: str) -> Texts:
        """Return a column of choices, `default` where a cell, or the column, is missing."""
        if column not in self.frame:
            return np.full(self.rows, default)
        cells = [cell.lower() for cell in self.frame[column]]
        spellings = {text.lower(): text for text in choices} | {"": default}
        self.refuse(column, np.array([cell not in spellings for cell in cells]), one_of(choices))
        return np.array([spellings[cell] for cell in cells], dtype=np.str_)

    def input_column(self, column: str, key: str, is_needed: bool) -> InputColumn:
        """Return a column as values of an input of the model; raises InputError."""
        is_set = self.filled(column)
        self.refuse(column, ~is_set & is_needed, "a value in every row")
        codes, texts = pd.factorize(self.frame[column].to_numpy()[is_set])
        values: list[Scalar] = []
        for number, text in enumerate(texts.tolist()):
            try:
                values.append(convert(key, scalar_of(key, text)))
            except InputError as error:
                raise self.cell_error(
                    column, int(np.flatnonzero(is_set)[codes == number][0]), error.allowed
                ) from None
        column_of_values = to_column(key, values)
        padded = np.zeros(self.rows, dtype=column_of_values.dtype)
        padded[is_set] = column_of_values[codes]
        return InputColumn(padded, is_set)


def shown(text: str) -> str:
    """Return a text for a message: not too long, with control characters escaped."""
    short = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in short
    )


def listed(texts: Sequence[str], most: int = 20) -> str:
    """Return texts as a list that fits into a message."""
    return ", ".join(map(shown, texts[:most])) + (", ..." if len(texts) > most else "")


def _number(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else np.nan


def scalar_of(key: str, text: str) -> Scalar:
    """Convert a text to the type of an input; a text that is no number is returned as it is.

    True and false have more spellings in files (`_BOOLS`), also where there are other choices, as "auto".
    """
    column = find_input(key)
    if column is None or column.kind == "str":
        choices = column.choices if column else ()
        spellings = {choice.lower(): choice for choice in choices}
        if "true" in spellings and "false" in spellings:
            spellings = {name: str(value).lower() for name, value in _BOOLS.items()} | spellings
        return spellings.get(text.lower(), text)
    if column.kind == "bool":
        return _BOOLS.get(text.lower(), shown(text))
    if column.kind == "int" and _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else shown(text)  # 1e6 is a whole number, too


def read_csv(path: str) -> CsvFile:
    """Read a file; raises InputError where it is no CSV, has no rows, or is too large."""

    def refusal(reason: str) -> InputError:
        return InputError("measurements", path, f"a CSV file with a header and rows; {reason}")

    content = _content(path, refusal)
    try:
        records = list(_records(content.decode("utf-8-sig")))
    except UnicodeDecodeError:
        raise refusal("this one is not in UTF-8") from None
    except csv.Error as error:
        raise refusal(f"this is not CSV ({error})") from None
    if len(records) < 2:
        raise refusal(f"this one holds {'only a header' if records else 'nothing'}")
    (header, names), *rows = records
    _check_header(names, refusal)
    for line, cells in rows:
        if len(cells) != len(names):
            raise refusal(
                f"its header has {pluralize(len(names), 'column')}, and line {line} has {len(cells)}"
            )
        if any(map(_CONTROL.search, cells)):
            raise refusal(f"line {line} has a control character")
    frame = pd.DataFrame([cells for _, cells in rows], columns=names, dtype=object)
    lines = np.array([line for line, _ in rows], dtype=np.int64)
    digest = hashlib.sha256(content).hexdigest()
    return CsvFile(
        path=path, digest=digest, header=header, frame=frame.drop(columns=[""], errors="ignore"), line=lines
    )


def _content(path: str, refusal: Refusal) -> bytes:
    """Read the content of a file, up to its largest size; raises InputError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        raise refusal(f"this cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(content) > MAX_BYTES:
        raise refusal(f"this one is larger than {MAX_BYTES // 2**20} MiB: split it into several files")
    return content


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line that each record begins in, and its cells, without spaces around them.

    Records whose cells are all empty are left out. Raises csv.Error.
    """
    reader = csv.reader(StringIO(text, newline=""), skipinitialspace=True, strict=True)
    begins = 1
    for cells in reader:
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            yield begins, stripped
        begins = reader.line_num + 1


def _check_header(names: list[str], refusal: Refusal) -> None:
    """Refuse a header that names no columns, or a column twice; raises InputError."""
    if len(names) > MAX_COLUMNS:
        raise refusal(f"this one has {len(names):,} columns, and {MAX_COLUMNS:,} are the most")
    if any(map(_CONTROL.search, names)):
        raise refusal("its header has a control character")
    duplicates = [name for name, count in Counter(names).items() if name and count > 1]
    if duplicates:
        raise refusal(f"this one has the column {shown(duplicates[0])} twice")
    if len(names) == 1 and any(other in names[0] for other in ";\t"):
        raise refusal("this one is not separated by commas")
