"""A kind of measurement: the columns of its files, and the prediction of their rows.

A kind is a class, and its instance is a file that was read. Every kind has a module in `kinds/`, which
registers it; no other module names it. The defaults suit kernels of one device that a framework may call: a
row is a point of the workload `model`, whose inputs are the configuration's except for those of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.choices import Choice
from fastflow.analysis.measurements.csv_file import MAX_COLUMNS, CsvFile, InputColumn, listed, merge_columns
from fastflow.analysis.measurements.host_overhead import product_call
from fastflow.analysis.measurements.power_meter import (
    READINGS,
    length_of_run,
    shown_after,
    shown_power,
    shown_shares,
)
from fastflow.analysis.measurements.predict import PredictedRows, predict_iterations, with_reasons, with_rows
from fastflow.config.composer import Composer
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.reasons.codes import Code
from fastflow.core.reasons.columns import ReasonColumn
from fastflow.core.registry import Registry
from fastflow.core.tables import Bools, Columns, Floats, Ints, Texts
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run
from fastflow.physics.hardware.power import rest_of
from fastflow.schema.quantities import POWER, Quantity

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

TIMED = ("kernel", "call")
"""How a time was measured: the kernel alone, or launches back to back; or a call of a framework."""
METERS = ("repeated", "steady")
"""How a power was read: in runs of about a second, as collectors do; or for so long that all of it shows."""
COMMON_COLUMNS = ("device", "timed", "meter")
"""Columns that any kind may have."""
PRODUCTS, PASSES = "products", "passes"
"""Work of kernels: matrix products, on matrix units or on vector lanes by their data type; passes over
tensors, on vector lanes whatever their data type."""


class TimedRows(NamedTuple):
    """A file with a row for each time in it; shape (rows,)."""

    file: CsvFile
    part: Texts  # of the workload that was measured; "" for all of it
    measured: Floats  # [s], NaN until the kind makes it from a rate


class Options(NamedTuple):
    """Settings from outside the file."""

    leaves: Mapping[str, Any]  # of the configuration, as written
    timed: str | None  # how all times were measured, instead of the file's column
    keys: tuple[str, ...]  # columns of the file that are groups or keys of the configuration
    command_line: Mapping[str, Any] = MappingProxyType({})  # groups and keys that the command line sets


class QuantityColumn(NamedTuple):
    """What a column measures besides the time, and what predicts it."""

    quantity: Quantity
    predict: Callable[[Columns], Floats]
    """From result columns to the quantity, shape (rows,), NaN without a result; KeyError without a column."""
    scale: float = 1.0
    """The column's unit, in that of the quantity."""


def metered_power(results: Columns) -> Floats:
    """Return the power of one device as the meter of the row shows it [W]."""
    power: Floats = results["power_W"]
    return power


