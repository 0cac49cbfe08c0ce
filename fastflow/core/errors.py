"""What a user's mistake looks like: one line with the key, the value, what is allowed, and where it stood."""

from __future__ import annotations

import re


class InputError(ValueError):
    """A value that the user gave is not allowed.

    `str()` of it is the one line that a command prints before it exits with code 2.
    """

    def __init__(self, key: str, value: object, allowed: str, origin: str = "") -> None:
        """Take what was given, what is expected in words, and the file or command line it came from."""
        self.key, self.value, self.allowed, self.origin = key, value, allowed, origin
        super().__init__(key, value, allowed, origin)  # all of them, so that it survives pickling

    @classmethod
    def read(cls, line: str) -> InputError | None:
        """Return the mistake that a line of `str()` without an origin names, None for any other text."""
        named = re.fullmatch(r"([\w.]+)=(.*?) is invalid: expected (.*)", line)
        return cls(*named.groups()) if named else None

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in the place of a traceback: the one line."""
        return [f"{type(self).__name__}: {self}"]

    def __str__(self) -> str:
        """Return the one line."""
        where = f" (from {self.origin})" if self.origin else ""
        return " ".join(f"{self.key}={self.value}{where} is invalid: expected {self.allowed}".split())


class CompositionError(InputError):
    """The configuration as asked for does not compose; the message says why."""

    def __init__(self, message: str) -> None:
        """Take what is to be said."""
        self.key, self.value, self.allowed, self.origin = "", "", message, ""
        ValueError.__init__(self, message)

    def __str__(self) -> str:
        """Return the one line."""
        return " ".join(self.allowed.split())
