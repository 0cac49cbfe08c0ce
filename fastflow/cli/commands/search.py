"""`python -m fastflow.search`: search for the best design of a point, or of each point of a grid (`-m`)."""

from __future__ import annotations

import sys

from fastflow.cli.command import Command

COMMAND = Command(
    name="search",
    about="find the best chip, strategy or server",
    config="search",
    run="cli/run/search.py",
    computes="analysis/search/",
    columns="schema/results.py",
    table="reporting/terminal/search.py",
    chart="reporting/charts/search.py",
    page="reporting/html/kinds/search.py",
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
