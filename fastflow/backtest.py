"""`python -m fastflow.backtest`: try the generator on chips that exist."""

from __future__ import annotations

import sys

from fastflow.cli.callable import make_callable

make_callable(__name__, "fastflow.notebook.calls.backtest")


def main() -> int:
    """Run the command line; returns the exit code: 0, or 2 after a user's mistake."""
    from fastflow.cli.application import run_application

    return run_application("backtest")


if __name__ == "__main__":
    sys.exit(main())
