"""The registry of every input and every result column: name, type, unit, meaning, bounds.

All code that depends on the meaning of a column reads it here: the check of a configuration, the unit
that a value is converted to, the Parquet schema and its metadata, and the tables in the docs.

An *input* is a leaf of the composed configuration, named by its dotted key (`tech.core.nominal_power`);
`*` stands for a name that the user chooses (a memory level, a memory component, a data type).
A *result* is a column of the dataset; `l*` stands for every on-chip memory level of the chip.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from fastflow.core.errors import InputError
from fastflow.core.field import Column, ColumnType
from fastflow.core.registry import Registry
from fastflow.physics.network.collectives.algorithms import CHOICES as ALGORITHMS
from fastflow.physics.network.collectives.algorithms import REGISTRY as COLLECTIVES
from fastflow.physics.parallelism.options import SCHEDULES
from fastflow.physics.workload import FAMILIES
from fastflow.physics.workload.family import Family
from fastflow.physics.workload.optimizers import KEY as OPTIMIZER
from fastflow.physics.workload.optimizers import OPTIMIZERS
from fastflow.schema.backtest import BACKTEST
from fastflow.schema.fleets import FLEETS
from fastflow.schema.inputs import INPUTS
from fastflow.schema.results import RESULTS, SEARCH, TRANSFORMER, TYPICAL
from fastflow.schema.scheduling import POLICIES
from fastflow.schema.sensitivity import SENSITIVITY
from fastflow.schema.served_results import SERVED, SHARED_WITH_SERVED
from fastflow.schema.uncertainty import BANDED, CHANCE, ON_FRONT, SAMPLED, band_of, bands
from fastflow.schema.validation import VALIDATION

__all__ = [
    "ALGORITHMS",
    "BACKTEST",
    "BANDED",
    "BANDS",
    "FLEETS",
    "INPUTS",
    "RESULTS",
    "SCHEDULES",
    "SEARCH",
    "SENSITIVITY",
    "SERVED",
    "TRANSFORMER",
    "VALIDATION",
    "Column",
    "ColumnType",
    "band_of",
    "find_input",
    "find_result",
    "result_column",
    "result_order",
    "with_packages",
]


BANDS = (*bands((*RESULTS, *TRANSFORMER, *SERVED)), *SAMPLED, CHANCE, ON_FRONT)
"""Columns that `uncertainty=on` adds."""


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Compile a registered name: `l*` is a numbered level, a lone `*` any one name."""
    escaped = re.escape(name).replace(r"l\*", r"l\d+").replace(r"\*", r"[A-Za-z_]\w*")
    return re.compile(escaped)


def _matches(key: str, name: str) -> bool:
    """Say whether a registered name stands for a key; few names need a pattern, which is slow to compile."""
    return _pattern(name).fullmatch(key) is not None if "*" in name else key == name


_MODEL = "model."
_REGISTRIES: dict[str, Registry[Any]] = {
    "model.name": FAMILIES,
    "system.collective": COLLECTIVES,
    "server.policy": POLICIES,
    OPTIMIZER: OPTIMIZERS,
}
"""The inputs whose choices packages may add."""
OF_PREFILL, OF_ATTENTION, OF_ENCODER = OTHER_CHIPS = "serve.prefill.", "serve.attention.", "serve.encoder."
"""Prefixes of the inputs of other chips: of devices that only prefill, of those of attention, of encoders."""
SECTIONS_OF_CHIP = ("tech.", "scaling.", "mem.", "net.", "chip.")
"""Prefixes of a chip's inputs, after the prefix of the chip."""


def split_prefix(key: str) -> tuple[str, str]:
    """Return the prefix of the other chip that a key is of, "" for none, and the rest of the key."""
    if not key.startswith(OTHER_CHIPS):
        return "", key
    prefix = next(prefix for prefix in OTHER_CHIPS if key.startswith(prefix))
    return prefix, key.removeprefix(prefix)


@cache
def find_input(key: str) -> Column | None:
    """Return the registered input that a dotted key belongs to, or None."""
    if split_prefix(key)[1].startswith(SECTIONS_OF_CHIP):
        key = split_prefix(key)[1]
    column = next((column for column in INPUTS if _matches(key, column.name)), None)
    return column or (_input_of_packages(key) if key.startswith(_MODEL) else None)


def _input_of_packages(key: str) -> Column | None:
    """Return an input that only models of packages have, or None."""

    def column_of(family: Family) -> Column | None:
        columns = (*family.structure, *family.sizes)
        return next((column for column in columns if column.name == key), None)

    try:
        families = FAMILIES.added(lambda family: column_of(family) is not None)
    except InputError:  # of a broken package, which is told where `model.name` chooses it
        return None
    return column_of(families[0]) if families else None


def with_packages(column: Column, value: object) -> Column:
    """Return an input's column; for a value that is no choice of fastflow, with the choices of packages."""
    registry = _REGISTRIES.get(column.name)
    if registry is None or value in column.choices:
        return column
    return column._replace(choices=tuple(dict.fromkeys((*column.choices, *registry))))


@cache
def find_result(name: str) -> Column | None:
    """Return the registered result column of a name, or None."""
    columns = (
        *RESULTS,
        *TRANSFORMER,
        *SERVED,
        *SEARCH,
        *FLEETS,
        *VALIDATION,
        *BACKTEST,
        *SENSITIVITY,
        *BANDS,
    )
    return next((column for column in columns if _matches(name, column.name)), None)


def result_column(name: str) -> Column:
    """Return the registered result column of a name; raises KeyError where there is none."""
    column = find_result(name)
    if column is None:
        raise KeyError(name)
    return column


ALL, SOME = "all", "some"


@cache
def result_order(
    levels: int, has_layer_runs: bool = False, served: str = "", banded: bool = False
) -> tuple[str, ...]:
    """Return the names of all result columns, in order, for a chip with `levels` on-chip levels.

    has_layer_runs: with the columns of models with layer runs; served: which points serve: ALL, SOME or ""
    for none; banded: with bands.
    """
    columns = (*RESULTS, *(TRANSFORMER if has_layer_runs else ()))
    if served == ALL:
        columns = tuple(column for column in (*RESULTS, *TRANSFORMER) if column.name in SHARED_WITH_SERVED)
    if served:
        at = next(i for i, column in enumerate(columns) if column.name == TYPICAL[-1].name) + 1
        columns = (*columns[:at], *SERVED, *columns[at:])
    names: list[str] = []
    for column in columns:
        if "l*" in column.name:
            names += [column.name.replace("l*", f"l{level}") for level in range(levels)]
        else:
            names.append(column.name)
            names += band_of(column.name) if banded and column.name in BANDED else ()
    if banded:
        at = names.index("feasible")
        names[at:at] = [column.name for column in SAMPLED]
    return tuple(names)
