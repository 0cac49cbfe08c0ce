"""Columns of a page: units, meanings, and which values are better."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from fastflow.engine.dataset.reader import Dataset
from fastflow.engine.grid.grid import together
from fastflow.reporting.dataset_title import folder_name, models_of
from fastflow.reporting.html.content import Quantity
from fastflow.reporting.terminal.carbon import electricity_of
from fastflow.reporting.terminal.cost import cost_title, price_list_name
from fastflow.schema import find_input, find_result

_MORE_IS_BETTER = frozenset((
    "tokens_per_s", "tokens_per_s_per_device", "tokens_per_s_per_user", "tokens_per_s_per_MW",
    "requests_per_s", "prefill_tokens_per_s", "mfu", "gain", "prob_first_better", "prob_on_front",
))  # fmt: skip
_LESS_IS_BETTER = frozenset((
    "time_s", "energy_J", "site_J", "iteration_usd", "system_usd", "device_usd", "token_usd",
    "joules_per_token", "usd_per_million_tokens", "train_usd", "device_carbon_kg", "system_carbon_kg",
    "carbon_g", "carbon_g_per_token", "train_carbon_kg",
    "power_W", "footprint_B", "ttft_slo_s", "tpot_slo_s",
    *(f"{name}{part}_s" for name in ("ttft", "tpot", "e2e") for part in ("", "_p50", "_p90", "_p99")),
    "train_s", "train_energy_J", "objective", "second_objective", "error",
))  # fmt: skip


def better_of(name: str) -> str:
    """Return which values of a column are better: "less", "more", or ""."""
    return "more" if name in _MORE_IS_BETTER else "less" if name in _LESS_IS_BETTER else ""


def comparable_columns(names: Iterable[str]) -> dict[str, str]:
    """Return the columns with better values, and which are better: "less" or "more"."""
    return {name: better for name in names if (better := better_of(name))}


def quantities(dataset: Dataset, frame: pd.DataFrame) -> list[Quantity]:
    """Return the columns of a frame for a page; columns without values are omitted."""
    return [_quantity(dataset, frame, str(name)) for name in frame if frame[name].notna().any()]


def _quantity(dataset: Dataset, frame: pd.DataFrame, name: str) -> Quantity:
    """Return a column, described by the schema of its dataset or by the registry."""
    field = dataset.schema.field(name) if name in dataset.schema.names else None
    metadata = (field.metadata or {}) if field is not None else {}
    definition = find_result(name) or find_input(name)
    unit = metadata.get(b"unit", b"").decode() or (definition.unit if definition else "")
    meaning = metadata.get(b"meaning", b"").decode() or (definition.meaning if definition else "")
    column = frame[name]
    values: Any
    if pd.api.types.is_bool_dtype(column):
        values = np.where(column.to_numpy(dtype=bool), "yes", "no")
    elif pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = column.astype(object).where(column.notna(), "").astype(str).to_numpy(dtype=object)
    return Quantity(name, unit, meaning, values, better_of(name))


def varying_columns(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Return the columns that have several values."""
    return [name for name in names if name in frame and len(frame[name].dropna().unique()) > 1]


def describe_span(frame: pd.DataFrame, keys: Sequence[str]) -> str:
    """Return the axes of points as a product of their sizes: "2 tech x 6 (mem, net)".

    Keys that vary together are one factor. For points that are no product (some missing or repeated)
    the keys alone. keys: that vary.
    """
    groups = [[key] for key in keys]

    def count(group: Sequence[str]) -> int:
        return len(frame[[*group]].drop_duplicates())

    while prod(map(count, groups)) != len(frame) and len(groups) > 1:
        pairs = combinations(groups, 2)
        dependent = next(((a, b) for a, b in pairs if count([*a, *b]) != count(a) * count(b)), None)
        groups = (
            [[key for group in groups for key in group]] if dependent is None else _merged(groups, *dependent)
        )
    if prod(map(count, groups)) != len(frame):
        return ", ".join(keys)
    return " x ".join(f"{count(group):,} {together(group)}" for group in groups)


def _merged(groups: list[list[str]], first: list[str], other: list[str]) -> list[list[str]]:
    """Return groups of keys, with two groups merged at the index of the first."""
    return [[*first, *other] if group is first else group for group in groups if group is not other]


def page_title(dataset: Dataset, kind: str, subject: str = "") -> str:
    """Return the title of a page: its kind and subject, and after them the dataset, by folder or time.

    kind: as "Grid"; subject: as "llama3_8b", by default the models of the dataset, or of its command.
    """
    subject = subject or models_of(dataset)
    return f"{kind}{f' of {subject}' if subject else ''} ({folder_name(dataset.folder.shown)})"


def provenance_of(dataset: Dataset, command: str) -> list[tuple[str, str]]:
    """Return the provenance of a dataset: its command, version and fingerprint."""
    has_costs = any("_usd" in name for name in dataset.schema.names)
    return [
        ("dataset", dataset.folder.shown),
        (
            "command",
            " ".join([f"python -m fastflow.{command}", shlex.join(dataset.user_overrides)]).strip(),
        ),
        *(
            [("US dollars", cost_title({"cost.name": price_list_name(dataset.user_overrides)}))]
            if has_costs
            else []
        ),
        *([("carbon", electricity_of(dataset.user_overrides))] if "carbon_g" in dataset.schema.names else []),
        ("fastflow", dataset.about("version")),
        ("model", dataset.about("model")),
        ("fingerprint", dataset.about("fingerprint")),
    ]


def first_present(wanted: Iterable[str], names: Iterable[str]) -> str:
    """Return the first wanted column that is present, "" for none."""
    present = set(names)
    return next((name for name in wanted if name in present), "")


def index_of_best(frame: pd.DataFrame, name: str) -> int:
    """Return the index of the best row in a column, a feasible one if there is any; -1 for none."""
    usable = frame[name].notna()
    if "feasible" in frame and (frame["feasible"] & usable).any():
        usable &= frame["feasible"]
    rows = np.flatnonzero(usable.to_numpy(dtype=bool))
    values = frame[name].to_numpy(dtype=np.float64)[rows]
    if not rows.size:
        return -1
    return int(rows[values.argmax() if better_of(name) == "more" else values.argmin()])
