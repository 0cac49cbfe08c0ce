"""Measured kernels, predicted with real chips and with chips generated from their budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fastflow.analysis.backtest.generated_chips import SCALINGS, generated_overrides, real_overrides
from fastflow.analysis.backtest.options import BacktestOptions
from fastflow.analysis.measurements.aliases import match_name
from fastflow.analysis.measurements.kind import KINDS
from fastflow.analysis.measurements.plan import plan_file
from fastflow.analysis.validation.tables import predicted_tables
from fastflow.config.composer import Composer
from fastflow.core.errors import InputError
from fastflow.engine.dataset.schema import to_frame
from fastflow.engine.grid.run import naming_errors

REAL = "real"
VARIANTS = (REAL, *SCALINGS)
KERNELS = ("GEMMs", "attention", "latent attention", "expert layers")
"""Kinds of files whose rows are of one chip."""
_NOT_SHAPES = ("device", "time_s", "measured_s", *VARIANTS)
"""Columns that are no shape of a kernel."""
Advance = Callable[[str], None]


class KernelPredictions(NamedTuple):
    """Predictions of one file's rows on one chip."""

    file: str
    chip: str
    kind: str
    rows: pd.DataFrame  # the file's columns, measured_s, and the prediction of every variant


def files_in(folder: str) -> list[Path]:
    """Return the CSV files of a folder; raises InputError without any."""
    paths = sorted(Path(folder).glob("*.csv")) if Path(folder).is_dir() else []
    if not paths:
        raise InputError("backtest.measurements", folder, "a folder with CSV files of measurements")
    return paths


def predict_kernels(
    options: BacktestOptions, devices: Mapping[str, str], advance: Advance = lambda name: None
) -> Iterator[KernelPredictions]:
    """Predict the files of a folder that are of single kernels, and of chips of the back-test.

    devices: name in files to chip. Raises InputError.
    """
    assert options.measurements is not None
    composer = Composer.of_library(config_name="validate")
    for path in files_in(options.measurements):
        for text, chip in _devices_of(path, devices).items():
            if chip in options.chips:
                predictions = _predict_device(composer, options, path, text, chip)
                if predictions is not None:
                    advance(path.name)
                    yield predictions


def _devices_of(path: Path, devices: Mapping[str, str]) -> dict[str, str]:
    """Return the devices that a file names, and their chips."""
    columns = list(pd.read_csv(path, nrows=0).columns)
    kinds = [kind.name for kind in KINDS.built_ins() if kind.claims(columns, ())]
    if "device" not in columns or not set(kinds) & set(KERNELS):
        return {}
    texts = pd.read_csv(path, usecols=["device"])["device"].astype(str).unique()
    return {text: devices[name] for text in texts if (name := match_name(text, devices))}


def _predict_device(
    composer: Composer, options: BacktestOptions, path: Path, device: str, chip: str
) -> KernelPredictions | None:
    """Predict the rows of one device; None for a kind of file whose rows are of several devices."""
    tables: dict[str, Any] = {}
    kind = ""
    for variant in VARIANTS:
        chip_overrides = (
            real_overrides(options, chip)
            if variant == REAL
            else generated_overrides(composer, options, chip, variant)
        )
        planned = plan_file(composer, [*chip_overrides, f"measurements={path}", f"device='{device}'"])
        kind = planned.measurements.name
        if kind not in KERNELS:
            return None
        with naming_errors(composer, planned.run):
            tables[variant] = to_frame([predicted_tables(planned).rows])
    columns = [name for name in pd.read_csv(path, nrows=0).columns if name in tables[REAL]]
    rows = tables[REAL][[*columns, "measured_s"]].copy()
    for variant, table in tables.items():
        rows[variant] = table["predicted_s"]
    return KernelPredictions(path.name, chip, kind, rows)


def errors_of(files: list[KernelPredictions]) -> pd.DataFrame:
    """Return the mean relative error of every file, a column for each variant of its chip."""
    return pd.DataFrame(
        {
            "file": p.file,
            "chip": p.chip,
            "rows": len(p.rows),
            **{
                f"{variant}_error": float(np.mean(np.abs(p.rows[variant] / p.rows["measured_s"] - 1.0)))
                for variant in VARIANTS
            },
        }
        for p in files
    )


def measured_gains(files: list[KernelPredictions], age: Sequence[str]) -> pd.DataFrame:
    """Return gains of chips over older chips on files with the same rows, as geometric means.

    age: the chips, oldest first.
    """
    gains = []
    for first, second in combinations(sorted(files, key=lambda predictions: age.index(predictions.chip)), 2):
        if first.kind != second.kind or first.chip == second.chip:
            continue
        shape = [name for name in first.rows if name in second.rows and name not in _NOT_SHAPES]
        both = first.rows.merge(second.rows, on=shape, suffixes=("_before", "_after")) if shape else None
        if both is None or len(both) < _MIN_ROWS:
            continue
        ratios = {
            name: np.log(both[f"{name}_before"] / both[f"{name}_after"]) for name in ("measured_s", *VARIANTS)
        }
        gains.append(
            {
                "workload": f"{first.kind}: {first.file}, {second.file}",
                "before": first.chip,
                "after": second.chip,
                "rows": len(both),
                "measured_gain": float(np.exp(ratios["measured_s"].mean())),
                **{f"{variant}_gain": float(np.exp(ratios[variant].mean())) for variant in VARIANTS},
            }
        )
    return pd.DataFrame(gains)


_MIN_ROWS = 20  # shared rows that a mean needs
