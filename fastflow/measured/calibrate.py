"""A calibration from the overrides to the chip file that it leaves."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from fastflow.configuration.composer import Composer
from fastflow.configuration.hydra_composer import related
from fastflow.configuration.inputs import convert, is_documentation
from fastflow.configuration.library import hydra_rules, is_own_file
from fastflow.configuration.wording import path_of
from fastflow.dataset.folder import LocalFolder, is_url, remove_empty
from fastflow.errors import CompositionError, InputError
from fastflow.grid.run import explaining
from fastflow.measured import least_squares
from fastflow.measured.least_squares import NOT_DETERMINED, Fit, held_back
from fastflow.measured.predict import predict
from fastflow.measured.scalars import (
    TIMES,
    bounds_of,
    check_files,
    chosen,
    own_values,
    points_of,
    times,
)
from fastflow.measured.validate import Planned, prepare
from fastflow.tables import Bools, Floats, Ints

HELD_BACK = 0.2  # of the rows
SEED = 0
ROWS_OF_A_SCALAR = 5  # to fit, at least
MOST_ROWS = 3000  # to fit, at most: they say all that some scalars can be
_FIRST_LINE = "# A calibration by python -m fastflow.calibrate."
_LISTS = ("fit", "measurements")


class Calibration(NamedTuple):
    """What measurements say of a chip."""

    scalars: pd.DataFrame
    """A row a scalar: `scalar`, `before`, `after`, `standard_error`, their `unit`, and `state`."""
    errors: pd.DataFrame
    """A row each for the rows that were fitted and those held back: mean relative errors."""
    text: str
    """The chip file, which `chip=FILE.yaml` accepts."""
    path: Path | None
    """Where it was written, if it was."""


class Asked(NamedTuple):
    """What is to be calibrated, from what."""

    planned: list[Planned]  # the same chip, a file each
    chip: str  # the choice
    own: dict[str, Any]  # other keys of the chip that the overrides set, as written
    names: list[str]  # the scalars to fit
    measured: Floats  # of the rows of all files, [s]
    before: Floats  # predicted with the chip's own figures [s]; NaN where nothing is
    held: Bools  # rows that are not fitted
    fitted: Ints  # rows that are


class Answer(NamedTuple):
    """What was found."""

    asked: Asked
    before: Floats  # of every scalar, in SI units
    fit: Fit  # its figures as they are written
    written: dict[str, str | float]  # what the chip file says of those that were fitted
    after: Floats  # predicted [s]


def as_lists(overrides: Sequence[str]) -> list[str]:
    """Return overrides of which `fit=a,b` and `measurements=a,b` are lists, as the grammar has them."""
    found = []
    for text in overrides:
        key, _, value = text.partition("=")
        several = key in _LISTS and "," in value and value[:1] not in ("[", "'", '"')
        found.append(f"{key}=[{value}]" if several else text)
    return found


def calibrate(
    *overrides: str,
    output: str | os.PathLike[str] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
) -> Calibration:
    """Fit the scalars of a chip to measurements; see `fastflow.calibrate`."""
    with hydra_rules():
        composer = Composer.of_library(config_dir, config_name="calibrate")
        asked, where = prepare_calibration(
            composer, as_lists(overrides), None if output is None else str(output)
        )
        answer, text = fit_and_write(composer, asked, where)
    path = None if where is None else Path(where)
    return Calibration(scalar_frame(answer), error_frame(answer), text, path)


def prepare_calibration(
    composer: Composer, overrides: Sequence[str], output: str | None
) -> tuple[Asked, str | None]:
    """Read the files, and plan their rows; returns what is asked, and the file to write if one is named.

    Raises InputError.
    """
    parsed = composer.parse(overrides)
    origin = composer.origin_of_overrides
    mine = [text for text, one in zip(overrides, parsed, strict=True) if one.key_or_group in _LISTS]
    leaves = composer.compose(mine).leaves
    others = [text for text, one in zip(overrides, parsed, strict=True) if one.key_or_group not in _LISTS]
    paths = leaves["measurements"]
    paths = [str(path) for path in paths] if isinstance(paths, list) else [paths]
    if paths == [None] or not all(paths):
        raise InputError("measurements", "null", "one or more CSV files", origin)
    if len(set(paths)) < len(paths):
        raise InputError("measurements", ", ".join(paths), "each file once", origin)
    planned = [prepare(composer, (*others, f"measurements={_quoted(path)}")) for path in paths]
    run = planned[0].run
    chip, named = run.first.choices["chip"], run.first.leaves.get("output") is not None
    where = output if output is not None else run.output if named else None
    if where is not None:
        check_chip_file(composer, planned[0], where)
    check_files(planned, origin)
    set_ = [one for one in parsed if one.key_or_group.startswith("chip.")]
    for one in set_:
        if one.is_delete():
            raise InputError(
                f"~{one.key_or_group}", "removed", "a value, since a chip file cannot remove a key", origin
            )
    keys = [one.key_or_group for one in set_]
    own = {
        key.removeprefix("chip."): value
        for key, value in run.first.leaves.items()
        if any(related(key, name) for name in keys) and not is_documentation(key)
    }
    return _asked(composer, planned, chip, own, leaves["fit"]), where


def _quoted(path: str) -> str:
    """Write a text as a quoted one of the grammar."""
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", path)
    return f"'{escaped}'"


def _asked(composer: Composer, planned: list[Planned], chip: str, own: dict[str, Any], fit: object) -> Asked:
    """Predict all rows as the chip is, and draw those to fit; raises InputError."""
    origin = composer.origin_of_overrides
    measured = np.concatenate([one.measurements.measured for one in planned])
    before = []
    for one in planned:
        with explaining(composer, one.run):
            parts = list(predict(one.run.grid, one.measurements))
        times_s = np.full(one.measurements.measured.size, np.nan)
        for part in parts:
            times_s[part.rows] = np.ma.filled(part.columns["time_s"], np.nan)
        if np.isnan(times_s).all():
            raise CompositionError(f"no row can be predicted; the first one: {parts[0].columns['reason'][0]}")
        before.append(times_s)
    predicted = np.concatenate(before)
    known = np.flatnonzero(~np.isnan(predicted))
    if isinstance(fit, str | list) or fit is None:
        names = chosen(planned, points_of(planned, known), fit, origin)
    else:
        raise InputError("fit", fit, "null, or names of scalars", origin)
    held = np.zeros(measured.size, dtype=np.bool_)
    held[known] = held_back(_groups(planned)[known], HELD_BACK, SEED)
    fitted = known[~held[known]]
    least = ROWS_OF_A_SCALAR * len(names)
    if fitted.size < least or not held.any():
        paths = ", ".join(one.measurements.path for one in planned)
        have = f"{fitted.size:,} to fit and {int(held.sum()):,} to hold back"
        allowed = (
            f"at least {least} rows to fit {len(names)} scalars, and some rows to hold back; there are {have}"
        )
        raise InputError("measurements", paths, allowed, origin)
    if fitted.size > MOST_ROWS:
        fitted = np.sort(np.random.default_rng(SEED).choice(fitted, MOST_ROWS, replace=False))
    return Asked(planned, chip, own, names, measured, predicted, held, fitted)


def _groups(planned: Sequence[Planned]) -> Ints:
    """Number the rows so that those of one shape, in whatever file, have the same number."""
    keys: list[str] = []
    for one in planned:
        kind, frame = one.measurements.kind, one.measurements.frame
        names = [name for name in kind.inputs if name in frame]
        if one.measurements.overrides:
            keys += [str(sorted(row.items())) for row in one.measurements.overrides]
        else:
            keys += [f"{kind.name} {row}" for row in frame[names].to_dict("records")]
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def fit_and_write(composer: Composer, asked: Asked, where: str | None) -> tuple[Answer, str]:
    """Fit, and write the chip file where one is asked for; returns its text too. Raises InputError."""
    folder = None if where is None else LocalFolder(Path(where).parent, path_of(Path(where).parent))
    made = [] if folder is None else folder.make()  # what cannot be written is not fitted first
    try:
        with explaining(composer, asked.planned[0].run):
            answer = _fit(asked)
        text = chip_text(answer)
        if folder is not None and where is not None:

            def into(file: IO[bytes]) -> None:
                file.write(text.encode())

            folder.write(Path(where).name, into)
    except BaseException:
        remove_empty(made)
        raise
    return answer, text


def _fit(asked: Asked) -> Answer:
    """Fit the scalars, and predict all rows with what is written of them; raises InputError."""
    names, own = asked.names, own_values(asked.planned, asked.names)
    points = points_of(asked.planned, asked.fitted)

    def model(values: Floats) -> Floats:
        return times(points, dict(zip(names, values.tolist(), strict=True)), asked.fitted.size)

    found = least_squares.fit(model, asked.measured[asked.fitted], own, bounds_of(names))
    # four digits are more than any file determines; what is said and what is used is the same to the bit
    rounded = {
        name: _written(name, value)
        for name, value, state in zip(names, found.figures.tolist(), found.states, strict=True)
        if state != NOT_DETERMINED
    }
    if not rounded:
        paths = ", ".join(one.measurements.path for one in asked.planned)
        raise CompositionError(f"{paths}: these rows determine none of {', '.join(names)}")
    values = {name: float(convert(f"chip.{name}", text)) for name, text in rounded.items()}
    every = np.flatnonzero(~np.isnan(asked.before))
    after = np.full(asked.before.size, np.nan)
    after[every] = times(points_of(asked.planned, every), values, every.size)
    exact = np.array([values.get(name, value) for name, value in zip(names, own.tolist(), strict=True)])
    return Answer(asked, own, found._replace(figures=exact), rounded, after)


def _written(name: str, value: float) -> str | float:
    return f"{value * 1e6:.4g} us" if name in TIMES else float(f"{value:.4g}")


def chip_text(answer: Answer) -> str:
    """Return the chip file: what differs from the chip, and where it comes from."""
    asked = answer.asked
    files = ", ".join(Path(one.measurements.path).name for one in asked.planned)
    errors = error_frame(answer).set_index("rows_of")
    rows = int(errors["rows"].sum())
    before, after = errors.loc["held back", ["before", "after"]]
    source = (
        f"calibrated: {files}, {rows} rows, mean relative error {after:.1%} on a held-back fifth "
        f"({before:.1%} before)"
    )
    content: dict[str, Any] = {}
    for key, value in {**asked.own, **answer.written}.items():
        *sections, last = key.split(".")
        inner = content
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    first, *more = answer.written
    content["source"] = {
        **dict.fromkeys(asked.own, "set for the calibration"),
        first: source.replace("${", "\\${"),
        **dict.fromkeys(more, f"as {first}"),
    }
    defaults = _dumped([asked.chip, "_self_"], True)
    head = [
        _FIRST_LINE,
        f"# What differs from chip {asked.chip}. Use: chip=THIS_FILE",
        f"defaults: {defaults}",
    ]
    return "\n".join([*head, "", _dumped(content, False)])


def _dumped(value: Any, flow: bool) -> str:
    return yaml.safe_dump(
        value, default_flow_style=flow, sort_keys=False, allow_unicode=True, width=float("inf")
    ).removesuffix("\n" if flow else "")


def scalar_frame(answer: Answer) -> pd.DataFrame:
    """Return what was found of every scalar, a row each."""
    fit = answer.fit
    return pd.DataFrame(
        {
            "scalar": answer.asked.names,
            "before": answer.before,
            "after": fit.figures,
            "standard_error": fit.standard_errors,
            "unit": ["s" if name in TIMES else "" for name in answer.asked.names],
            "state": fit.states,
        }
    )


def error_frame(answer: Answer) -> pd.DataFrame:
    """Return the mean relative errors before and after, of the rows to fit (drawn or not) and held back."""
    asked, known = answer.asked, ~np.isnan(answer.asked.before)
    found = []
    for name, some in (("fitted", known & ~asked.held), ("held back", asked.held)):
        measured = asked.measured[some]
        before, after = (
            float((np.abs(predicted[some] - measured) / measured).mean())
            for predicted in (asked.before, answer.after)
        )
        found.append((name, int(some.sum()), before, after))
    return pd.DataFrame(found, columns=["rows_of", "rows", "before", "after"])


def default_output(chip: str) -> str:
    """Return the file that a calibration of a chip goes to."""
    stem = Path(chip).stem if is_own_file(chip) else chip
    return f"{stem}-calibrated.yaml"


def check_chip_file(composer: Composer, planned: Planned, where: str) -> None:
    """Refuse a file that is no chip's, that the chip is made of, or that something else is in; InputError."""
    path = Path(where)
    if is_url(where) or not is_own_file(where):
        raise InputError("output", where, "a file on this machine, NAME.yaml")
    made_of = [composer.file_of(default.config_path or "") for default in planned.run.first.defaults]
    if path.resolve() in [Path(name).resolve() for name in made_of]:
        raise InputError("output", where, f"a file that chip {_chip_of(planned)} does not use itself")
    if path.is_dir():
        raise InputError("output", where, "a file, and this is a folder")
    if path.exists():
        try:
            ours = path.read_bytes().startswith(_FIRST_LINE.encode())
        except OSError:
            ours = False
        if not ours:
            raise InputError("output", where, "a new file or an earlier calibration; this file is neither")


def _chip_of(planned: Planned) -> str:
    return planned.run.first.choices["chip"]
