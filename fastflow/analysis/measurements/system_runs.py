"""Rows measured on whole systems: each names its system, model and software, and says its own layout.

What sets an input of a row, the first that says anything: the command line; a column that is named by the
input's key; the kind's own columns; what the file's names stand for, by the tables of the kind's section; the
model and the framework that they choose.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.measurements.aliases import alias_table, key_for, match_name
from fastflow.analysis.measurements.csv_file import InputColumn, listed, merge_columns, shown
from fastflow.analysis.measurements.kind import Measurements, Options, TimedRows, several_values
from fastflow.analysis.measurements.predict import PredictedRows, replaced
from fastflow.analysis.measurements.row_keys import SECTIONS_OF_ROWS, check_once, instead_of
from fastflow.config.composer import Composer
from fastflow.config.model_inputs import Scalar, convert, to_column
from fastflow.core.errors import CompositionError, InputError
from fastflow.core.tables import Bools, Columns, Ints, take
from fastflow.engine.grid.grid import Grid
from fastflow.engine.grid.plan import plan
from fastflow.engine.grid.run import Run
from fastflow.physics.workload.models.transformer.hf_config import KEY as CONFIG
from fastflow.physics.workload.models.transformer.hf_config import read_config
from fastflow.physics.workload.models.transformer.published import KEY as DTYPE
from fastflow.physics.workload.models.transformer.published import WIDE
from fastflow.schema import find_input

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

_DEVICE = re.compile(r"(?P<chip>[^/]+|.+\.yaml)/(?P<system>[^/]+|.+\.yaml)")
_FROM_CONFIG = "transformer"
"""The model that is described by a config.json alone."""


class SystemRuns(Measurements):
    """Rows that each choose their system, by tables of the kind's section of the configuration."""

    batch_size = 64
    is_of_a_system = True
    skips_incomplete_rows = True
    alias_tables: ClassVar[tuple[str, ...]] = ()
    """Tables of the section."""
    device_column: ClassVar[str] = "device"
    """Which says what a row ran on; a key of the table `devices` stands for chip/system."""
    groups: ClassVar[tuple[str, ...]] = ()
    """Groups of the configuration that a row chooses from, beside chip and system."""
    sections: ClassVar[tuple[str, ...]] = SECTIONS_OF_ROWS
    """Sections of the configuration whose keys may be columns."""
    keys_of_columns: ClassVar[Mapping[str, str]] = {}
    """Columns that set an input, or a section of them, in words of their own."""

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Look up the tables; raises InputError for a cell that cannot be read."""
        super().__init__(rows, options)
        self.timed = np.full(self.rows, "")
        self.reason: NDArray[Any] = np.full(self.rows, "", dtype=object)
        """Why a row is not predicted; "" where it is."""
        self.tables = {
            name: alias_table(options.leaves, f"{self.section}.{name}") for name in self.alias_tables
        }
        self._check_devices()
        self.said = options.said
        """Groups and keys that the command line sets."""
        self.keys = [name for name in options.keys if "." in name]
        """Columns that are named by the key of an input."""
        self.ignored = [name for name in self.ignored if name not in self.keys]
        check_once(self.file, self.keys, self._keys_of_columns())
        self.own = dict(self.inputs)
        """What the kind's own columns say of inputs."""
        self.overriding = self._read_keys()
        """What the command line and columns named by keys say of inputs: nothing that follows goes before."""
        self.inputs |= {
            key: merge_columns(self.inputs.get(key), given) for key, given in self.overriding.items()
        }
        self.config = np.array(self._cells(CONFIG), dtype=object)
        """The config.json that describes a row's model, "" for none."""
        self._check_configs()
        self.has_model: Bools = (self.config != "") | ("model" in self.said) | (CONFIG in self.said)
        """Whether a row's model is chosen by no name in the file."""
        self.device = self._match_names("devices", self._cells(self.device_column))

    @classmethod
    def instead_of_key(cls, key: str) -> str:
        """Take keys of the sections that rows depend on."""
        return instead_of(key, cls.name, cls.sections)

    def _keys_of_columns(self) -> dict[str, str]:
        """Return what each of the kind's own columns sets, but for those that mean several inputs."""
        return {**self.inputs_of_columns, **self.keys_of_columns}

    def _check_devices(self) -> None:
        """Refuse a device that stands for no chip and system; raises InputError."""
        for name, text in self.tables["devices"].items():
            if not _DEVICE.fullmatch(text):
                key = f"{self.section}.devices.{name}"
                raise InputError(key, text, "CHIP/SYSTEM, such as h100_sxm/superpod_h100")

    def _read_keys(self) -> dict[str, InputColumn]:
        """Return what columns named by keys say, and the command line before them; raises InputError."""
        found = {key: self.file.given(key, key, False) for key in self.keys if key != CONFIG}
        for key, value in self.said.items():
            if find_input(key) is None:
                continue
            try:
                values = to_column(key, [convert(key, value)])
            except InputError:  # which composing comes upon, and knows where it is from
                continue
            found[key] = InputColumn(np.repeat(values, self.rows), np.ones(self.rows, np.bool_))
        return found

    def _check_configs(self) -> None:
        """Refuse a config.json that cannot be read, in the place of its cell; raises InputError."""
        for path in filter(None, dict.fromkeys(self.config.tolist())):
            try:
                read_config(path)
            except InputError as error:
                raise self.file.mistake(CONFIG, int((self.config == path).argmax()), error.allowed) from None

    def _there(self, key: str) -> Bools:
        """Return which rows say something of an input."""
        return self.inputs[key].there if key in self.inputs else np.zeros(self.rows, dtype=np.bool_)

    def _is_overridden(self, key: str) -> Bools:
        """Return which rows have an input of the command line, or of a column named by its key."""
        return self.overriding[key].there if key in self.overriding else np.zeros(self.rows, dtype=np.bool_)

    def _skip_rows(self, which: Bools, reason: str, *instead: str) -> None:
        """Leave rows out that are not left out already.

        instead: groups and keys, each of which says what these rows do not; rows that have one stay.
        """
        if not self.said.keys() & set(instead):
            for key in instead:
                which = which & ~self._is_overridden(key)
            self.reason[which & (self.reason == "")] = reason

    def _skip_unknown(self, column: str, unknown: Bools, table: str, value: str, *instead: str) -> None:
        """Leave rows out whose text has no name in a table.

        value: what a name of the table stands for, in words; instead: groups that go before the names.
        """
        texts = np.array(self._cells(column), dtype=object)
        for text in self.file.each_once(column) or [""]:
            known = f"a name with one of {listed(list(self.tables[table]))}"
            adds = f"'+{self.section}.{table}.{key_for(text)}={value}', which adds one" if text else ""
            chooses = f"{' '.join(f'{group}=NAME' for group in instead)} for all rows"
            expected = "; ".join(filter(None, (known, adds)))
            reason = f"{column}={shown(text) or 'nothing'} is unknown: expected {expected}; or {chooses}"
            self._skip_rows(unknown & (texts == text), reason)

    def _cells(self, name: str) -> list[str]:
        """Return a column of the file, "" in every row where there is none."""
        found: list[str] = self.file.frame[name].tolist() if name in self.file.frame else [""] * self.rows
        return found

    def _match_names(self, table: str, texts: Sequence[str]) -> NDArray[Any]:
        """Return the name in a table that texts have, "" where they have none."""
        names = {text: match_name(text, self.tables[table]) for text in set(texts)}
        return np.array([names[text] for text in texts], dtype=object)

    def _values(self, key: str) -> NDArray[Any]:
        """Return what rows say of an input, 0 where they say nothing."""
        given = self.inputs.get(key)
        return np.zeros(self.rows, np.int64) if given is None else np.where(given.there, given.values, 0)

    def _set_input(self, key: str, values: NDArray[Any], there: Bools | None = None) -> None:
        """Let rows say something of an input, by default all of them, where nothing goes before it."""
        there = np.ones(self.rows, np.bool_) if there is None else there
        said = InputColumn(values, there)
        self.inputs[key] = merge_columns(said, self.overriding[key]) if key in self.overriding else said

    def _read_words(self, column: str, key: str, read: Callable[[str], Scalar], allowed: str) -> None:
        """Let the texts of a column set an input; a row whose text is unknown is left out.

        read: raises InputError or KeyError for what is unknown; allowed: what is known, in words.
        """
        there, texts = self.file.filled(column), np.array(self._cells(column), dtype=object)
        known: dict[str, Scalar] = {}
        for text in filter(None, self.file.each_once(column)):
            try:
                known[text] = read(text)
            except (InputError, KeyError):
                unknown = there & (texts == text)
                what = f"{column}={shown(text)} is unknown: expected {allowed}"
                self._skip_rows(unknown, f"{what}; or {key}=VALUE for all rows", key)
                there = there & ~unknown
        otherwise = next(iter(known.values()), 0)
        self._set_input(key, np.array([known.get(text, otherwise) for text in texts]), there)

    # --- how it is predicted

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan a point for each combination of choices that rows name; raises InputError."""
        named = {*self.groups, "chip", "system", CONFIG} - self.said.keys()
        if "system" in self.said:
            named.discard("chip")  # it brings its own
        if named & {"chip", "system"}:
            unknown = np.asarray(self.device == "", dtype=np.bool_)
            self._skip_unknown(self.device_column, unknown, "devices", "CHIP/SYSTEM", "chip", "system")
        rows = [self._choices(row) | self._config_choices(row) for row in range(self.rows)]
        chosen = [tuple((group, text) for group, text in row.items() if group in named) for row in rows]
        each = list(dict.fromkeys(one for one, reason in zip(chosen, self.reason, strict=True) if not reason))
        if not each:
            raise CompositionError(f"no row can be predicted; the first one: {self.reason[0]}")
        self.combination = np.array([each.index(one) if one in each else -1 for one in chosen])
        try:
            run = plan(
                composer,
                overrides,
                {"union": [{"params": self._composed_types() | dict(one)} for one in each]},
            )
        except InputError as error:
            if error.key not in named - {CONFIG}:
                raise
            origin = f"a name of {self.section}, conf/{self.section}.yaml and what adds to it"
            raise InputError(error.key, error.value, error.allowed, origin) from None
        for block in run.grid.blocks:
            if block.axes:
                raise several_values(block.axes[0].keys[0])
        return run

    def _choices(self, row: int) -> dict[str, str]:
        """Return the choice in each group that a row stands for."""
        device = _DEVICE.fullmatch(self.tables["devices"].get(self.device[row], ""))
        return device.groupdict() if device else {"chip": "", "system": ""}

    def _config_choices(self, row: int) -> dict[str, str]:
        """Return the choices of a row whose model is described by a config.json."""
        if self.config[row]:
            return {"model": _FROM_CONFIG, CONFIG: self.config[row]}
        return {"model": _FROM_CONFIG} if CONFIG in self.said else {}

    def _composed_types(self) -> dict[str, str]:
        """Return the type that rows are composed with: they say their own, or are not as published."""
        return {} if DTYPE in self.said else {DTYPE: WIDE[0]}

    def adjust_inputs(self, rows: Ints, inputs: Columns, composed: Columns) -> Columns:
        """Return inputs of rows with what follows from the configuration that each was composed with."""
        return inputs

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows whose inputs have the same keys, and the inputs: those of the command line go first."""
        combination = self.combination[rows]
        batch = grid.batch[combination]
        for number in np.unique(batch).tolist():
            columns = grid.batches[number].columns
            place = grid.row[combination[batch == number]]
            some = rows[batch == number]
            for own, given in self._groups_of_inputs(some, columns):
                composed = {
                    key: np.repeat(values, own.sum()) if values.size == 1 else values[place[own]]
                    for key, values in columns.items()
                }
                inputs = replaced(composed, given, some[own])
                yield some[own], self.adjust_inputs(some[own], inputs, composed)

    def _groups_of_inputs(
        self, rows: Ints, composed: Columns
    ) -> Iterator[tuple[Bools, dict[str, InputColumn]]]:
        """Yield which rows say the same of inputs that their configuration lacks, and what rows say."""
        given = {key: column for key, column in self.inputs.items() if key not in self.said}
        lacking = [key for key in given if key not in composed]
        says = [tuple(key for key in lacking if given[key].there[row]) for row in rows]
        for keys in dict.fromkeys(says):
            own = np.array([one == keys for one in says])
            yield own, {key: column for key, column in given.items() if key in composed or key in keys}

    def predict(self, grid: Grid, rows: Ints) -> Iterator[PredictedRows]:
        """Predict some rows; raises InputError."""
        yield from self.left_out(rows)
        for some, inputs in self.points(grid, rows[self.reason[rows] == ""]):
            yield from self._predict_or_split(some, inputs)

    def _predict_or_split(self, rows: Ints, inputs: Columns) -> Iterator[PredictedRows]:
        """Predict some rows; one whose columns named by keys make no point is left out. Raises InputError."""
        try:
            yield self.predicted(rows, inputs)
        except InputError as error:
            has_keys = (
                np.any([self.file.filled(key)[rows] for key in self.keys], axis=0) if self.keys else False
            )
            if not np.any(has_keys):
                raise
            if rows.size > 1:
                for place in range(rows.size):
                    only = np.array([place])
                    yield from self._predict_or_split(rows[only], take(inputs, only))
                return
            self.reason[rows] = str(error)
            yield from self.left_out(rows)

    @abstractmethod
    def predicted(self, rows: Ints, inputs: Columns) -> PredictedRows:
        """Predict rows of one call of the model; raises InputError."""

    def left_out(self, rows: Ints) -> Iterator[PredictedRows]:
        """Yield those of some rows that are not predicted."""
        out = rows[self.reason[rows] != ""]
        if out.size:
            nothing = {"time_s": np.full(out.size, np.nan), "feasible": np.zeros(out.size, np.bool_)}
            yield PredictedRows(out, nothing | {"reason": self.reason[out]} | self.about(out))

    def about(self, rows: Ints) -> Columns:
        """Return what rows were taken for, as result columns."""
        return {}

    def includes_call(self, rows: Ints) -> Bools:
        """No framework's call is in the time."""
        return np.zeros(rows.size, dtype=np.bool_)
