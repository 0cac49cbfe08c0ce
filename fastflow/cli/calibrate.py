"""`python -m fastflow.calibrate`: what is found is printed, and the chip file written."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from fastflow.configuration.composer import Composer
from fastflow.configuration.wording import counted
from fastflow.errors import CompositionError
from fastflow.measured.calibrate import (
    check_chip_file,
    default_output,
    error_frame,
    fit_and_write,
    prepare_calibration,
    scalar_frame,
)
from fastflow.measured.validate import said


def run_calibration(composer: Composer, overrides: Sequence[str], spans: Mapping[str, Any] | None) -> None:
    """Calibrate on the command line: what is found is printed, and the chip file written."""
    from fastflow.show import calibration

    if spans is not None:
        raise CompositionError("a chip is calibrated in one configuration, without -m")
    asked, where = prepare_calibration(composer, overrides, None)
    if where is None:
        where = default_output(asked.chip)
        check_chip_file(composer, asked.planned[0], where)
    count = counted(len(asked.names), "scalar")
    print(
        f"fitting {count} of {asked.chip} to {counted(asked.fitted.size, 'row')}", file=sys.stderr, flush=True
    )
    answer, _ = fit_and_write(composer, asked, where)
    lines = list(dict.fromkeys(line for one in asked.planned for line in said(one.measurements)))
    calibration.show(asked, lines, scalar_frame(answer), error_frame(answer))
    print(f"Chip: {where}")
    sys.stdout.flush()
