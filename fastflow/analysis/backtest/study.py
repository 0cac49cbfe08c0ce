"""`fastflow.backtest`: the generator compared with real chips, for Python and the command."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from fastflow.analysis.backtest.generated_chips import compare_chips
from fastflow.analysis.backtest.generation_speedups import generation_gains
from fastflow.analysis.backtest.measured_kernels import errors_of, files_in, measured_gains, predict_kernels
from fastflow.analysis.backtest.options import BacktestOptions, read_section
from fastflow.analysis.measurements.aliases import alias_table
from fastflow.config.composer import Composer
from fastflow.core.errors import InputError
from fastflow.engine.dataset import kinds
from fastflow.engine.dataset.folder import FILES, GAINS, folder_at
from fastflow.engine.dataset.reader import Dataset, find
from fastflow.engine.dataset.schema import origin, result_field
from fastflow.engine.dataset.store import check_table, write_table

_KINDS = {"": kinds.BACKTEST, GAINS: kinds.GAINS, FILES: kinds.FILES}
CONFIG = "backtest"


class Backtest(NamedTuple):
    """Results of a back-test."""

    chips: pd.DataFrame
    """A row for every quantity of every chip and scaling: `real`, `generated`, `difference`."""
    gains: pd.DataFrame
    """A row for every workload and generation: gains real, generated, and from the known chips alone."""
    files: pd.DataFrame
    """A row for every file of measurements and device: errors with real and with generated chips."""
    measured: pd.DataFrame
    """A row for every pair of files with shared rows: the measured gain, and the predicted gains."""


def read_options(composer: Composer, overrides: Sequence[str]) -> tuple[BacktestOptions, dict[str, str]]:
    """Read the options, and the names of chips in files of measurements; raises InputError."""
    options = read_section(composer, overrides)
    if options.output is not None:
        folder_at(options.output)
    if options.measurements is not None:
        files_in(options.measurements)
    return options, alias_table(composer.compose(overrides).leaves, "backtest.devices")


def run_backtest(
    composer: Composer,
    options: BacktestOptions,
    devices: dict[str, str],
    advance: Callable[[str], None] = lambda step: None,
) -> Backtest:
    """Run a back-test; raises InputError. advance: called with the name of each finished step."""
    chips = compare_chips(composer, options)
    advance("chips")
    gain_frame = generation_gains(composer, options)
    advance("gains")
    gain_frame.attrs["known"] = list(options.known)
    files = [] if options.measurements is None else list(predict_kernels(options, devices, advance))
    return Backtest(chips, gain_frame, errors_of(files), measured_gains(files, list(options.chips)))


def check(output: str) -> None:
    """Refuse an output that holds anything but an earlier back-test; raises InputError."""
    for name, kind in _KINDS.items():
        check_table(_folder_of(output, name), kind)


def write(output: str, backtest: Backtest, options: BacktestOptions) -> list[str]:
    """Write the tables of a back-test; returns their folders. Raises InputError."""
    frames = {
        "": backtest.chips,
        GAINS: pd.concat([backtest.gains, backtest.measured]),
        FILES: backtest.files,
    }
    options_json = json.dumps(options._replace(output=None)._asdict())
    metadata = {
        **origin(kinds.BACKTEST, hashlib.sha256(options_json.encode()).hexdigest(), options.overrides),
        "fastflow.asked": options_json,
    }
    return [
        write_table(_folder_of(output, name), _arrow_table(frame, metadata | {kinds.KEY: _KINDS[name]}))
        for name, frame in frames.items()
        if len(frame)
    ]


def read(dataset: Dataset) -> tuple[Dataset, Backtest, BacktestOptions]:
    """Return the dataset of the chips, the back-test, and its options; raises InputError.

    dataset: any of its tables. Errors on files of an earlier run with other options are left out.
    """
    suffix = next(name for name, known in _KINDS.items() if known == dataset.kind)
    output = dataset.folder.shown.rstrip("/").removesuffix(suffix)
    chips_dataset = find(output)
    frames = {}
    for name in _KINDS:
        try:
            sibling = find(output + name)
        except InputError:
            if name != FILES:
                raise
            continue
        if sibling.about("fingerprint") == dataset.about("fingerprint"):
            frames[name] = sibling.read(sibling.schema.names)
        elif name != FILES:
            raise InputError("dataset", output + name, f"of the same back-test as {dataset.folder.shown}")
    with dataset.whole("the metadata of its part"):
        fields = dataset.mapping("asked")
        tuples = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        options = BacktestOptions(**{**fields, **tuples})
    gain_frame = frames[GAINS]
    is_measured = gain_frame.get("measured_gain", pd.Series(index=gain_frame.index)).notna()
    files = frames.get(FILES, pd.DataFrame())
    backtest = Backtest(frames[""], gain_frame[~is_measured], files, gain_frame[is_measured])
    return chips_dataset, backtest, options


def _folder_of(output: str, suffix: str) -> str:
    return output.rstrip("/") + suffix


def _arrow_table(frame: pd.DataFrame, metadata: dict[str, str]) -> pa.Table:
    """Return a frame as an Arrow table, with the type, unit and meaning of every column."""
    fields = [result_field(str(name)) for name in frame]
    return pa.Table.from_pandas(frame, pa.schema(fields, metadata=metadata), preserve_index=False)
