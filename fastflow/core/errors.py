"""Errors of a user's input: a line with the key, the value, the allowed values, and the file or command."""

from __future__ import annotations

from collections.abc import Iterable


class InputError(ValueError):
    """A value that the user gave is not allowed.

    `str()` returns the line that a command prints before it exits with code 2. `key`, `value`, `allowed` and
    `origin` are its parts. `conflicts` are the other inputs that the value does not suit: each a key and its
    value as `allowed` writes it, in the order of `allowed`.

    >>> fastflow.evaluate(tech="n8")
    Traceback (most recent call last):
    fastflow.core.errors.InputError: tech=n8 (from the overrides) is invalid: expected one of n1, ...
    """

    wrong_degree: bool = False
    """Whether a degree of the strategy does not suit a size of the model."""

    def __init__(
        self,
        key: str,
        value: object,
        allowed: str,
        origin: str = "",
        conflicts: Iterable[tuple[str, object]] = (),
    ) -> None:
        """Take the parts: `allowed` in words, origin: the file or command line of the value."""
        self.key, self.value, self.allowed, self.origin = key, value, allowed, origin
        self.conflicts = tuple((other, str(its_value)) for other, its_value in conflicts)
        # all arguments, so that the error can be pickled
        super().__init__(key, value, allowed, origin, self.conflicts)

    def replaced(self, *, allowed: str | None = None, origin: str | None = None) -> InputError:
        """Return the error with another text of what is allowed, or another origin."""
        return InputError(
            self.key,
            self.value,
            self.allowed if allowed is None else allowed,
            self.origin if origin is None else origin,
            self.conflicts,
        )

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]

    def __str__(self) -> str:
        """Return the message."""
        where = f" (from {self.origin})" if self.origin else ""
        return " ".join(f"{self.key}={self.value}{where} is invalid: expected {self.allowed}".split())


class CompositionError(InputError):
    """The requested configuration does not compose; the message says why."""

    def __init__(self, message: str, wrong_degree: bool = False) -> None:
        """Take the message, and whether it is about a degree of the strategy."""
        self.key, self.value, self.allowed, self.origin = "", "", message, ""
        self.conflicts, self.wrong_degree = (), wrong_degree
        ValueError.__init__(self, message, wrong_degree)

    def __str__(self) -> str:
        """Return the message."""
        return " ".join(self.allowed.split())
