"""`python -m fastflow.validate`: compare predictions with a CSV file of measurements."""

from __future__ import annotations

import sys

from fastflow.cli.callable import make_callable

make_callable(__name__, "fastflow.notebook.calls.validate")


def main() -> int:
    """Run the command line; returns the exit code: 0, or 2 after a user's mistake."""
    from fastflow.cli.application import run_application

    return run_application("validate")


if __name__ == "__main__":
    sys.exit(main())
