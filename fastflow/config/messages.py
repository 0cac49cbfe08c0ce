"""Messages: keys of overrides, lists of choices, similar names, paths as users write them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from fastflow.core.errors import InputError

_NUMBER, _SEPARATOR = re.compile(r"\d+"), re.compile(r"[-. ]")
COMMAND_LINE = "the command line"
PROGRAM = "the overrides"
"""Origins of overrides: a user, and a program."""


def pluralize(count: int, noun: str) -> str:
    """Write a count with its noun: "1 point", "2,000 points"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def written(value: object) -> str:
    """Write a value as a configuration does."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def key_of(override: str) -> str:
    """Return the key, or the group, that an override sets, adds or removes."""
    return override.lstrip("+~").partition("=")[0]


def sets(overrides: Iterable[str], key: str) -> bool:
    """Say whether any override sets or adds a key, or a group."""
    return any(text.lstrip("+").partition("=")[0] == key for text in overrides)


def one_of(names: Iterable[str]) -> str:
    """Write a list of choices for a message."""
    return "one of " + ", ".join(names)


def _same_numbers(name: str, other: str) -> bool:
    """Say whether another name has the same numbers, or has the name as a prefix."""
    is_prefix = _plain(other).startswith(f"{_plain(name)}_")
    return is_prefix or _NUMBER.findall(name) == _NUMBER.findall(other)


def _plain(name: str) -> str:
    return _SEPARATOR.sub("_", name.lower())


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" where a known name is close to a name, else nothing.

    Dotted keys of the same section are compared by their last name, others as a whole. Names with
    different numbers do not match: mxfp4 is no suggestion for mxfp8.
    """
    names = [key for key in known if key != name and _same_numbers(name, key)]
    same = [key for key in names if _plain(key) == _plain(name)]
    if same:
        return f"; did you mean {same[0]}?"
    section, _, last = name.rpartition(".")
    siblings = {key.rpartition(".")[2]: key for key in names if key.rpartition(".")[0] == section}
    close_siblings = difflib.get_close_matches(last, siblings, n=1, cutoff=0.6)
    match = (
        [siblings[close_siblings[0]]]
        if close_siblings
        else difflib.get_close_matches(name, names, n=1, cutoff=0.8)
    )
    return f"; did you mean {match[0]}?" if match else ""


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def path_of(path: Path) -> str:
    """Write a path relative to the working folder if it is inside."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def unwritable(folder: str, error: OSError) -> InputError:
    """Return the error for an unwritable output folder."""
    reason = error.strerror or error
    return InputError("output", folder, f"a folder that can be written to ({reason})")
