"""`python -m fastflow.sweep`: predict one point, or a grid of points (`-m`)."""

from __future__ import annotations

import sys

from fastflow.cli.command import Command

COMMAND = Command(
    name="sweep",
    about="predict one point, or a grid of points (-m)",
    config="config",
    run="cli/run/sweep.py",
    computes="engine/run/",
    columns="schema/results.py",
    table="reporting/terminal/grid.py",
    chart="reporting/charts/overview.py",
    page="reporting/html/kinds/grid.py",
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
