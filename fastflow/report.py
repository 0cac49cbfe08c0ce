"""`python -m fastflow.report`: tables and figures from datasets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from fastflow.charts import FORMATS
from fastflow.cli.without_hydra import Parser, exit_code
from fastflow.studies import STUDIES
from fastflow.version import version

_ABOUT = """\
Report on a dataset of fastflow.

For a study of the paper (python -m fastflow.sweep -m +sweeps=fig09), the command judges every claim of the
paper: a line with the computed values, which ends in yes or no. For any other dataset, it prints how many
points are feasible, the fastest points, and the best time and its limiter along every axis. Either way it
draws a figure beside the dataset: results/mine-fig09.svg or results/mine-report.svg for results/mine.
"""
_EXAMPLES = """\
examples:
  python -m fastflow.report results/mine
  python -m fastflow.report results/mine results/other --figures figures --format pdf
  python -m fastflow.report results/wider --study fig09       judge your own grid as a study
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m fastflow.report",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "datasets", metavar="DATASET", nargs="+", help="the folder of a dataset, or any fsspec URL"
    )
    parser.add_argument(
        "--study",
        choices=STUDIES,
        metavar="STUDY",
        default="",
        help=f"study to judge the dataset as: {', '.join(STUDIES)}; default: the one that it names",
    )
    parser.add_argument(
        "--figures", metavar="DIR", default="", help="folder of the figures; default: beside the dataset"
    )
    parser.add_argument(
        "--version", action="version", version=f"fastflow {version()}", help="which fastflow this is"
    )
    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help=f"format of the figures; default: {FORMATS[0]}"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Report on the datasets that a command line names; returns the exit code: 0, or 2 after a mistake."""
    return exit_code(partial(_run, arguments))


def _run(arguments: Sequence[str] | None) -> int:
    """Report on the datasets; returns 0. Raises InputError."""
    given = _parser().parse_args(arguments)
    from fastflow.cli.report import report

    for name in given.datasets:
        report(name, given.study, given.figures, given.format)
    return 0


if __name__ == "__main__":
    sys.exit(main())