class Measurements:
    """A file that was read, and its kind. Arrays are of shape (rows,), a row a measurement."""

    # --- declarations of a kind

    name: ClassVar[str]
    """In the plural."""
    model: ClassVar[str] = ""
    """The workload that predicts a row; "" for kinds with a prediction of their own."""
    needed: ClassVar[tuple[str, ...]] = ()
    """Columns that identify a file of this kind."""
    inputs_of_columns: ClassVar[Mapping[str, str]] = {}
    """Column, needed or optional, to the input of the model that it sets."""
    other_columns: ClassVar[tuple[str, ...]] = ()
    """Known columns that set no input by themselves."""
    times: ClassVar[Mapping[str, str]] = {"time_s": ""}
    """Column of times to the part of the workload that it measures."""
    rates: ClassVar[tuple[str, ...]] = ()
    """Columns of rates from which the kind itself makes the time of a row without one."""
    quantities: ClassVar[Mapping[str, QuantityColumn]] = MappingProxyType(
        {"power_W": QuantityColumn(POWER, metered_power)}
    )
    """Column to the further quantity that it measures; one column a quantity."""
    naming_keys: ClassVar[tuple[str, ...]] = ()
    """Columns that name a row for a person, in order."""
    section: ClassVar[str] = ""
    """The section of the configuration for this kind, if there is any."""
    batch_size: ClassVar[int] = 4096
    """Rows in a batch, at most."""
    skips_incomplete_rows: ClassVar[bool] = False
    """Whether rows without a needed cell are skipped, instead of refusing the file."""
    job_columns: ClassVar[tuple[str, ...]] = ()
    """Columns in which rows of the same job agree, whose layouts are ranked."""
    choices: ClassVar[tuple[Choice, ...]] = ()
    """Choices among rows of the same work, by their throughput."""
    error_groups: ClassVar[tuple[str, ...]] = ()
    """Columns by which errors are grouped; by default all columns of the file with a few values."""
    range_ends: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """Column of `error_groups` to the last number of each range, by which many numbers are grouped."""
    is_of_a_system: ClassVar[bool] = False
    """Whether rows are measured on several devices of a system."""
    has_errors_by_part: ClassVar[bool] = False
    """Whether each part of the workload has a separate mean error: times that are never summed."""
    not_fitted: ClassVar[str] = ""
    """For kinds to which no chip is calibrated: what is allowed instead; "" for others."""
    work: ClassVar[tuple[str, ...]] = (PRODUCTS, PASSES)
    """What kernels compute, of PRODUCTS and PASSES."""
    copies_of_a_call: ClassVar[int] = 1
    """How often the collector of power runs a kernel, a call."""

    # --- reading of a file

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Read the columns; raises InputError."""
        self.file, self.part, self.measured = rows
        file, timed = self.file, options.timed
        default = self.default_timed(file.columns)
        self.timed: Texts = (
            np.full(file.rows, timed) if timed is not None else file.choices("timed", TIMED, default)
        )
        self.timed_is_assumed = timed is None and not file.filled("timed").all()
        """Whether `timed` follows from the kind of file, in some row."""
        self.is_steady: Bools = file.choices("meter", METERS, METERS[0]) == METERS[1]
        self.inputs: dict[str, InputColumn] = {}
        for name, key in self.inputs_of_columns.items():
            if name in file.frame:
                is_needed = name in self.needed and not self.skips_incomplete_rows
                self.inputs[key] = merge_columns(
                    self.inputs.get(key), file.input_column(name, key, is_needed)
                )
        self.measured_quantities = {
            name: file.quantities(name, self.quantities[name].quantity) * self.quantities[name].scale
            for name in self.quantities
            if file.filled(name).any()
        }
        """Column of a further quantity to its values in rows, NaN where a cell is empty."""
        used = {
            *self.needed, *self.inputs_of_columns, *self.other_columns, *self.times, *self.rates,
            *self.quantities, *COMMON_COLUMNS,
        }  # fmt: skip
        self.ignored = [name for name in file.columns if name not in used]
        """Columns that the model does not use."""

    def assume(self, key: str, values: NDArray[Any], is_set: Bools, options: Options) -> None:
        """Set an input of rows whose cells do not state it, unless the command line does.

        values: of all rows; is_set: rows that the kind assumes it of.
        """
        if key not in options.command_line:
            assumed, stated = InputColumn(values, is_set), self.inputs.get(key)
            self.inputs[key] = assumed if stated is None else merge_columns(assumed, stated)

    @classmethod
    def claims(cls, columns: Collection[str], keys: Collection[str]) -> bool:
        """Say whether a file with some columns is of this kind; keys: its columns that are keys."""
        return set(cls.needed) <= set(columns)

    @classmethod
    def instead_of_key(cls, key: str) -> str:
        """Say what is allowed instead of a column that is a key of the configuration; "" if it is allowed."""
        return f"a column of {cls.name}; {key}=VALUE on the command line sets it for all rows"

    @classmethod
    def check_section(cls, leaves: Mapping[str, Any]) -> None:
        """Check the kind's section of a configuration; raises InputError."""

    @classmethod
    def default_timed(cls, columns: Collection[str]) -> str:
        """Return the default kind of timing."""
        return "kernel"

    @property
    def rows(self) -> int:
        """How many measurements there are."""
        return self.measured.size

    @property
    def devices(self) -> list[str]:
        """The devices that the file names."""
        return self.file.each_once("device")

    # --- prediction

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan the point, or points, that rows follow from; parsed: the overrides. Raises InputError."""
        model_overrides = [override for override in parsed if override.key_or_group == "model"]
        if self.model and model_overrides:
            allowed = f"{self.model} for a file of {self.name}, or no model at all"
            origin = composer.origin_of_overrides
            raise InputError("model", model_overrides[-1].get_value_string(), allowed, origin)
        run = plan(composer, (f"model={self.model}", *overrides) if self.model else overrides)
        if run.grid.keys or run.grid.points > 1:
            raise several_values_error(run.grid.first_key)
        return run

    def predict_all(
        self, grid: Grid, advance: Callable[[int], None] = lambda rows: None
    ) -> Iterator[PredictedRows]:
        """Predict all rows in batches; raises InputError.

        grid: as planned. Columns are those of `schema.RESULTS` and `schema.VALIDATION`; `reason` says why
        a row has no time. advance: called with the number of finished rows.
        """
        for batch in self.batches(np.arange(self.rows, dtype=np.int64)):
            for part in self.predict(grid, batch):
                yield with_reasons(part)
            advance(batch.size)

    def batches(self, rows: Ints) -> Iterator[Ints]:
        """Yield batches of rows."""
        for start in range(0, rows.size, self.batch_size):
            yield rows[start : start + self.batch_size]

    def predict(self, grid: Grid, rows: Ints) -> Iterator[PredictedRows]:
        """Predict some rows; raises InputError where the chip lacks a row's data type."""
        for batch, inputs in self.points(grid, rows):
            reason, results, needs = predict_iterations(inputs)
            self._refuse_dtypes(batch, reason)
            host_time = self.add_host_time(batch, inputs, results["time_s"])
            overhead = host_time - results["time_s"]
            bound_by = np.where(overhead > 0.5 * host_time, "host", results["bound_by"])
            host_columns = {"time_s": host_time, "host_s": overhead, "bound_by": bound_by}
            if "power_W" in self.measured_quantities:
                host_columns["power_W"] = self.as_metered(batch, inputs, results, host_time)
            yield PredictedRows(batch, {**results, **host_columns, **needs})

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows that share a call of the model, and the model's inputs of them; raises InputError."""
        first = {key: np.repeat(column, rows.size) for key, column in grid.first_inputs().items()}
        yield rows, with_rows(first, self.inputs, rows)

    def as_metered(self, rows: Ints, inputs: Columns, results: Columns, time: Floats) -> Floats:
        """Return the power of a device that the meter of some rows shows [W], (rows,).

        inputs, results: of the model, time: of the kernel [s], of these rows.
        """
        power: Floats = results["energy_J"] / results["devices"] / time
        pause = self.pauses(inputs)
        if pause is None:
            return power
        rest, before, time_before = rest_of(inputs), power.copy(), self.measured[rows]
        which, cases = self.smaller_before(inputs)
        if which.size:
            smaller = predict_iterations(cases).columns
            time_before[which] = self.add_host_time(rows[which], cases, smaller["time_s"])
            before[which] = smaller["energy_J"] / smaller["devices"] / time_before[which]
        shares = shown_shares(self.measured[rows], time_before, pause, self.copies_of_a_call)
        shown = shown_power(power, before, rest, shares)
        which, left = self.left_before(inputs)
        run = length_of_run(self.measured[rows][which], self.copies_of_a_call)
        shown[which] = shown_after(power[which], rest[which], shares.current[which], left, run)
        return np.where(self.is_steady[rows], power, shown)

    def smaller_before(self, inputs: Columns) -> tuple[Ints, Columns]:
        """Return which rows follow a run of less of their work, and the model's inputs of those runs."""
        return np.zeros(0, dtype=np.int64), {}

    def left_before(self, inputs: Columns) -> tuple[Ints, Floats]:
        """Return which rows' runs follow others of a list of cases, and what their readings have of them [W].

        Shapes (those rows,) and (those rows, `power_meter.READINGS`); see `collector_queue`.
        """
        return np.zeros(0, dtype=np.int64), np.zeros((0, READINGS))

    def pauses(self, inputs: Columns) -> Floats | None:
        """Return for how long a device rests before the run of a row [s], (rows,); None: all power shows."""
        return None

    def add_host_time(self, rows: Ints, inputs: Columns, time: Floats) -> Floats:
        """Return times as measured on the host, for times `time` of the device [s], shape (rows,).

        inputs: of the model, of these rows.
        """
        overhead = inputs["chip.call_overhead"].astype(np.float64)
        return np.where(self.includes_call(rows), product_call(time, overhead), time)

    def _refuse_dtypes(self, rows: Ints, reasons: ReasonColumn) -> None:
        """Raise InputError for the first row whose data type the chip does not compute in."""
        for index in np.flatnonzero(reasons.code == Code.DATA_TYPE).tolist():
            error = reasons.reason[index].error()
            if error.key != "model.dtype":  # of some of the row's kernels
                continue
            if "dtype" in self.file.frame:
                raise self.file.cell_error("dtype", int(rows[index]), error.allowed)
            raise error

    # --- calibration

    def check_fit(self, origin: str) -> None:
        """Refuse files to which no chip can be calibrated; raises InputError."""
        if self.not_fitted:
            raise InputError("measurements", self.file.path, self.not_fitted, origin)

    def includes_call(self, rows: Ints) -> Bools:
        """Return which rows include the overhead of a framework's call."""
        return np.asarray(self.timed[rows] == "call", dtype=np.bool_)

    def shares_of_units(self, inputs: Columns) -> set[str]:
        """Return the shares of a peak, as keys of the `chip` section, on which rows depend."""
        by_matrix = {
            bool(inputs.get(f"chip.matrix.{dtype}", np.zeros(1))[0])
            for dtype in np.unique(inputs["model.dtype"]).tolist()
        }
        shares = set()
        if PRODUCTS in self.work and True in by_matrix:
            shares.add("utilization")
        if PASSES in self.work or False in by_matrix:
            shares.add("vector_utilization")
        return shares

    def shapes(self) -> list[str]:
        """Return the shape of every row, as a text that is equal for rows of the same shape."""
        names = [name for name in self.inputs_of_columns if name in self.file.frame]
        return [f"{self.name} {row}" for row in records(self.file, names)]

    # --- notes

    def notes(self) -> list[str]:
        """Return notes for a person on how the file was read, a line each."""
        devices, lines = self.devices, []
        if len(devices) > 1:
            lines.append(f"devices: {listed(devices)}; device=NAME selects one of them")
        lines += self.notes_of_times()
        if self.ignored:
            lines.append(f"not used: {listed(self.ignored, MAX_COLUMNS)}")
        return lines

    def notes_of_times(self) -> list[str]:
        """Return how the times were measured, as notes."""
        hint = " (assumed; timed=kernel or timed=call sets it)" if self.timed_is_assumed else ""
        return [f"timed: {', '.join(each_once(self.timed))}{hint}"]

    def read_with(self) -> list[object]:
        """Return further values that results depend on, besides the file and the configuration's inputs."""
        return [*each_once(self.timed), *self.devices]


KINDS: Registry[type[Measurements]] = Registry(
    "kind of measurement",
    "measurements",
    lambda thing: isinstance(thing, type) and issubclass(thing, Measurements),
    "a class below fastflow.analysis.measurements.kind.Measurements",
)
"""Every kind that has registered itself, by its name in the plural."""
_Kind = TypeVar("_Kind", bound=type[Measurements])


def register(kind: _Kind) -> _Kind:
    """Register a kind: a decorator of its class."""
    KINDS.register(kind.name, kind)
    return kind


def several_values_error(key: str) -> InputError:
    """Return the error of a key with several values."""
    return CompositionError(f"{key}: one value only; measurements are compared with one configuration")


def each_once(column: Any) -> list[str]:
    """Return the texts of a column in order, each once."""
    return list(map(str, np.unique(column)))


def records(file: CsvFile, names: Sequence[str]) -> list[dict[str, str]]:
    """Return some columns of a file as a mapping a row, column to cell."""
    return cast("list[dict[str, str]]", file.frame[list(names)].to_dict("records"))
