"""`python -m fastflow.calibrate`: prints the fit of a chip or a server, and writes its file."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastflow.analysis.calibration.output_file import check_output, default_output
from fastflow.analysis.calibration.servers.task import is_of_server
from fastflow.analysis.calibration.study import fit_and_write
from fastflow.analysis.calibration.task import CalibrationTask, plan_calibration
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules


def run(composer: Composer, overrides: Sequence[str], sweeper: Mapping[str, Any] | None, folder: str) -> None:
    """Calibrate what Hydra composed, into a file rather than the folder; raises InputError."""
    if is_of_server(composer, overrides):
        show_server(composer, overrides)
    else:
        calibrate_chip(composer, *plan_calibration(composer, overrides, None))


def plan(composer: Composer, arguments: Namespace) -> Callable[[], None] | None:
    """Plan a command line; returns what runs it, or None. Raises InputError."""
    if is_of_server(composer, arguments.overrides):
        return partial(show_server, composer, arguments.overrides)
    return partial(calibrate_chip, composer, *plan_calibration(composer, arguments.overrides, None))


def calibrate_chip(composer: Composer, task: CalibrationTask, output: str | None) -> None:
    """Calibrate as planned: print the fit, and write the chip file; raises InputError."""
    from fastflow.reporting.terminal import calibration
    from fastflow.reporting.terminal.progress import Progress

    if output is None:
        output = default_output(task.chip)
        check_output(composer, task.planned[0].run, output, "chip")
    with Progress() as progress:
        fitted, _ = fit_and_write(composer, task, output, progress)
    calibration.show(fitted)
    print(f"Chip: {output}")
    sys.stdout.flush()


def show_server(composer: Composer, overrides: Sequence[str]) -> None:
    """Calibrate a server: print the fit, and write the server's file; raises InputError."""
    from fastflow.analysis.calibration.servers.study import calibrate_server
    from fastflow.reporting.terminal import server_calibration
    from fastflow.reporting.terminal.progress import Progress

    with hydra_rules(), Progress() as progress:
        result = calibrate_server(composer, overrides, None, True, progress)
    server_calibration.show(result.fitted)
    print(f"Server: {result.path}")
    sys.stdout.flush()
