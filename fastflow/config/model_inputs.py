"""From a composed configuration to the model's inputs: known keys, SI units, allowed values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.config.data_types import data_type, nearest
from fastflow.config.list_keys import COLUMNS, CONSTRAINTS
from fastflow.config.messages import one_of, suggestion
from fastflow.core import units
from fastflow.core.errors import InputError
from fastflow.physics.carbon.profile import DURATION, PROFILE, read_profile
from fastflow.physics.cost.rent import RENT
from fastflow.physics.hardware.chiplets import CHIPLETS, HOLDABLE
from fastflow.physics.hardware.power import LIMIT, PREFILL_LIMIT
from fastflow.physics.network.placement import read_order
from fastflow.physics.parallelism.bounds import KEY as WITHIN
from fastflow.physics.parallelism.bounds import parse as parse_within
from fastflow.physics.parallelism.layout_file import read_layout
from fastflow.physics.parallelism.pipeline_layout import KEY as PIPELINE_LAYOUT
from fastflow.physics.parallelism.pipeline_layout import parse as parse_pipeline
from fastflow.physics.parallelism.sharding.layout import LAYERS, parse_layers, parse_layout
from fastflow.physics.parallelism.strategy import AUTO
from fastflow.physics.parallelism.strategy import parse as parse_strategy
from fastflow.physics.parallelism.virtual_stages import RECOMPUTE, recomputed
from fastflow.physics.site.limits import RACK_LIMIT, SITE_LIMIT
from fastflow.physics.workload.data_types import UNMODELLED
from fastflow.physics.workload.models.config_files import with_config
from fastflow.physics.workload.models.graph_file import read_network
from fastflow.physics.workload.models.transformer.config_json.read import KEY as CONFIG
from fastflow.physics.workload.models.transformer.encoder.dimensions import (
    IMAGE_SIZE,
    PROJECTORS,
    check_projector,
    image_sides,
)
from fastflow.physics.workload.models.transformer.encoder.vision import IMAGE_PIXELS
from fastflow.physics.workload.models.transformer.layer_pattern import KEY as PATTERN
from fastflow.physics.workload.models.transformer.layer_pattern import parse as parse_pattern
from fastflow.physics.workload.models.transformer.model_size import KEY as SIZE
from fastflow.physics.workload.models.transformer.model_size import with_size
from fastflow.physics.workload.models.transformer.published import KEY as DTYPE
from fastflow.physics.workload.models.transformer.published import PUBLISHED, with_types
from fastflow.physics.workload.request_lengths import KEY as LENGTHS
from fastflow.physics.workload.request_lengths import read_lengths
from fastflow.physics.workload.request_trace import KEY as TRACE
from fastflow.physics.workload.request_trace import read_trace
from fastflow.schema import INPUTS, Column, find_input, with_packages
from fastflow.schema.routing import KEY as ROUTER
from fastflow.schema.routing import ROUTERS

Scalar = float | int | bool | str

SECTIONS = (
    "tech",
    "mem",
    "net",
    "chip",
    "system",
    "model",
    "precision",
    "parallel",
    "tiling",
    "serve",
    "server",
    "router",
    "scaling",
    "cost",
    "carbon",
    "power",
)
_DTYPES: dict[str, Any] = {"float": np.float64, "int": np.int64, "bool": np.bool_, "str": np.str_}
SEARCH_KEYS = (
    "method", "starts", "steps", "seed", "objective", "pareto", "compare", "tolerance", CONSTRAINTS, "plan",
)  # fmt: skip
"""Leaves of the configuration that say how designs are searched."""
VALIDATION_KEYS = (
    "measurements", "timed", "device", "recurrent", "training", "serving", "collectives", "fit", "requests",
    "arrivals",
)  # fmt: skip
"""Keys of measurements, for a comparison with predictions or a fit."""
NOT_OF_THE_MODEL = (
    "engine", "output", "trace", "picture", "html", COLUMNS, "report", "backtest", "sensitivity",
    "uncertainty",
    *SEARCH_KEYS, *VALIDATION_KEYS,
)  # fmt: skip
"""Sections and leaves of the configuration that say where and how, and change no result."""
FILES = ("model.file", "parallel.layout", LENGTHS, TRACE, PROFILE)
"""Inputs that name a file: results follow from what is in it."""
ALTERNATIVE = "alternative"
"""The name of a block of published figures that differ from those of its file."""
MACHINE = "chip.machine"
"""The system that a chip comes in, which is chosen where a user chooses none."""
SETS_OTHERS = (CONFIG, IMAGE_SIZE, SIZE, *PUBLISHED)
"""Leaves that are no inputs, but set other leaves."""
INT64_MAX = 2**63 - 1


@lru_cache(maxsize=10_000)
def is_of_model(key: str) -> bool:
    """Say whether results follow from a leaf."""
    return key.partition(".")[0] not in NOT_OF_THE_MODEL and key != MACHINE


def is_documentation(key: str) -> bool:
    """Say whether a leaf is documentation: below `source`, `uncertainty` or `alternative`."""
    names = key.split(".")
    return any(block in names for block in ("source", "uncertainty", ALTERNATIVE))


def model_inputs(leaves: Mapping[str, Any], refuses_types: bool = True) -> dict[str, Scalar]:
    """Return the inputs of the model among the leaves of a configuration, in SI units.

    Raises InputError for a leaf that is no input, and for a value that is not allowed. refuses_types: also
    for a model that is published in a type that is not modelled, which else has `UNMODELLED`.
    """
    leaves = with_types(with_size(with_config(leaves)), refuses_types)
    unmodelled = {DTYPE: UNMODELLED} if leaves.get(DTYPE) == UNMODELLED and not refuses_types else {}
    inputs: dict[str, Scalar] = {}
    for key, value in leaves.items():
        if key not in unmodelled:
            read = _cached_input if type(value) in _CACHEABLE and key not in FILES else _input
            if (converted := read(key, value)) is not None:
                inputs[key] = converted
    return inputs | unmodelled


def _input(key: str, value: Any) -> Scalar | None:
    """Return the value of an input in its unit, None for a leaf that is no input; raises InputError."""
    if not is_of_model(key) or is_documentation(key) or _is_absent(key, value):
        return None
    return convert(key, value)


# every call has the same figures but for a few; a file's content may change under its name
_cached_input = lru_cache(maxsize=10_000, typed=True)(_input)
_CACHEABLE = frozenset((str, float, int, bool))


def _is_absent(key: str, value: Any) -> bool:
    """Say whether a leaf is unset: an empty mapping, or null for a pin, a limit, layers or a file."""
    limits = LIMIT, PREFILL_LIMIT, RACK_LIMIT, SITE_LIMIT
    unset = (
        "chip.pinned",
        *limits,
        "serve.prefill.chip",
        "serve.attention.chip",
        "serve.encoder.chip",
        LAYERS,
        RENT,
        DURATION,
        *FILES,
    )
    return value == {} or (value is None and (key in unset or key.startswith("chip.pinned.")))


def _keys_within(section: str) -> list[str]:
    """Return the keys below a section of two names or more; [] where it is no section."""
    depth = section.count(".") + 1
    parts = [column.name.split(".") for column in INPUTS]
    keys = [
        names[depth] for names in parts if fnmatchcase(section, ".".join(names[:depth])) and names[depth:]
    ]
    return list(dict.fromkeys(keys)) if depth > 1 else []


def convert(key: str, value: Any) -> Scalar:
    """Return the value of an input in its unit; raises InputError."""
    column = find_input(key)
    if column is None:
        keys = _keys_within(key)
        if keys:
            allowed = f"a section with keys such as {', '.join(keys)}"
            raise InputError(key, "null" if value is None else value, allowed)
        hint = suggestion(key, [known.name for known in INPUTS])
        section = key.partition(".")[0]
        sections = "" if section in SECTIONS else f", whose keys begin with {one_of(SECTIONS)}"
        raise InputError(key, value, f"an input of the model{hint or sections}")
    return convert_to(column, key, value)


def convert_to(column: Column, key: str, value: Any) -> Scalar:
    """Return the value of a key in the unit of a column; raises InputError."""
    if column.auto is not None and value == AUTO:
        return int(column.auto)
    column = with_packages(column, value)
    try:
        return _check(column, _read(column, value))
    except InputError:
        raise
    except OverflowError:  # a whole number that no float holds
        raise InputError(key, value, column.allowed()) from None
    except ValueError as error:
        reason = f" ({error})" if str(error) else ""
        text = "null" if value is None else value
        raise InputError(key, text, column.allowed() + reason) from None


def _read(column: Column, value: Any) -> Scalar:
    """Return a value in the column's type and unit; raises ValueError, empty where the column says enough."""
    if column.kind in ("str", "bool"):
        if isinstance(value, str if column.kind == "str" else bool):
            return value
        if column.kind == "str" and isinstance(value, int) and not isinstance(value, bool):
            return str(value)  # a text that YAML took for a number
        if column.kind == "str" and isinstance(value, bool) and str(value).lower() in column.choices:
            return str(value).lower()
        raise ValueError
    if column.unit:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        return units.parse(str(value), column.unit)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    if column.kind == "float":
        return float(value)
    if not isfinite(value) or value != int(value) or abs(value) > INT64_MAX:
        raise ValueError
    return int(value)


