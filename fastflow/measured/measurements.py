"""A user's CSV file of measurements: what kind it is, and what its rows say of the model's inputs.

The columns of every kind are in docs/validation.md. Every cell is checked when the file is read; what is
wrong with one names the file, its line, the column, the value and what is allowed.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Collection, Mapping
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fastflow.columns import DTYPE_BYTES, find_input
from fastflow.configuration.inputs import Scalar, convert, to_column
from fastflow.configuration.wording import one_of
from fastflow.errors import InputError
from fastflow.measured.recurrent import Recurrent
from fastflow.tables import Bools, Floats, Ints, Texts
from fastflow.workload.graph import COLLECTIVES

TIMED = ("kernel", "call")
"""How a time was measured: the kernel alone, or launches back to back; or one call of a framework."""
TENSORS = "model.tensors"
BLOCKS = "chip.blocks.vector"
_LINEAR = ("linear", "addmm")  # a layer's weights are stored as n x k


class Kind(NamedTuple):
    """What a file holds, and what its columns are."""

    name: str  # in the plural
    model: str  # the workload that predicts a row; "" for those that are predicted otherwise
    needed: tuple[str, ...]
    inputs: Mapping[str, str]  # column, needed or not, to the input of the model that it sets
    others: tuple[str, ...] = ()  # columns that are known, and set no input by themselves
    times: Mapping[str, str] = {"time_s": ""}  # column of times to the part of the workload that it is of


GEMMS = Kind(
    "GEMMs", "gemm", ("m", "n", "k"),
    {"m": "model.m", "n": "model.n", "k": "model.k", "batch": "model.batch", "dtype": "model.dtype"},
    ("op", "trans_a", "trans_b"),
)  # fmt: skip
LAYERS = Kind(
    "recurrent layers", "rnn", ("cell", "hidden", "batch", "timesteps"),
    {
        "cell": "model.cell", "hidden": "model.hidden", "batch": "model.batch",
        "timesteps": "model.sequence", "dtype": "model.dtype",
    },
    times={"fwd_s": "forward", "bwd_inputs_s": "backward_inputs", "bwd_weights_s": "backward_weights"},
)  # fmt: skip
OPERATORS = Kind(
    "pointwise and normalisation operators", "operator", ("rows", "cols"),
    {"rows": "model.rows", "cols": "model.cols", "op": "model.op", "dtype": "model.dtype"},
    ("min_bytes",),
)  # fmt: skip
EXCHANGES = Kind("collectives", "", ("ranks", "bytes"), {}, ("collective",))
ITERATIONS = Kind("whole iterations", "", (), {})
KINDS = (GEMMS, LAYERS, OPERATORS, EXCHANGES)
"""Those that their columns name; any other file with groups or keys of the configuration is of iterations."""
_OF_ALL = ("device", "timed")


class Given(NamedTuple):
    """What a column says of an input; shape (measurements,)."""

    values: NDArray[Any]
    there: Bools  # False where the cell is empty


class Measurements(NamedTuple):
    """A file that was read: one row for each time in it. Arrays are of shape (measurements,)."""

    path: str
    digest: str  # SHA-256 of the file
    kind: Kind
    frame: pd.DataFrame  # the file's own columns, as texts
    line: Ints  # of the file, that a measurement stands in
    part: Texts  # of the workload that was measured; "" for all of it
    measured: Floats  # [s]
    timed: Texts  # one of TIMED
    inputs: dict[str, Given]  # by input of the model
    overrides: list[dict[str, str]]  # of iterations: what every row says of groups and keys
    ranks: Ints  # of collectives, 0 for others
    bytes: Floats
    collective: Texts
    ignored: list[str]  # columns that say nothing to the model
    assumed: bool  # `timed` follows from the kind of file
    recurrent: Recurrent  # what the host that measured adds to recurrent layers
    forward_only: Bools  # forward passes that run alone, and otherwise

    @property
    def devices(self) -> list[str]:
        """The devices that the file names."""
        return self.frame["device"].unique().tolist() if "device" in self.frame else []

    def mistake(self, column: str, row: int, allowed: str) -> InputError:
        """Return what is wrong with a cell."""
        return _mistake(self.path, self.frame, self.line, column, row, allowed)


def _mistake(path: str, frame: pd.DataFrame, line: Ints, column: str, row: int, allowed: str) -> InputError:
    """Return what is wrong with a cell of a file: the value, what is allowed, and where it stands."""
    value = frame[column].iloc[row] or "nothing"
    return InputError(column, value, allowed, f"{path}, line {line[row]}")


def read(
    path: str,
    is_group: Callable[[str], bool],
    timed: str | None = None,
    device: str | None = None,
    recurrent: Recurrent | None = None,
) -> Measurements:
    """Read a CSV file; raises InputError.

    is_group: says whether a column is a group of the configuration; timed: of all rows, instead of what
    the file says; device: whose rows count, by default all; recurrent: what the host adds to recurrent
    layers, by default nothing.
    """
    frame, digest = _frame(path)
    if device is not None:
        frame = _of_device(path, frame, device)
    known = [name for name in map(str, frame) if is_group(name) or find_input(name) is not None]
    kind = _kind(path, frame, known)
    frame, part, measured = _times(path, frame, kind)
    line = frame.index.to_numpy(np.int64)
    cells = _Cells(path, frame, line)
    own = kind is ITERATIONS
    used = {*kind.needed, *kind.inputs, *kind.others, *kind.times, *_OF_ALL, *(known if own else ())}
    default = "call" if kind is OPERATORS or (kind is GEMMS and "op" in frame) else "kernel"
    rows, exchanges = len(frame), kind is EXCHANGES
    recurrent = recurrent or Recurrent()
    inputs = _inputs(cells, kind, part)
    forward_only = _forward_only(frame, kind, inputs, recurrent)
    if forward_only.any() and recurrent.forward_only_blocks:
        inputs[BLOCKS] = Given(np.full(rows, recurrent.forward_only_blocks), forward_only)
    return Measurements(
        path,
        digest,
        kind,
        frame,
        line,
        part,
        measured,
        np.full(rows, timed) if timed else cells.choices("timed", TIMED, default),
        inputs,
        [{key: text for key, text in row.items() if text} for row in _records(frame, known)] if own else [],
        cells.numbers("ranks", "a whole number at least 1", 1).astype(np.int64)
        if exchanges
        else _zeros(rows),
        cells.numbers("bytes", "a number of bytes that is at least 0") if exchanges else np.zeros(rows),
        cells.choices("collective", COLLECTIVES[1:], "all-reduce") if exchanges else np.full(rows, ""),
        [name for name in map(str, frame) if name not in used],
        timed is None and not ("timed" in frame and (frame["timed"] != "").all()),
        recurrent,
        forward_only,
    )


def _zeros(rows: int) -> Ints:
    return np.zeros(rows, dtype=np.int64)


def _records(frame: pd.DataFrame, names: list[str]) -> list[dict[str, str]]:
    return cast("list[dict[str, str]]", frame[names].to_dict("records"))


def _frame(path: str) -> tuple[pd.DataFrame, str]:
    """Return a file's cells as texts, the index being the line each row stands in, and its SHA-256."""

    def refusal(reason: str) -> InputError:
        return InputError("measurements", path, f"a CSV file with a header and rows; {reason}")

    try:
        content = Path(path).read_bytes()
        text = content.decode("utf-8-sig")
        lines = list(csv.reader(StringIO(text, newline=""), skipinitialspace=True, strict=True))
    except OSError as error:
        raise refusal(f"this cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise refusal("this one is not in UTF-8") from None
    except csv.Error as error:
        raise refusal(f"this is not CSV ({error})") from None
    filled = [(number, cells) for number, cells in enumerate(lines, start=1) if any(map(str.strip, cells))]
    if len(filled) < 2:
        raise refusal(f"this one holds {'only a header' if filled else 'nothing'}")
    names = [name.strip() for name in filled[0][1]]
    twice = [name for place, name in enumerate(names) if name and name in names[:place]]
    if twice:
        raise refusal(f"this one has the column {twice[0]} twice")
    if len(names) == 1 and any(other in names[0] for other in ";\t"):
        raise refusal("this one is not separated by commas")
    for number, cells in filled[1:]:
        if len(cells) != len(names):
            raise refusal(f"its header has {len(names)} columns, and line {number} has {len(cells)}")
    frame = pd.DataFrame(
        [[cell.strip() for cell in cells] for _, cells in filled[1:]],
        columns=names,
        index=[number for number, _ in filled[1:]],
        dtype=object,
    )
    return frame.drop(columns=[""], errors="ignore"), hashlib.sha256(content).hexdigest()


def _of_device(path: str, frame: pd.DataFrame, device: str) -> pd.DataFrame:
    """Return the rows of one device of a file; raises InputError."""
    there = frame["device"].unique().tolist() if "device" in frame else []
    if device not in there:
        allowed = f"one of {', '.join(there)}" if there else "null, since the file has no column device"
        raise InputError("device", device, allowed, path)
    return frame[frame["device"] == device]


def _kind(path: str, frame: pd.DataFrame, known: Collection[str]) -> Kind:
    """Return the kind of a file by its columns; raises InputError."""
    kinds = [kind for kind in KINDS if {*kind.needed} <= {*frame}]
    if len(kinds) > 1:
        both = " and of ".join(kind.name for kind in kinds)
        raise InputError("measurements", path, f"a file of one kind; this one has the columns of {both}")
    kind = kinds[0] if kinds else ITERATIONS if known else None
    if kind is None:
        ways = [f"{', '.join(kind.needed)} ({kind.name})" for kind in KINDS]
        has = ", ".join(map(str, frame.columns[:8])) + (", ..." if frame.shape[1] > 8 else "")
        allowed = f"a file with the columns {'; '.join(ways)}; or groups and keys of the configuration"
        raise InputError("measurements", path, f"{allowed} ({ITERATIONS.name}); this one has {has}")
    if not {*kind.times} & {*frame}:
        wanted = " or ".join(kind.times)
        allowed = f"a file of {kind.name} with times in {wanted}; this one has no such column"
        raise InputError("measurements", path, allowed)
    return kind


def _times(path: str, frame: pd.DataFrame, kind: Kind) -> tuple[pd.DataFrame, Texts, Floats]:
    """Return a row for each time in a file, in its order, the part that it is of, and the time [s]."""
    line = frame.index.to_numpy(np.int64)
    columns = [name for name in kind.times if name in frame]
    there = np.column_stack([(frame[name] != "").to_numpy(np.bool_) for name in columns])
    if len(kind.times) == 1:
        there[:] = True
    if not there.any(axis=1).all():
        allowed = (
            f"a time above 0, here or in {' or '.join(columns[1:])}" if columns[1:] else "a time above 0"
        )
        raise _mistake(path, frame, line, columns[0], int(there.any(axis=1).argmin()), allowed)
    cells = _Cells(path, frame, line)
    every = np.column_stack([cells.times(name, there[:, place]) for place, name in enumerate(columns)])
    row, place = np.nonzero(there)
    return frame.iloc[row], np.array([kind.times[name] for name in columns])[place], every[row, place]


class _Cells(NamedTuple):
    """The cells of a file, checked as they are read."""

    path: str
    frame: pd.DataFrame
    line: Ints

    def refuse(self, column: str, wrong: NDArray[np.bool_], allowed: str) -> None:
        """Raise InputError for the first cell that is wrong, if one is."""
        if wrong.any():
            raise _mistake(self.path, self.frame, self.line, column, int(wrong.argmax()), allowed)

    def _floats(self, column: str) -> Floats:
        cells = pd.to_numeric(self.frame[column], errors="coerce").to_numpy(np.float64)
        return np.where(np.isfinite(cells), cells, np.nan)

    def numbers(self, column: str, allowed: str, least: int = 0) -> Floats:
        """Return a column of numbers, whole ones where `least` is above 0."""
        values = self._floats(column)
        whole = (values == np.floor(values)) if least else np.isfinite(values)
        self.refuse(column, ~(values >= least) | ~whole, allowed)
        return values

    def times(self, column: str, there: Bools) -> Floats:
        """Return a column of times [s]; there: which cells count."""
        values = self._floats(column)
        self.refuse(column, there & ~(values > 0.0), "a time above 0, in seconds")
        return values

    def choices(self, column: str, among: tuple[str, ...], otherwise: str) -> Texts:
        """Return a column of some few texts, `otherwise` where a cell, or the column, is not there."""
        if column not in self.frame:
            return np.full(len(self.frame), otherwise)
        cells = self.frame[column].to_numpy()
        meant = {text.lower(): text for text in among} | {"": otherwise}
        self.refuse(column, ~np.isin([cell.lower() for cell in cells], list(meant)), one_of(among))
        return np.array([meant[cell.lower()] for cell in cells], dtype=np.str_)

    def given(self, column: str, key: str, is_needed: bool) -> Given:
        """Return what a column says of an input of the model."""
        self.refuse(column, (self.frame[column] == "").to_numpy() & is_needed, "a value in every row")
        written, place = np.unique(self.frame[column].to_numpy(np.str_), return_inverse=True)
        values: list[Scalar] = []
        for number, text in enumerate(written.tolist()):
            try:
                values.append(convert(key, _scalar(key, text)) if text else "")
            except InputError as error:
                self.refuse(column, place == number, error.allowed)
        there = written != ""
        found = to_column(key, [value for value, text in zip(values, written, strict=True) if text])
        full = np.zeros(written.size, dtype=found.dtype)
        full[there] = found
        return Given(full[place], there[place])


def _scalar(key: str, text: str) -> Scalar:
    """Return what a cell says, in the type of the input that it sets."""
    column = find_input(key)
    if column is None or column.kind == "str":
        meant = {choice.lower(): choice for choice in (column.choices if column else ())}
        return meant.get(text.lower(), text)
    try:
        return float(text) if column.kind == "float" else int(text)
    except ValueError:
        try:
            return float(text)  # 1e6 is a whole number too
        except ValueError:
            return text


def _inputs(cells: _Cells, kind: Kind, part: Texts) -> dict[str, Given]:
    """Return what the columns of a file say of the model's inputs."""
    found = {
        key: cells.given(name, key, name in kind.needed)
        for name, key in kind.inputs.items()
        if name in cells.frame
    }
    if kind is GEMMS:
        found["model.transposed"] = _transposed(cells)
    if kind is LAYERS:
        found["model.part"] = Given(part, np.ones(part.size, dtype=np.bool_))
    return found


def _forward_only(
    frame: pd.DataFrame, kind: Kind, inputs: Mapping[str, Given], recurrent: Recurrent
) -> Bools:
    """Return which rows are forward passes of layers without backward times in a file that has such columns.

    Only those of a larger batch than `recurrent.forward_only_above`. A file without the columns does not
    say how its forward passes ran.
    """
    backward = [name for name, part in kind.times.items() if part.startswith("backward") and name in frame]
    if not backward:
        return np.zeros(len(frame), dtype=np.bool_)
    alone = (frame[backward] == "").all(axis=1).to_numpy(np.bool_)
    batch, _ = inputs["model.batch"]
    return np.asarray(alone & (batch > recurrent.forward_only_above), dtype=np.bool_)


def _transposed(cells: _Cells) -> Given:
    """Return whether both operands of GEMMs are stored along k, as far as a file says so.

    Transpositions are those of BLAS, whose matrices lie column by column: A is along k where it is
    transposed, B where it is not. A framework's linear layer has rows of both along k, its other operators
    do not.
    """
    trans_a, trans_b = (cells.choices(name, ("N", "T"), "") for name in ("trans_a", "trans_b"))
    stated = (trans_a != "") & (trans_b != "")
    op = cells.frame["op"].str.lower().to_numpy() if "op" in cells.frame else np.full(len(cells.frame), "")
    along = np.where(stated, (trans_a == "T") & (trans_b == "N"), np.isin(op, _LINEAR))
    return Given(along, stated | (op != ""))


def tensors(measurements: Measurements, inputs: Mapping[str, NDArray[Any]], rows: Ints) -> Given:
    """Return how many tensors the operators of some rows move, by their `min_bytes`; raises InputError.

    inputs: of those rows, `model.rows`, `model.cols` and `model.dtype` among them.
    """
    cells = _Cells(measurements.path, measurements.frame.iloc[rows], measurements.line[rows])
    there = (cells.frame["min_bytes"] != "").to_numpy(np.bool_)
    size = np.array([DTYPE_BYTES[dtype] for dtype in inputs["model.dtype"].tolist()])
    moved = cells._floats("min_bytes") / (inputs["model.rows"] * inputs["model.cols"] * size)
    column = find_input(TENSORS)
    most = column.high if column is not None else np.inf
    allowed = f"the bytes of 1 to {most:g} tensors of rows x cols"
    cells.refuse("min_bytes", there & ~((np.round(moved) >= 1) & (moved <= most)), allowed)
    return Given(np.where(there, np.round(moved), 1).astype(np.int64), there)
