"""`python -m fastflow.sensitivity`: say which parameters a result hangs on."""

from __future__ import annotations

import sys

from fastflow.cli.command import Command

COMMAND = Command(
    name="sensitivity",
    about="say which parameters a result hangs on",
    config="sensitivity",
    run="cli/run/sensitivity.py",
    computes="analysis/sensitivity/",
    columns="schema/sensitivity.py",
    table="reporting/terminal/sensitivity.py",
    chart="reporting/charts/sensitivity.py",
    page="reporting/html/kinds/sensitivity.py",
    grid_refusal="a sensitivity is of one point, without -m",
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
