"""`python -m fastflow.requests`: generate a trace of requests."""

from __future__ import annotations

import sys

from fastflow.cli.command import Command

COMMAND = Command(
    name="requests",
    about="generate a trace of requests: arrivals, lengths, sessions",
    line="cli/request_arguments.py",
    run="cli/run/requests.py",
    computes="physics/workload/",
    table="reporting/terminal/requests.py",
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
