"""Candidates and designs of a search as tables for a person: a ranking, a front, the best of a history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fastflow import units
from fastflow.engine.plan import CHOICES
from fastflow.engine.show import console, new_sheet, quantity
from fastflow.optimize.space import BUDGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from rich.table import Table as Sheet

    from fastflow.engine.report import Dataset

_MOST = 10  # candidates of one problem
_MOST_PROBLEMS = 20
_MOST_OF_FRONT = 16
_FIGURES = ("objective", "second_objective", "gain", "designs", "bound_by", "feasible")


def labels_of(names: Sequence[str]) -> list[str]:
    """Return the columns that may tell candidates apart: choices, what was swept, the strategy."""
    shares = tuple(f"chip.{budget}." for budget in BUDGETS)
    swept = [name for name in names if "." in name and not name.startswith(shares)]
    return [name for name in (*CHOICES, *swept, "strategy") if name in names]


def sheet_of(title: str, frame: pd.DataFrame, schema: pa.Schema) -> Sheet:
    """Return rows as a table: what tells them apart, and what they come to. schema: the dataset's."""
    telling = [name for name in labels_of(list(map(str, frame))) if len(set(frame[name].map(str))) > 1]
    names = [*(telling or ["strategy"]), *(name for name in _FIGURES if name in frame)]
    about = {name: schema.field(name).metadata for name in names if name.endswith("objective")}
    heads = {name: held[b"meaning"].decode() for name, held in about.items()}
    sheet = new_sheet(
        title,
        [
            ("", True),
            *((heads.get(name, name.rpartition(".")[2]), frame[name].dtype.kind in "fi") for name in names),
        ],
    )
    for number, row in enumerate(frame[names].itertuples(index=False, name=None), start=1):
        cells = []
        for name, value in zip(names, row, strict=True):
            if name in about:
                cells.append(units.show(value, about[name][b"unit"].decode()))
            else:
                cells.append(f"{value:.2f}x" if name == "gain" and value == value else quantity(name, value))
        sheet.add_row(str(number), *cells)
    return sheet


def ranking_sheet(frame: pd.DataFrame, schema: pa.Schema) -> Sheet | str:
    """Return the best candidates of a ranking, or the best design of each problem where there are several."""
    heads = frame[frame["rank"] == 1]
    if len(heads) > _MOST_PROBLEMS:
        return f"{len(heads):,} problems; their best designs have rank 1 in the ranking"
    if len(heads) > 1:
        return sheet_of("Best design of each problem", heads, schema)
    many = f"{len(frame):,} candidate{'' if len(frame) == 1 else 's'}"
    return sheet_of(f"Best of {many}", frame.head(_MOST), schema)


def front_sheet(frame: pd.DataFrame, schema: pa.Schema) -> Sheet:
    """Return a front, thinned evenly if it is long."""
    rows = np.unique(np.linspace(0, len(frame) - 1, min(len(frame), _MOST_OF_FRONT)).round().astype(int))
    thinned = f", {len(rows)} of them" if len(rows) < len(frame) else ""
    return sheet_of(f"Front of {len(frame):,} designs{thinned}", frame.iloc[rows], schema)


def report(dataset: Dataset) -> None:
    """Print what a search's history, its ranking or its front comes to."""
    names = dataset.schema.names
    wanted = {*labels_of(names), *_FIGURES, "rank", "candidate", "step"}
    frame = dataset.read([name for name in names if name in wanted])
    out = console()
    counted = "candidates" if "rank" in frame else "designs"
    out.print(f"{dataset.folder.shown}: {len(frame):,} {counted}")
    if "rank" in frame:
        out.print(ranking_sheet(frame, dataset.schema))
    elif "step" in frame:
        out.print(sheet_of("Best design of each candidate", _best_of_each(frame).head(_MOST), dataset.schema))
    else:
        out.print(front_sheet(frame, dataset.schema))


def _best_of_each(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the best design of every candidate that was searched, the best one first; of a history."""
    searched = frame.loc[frame["step"] > 0, "candidate"].unique()
    rows = frame[frame["candidate"].isin(searched) & frame["objective"].notna()]
    order: Any = ["feasible", "objective"]
    ordered = rows.sort_values(order, ascending=[False, True], kind="stable")
    return ordered.drop_duplicates("candidate")
