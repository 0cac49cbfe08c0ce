"""`python -m fastflow.calibrate`: fit the physical scalars of a chip to a CSV file of measurements."""

from __future__ import annotations

import sys

from fastflow.cli.callable import make_callable

make_callable(__name__, "fastflow.notebook.calls.calibrate")


def main() -> int:
    """Run the command line; returns the exit code: 0, or 2 after a user's mistake."""
    from fastflow.cli.application import run_application
    from fastflow.measured.calibration_task import as_lists

    sys.argv[1:] = as_lists(sys.argv[1:])
    return run_application("calibrate")


if __name__ == "__main__":
    sys.exit(main())
