"""Constraints of a search over fleets: limits of result columns, as `ttft_p99_s<1 s, tpot_p50_s<50 ms`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastflow.config.list_keys import CONSTRAINTS as KEY
from fastflow.config.messages import suggestion
from fastflow.core import units
from fastflow.core.errors import InputError
from fastflow.core.tables import Bools, Floats, Texts
from fastflow.performance.serving.slo import GOODPUT, MEAN, STATISTICS, Limit
from fastflow.schema import result_column

_FORM = re.compile(r"\s*(?P<name>\w+)\s*(?P<sense><=|>=|<|>)\s*(?P<limit>[^<>=]+?)\s*")
_COMPARE = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


class Constraint(NamedTuple):
    """A limit of a result column."""

    name: str
    sense: str
    """One of <, <=, >, >=."""
    limit: float
    """In the unit of the column."""

    @property
    def text(self) -> str:
        """The constraint as it is written."""
        return f"{self.name}{self.sense}{show(self.name, self.limit)}"

    def met_by(self, values: Floats) -> Bools:
        """Say which values meet it; missing ones (NaN) do not."""
        met: Bools = _COMPARE[self.sense](values, self.limit)
        return met

    @property
    def is_upper(self) -> bool:
        """Whether values must be less."""
        return self.sense.startswith("<")

    def excludes(self, bound: Floats) -> Bools:
        """Say where a bound of the column shows that no value meets it; (points,).

        bound: where `is_upper`, values are at least as large, else at most; NaN: none is known.
        """
        return np.asarray(~np.isnan(bound) & ~self.met_by(bound), dtype=np.bool_)


def stop_at(constraints: Sequence[Constraint]) -> tuple[Limit, ...]:
    """Return the limits at which a simulation may stop: most latencies, and the least goodput."""
    limits = []
    for constraint in constraints:
        name, limit = constraint.name, constraint.limit
        if constraint.is_upper and name in STATISTICS:
            limits.append(Limit(*STATISTICS[name], limit, f"{name} is above {show(name, limit)}"))
        elif not constraint.is_upper and name == GOODPUT:
            limits.append(Limit(name, MEAN, limit, f"{name} is below {show(name, limit)}"))
    return tuple(limits)


def show(name: str, value: float) -> str:
    """Write a value of a column with its unit."""
    unit = result_column(name).unit
    return units.show(value, unit) if unit else f"{value:g}"


def read_constraints(value: object, columns: Collection[str]) -> tuple[Constraint, ...]:
    """Return the constraints of a text; columns: results of points that are numbers. Raises InputError."""
    if value is None:
        return ()
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return tuple(_read(str(part), columns) for part in parts)


def _read(text: str, columns: Collection[str]) -> Constraint:
    """Return a constraint; raises InputError."""
    form = _FORM.fullmatch(text)
    if form is None:
        allowed = "COLUMN<VALUE or COLUMN>VALUE, with commas between several, such as 'ttft_p99_s<1 s'"
        raise InputError(KEY, text.strip(), allowed)
    name, written = form["name"], form["limit"]
    if name not in columns:
        hint = suggestion(name, columns)
        raise InputError(KEY, text.strip(), f"a result column of servers that is a number, not {name}{hint}")
    unit = result_column(name).unit
    try:
        limit = units.parse(written, unit) if unit else float(written)
    except ValueError as error:
        needed = f"a quantity in {unit}" if unit else "a number"
        reason = f" ({error})" if unit else ""
        raise InputError(KEY, text.strip(), f"{needed} for {name}{reason}") from None
    if not np.isfinite(limit):
        raise InputError(KEY, text.strip(), f"a finite number for {name}")
    return Constraint(name, form["sense"], limit)


def missed(constraints: Sequence[Constraint], columns: Mapping[str, Any], reason: Texts) -> Texts:
    """Say for every point which constraint it misses first, "" where it meets all, (points,).

    columns: results; reason: why points are not feasible, "" where they are.
    """
    texts = np.array([str(text or "") for text in np.ma.filled(reason, "")], dtype=object)
    for constraint in constraints:
        values = values_of(columns, constraint.name, texts.size)
        for i in np.flatnonzero(~constraint.met_by(values) & (texts == "")).tolist():
            value = "none" if np.isnan(values[i]) else show(constraint.name, float(values[i]))
            limit = f"{constraint.sense} {show(constraint.name, constraint.limit)}"
            texts[i] = f"{constraint.name} is {value}, not {limit}"
    return texts


def values_of(columns: Mapping[str, Any], name: str, points: int) -> Floats:
    """Return a result column as numbers, NaN where it is missing; (points,)."""
    column = columns.get(name)
    if column is None:
        return np.full(points, np.nan)
    return np.asarray(np.ma.filled(np.ma.asarray(column, dtype=np.float64), np.nan))
