"""A server fitted to runs of benchmarks, and written into a server's file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fastflow.analysis.calibration.output_file import check_output, default_output, output_file
from fastflow.analysis.calibration.servers.fitted_server import (
    FittedServer,
    calibrated_server_text,
    fit_server,
)
from fastflow.analysis.calibration.servers.task import SERVER, planned_server
from fastflow.config.composer import Composer
from fastflow.config.messages import pluralize
from fastflow.core.errors import InputError
from fastflow.engine.grid.run import naming_errors
from fastflow.engine.run.progress import SILENT, Listener


class CalibratedServer(NamedTuple):
    """A fitted server, and its file."""

    fitted: FittedServer
    text: str
    path: str | None
    """Where it was written; None: nowhere."""


def calibrate_server(
    composer: Composer,
    overrides: Sequence[str],
    output: str | None,
    writes: bool,
    listener: Listener = SILENT,
) -> CalibratedServer:
    """Read the runs, fit the server, and write its file; raises InputError.

    output: the file, None for that of the override `output`; writes: whether a file is written where neither
    names one. listener: gets every replay of all loads; their number is not known before.
    """
    with planned_server(composer, overrides) as task:
        where = output
        if where is None and task.run.first.leaves.get("output") is not None:
            where = task.run.output
        if where is None and writes:
            where = default_output(task.server)
        if where is not None:
            check_output(composer, task.run, where, SERVER)
        with output_file(where) as write:
            with naming_errors(composer, task.run):
                figures, runs = (
                    pluralize(len(names), noun)
                    for names, noun in ((task.names, "figure"), (task.loads, "run"))
                )
                listener.start(f"fitting {figures} of server {task.server} to {runs}", 0, "replays")
                fitted = fit_server(task, listener.advance)
            text = calibrated_server_text(fitted)
            if not fitted.written:
                names = ", ".join(task.names)
                runs = ", ".join(load.run.name for load in task.loads)
                raise InputError("requests", runs, f"runs that determine one of {names}")
            write(text)
    return CalibratedServer(fitted, text, where)
