"""`python -m fastflow.calibrate`: fit the physical scalars of a chip to a CSV file of measurements."""

from __future__ import annotations

import sys

from fastflow.cli.command import Command

COMMAND = Command(
    name="calibrate",
    about="fit a chip to a file of measurements",
    config="calibrate",
    run="cli/run/calibrate.py",
    computes="analysis/calibration/",
    table="reporting/terminal/calibration.py",
    chart="reporting/charts/calibration.py",
    reads_rows=True,
    lists=("measurements", "fit"),
    grid_refusal="a calibration takes one configuration, without -m",
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
