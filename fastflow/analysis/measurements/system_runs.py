"""Rows measured on whole systems: each names its system, model and software, and has its own layout.

Precedence of settings for an input of a row: the command line; a column that is the input's key; the kind's
other columns; names in the file, by the tables of the kind's section; the model and the framework that those
names choose.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.aliases import alias_table, key_for, match_name
from fastflow.analysis.measurements.csv_file import InputColumn, listed, merge_columns, scalar_of, shown
from fastflow.analysis.measurements.kind import (
    Measurements,
    Options,
    QuantityColumn,
    TimedRows,
    several_values_error,
)
from fastflow.analysis.measurements.predict import PredictedRows, with_rows
from fastflow.analysis.measurements.row_keys import SECTIONS_OF_ROWS, instead_of, refuse_conflicts
from fastflow.config.composer import Composer
from fastflow.config.model_inputs import Scalar, convert, to_column
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.reasons.codes import Code, stated
from fastflow.core.reasons.columns import column_of
from fastflow.core.tables import Bools, Columns, Ints, take
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run
from fastflow.physics.workload.data_types import WIDE
from fastflow.physics.workload.models.transformer.config_json.read import KEY as CONFIG
from fastflow.physics.workload.models.transformer.config_json.read import read_config
from fastflow.physics.workload.models.transformer.lora import DEFAULTS as ADAPTERS
from fastflow.physics.workload.models.transformer.published import KEY as DTYPE
from fastflow.schema import find_input

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_DEVICE = re.compile(r"(?P<chip>[^/]+|.+\.yaml)/(?P<system>[^/]+|.+\.yaml)")
_FROM_CONFIG = "transformer"
"""The model that is described by a config.json alone."""


class SystemRuns(Measurements):
    """Rows with a system each, chosen by tables of the kind's section of the configuration."""

    batch_size = 64
    is_of_a_system = True
    skips_incomplete_rows = True
    alias_tables: ClassVar[tuple[str, ...]] = ()
    """Tables of aliases in the section."""
    device_column: ClassVar[str] = "device"
    """Column of the device; the table `devices` maps it to chip/system."""
    groups: ClassVar[tuple[str, ...]] = ()
    """Groups of the configuration that a row chooses from, besides chip and system."""
    sections: ClassVar[tuple[str, ...]] = SECTIONS_OF_ROWS
    """Sections of the configuration whose keys may be columns."""
    quantities: ClassVar[Mapping[str, QuantityColumn]] = {}
    keys_of_columns: ClassVar[Mapping[str, str]] = {}
    """Columns that set an input, or a section of inputs, by words."""

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Look up the tables; raises InputError for a cell that cannot be read."""
        super().__init__(rows, options)
        self.timed = np.full(self.rows, "")
        self.reason: NDArray[Any] = np.full(self.rows, "", dtype=object)
        """Why a row is skipped; "" if it is predicted."""
        self.tables = {
            name: alias_table(options.leaves, f"{self.section}.{name}") for name in self.alias_tables
        }
        self._check_devices()
        self.command_line = options.command_line
        """Groups and keys that the command line sets."""
        self.keys = [name for name in options.keys if "." in name]
        """Columns that are named by the key of an input."""
        self.ignored = [name for name in self.ignored if name not in self.keys]
        refuse_conflicts(self.file, self.keys, self._keys_of_columns())
        self.own_inputs = dict(self.inputs)
        """Inputs that the kind's columns set."""
        self.overriding = self._read_keys()
        """Inputs that the command line and columns named by keys set; they override all others."""
        self.inputs |= {
            key: merge_columns(self.inputs.get(key), column) for key, column in self.overriding.items()
        }
        self.config = np.array(self._cells(CONFIG), dtype=object)
        """The config.json that describes a row's model, "" for none."""
        self._check_configs()
        self.has_model: Bools = (
            (self.config != "") | ("model" in self.command_line) | (CONFIG in self.command_line)
        )
        """Whether a row's model is chosen by other means than its name in the file."""
        self.device = self._match_names("devices", self._cells(self.device_column))

    @classmethod
    def instead_of_key(cls, key: str) -> str:
        """Allow keys of the sections that rows depend on."""
        return instead_of(key, cls.name, cls.sections)

    def _keys_of_columns(self) -> dict[str, str]:
        """Return the key that each of the kind's columns sets, except for columns that set several."""
        return {**self.inputs_of_columns, **self.keys_of_columns}

    def _check_devices(self) -> None:
        """Refuse devices that are not mapped to chip/system; raises InputError."""
        for name, text in self.tables["devices"].items():
            if not _DEVICE.fullmatch(text):
                key = f"{self.section}.devices.{name}"
                raise InputError(key, text, "CHIP/SYSTEM, such as h100_sxm/superpod_h100")

    def _read_keys(self) -> dict[str, InputColumn]:
        """Return inputs of columns named by keys, and of the command line, which wins; raises InputError."""
        columns = {key: self.file.input_column(key, key, False) for key in self.keys if key != CONFIG}
        for key, value in self.command_line.items():
            if find_input(key) is None:
                continue
            try:
                values = to_column(key, [convert(key, value)])
            except InputError:  # composing raises it, with its origin
                continue
            columns[key] = InputColumn(np.repeat(values, self.rows), np.ones(self.rows, np.bool_))
        return columns | self._with_adapters(columns)

    def _with_adapters(self, columns: Mapping[str, InputColumn]) -> dict[str, InputColumn]:
        """Return the keys of adapters, with defaults where a row sets only others of them."""
        stated = [column.is_set for key, column in columns.items() if key in ADAPTERS]
        if not stated:
            return {}
        adapts = np.logical_or.reduce(stated)
        defaults = {
            key: InputColumn(np.repeat(to_column(key, [value]), self.rows), adapts)
            for key, value in ADAPTERS.items()
        }
        return {
            key: merge_columns(column, columns[key]) if key in columns else column
            for key, column in defaults.items()
        }

    def _check_configs(self) -> None:
        """Refuse a config.json that cannot be read; raises InputError with its cell."""
        for path in filter(None, dict.fromkeys(self.config.tolist())):
            try:
                read_config(path)
            except InputError as error:
                raise self.file.cell_error(
                    CONFIG, int((self.config == path).argmax()), error.allowed
                ) from None

    def _is_set(self, key: str) -> Bools:
        """Return which rows set an input."""
        return self.inputs[key].is_set if key in self.inputs else np.zeros(self.rows, dtype=np.bool_)

    def _is_overridden(self, key: str) -> Bools:
        """Return in which rows the command line, or a column named by its key, sets an input."""
        return self.overriding[key].is_set if key in self.overriding else np.zeros(self.rows, dtype=np.bool_)

    def _skip_rows(self, skipped: Bools, reason: str, *alternatives: str) -> None:
        """Skip rows that are not skipped already.

        alternatives: groups and keys that provide what these rows lack; rows that set any of them are kept.
        """
        if not self.command_line.keys() & set(alternatives):
            for key in alternatives:
                skipped = skipped & ~self._is_overridden(key)
            self.reason[skipped & (self.reason == "")] = reason

    def _skip_unknown(self, column: str, unknown: Bools, table: str, value: str, *groups: str) -> None:
        """Skip rows whose text matches no name of a table.

        value: the kind of value of the table, in words; groups: alternatives to the names.
        """
        texts = np.array(self._cells(column), dtype=object)
        for text in self.file.each_once(column) or [""]:
            known_names = f"a name with one of {listed(list(self.tables[table]))}"
            hint_to_add = f"'+{self.section}.{table}.{key_for(text)}={value}', which adds one" if text else ""
            hint_to_choose = f"{' '.join(f'{group}=NAME' for group in groups)} for all rows"
            expected = "; ".join(filter(None, (known_names, hint_to_add)))
            reason = (
                f"{column}={shown(text) or 'nothing'} is unknown: expected {expected}; or {hint_to_choose}"
            )
            self._skip_rows(unknown & (texts == text), reason)

    def _cells(self, name: str) -> list[str]:
        """Return the cells of a column, all "" if it is missing."""
        cells: list[str] = self.file.frame[name].tolist() if name in self.file.frame else [""] * self.rows
        return cells

    def _match_names(self, table: str, texts: Sequence[str]) -> NDArray[Any]:
        """Return the names of a table that match texts, "" without a match."""
        names = {text: match_name(text, self.tables[table]) for text in set(texts)}
        return np.array([names[text] for text in texts], dtype=object)

    def _convert_entry(self, table: str, name: str, key: str, text: Any) -> Scalar | None:
        """Return a value of a table, or a word of one, as an input has it; raises InputError.

        name: of the entry; key: the input.
        """
        try:
            return convert(key, scalar_of(key, text))
        except InputError as error:
            value = self.tables[table][name]
            raise InputError(f"{self.section}.{table}.{name}", value, error.allowed) from None

    def _values(self, key: str) -> NDArray[Any]:
        """Return the values of an input, 0 for rows that do not set it."""
        column = self.inputs.get(key)
        return np.zeros(self.rows, np.int64) if column is None else np.where(column.is_set, column.values, 0)

    def _set_input(self, key: str, values: NDArray[Any], is_set: Bools | None = None) -> None:
        """Set an input for rows, by default all, unless it is overridden."""
        is_set = np.ones(self.rows, np.bool_) if is_set is None else is_set
        column = InputColumn(to_column(key, values), is_set)
        self.inputs[key] = merge_columns(column, self.overriding[key]) if key in self.overriding else column

    def _set_default(self, key: str, values: NDArray[Any], rows: Bools) -> None:
        """Set an input for those of some rows that do not set it."""
        default = InputColumn(to_column(key, values), rows)
        self.inputs[key] = merge_columns(default, self.inputs[key]) if key in self.inputs else default

    def _read_words(self, column: str, key: str, read: Callable[[str], Scalar], allowed: str) -> None:
        """Set an input by the words of a column; rows with unknown words are skipped.

        read: raises InputError or KeyError for unknown words; allowed: known words, for the message.
        """
        is_set, texts = self.file.filled(column), np.array(self._cells(column), dtype=object)
        known: dict[str, Scalar] = {}
        for text in filter(None, self.file.each_once(column)):
            try:
                known[text] = read(text)
            except (InputError, KeyError):
                unknown = is_set & (texts == text)
                problem = f"{column}={shown(text)} is unknown: expected {allowed}"
                self._skip_rows(unknown, f"{problem}; or {key}=VALUE for all rows", key)
                is_set = is_set & ~unknown
        default = next(iter(known.values()), 0)
        self._set_input(key, np.array([known.get(text, default) for text in texts]), is_set)

    # --- prediction

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan a point for each combination of choices of rows; raises InputError."""
        row_groups = {*self.groups, "chip", "system", CONFIG} - self.command_line.keys()
        if "system" in self.command_line:
            row_groups.discard("chip")  # it includes a chip
        if row_groups & {"chip", "system"}:
            unknown = np.asarray(self.device == "", dtype=np.bool_)
            self._skip_unknown(self.device_column, unknown, "devices", "CHIP/SYSTEM", "chip", "system")
        rows = [self._choices(row) | self._config_choices(row) for row in range(self.rows)]
        choices_of_rows = [
            tuple((group, text) for group, text in row.items() if group in row_groups) for row in rows
        ]
        combinations = list(
            dict.fromkeys(
                choices for choices, reason in zip(choices_of_rows, self.reason, strict=True) if not reason
            )
        )
        if not combinations:
            raise CompositionError(f"no row can be predicted; the first one: {self.reason[0]}")
        self.combination = np.array(
            [combinations.index(choices) if choices in combinations else -1 for choices in choices_of_rows]
        )
        try:
            run = plan(
                composer,
                overrides,
                {"union": [{"params": self._composed_types() | dict(choices)} for choices in combinations]},
            )
        except InputError as error:
            if error.key not in row_groups - {CONFIG}:
                raise
            origin = f"a name of {self.section}, conf/measurement_files.yaml and what adds to it"
            raise error.replaced(origin=origin) from None
        for block in run.grid.blocks:
            if block.axes:
                raise several_values_error(block.axes[0].keys[0])
        return run

    def _choices(self, row: int) -> dict[str, str]:
        """Return the choice of a row in each group."""
        device = _DEVICE.fullmatch(self.tables["devices"].get(self.device[row], ""))
        return device.groupdict() if device else {"chip": "", "system": ""}

    def _config_choices(self, row: int) -> dict[str, str]:
        """Return the choices of a row whose model is a config.json."""
        if self.config[row]:
            return {"model": _FROM_CONFIG, CONFIG: self.config[row]}
        return {"model": _FROM_CONFIG} if CONFIG in self.command_line else {}

    def _composed_types(self) -> dict[str, str]:
        """Return the data type that rows are composed with, before their own types are set."""
        return {} if DTYPE in self.command_line else {DTYPE: WIDE[0]}

    def adjust_inputs(self, rows: Ints, inputs: Columns, composed: Columns) -> Columns:
        """Return inputs of rows, adjusted by the configuration that each was composed with."""
        return inputs

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows whose inputs have the same keys, and the inputs; the command line has precedence."""
        combination = self.combination[rows]
        batch = grid.batch[combination]
        for number in np.unique(batch).tolist():
            columns = grid.batches[number].columns
            row_of_batch = grid.row[combination[batch == number]]
            batch_rows = rows[batch == number]
            for in_group, set_by_rows in self._groups_of_inputs(batch_rows, columns):
                composed = {
                    key: np.repeat(values, in_group.sum())
                    if values.size == 1
                    else values[row_of_batch[in_group]]
                    for key, values in columns.items()
                }
                inputs = with_rows(composed, set_by_rows, batch_rows[in_group])
                yield batch_rows[in_group], self.adjust_inputs(batch_rows[in_group], inputs, composed)

    def _groups_of_inputs(
        self, rows: Ints, composed: Columns
    ) -> Iterator[tuple[Bools, dict[str, InputColumn]]]:
        """Yield rows that set the same inputs beyond their configuration, and the columns to apply."""
        columns = {key: column for key, column in self.inputs.items() if key not in self.command_line}
        missing = [key for key in columns if key not in composed]
        keys_of_rows = [tuple(key for key in missing if columns[key].is_set[row]) for row in rows]
        for keys in dict.fromkeys(keys_of_rows):
            in_group = np.array([keys_of_row == keys for keys_of_row in keys_of_rows])
            yield in_group, {key: column for key, column in columns.items() if key in composed or key in keys}

    def predict(self, grid: Grid, rows: Ints) -> Iterator[PredictedRows]:
        """Predict some rows; raises InputError."""
        yield from self.skipped_rows(rows)
        for group, inputs in self.points(grid, rows[self.reason[rows] == ""]):
            yield from self._predict_or_split(group, inputs)

    def _predict_or_split(self, rows: Ints, inputs: Columns) -> Iterator[PredictedRows]:
        """Predict some rows; rows whose keys make no valid point are skipped. Raises InputError."""
        try:
            yield self.predict_batch(rows, inputs)
        except InputError as error:
            has_keys = (
                np.any([self.file.filled(key)[rows] for key in self.keys], axis=0) if self.keys else False
            )
            if not np.any(has_keys):
                raise
            if rows.size > 1:
                for index in range(rows.size):
                    single = np.array([index])
                    yield from self._predict_or_split(rows[single], take(inputs, single))
                return
            self.reason[rows] = str(error)
            yield from self.skipped_rows(rows)

    @abstractmethod
    def predict_batch(self, rows: Ints, inputs: Columns) -> PredictedRows:
        """Predict rows of one call of the model; raises InputError."""

    def skipped_rows(self, rows: Ints) -> Iterator[PredictedRows]:
        """Yield the skipped rows among some rows, without results."""
        skipped = rows[self.reason[rows] != ""]
        if skipped.size:
            no_results = {
                "time_s": np.full(skipped.size, np.nan),
                "feasible": np.zeros(skipped.size, np.bool_),
            }
            reasons = column_of(stated(Code.MEASUREMENT, text) for text in self.reason[skipped].tolist())
            yield PredictedRows(skipped, no_results | reasons.columns() | self.row_columns(skipped))

    def row_columns(self, rows: Ints) -> Columns:
        """Return the interpretation of rows, as result columns."""
        return {}

    def includes_call(self, rows: Ints) -> Bools:
        """No framework's call is in the time."""
        return np.zeros(rows.size, dtype=np.bool_)
