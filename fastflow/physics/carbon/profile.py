"""Emissions of electricity where a system runs: a mean of its region, or of hours of a file."""

from __future__ import annotations

import csv
from functools import lru_cache
from io import StringIO
from math import isfinite
from pathlib import Path

import numpy as np

from fastflow.core.tables import Floats, Inputs
from fastflow.core.yaml_file import MistakeError, read_current, shown

INTENSITY, PROFILE, START, DURATION = (
    f"carbon.{name}" for name in ("intensity", "profile", "start", "duration")
)
HOURS = (24, 8760)
"""Numbers of values in a file: the hours of a day, or of a year."""
COLUMN = "g_per_kwh"
"""The name of the column of values, in a file of several columns."""
MAX_BYTES = 1024 * 1024
_MAX_INTENSITY = 1e6  # [g/kWh]
_HOUR = 3600.0  # [s]
_TO_SI = 1.0 / 1e3 / 3.6e6  # from g/kWh to kg/J


def read_profile(path: str) -> Floats:
    """Return the emissions of electricity in every hour of a file [kg/J], shape (24,) or (8760,).

    Comma-separated values in g of CO2e per kWh, a line an hour: one column, or one of the name `g_per_kwh`
    among others. Raises InputError.
    """
    return read_current(PROFILE, _parse_version, path)


@lru_cache(maxsize=16)
def _parse_version(path: str, changed: int, size: int) -> Floats:
    if size > MAX_BYTES:
        raise MistakeError(f"a file of at most {MAX_BYTES:,} bytes, not {size:,}")
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        reader = csv.reader(StringIO(text, newline=""), skipinitialspace=True, strict=True)
        lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise MistakeError(f"a file of comma-separated values ({error})") from None
    at, rows = _values_of(lines)
    if len(rows) not in HOURS:
        hours = " or ".join(f"{number:,}" for number in HOURS)
        raise MistakeError(f"a file of {hours} values, an hour each; this one has {len(rows):,}")
    values = np.array([_intensity(cells[at] if at < len(cells) else "", line) for line, cells in rows])
    values.flags.writeable = False
    return values * _TO_SI


def _values_of(lines: list[tuple[int, list[str]]]) -> tuple[int, list[tuple[int, list[str]]]]:
    """Return the index of the column of values, and the lines after the names; raises MistakeError."""
    names = [cell.strip().lower() for cell in lines[0][1]] if lines else []
    if names.count(COLUMN) == 1:
        return names.index(COLUMN), lines[1:]
    if len(names) > 1:
        raise MistakeError(f"a file of one column, or whose first line names the column {COLUMN} once")
    has_name = bool(names) and not _is_number(names[0])
    return 0, lines[has_name:]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _intensity(text: str, line: int) -> float:
    """Return the number of a cell [g/kWh]; raises MistakeError."""
    value = float(text) if _is_number(text) else np.nan
    if not (isfinite(value) and 0.0 <= value <= _MAX_INTENSITY):
        allowed = f"a file whose values are numbers of g per kWh from 0 to {_MAX_INTENSITY:,.0f}"
        raise MistakeError(f"{allowed}; line {line} has {shown(text.strip()) if text.strip() else 'nothing'}")
    return value


def mean_over(profile: Floats, start: Floats, duration: Floats) -> Floats:
    """Return the mean of a profile over some time, (points,); after its last hour it begins again.

    profile: in every hour, start, duration: [s], (points,) or (1,). Parts of hours count by their length.
    """
    hours = profile.size
    sums = np.concatenate([[0.0], np.cumsum(profile)])
    first, last = start / _HOUR, (start + duration) / _HOUR
    until_first, until_last = (
        np.floor(time / hours) * sums[-1] + np.interp(time % hours, np.arange(hours + 1), sums)
        for time in (first, last)
    )
    mean: Floats = (until_last - until_first) / (last - first)
    return np.clip(mean, profile.min(), profile.max())  # of rounding


def intensity_of(inputs: Inputs) -> Floats:
    """Return the emissions of electricity [kg/J], (points,), or (1,) where all have the same.

    inputs: `carbon`. Work draws constant power, so that the mean over its hours counts: over all hours of a
    profile, or over those of `carbon.duration`. Raises KeyError for a missing input, and
    InputError for a bad file.
    """
    intensity: Floats = inputs[INTENSITY]
    if PROFILE not in inputs:
        return intensity
    files = inputs[PROFILE]
    for path in np.unique(files).tolist():
        profile = read_profile(str(path))
        if DURATION in inputs:
            mean = mean_over(profile, inputs[START], inputs[DURATION])
        else:
            mean = np.array([profile.mean()])
        intensity = np.where(files == path, mean, intensity)
    return intensity
