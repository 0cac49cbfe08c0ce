"""`python -m fastflow.backtest`: try the generator on chips that exist."""

from __future__ import annotations

import sys

from fastflow.cli.command import Command

COMMAND = Command(
    name="backtest",
    about="make chips that exist from their budgets alone",
    config="backtest",
    run="cli/run/backtest.py",
    computes="analysis/backtest/",
    columns="schema/backtest.py",
    table="reporting/terminal/backtest.py",
    chart="reporting/charts/backtest.py",
    page="reporting/html/kinds/backtest.py",
    grid_refusal="a back-test takes one configuration, without -m or a study",
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
