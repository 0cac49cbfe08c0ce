"""`fastflow.backtest`: the generator tried on chips that exist, for Python and the command."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from fastflow.analysis.backtest import options
from fastflow.analysis.backtest.generated_chips import beside
from fastflow.analysis.backtest.generation_speedups import gains
from fastflow.analysis.backtest.measured_kernels import errors_of, files_in, held, measured_gains
from fastflow.analysis.backtest.options import Asked
from fastflow.analysis.measurements.aliases import table
from fastflow.config.composer import Composer
from fastflow.core.errors import InputError
from fastflow.engine.dataset import kinds
from fastflow.engine.dataset.folder import folder_at
from fastflow.engine.dataset.kinds import kind_of_table
from fastflow.engine.dataset.reader import Dataset, find
from fastflow.engine.dataset.schema import field_of, origin
from fastflow.engine.dataset.store import check_table, write_table
from fastflow.schema import find_result

GAINS, FILES = "-gains", "-files"
"""What the folders of gains, and of errors on files of measurements, are called after that of the chips."""
_KINDS = {"": kinds.BACKTEST, GAINS: kinds.GAINS, FILES: kinds.FILES}
CONFIG = "backtest"


class Backtest(NamedTuple):
    """What a back-test found."""

    chips: pd.DataFrame
    """A row for every quantity of every chip and scaling: `real`, `generated`, `difference`."""
    gains: pd.DataFrame
    """A row for every workload and generation: gains real, generated, and from the known chips alone."""
    files: pd.DataFrame
    """A row for every file of measurements and device: errors with real and with generated chips."""
    measured: pd.DataFrame
    """A row for every pair of files with rows alike: the gain that was measured, and those predicted."""


def question_of(composer: Composer, overrides: Sequence[str]) -> tuple[Asked, dict[str, str]]:
    """Read what is asked, and what chips are called in files of measurements; raises InputError."""
    question = options.read(composer, overrides)
    if question.output is not None:
        folder_at(question.output)
    if question.measurements is not None:
        files_in(question.measurements)
    return question, table(composer.compose(overrides).leaves, "backtest.devices")


def tried(
    composer: Composer,
    question: Asked,
    devices: dict[str, str],
    advance: Callable[[str], None] = lambda what: None,
) -> Backtest:
    """Try the generator as asked; raises InputError. advance: told what is done."""
    chips = beside(composer, question)
    advance("chips")
    gained = gains(composer, question)
    advance("gains")
    gained.attrs["known"] = list(question.known)
    files = [] if question.measurements is None else list(held(question, devices, advance))
    return Backtest(chips, gained, errors_of(files), measured_gains(files, list(question.chips)))


def check(output: str) -> None:
    """Refuse an output where anything but an earlier back-test lies; raises InputError."""
    for name, kind in _KINDS.items():
        check_table(_beside(output, name), kind)


def write(output: str, found: Backtest, question: Asked) -> list[str]:
    """Write the tables of a back-test; returns where they lie. Raises InputError."""
    every = {"": found.chips, GAINS: pd.concat([found.gains, found.measured]), FILES: found.files}
    asked_json = json.dumps(question._replace(output=None)._asdict())
    about = {
        **origin(hashlib.sha256(asked_json.encode()).hexdigest(), question.overrides),
        "fastflow.asked": asked_json,
    }
    return [
        write_table(_beside(output, name), _stored(frame, about))
        for name, frame in every.items()
        if len(frame)
    ]


def read(dataset: Dataset) -> tuple[Dataset, Backtest, Asked]:
    """Return the dataset of the chips, the back-test, and what it was asked; raises InputError.

    dataset: any of its tables. Errors on files that a run of another question has left are not its own.
    """
    kind = kind_of_table(dataset.schema)
    suffix = next(name for name, one in _KINDS.items() if one == kind)
    output = dataset.folder.shown.rstrip("/").removesuffix(suffix)
    whole = find(output)
    frames = {}
    for name in _KINDS:
        try:
            beside = find(output + name)
        except InputError:
            if name != FILES:
                raise
            continue
        if beside.about("fingerprint") == dataset.about("fingerprint"):
            frames[name] = beside.read(beside.schema.names)
        elif name != FILES:
            raise InputError("dataset", output + name, f"of the same back-test as {dataset.folder.shown}")
    with dataset.whole("the metadata of its part"):
        said = dataset.mapping("asked")
        lists = {name: tuple(value) for name, value in said.items() if isinstance(value, list)}
        question = Asked(**{**said, **lists})
    gains = frames[GAINS]
    was_measured = gains.get("measured_gain", pd.Series(index=gains.index)).notna()
    files = frames.get(FILES, pd.DataFrame())
    return whole, Backtest(frames[""], gains[~was_measured], files, gains[was_measured]), question


def _beside(output: str, name: str) -> str:
    return output.rstrip("/") + name


def _stored(frame: pd.DataFrame, about: dict[str, str]) -> pa.Table:
    """Return a frame as it is stored: with the type, unit and meaning of every column."""
    fields = []
    for name in frame:
        column = find_result(str(name))
        assert column is not None, name
        fields.append(field_of(column.name, column.kind))
    return pa.Table.from_pandas(frame, pa.schema(fields, metadata=about), preserve_index=False)