def _resolve_choice(column: Column, value: str) -> str:
    """Return the choice that another name of a data type stands for; raises ValueError where it is none."""
    takes_types = "bf16" in column.choices
    choice = data_type(value, column.choices) if takes_types else value
    if choice not in column.choices:
        hint = nearest(value, column.choices) if takes_types else ""
        raise ValueError(hint or suggestion(value, column.choices).removeprefix("; "))
    return choice


def _check(column: Column, value: Scalar) -> Scalar:
    if isinstance(value, str):
        if column.choices and value not in column.choices:
            value = _resolve_choice(column, value)
        _check_text(column.name, value)  # a grid is refused before it starts
        return value
    above = column.low < value if column.above_low else column.low <= value
    if not (isfinite(value) and above and value <= column.high):
        raise ValueError
    return value


def _check_text(key: str, value: str) -> None:
    """Check a text in the notation of its key; raises InputError."""
    if key == "parallel.strategy" and value != AUTO:
        parse_strategy(value)
    elif (
        key == "serve.prefill.strategy" and value not in (AUTO, "same")
    ) or key == "serve.attention.strategy":
        parse_strategy(value, key)
    elif key in ("parallel.embedding", "parallel.hidden", "parallel.softmax"):
        parse_layout(value, key)
    elif key == LAYERS:
        parse_layers(value)
    elif key == RECOMPUTE:
        recomputed(np.array([value]))
    elif key == WITHIN:
        parse_within(value)
    elif key == "parallel.layout":
        read_layout(value)
    elif key == "model.file":
        read_network(value)
    elif key == LENGTHS:
        read_lengths(value)
    elif key == TRACE:
        read_trace(value)
    elif key == ROUTER:
        ROUTERS.find(value)
    elif key == PROFILE:
        read_profile(value)
    elif key == PIPELINE_LAYOUT:
        parse_pipeline(value)
    elif key == PATTERN:
        parse_pattern(value)
    elif key == IMAGE_PIXELS and not image_sides(value):
        raise InputError(key, value, "pixels of a side, such as 1024, or height x width, such as 1080x1920")
    elif key in PROJECTORS:
        check_projector(key, value)
    elif key.startswith(CHIPLETS) and key.endswith(".holds"):
        wrong = [part for part in value.split() if part not in HOLDABLE]
        if wrong or not value.strip():
            raise InputError(key, value, f"any of {' '.join(HOLDABLE)}")
    elif key == "placement" and value != AUTO:
        read_order(value)


def to_column(key: str, values: Sequence[Scalar] | NDArray[Any]) -> NDArray[np.generic]:
    """Return the values of one input as an array of its type, shape (len(values),)."""
    column = find_input(key)
    assert column is not None, key
    return np.array(values, dtype=_DTYPES[column.kind])


def whole_numbers(key: str, values: range) -> NDArray[np.generic]:
    """Return a range of values of one input as an array of its type; raises InputError."""
    for end in (values[0], values[-1]):
        convert(key, end)  # all values between them are allowed too
    column = find_input(key)
    assert column is not None, key
    return np.arange(values.start, values.stop, values.step, dtype=np.int64).astype(_DTYPES[column.kind])
