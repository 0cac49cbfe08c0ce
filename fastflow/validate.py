"""`python -m fastflow.validate`: hold predictions against a CSV file of measurements."""

from __future__ import annotations

import sys

from fastflow.engine.callable import make_callable

make_callable(__name__, "fastflow.engine.measured.validated.validate")


def main() -> int:
    """Run the command line; returns the exit code: 0, or 2 after a user's mistake."""
    from fastflow.engine.command import run_application

    return run_application("validate")


if __name__ == "__main__":
    sys.exit(main())
