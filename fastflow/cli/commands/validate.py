"""`python -m fastflow.validate`: compare predictions with a CSV file of measurements."""

from __future__ import annotations

import sys

from fastflow.cli.command import Command

COMMAND = Command(
    name="validate",
    about="compare predictions with a file of measurements",
    config="validate",
    run="cli/run/validate.py",
    computes="analysis/validation/",
    columns="schema/results.py",
    table="reporting/terminal/validation.py",
    chart="reporting/charts/validation.py",
    page="reporting/html/kinds/validation.py",
    reads_rows=True,
    grid_refusal="a validation takes one configuration, without -m",
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
