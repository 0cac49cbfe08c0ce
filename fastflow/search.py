"""`python -m fastflow.search`: search for the best design of a point, or of each point of a grid (`-m`)."""

from __future__ import annotations

import sys

from fastflow.cli.callable import make_callable

make_callable(__name__, "fastflow.notebook.calls.search")


def main() -> int:
    """Run the command line; returns the exit code: 0, or 2 after a user's mistake."""
    from fastflow.cli.application import run_application

    return run_application("search")


if __name__ == "__main__":
    sys.exit(main())
