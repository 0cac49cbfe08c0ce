"""`fastflow`, or `python -m fastflow`: all commands under one name."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from functools import partial

from fastflow.cli.argparse_commands import exit_code
from fastflow.cli.commands import COMMANDS
from fastflow.core.errors import CompositionError, InputError

_OTHER_COMMANDS = {
    "list": "the groups of the library, or the choices of one",
    "show": "the figures of a choice, each with its source",
    "completion": "a script that completes this command in bash, zsh or fish",
}
"""Commands without a module for `python -m`."""
_ABOUT = """\
Predict how long training takes, or how fast servers answer, on hardware that may not exist yet.

  fastflow COMMAND [-m] [group=choice ...] [key=value ...]

Commands
{commands}

Examples
  fastflow sweep tech=n7 mem=hbm3 parallel.strategy=auto
  fastflow sweep -m tech=n12,n7,n3 mem=hbm2,hbm3
  fastflow list chips
  fastflow show chip=h100_sxm
  eval "$(fastflow completion bash)"       Tab completes groups, choices and keys

fastflow COMMAND --help explains a command; fastflow --version says which fastflow this is.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that a command line names; returns the exit code: 0, or 2 after a user's mistake."""
    if "_ARGCOMPLETE" in os.environ:
        from fastflow.cli.completion import complete

        complete(_about_commands())
    words = list(sys.argv[1:] if arguments is None else arguments)
    return exit_code(partial(_run, words))


def _run(words: list[str]) -> int:
    """Run a command; raises InputError."""
    name, rest = words[0] if words else "--help", words[1:]
    if name in ("--help", "-h", "help"):
        print(_help(), end="")
    elif name == "--version":
        from fastflow.core.version import version

        print(f"fastflow {version()}")
    elif name in _OTHER_COMMANDS:
        _run_other_command(name, rest)
    elif name in COMMANDS:
        atexit.register(gc.freeze)  # Python would go through all that is left for what could be freed: 0.2 s
        sys.argv = [f"fastflow {name}", *rest]
        return COMMANDS[name].main()
    else:
        raise _mistake(words)
    return 0


def _about_commands() -> dict[str, str]:
    """Return the name and the line of every command; of a package that cannot be imported, why."""
    about = {}
    for name in COMMANDS:
        try:
            about[name] = COMMANDS[name].about
        except InputError as error:
            about[name] = str(error)
    return about | _OTHER_COMMANDS


def _help() -> str:
    commands = _about_commands()
    width = max(map(len, commands))
    lines = [f"  {name:{width}}  {what}" for name, what in commands.items()]
    return _ABOUT.format(commands="\n".join(lines))


def _run_other_command(name: str, rest: list[str]) -> None:
    """Run a command that only `fastflow` has; raises InputError."""
    if name == "completion":
        from fastflow.cli.completion import print_script

        print_script(rest)
        return
    from fastflow.cli.library import list_library, show_choice

    (list_library if name == "list" else show_choice)(rest)


def _mistake(words: list[str]) -> InputError:
    """Return what to say where no command is named."""
    name, named = words[0], [text for text in words if text in COMMANDS]
    if named and name.startswith("-"):
        first = [text for text in words if text != named[0]]
        return CompositionError(f"{name}: comes after the command: fastflow {' '.join([named[0], *first])}")
    if "=" in name or name.startswith("-"):
        return CompositionError(f"{name}: a command comes first: fastflow sweep {' '.join(words)}")
    from fastflow.config.messages import COMMAND_LINE, one_of, suggestion

    every = [*COMMANDS, *_OTHER_COMMANDS]
    return InputError("command", name, one_of(every) + suggestion(name, every), COMMAND_LINE)


if __name__ == "__main__":
    sys.exit(main())
