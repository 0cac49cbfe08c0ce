"""`python -m fastflow.report`: tables and figures from datasets."""

from __future__ import annotations

import sys

from fastflow.cli.command import Command

COMMAND = Command(
    name="report",
    about="tables and figures of a dataset",
    line="cli/report_arguments.py",
    run="cli/run/report.py",
    computes="engine/dataset/",
    table="reporting/terminal/overview.py",
    chart="reporting/charts/overview.py",
    page="reporting/html/",
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
