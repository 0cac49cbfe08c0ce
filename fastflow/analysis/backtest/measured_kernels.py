"""Times of measurements, predicted with chips as they are and as their budgets make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fastflow.analysis.backtest.generated_chips import SCALINGS, budgeted, pinned
from fastflow.analysis.backtest.options import Asked
from fastflow.analysis.measurements.aliases import named
from fastflow.analysis.measurements.kind import KINDS
from fastflow.analysis.measurements.plan import plan_file
from fastflow.analysis.validation.tables import predicted_tables
from fastflow.config.composer import Composer
from fastflow.core.errors import InputError
from fastflow.engine.dataset.schema import to_frame
from fastflow.engine.grid.run import explaining

REAL = "real"
WAYS = (REAL, *SCALINGS)
KERNELS = ("GEMMs", "attention", "latent attention", "expert layers")
"""Kinds of files whose rows are of one chip."""
_OWN = ("device", "time_s")
Advance = Callable[[str], None]


class Held(NamedTuple):
    """Predictions of one file's rows on one chip."""

    file: str
    chip: str
    kind: str
    rows: pd.DataFrame  # the file's own columns, measured_s, and the prediction of every way


def files_in(folder: str) -> list[Path]:
    """Return the CSV files of a folder; raises InputError where there is none."""
    found = sorted(Path(folder).glob("*.csv")) if Path(folder).is_dir() else []
    if not found:
        raise InputError("backtest.measurements", folder, "a folder with CSV files of measurements")
    return found


def held(asked: Asked, devices: Mapping[str, str], advance: Advance = lambda name: None) -> Iterator[Held]:
    """Predict the files of a folder that are of single kernels, and of chips of the back-test.

    devices: what a chip is called in files. Raises InputError.
    """
    assert asked.measurements is not None
    composer = Composer.of_library(config_name="validate")
    for path in files_in(asked.measurements):
        for text, chip in _chips_in(path, devices).items():
            if chip in asked.chips:
                one = _held(composer, asked, path, text, chip)
                if one is not None:
                    advance(path.name)
                    yield one


def _chips_in(path: Path, devices: Mapping[str, str]) -> dict[str, str]:
    """Return the devices that a file names, and their chips."""
    columns = list(pd.read_csv(path, nrows=0).columns)
    kinds = [kind.name for kind in KINDS if kind.claims(columns, ())]
    if "device" not in columns or not set(kinds) & set(KERNELS):
        return {}
    texts = pd.read_csv(path, usecols=["device"])["device"].astype(str).unique()
    return {text: devices[name] for text in texts if (name := named(text, devices))}


def _held(composer: Composer, asked: Asked, path: Path, device: str, chip: str) -> Held | None:
    """Predict the rows of one device; None for a kind of file whose rows are of several."""
    tables: dict[str, Any] = {}
    kind = ""
    for way in WAYS:
        chosen = pinned(asked, chip) if way == REAL else budgeted(composer, asked, chip, way)
        planned = plan_file(composer, [*chosen, f"measurements={path}", f"device='{device}'"])
        kind = planned.measurements.name
        if kind not in KERNELS:
            return None
        with explaining(composer, planned.run):
            tables[way] = to_frame([predicted_tables(planned).rows])
    own = [name for name in pd.read_csv(path, nrows=0).columns if name in tables[REAL]]
    rows = tables[REAL][[*own, "measured_s"]].copy()
    for way, table in tables.items():
        rows[way] = table["predicted_s"]
    return Held(path.name, chip, kind, rows)


def errors_of(files: list[Held]) -> pd.DataFrame:
    """Return the mean relative error of every file, by how its chip comes to be."""
    return pd.DataFrame(
        {
            "file": one.file,
            "chip": one.chip,
            "rows": len(one.rows),
            **{
                f"{way}_error": float(np.mean(np.abs(one.rows[way] / one.rows["measured_s"] - 1.0)))
                for way in WAYS
            },
        }
        for one in files
    )


def measured_gains(files: list[Held], age: Sequence[str]) -> pd.DataFrame:
    """Return what one chip gains over an older one, by files with rows alike: geometric means over them.

    age: the chips, oldest first.
    """
    found = []
    for first, second in combinations(sorted(files, key=lambda one: age.index(one.chip)), 2):
        if first.kind != second.kind or first.chip == second.chip:
            continue
        shape = [
            name for name in first.rows if name in second.rows and name not in (*_OWN, "measured_s", *WAYS)
        ]
        both = first.rows.merge(second.rows, on=shape, suffixes=("_before", "_after")) if shape else None
        if both is None or len(both) < _FEWEST:
            continue
        ratios = {
            name: np.log(both[f"{name}_before"] / both[f"{name}_after"]) for name in ("measured_s", *WAYS)
        }
        found.append(
            {
                "workload": f"{first.kind}: {first.file}, {second.file}",
                "before": first.chip,
                "after": second.chip,
                "rows": len(both),
                "measured_gain": float(np.exp(ratios["measured_s"].mean())),
                **{f"{way}_gain": float(np.exp(ratios[way].mean())) for way in WAYS},
            }
        )
    return pd.DataFrame(found)


_FEWEST = 20  # rows alike, of which a mean says something
