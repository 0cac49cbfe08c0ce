"""The command line of `python -m fastflow.report`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from fastflow.cli.argparse_commands import Parser, exit_code
from fastflow.cli.command import Command
from fastflow.config.list_keys import COLUMNS
from fastflow.config.messages import COMMAND_LINE
from fastflow.core.errors import InputError
from fastflow.core.version import version
from fastflow.engine.dataset.folder import is_folder
from fastflow.reporting.charts import FORMATS
from fastflow.schema.studies import STUDIES

_ABOUT = """\
Report on a dataset of fastflow.

For a study of the paper (python -m fastflow.sweep -m +sweeps=fig09), the command judges every claim of the
paper: a line with the computed values, which ends in yes or no. For any other dataset, it prints how many
points are feasible, the fastest points, and the best time and its limiter along every axis. Either way it
draws a figure beside the dataset: results/mine-fig09.svg or results/mine-report.svg for results/mine.

columns=train_s,*_usd has these columns in its tables, by name or pattern.

chart=overview, search or serving draws this chart alone, or one of an installed package, without tables.

With html=FILE.html it writes a page instead, for a browser: linked charts of all columns, fronts, the
breakdown of every point. The page is one file, which needs no network and no server.
"""
_EXAMPLES = """\
examples:
  python -m fastflow.report results/mine
  python -m fastflow.report results/mine columns=time_s,*_usd
  python -m fastflow.report results/mine html=mine.html       a page to look at, turn, filter and send on
  python -m fastflow.report results/mine results/other --figures figures --format pdf
  python -m fastflow.report results/wider --study fig09       judge your own grid as a study
"""


_KEYS = {"html": "html=FILE.html", COLUMNS: f"{COLUMNS}=NAME,...", "chart": "chart=NAME"}
"""The keys of this command, as they are written."""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m fastflow.report",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "datasets",
        metavar="DATASET",
        nargs="+",
        help="the folder of a dataset, or any fsspec URL; html=FILE.html writes a page of it into a file, "
        "columns=NAME,... chooses columns of the tables, chart=NAME draws a chart alone",
    )
    parser.add_argument(
        "--config-dir",
        metavar="DIR",
        default=None,
        help="your own library, where the dataset was made with one; html= alone needs it",
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
        "--format", choices=FORMATS, default="", help=f"format of the figures; default: {FORMATS[0]}"
    )
    return parser


def main(command: Command, arguments: Sequence[str] | None = None) -> int:
    """Report on the datasets that a command line names; returns the exit code: 0, or 2 after a mistake."""
    return exit_code(partial(_run, arguments))


def _run(arguments: Sequence[str] | None) -> int:
    """Report on the datasets; returns 0. Raises InputError."""
    options = _parser().parse_intermixed_args(arguments)
    from fastflow.cli.run.report import draw_chart, report, write_page

    datasets, keys = _split(options.datasets)
    page, columns, chart = keys.get("html"), keys.get(COLUMNS, ""), keys.get("chart")
    if chart is not None and (columns or options.study or page is not None):
        raise InputError("chart", chart, "no html=, no columns= and no --study: a chart is drawn alone")
    if page is None:
        if options.config_dir is not None:
            raise InputError("config-dir", options.config_dir, "nothing without html=FILE.html")
        kind = options.format or FORMATS[0]
        for name in datasets:
            if chart is not None:
                draw_chart(name, chart, options.figures, kind)
            else:
                report(name, options.study, options.figures, kind, columns)
        return 0
    if len(datasets) != 1:
        raise InputError("html", page, f"one dataset for a page, not {len(datasets)}")
    if columns:
        raise InputError(COLUMNS, columns, "nothing with html=: a page has all columns", COMMAND_LINE)
    if options.figures or options.format:
        raise InputError("html", page, "no --figures and no --format: the figure is in the page")
    write_page(datasets[0], page, options.study, options.config_dir)
    return 0


def _split(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the datasets, and the values of html= and columns= where they are given; raises InputError."""
    datasets: list[str] = []
    keys: dict[str, str] = {}
    for text in arguments:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier() or is_folder(text):
            datasets.append(text)
        elif key not in _KEYS:
            raise InputError(key, value, " or ".join(_KEYS.values()), COMMAND_LINE)
        elif key in keys:
            raise InputError(key, value, f"one value; {keys[key]} is given too", COMMAND_LINE)
        else:
            keys[key] = value
    return datasets, keys
