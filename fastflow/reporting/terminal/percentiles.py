"""Percentiles of results: `uncertainty=on`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table as Sheet

from fastflow.reporting.terminal.tables import new_sheet, quantity
from fastflow.schema import BANDED, band_of

_NAMES = {
    "time_s": "time", "energy_J": "energy", "tokens_per_s": "tokens",
    "tokens_per_s_per_device": "tokens per device", "train_s": "training", "ttft_s": "time to first token",
    "tpot_s": "time per further token", "compute_flops": "peak rate", "dram_Bps": "main memory",
    "device_usd": "device", "iteration_usd": "iteration", "token_usd": "tokens", "train_usd": "cost to train",
    "joules_per_token": "energy of a token", "device_carbon_kg": "carbon of a device",
    "carbon_g": "carbon", "carbon_g_per_token": "carbon of tokens",
}  # fmt: skip


def has_bands(row: Mapping[str, Any]) -> bool:
    """Return whether a row has samples."""
    return "samples_failed" in row


def band_sheet(row: Mapping[str, Any]) -> Sheet:
    """Return the percentiles of a point's results, as far as it has them."""
    share = quantity("model_error_share", row["model_error_share"])
    title = "How far it may be off"
    sheet = new_sheet(title, [("", False), *((f"{nth}%", True) for nth in (10, 50, 90)), ("", False)])
    notes = {"time_s": f"{float(share):.0%} of the variance is the model's own error"} if share != "-" else {}
    for name in BANDED:
        low, median, high = (row.get(band) for band in band_of(name))
        if name in _NAMES and median is not None and median == median and low != high:
            cells = (quantity(name, value) for value in (low, median, high))
            sheet.add_row(_NAMES[name], *cells, notes.get(name, ""))
    if row["samples_failed"]:
        sheet.add_row("not feasible", "", f"{row['samples_failed']:,}", "", "of the samples")
    return sheet


def indistinguishable_points(numbers: Iterable[int], chances: Iterable[float], least: float) -> str:
    """Return a sentence on rows indistinguishable from the first; chances: that the first is better."""
    close = [f"{number:,}" for number, chance in zip(numbers, chances, strict=True) if chance < least]
    if not close:
        return f"The best is distinguishable from all others: better with a chance of {least:.0%} or more"
    points = f"points {', '.join(close[:-1])} and {close[-1]}" if len(close) > 1 else f"point {close[0]}"
    return f"Not distinguishable from the best (it is better with a chance below {least:.0%}): {points}"
