"""Completion at a prompt, by argcomplete: commands, groups, choices, keys, datasets."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import argcomplete
from argcomplete.shell_integration import shellcode

from fastflow.cli.library import PLURALS
from fastflow.config import catalog
from fastflow.config.messages import COMMAND_LINE, one_of
from fastflow.core.errors import InputError

SHELLS = ("bash", "zsh", "fish")
_ABOUT = """\
usage: fastflow completion bash|zsh|fish

Print a script that completes fastflow's commands, groups, choices and keys at the prompt.

  eval "$(fastflow completion bash)"          in ~/.bashrc
  eval "$(fastflow completion zsh)"           in ~/.zshrc
  fastflow completion fish | source           in ~/.config/fish/config.fish"""
_SWITCHES = ("--help", "--version", "--multirun", "--config-dir", "--cfg", "--info", "--resolve", "--package")
"""The switches of Hydra that a user of fastflow needs."""


def print_script(arguments: Sequence[str]) -> None:
    """Print the completion script of a shell, or a help; raises InputError."""
    if list(arguments) in (["--help"], ["-h"]):
        print(_ABOUT)
        return
    if len(arguments) != 1 or arguments[0] not in SHELLS:
        raise InputError("completion", " ".join(arguments) or "null", one_of(SHELLS), COMMAND_LINE)
    print(shellcode(["fastflow"], shell=arguments[0]))


def overrides(prefix: str, parsed_args: Namespace, **_: Any) -> Iterable[str]:
    """Return how an override that begins with a prefix may go on."""
    return catalog.continuations(prefix, [text for text in parsed_args.overrides or [] if "=" in text])


def complete(commands: Mapping[str, str]) -> None:
    """Complete a line for a shell, and exit; commands: their names and descriptions."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    subparsers = parser.add_subparsers()
    for name, about in commands.items():
        command = subparsers.add_parser(name, help=about, add_help=False)
        if name == "list":
            command.add_argument("group", choices=[*catalog.groups(), *PLURALS])
        elif name == "completion":
            command.add_argument("shell", choices=SHELLS)
        elif name == "report":
            command.add_argument("datasets", nargs="*")
        else:
            for switch in _SWITCHES:
                command.add_argument(switch, action="store_true")
            command.add_argument("-m", action="store_true", dest="multirun")
            command.add_argument("overrides", nargs="*").completer = overrides  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)
