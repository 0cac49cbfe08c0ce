"""Commands that tests run in this process with arguments of their own."""

from fastflow.cli import report_arguments
from fastflow.cli.commands import COMMANDS


def report(arguments):
    """Run `python -m fastflow.report`; returns its exit code."""
    return report_arguments.main(COMMANDS["report"], arguments)
