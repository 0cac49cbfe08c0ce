"""Rows measured on whole systems: each names its system, model and software, and says its own layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastflow.configuration.composer import Composer
from fastflow.errors import CompositionError
from fastflow.grid.grid import Grid
from fastflow.grid.plan import plan
from fastflow.grid.run import Run
from fastflow.measured.csv_file import Given, listed, shown
from fastflow.measured.kind import Measurements, Options, TimedRows, several_values
from fastflow.measured.names import named, table
from fastflow.measured.points import PredictedRows, replaced
from fastflow.tables import Bools, Columns, Ints

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override


class SystemRuns(Measurements):
    """Rows that each choose their system, by tables of the kind's section of the configuration."""

    at_once = 64
    is_of_a_system = True
    may_lack_cells = True
    tabled: ClassVar[tuple[str, ...]] = ()
    """Tables of the section."""
    device_column: ClassVar[str] = "device"
    """Which says what a row ran on; a key of the table `devices` stands for chip/system."""
    groups: ClassVar[tuple[str, ...]] = ()
    """Groups of the configuration that a row chooses from, beside chip and system."""

    def __init__(self, rows: TimedRows, options: Options) -> None:
        """Look up the tables; raises InputError for a cell that cannot be read."""
        super().__init__(rows, options)
        self.timed = np.full(self.rows, "")
        self.reason: NDArray[Any] = np.full(self.rows, "", dtype=object)
        """Why a row is not predicted; "" where it is."""
        self.tables = {name: table(options.leaves, f"{self.section}.{name}") for name in self.tabled}
        self.said: set[str] = set()
        """Keys that the command line sets."""
        self.device = self._named("devices", self._texts(self.device_column))

    def _there(self, key: str) -> Bools:
        """Return which rows say something of an input."""
        return self.inputs[key].there if key in self.inputs else np.zeros(self.rows, dtype=np.bool_)

    def _leave(self, which: Bools, reason: str) -> None:
        """Leave rows out that are not left out already."""
        self.reason[which & (self.reason == "")] = reason

    def _texts(self, name: str) -> list[str]:
        """Return a column of the file, "" in every row where there is none."""
        found: list[str] = self.file.frame[name].tolist() if name in self.file.frame else [""] * self.rows
        return found

    def _named(self, table: str, texts: Sequence[str]) -> NDArray[Any]:
        """Return the name in a table that texts have, "" where they have none."""
        found = {text: named(text, self.tables[table]) for text in set(texts)}
        return np.array([found[text] for text in texts], dtype=object)

    def _values(self, key: str) -> NDArray[Any]:
        """Return what rows say of an input, 0 where they say nothing."""
        given = self.inputs.get(key)
        return np.zeros(self.rows, np.int64) if given is None else np.where(given.there, given.values, 0)

    def _set(self, key: str, values: NDArray[Any], there: Bools | None = None) -> None:
        """Let rows say something of an input, by default all of them."""
        self.inputs[key] = Given(values, np.ones(self.rows, np.bool_) if there is None else there)

    # --- how it is predicted

    def plan(self, composer: Composer, overrides: Sequence[str], parsed: Sequence[Override]) -> Run:
        """Plan a point for each combination of choices that rows name; raises InputError."""
        self.said = {override.key_or_group for override in parsed}
        named = {*self.groups, "chip", "system"} - self.said
        if "system" in self.said:
            named.discard("chip")  # it brings its own
        if named & {"chip", "system"}:
            known = self.tables["devices"]
            column = self.device_column
            for device in self.file.each_once(column) or [""]:
                unknown = (self.device == "") & (self.file.frame.get(column, "") == device)
                names = f"a name with one of {listed(list(known))}, or chip=NAME system=NAME"
                self._leave(
                    np.asarray(unknown),
                    f"{column}={shown(device) or 'nothing'} is unknown: expected {names}",
                )
        rows = [self._choices(row) for row in range(self.rows)]
        chosen = [tuple((group, text) for group, text in row.items() if group in named) for row in rows]
        each = list(dict.fromkeys(one for one, reason in zip(chosen, self.reason, strict=True) if not reason))
        if not each:
            raise CompositionError(f"no row can be predicted; the first one: {self.reason[0]}")
        self.combination = np.array([each.index(one) if one in each else -1 for one in chosen])
        run = plan(composer, overrides, {"union": [{"params": dict(one)} for one in each]})
        for block in run.grid.blocks:
            if block.axes:
                raise several_values(block.axes[0].keys[0])
        return run

    def _choices(self, row: int) -> dict[str, str]:
        """Return the choice in each group that a row stands for."""
        chip, _, system = self.tables["devices"].get(self.device[row], "").partition("/")
        return {"chip": chip, "system": system}

    def adjusted(self, inputs: Columns, composed: Columns) -> Columns:
        """Return inputs of rows with what follows from the configuration that each was composed with."""
        return inputs

    def points(self, grid: Grid, rows: Ints) -> Iterator[tuple[Ints, Columns]]:
        """Yield rows whose inputs have the same keys, and the inputs: those of the command line go first."""
        given = {key: column for key, column in self.inputs.items() if key not in self.said}
        combination = self.combination[rows]
        batch = grid.batch[combination]
        for number in np.unique(batch).tolist():
            some = rows[batch == number]
            place = grid.row[combination[batch == number]]
            composed = {
                key: np.repeat(values, some.size) if values.size == 1 else values[place]
                for key, values in grid.batches[number].columns.items()
            }
            yield some, self.adjusted(replaced(composed, given, some), composed)

    def left_out(self, rows: Ints) -> Iterator[PredictedRows]:
        """Yield those of some rows that are not predicted."""
        out = rows[self.reason[rows] != ""]
        if out.size:
            nothing = {"time_s": np.full(out.size, np.nan), "feasible": np.zeros(out.size, np.bool_)}
            yield PredictedRows(out, nothing | {"reason": self.reason[out]} | self.about(out))

    def about(self, rows: Ints) -> Columns:
        """Return what rows were taken for, as result columns."""
        return {}

    def called(self, rows: Ints) -> Bools:
        """No framework's call is in the time."""
        return np.zeros(rows.size, dtype=np.bool_)
