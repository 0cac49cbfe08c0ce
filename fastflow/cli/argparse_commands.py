"""Commands that Hydra does not run: their parser and their exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from fastflow.core.errors import CompositionError, InputError


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Raise the message as an error."""
        raise CompositionError(f"{message}; see {self.prog} --help")


def exit_code(run: Callable[[], int]) -> int:
    """Run a command; returns its exit code, or 2 after a mistake, which is printed."""
    try:
        code = run()
        sys.stdout.flush()
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        return reader_gone()
    return code


def reader_gone() -> int:
    """Return the exit code after the reader of the output, such as `head`, has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python prints an error at exit
    return 1
