"""`python -m fastflow.calibrate`: prints the fit and writes the chip file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fastflow.configuration.composer import Composer
from fastflow.configuration.wording import counted
from fastflow.errors import CompositionError
from fastflow.measured.calibration import fit_and_write
from fastflow.measured.calibration_task import plan_calibration
from fastflow.measured.chip_output import check_chip_output, default_output


def run_calibration(composer: Composer, overrides: Sequence[str], spans: Mapping[str, Any] | None) -> None:
    """Calibrate on the command line: what is found is printed, and the chip file written."""
    from fastflow.show import calibration

    if spans is not None:
        raise CompositionError("a calibration takes one configuration, without -m")
    task, where = plan_calibration(composer, overrides, None)
    if where is None:
        where = default_output(task.chip)
        check_chip_output(composer, task.planned[0].run, where)
    scalars, rows = counted(len(task.names), "scalar"), counted(task.fitted.size, "row")
    print(f"fitting {scalars} of {task.chip} to {rows}", file=sys.stderr, flush=True)
    fitted, _ = fit_and_write(composer, task, where)
    calibration.show(fitted)
    print(f"Chip: {where}")
    sys.stdout.flush()
