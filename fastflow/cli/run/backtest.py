"""`python -m fastflow.backtest`: tests the generator on chips that exist; prints, stores and draws it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastflow.analysis.backtest.measured_kernels import files_in
from fastflow.analysis.backtest.study import check, read_options, run_backtest, write
from fastflow.config.composer import Composer
from fastflow.engine.dataset.folder import url_or_folder


def run(composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, folder: str) -> None:
    """Try what Hydra composed; raises InputError."""
    from fastflow.cli.run.report import print_backtest, save_figure
    from fastflow.reporting.terminal.progress import Progress

    question, devices = read_options(composer, overrides)
    output = url_or_folder(question.output, folder)
    check(output)
    files = [] if question.measurements is None else files_in(question.measurements)
    with Progress(f"{len(question.chips)} chips", 2 + len(files), "tables") as progress:
        progress.begin(0)
        backtest = run_backtest(composer, question, devices, lambda step: progress.advance(1))
    print_backtest(
        backtest,
        question,
        lambda: write(output, backtest, question),
        partial(save_figure, output, "backtest"),
    )
    sys.stdout.flush()


def plan(composer: Composer, arguments: Namespace) -> Callable[[], None] | None:
    """Leave every command line to Hydra."""
    return None
