"""Errors of a user's input: a line with the key, the value, the allowed values, and the file or command."""

from __future__ import annotations


class InputError(ValueError):
    """A value that the user gave is not allowed.

    `str()` returns the line that a command prints before it exits with code 2. `key`, `value`, `allowed` and
    `origin` are its parts.

    >>> fastflow.evaluate(tech="n8")
    Traceback (most recent call last):
    fastflow.core.errors.InputError: tech=n8 (from the overrides) is invalid: expected one of n1, ...
    """

    def __init__(self, key: str, value: object, allowed: str, origin: str = "") -> None:
        """Take key and value, the allowed values in words, and the file or command line of the value."""
        self.key, self.value, self.allowed, self.origin = key, value, allowed, origin
        super().__init__(key, value, allowed, origin)  # all arguments, so that the error can be pickled

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]

    def __str__(self) -> str:
        """Return the message."""
        where = f" (from {self.origin})" if self.origin else ""
        return " ".join(f"{self.key}={self.value}{where} is invalid: expected {self.allowed}".split())


class CompositionError(InputError):
    """The requested configuration does not compose; the message says why."""

    def __init__(self, message: str) -> None:
        """Take the message."""
        self.key, self.value, self.allowed, self.origin = "", "", message, ""
        ValueError.__init__(self, message)

    def __str__(self) -> str:
        """Return the message."""
        return " ".join(self.allowed.split())
