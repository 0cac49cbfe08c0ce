"""`python -m fastflow.fits`: say on how few devices a model trains or serves, and what makes it fit fewer."""

from __future__ import annotations

import sys

from fastflow.cli.command import Command

COMMAND = Command(
    name="fits",
    about="say on how few devices a model fits, and what saves memory",
    config="fits",
    run="cli/run/fits.py",
    computes="analysis/fits/",
    table="reporting/terminal/fits.py",
    grid_refusal="fits is of one point, without -m",
)
main = COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
