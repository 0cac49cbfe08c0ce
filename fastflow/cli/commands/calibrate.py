"""`python -m fastflow.calibrate`: fit a chip to measurements, or a server to benchmarks."""

from __future__ import annotations

import sys

from fastflow.cli.command import Command

COMMAND = Command(
    name="calibrate",
    about="fit a chip to a file of measurements, or a server to a benchmark",
    config="calibrate",
    run="cli/run/calibrate.py",
    computes="analysis/calibration/",
    table="reporting/terminal/calibration.py",
    chart="reporting/charts/calibration.py",
    reads_rows=True,
    lists=("measurements", "requests", "fit"),
    grid_refusal="a calibration takes one configuration, without -m",
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
