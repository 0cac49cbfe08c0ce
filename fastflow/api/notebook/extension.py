"""What IPython is told: how arguments of fastflow's functions go on, and how a figure is shown."""

from __future__ import annotations

import re
from io import BytesIO
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell
    from matplotlib.figure import Figure

_FUNCTIONS = (
    "backtest", "calibrate", "chances", "evaluate", "explain_layout", "rank_strategies", "search",
    "sensitivity", "sweep", "validate",
)  # fmt: skip
"""Those that take overrides."""
_OPENING = {"(": ")", "[": "]", "{": "}"}
_NAME = re.compile(r"[A-Za-z_][\w.]*$")
_KEYWORD = re.compile(r"\s*(\w+)\s*=\s*\[?[^=]*$")
_GIVEN = re.compile(r"""["']([\w.]+=[\w.]+)["']|(\w+)\s*=\s*["']([\w.]+)["']""")
_FIGURE = ("matplotlib.figure", "Figure")
_HOUSE = "fastflow"
_DPI = 80


class Place(NamedTuple):
    """Where in a call a cursor is."""

    function: str
    """The name that is called, as it is written."""
    before: str
    """What the call was given so far."""
    argument: str
    """What of its argument comes before the text, or before the cursor where that is in none."""
    text: str | None
    """The text that the cursor is in, as far as the cursor; None where it is in none."""


def place_of(code: str) -> Place | None:
    """Return in which call the end of some code is, None where it is in none."""
    opened: list[int] = []
    quote, start, i = "", 0, 0
    while i < len(code):
        here = code[i : i + 3] if code[i : i + 3] in ('"""', "'''") else code[i]
        if quote:
            i += 2 if here == "\\" else len(quote) if code.startswith(quote, i) else 1
            quote = "" if here[: len(quote)] == quote else quote
            continue
        if here[0] in "\"'":
            quote, start = here, i
        elif here in _OPENING:
            opened.append(i)
        elif here in _OPENING.values() and opened:
            opened.pop()
        elif here == "#":
            i = code.find("\n", i)
            if i < 0:
                return None
        i += len(here)
    while opened and code[opened[-1]] == "[":
        opened.pop()
    if not opened or code[opened[-1]] != "(":
        return None
    named = _NAME.search(code[: opened[-1]])
    if named is None:
        return None
    inside = code[opened[-1] + 1 :]
    end = start if quote else len(code)
    before = code[opened[-1] + 1 : end]
    argument = _last_argument(before)
    return Place(named[0], inside, argument, code[start + len(quote) :] if quote else None)


def _last_argument(before: str) -> str:
    """Return the argument that comes last in what a call was given; commas in lists and texts end none."""
    plain = re.sub(r"""(["'])(?:\\.|(?!\1).)*\1""", lambda found: "x" * len(found[0]), before)
    depth, at = 0, 0
    for i, letter in enumerate(plain):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            at = i + 1
    return before[at:]


def _is_ours(name: str, names: dict[str, Any]) -> bool:
    """Say whether a name is one of fastflow's functions that take overrides; names: of the notebook."""
    first, *rest = name.split(".")
    found = names.get(first)
    for one in rest:
        if getattr(found, "__name__", "") != _HOUSE:
            return False
        found = getattr(found, one, None)
    name = getattr(found, "__name__", "")
    # a command that was imported is a module that may be called
    named = name if isinstance(found, ModuleType) else f"{getattr(found, '__module__', '')}.{name}"
    return named.removeprefix(f"{_HOUSE}.") in _FUNCTIONS


def continuations(code: str, names: dict[str, Any]) -> tuple[str, list[str]]:
    """Return what of some code is to be replaced at its end, and by which texts; none outside of a call.

    names: of the notebook.
    """
    place = place_of(code)
    if place is None or not _is_ours(place.function, names):
        return "", []
    from fastflow.config import catalog

    given = [text or f"{key.replace('__', '.')}={value}" for text, key, value in _GIVEN.findall(place.before)]
    if place.text is None:  # the name of a keyword
        begun = place.argument.strip()
        if not re.fullmatch(r"\w*", begun):
            return "", []
        known = _names(begun.replace("__", "."), given)
        return begun, [one for key in known if (one := key.replace(".", "__")).startswith(begun)]
    keyword = _KEYWORD.fullmatch(place.argument)
    key = keyword[1].replace("__", ".") + "=" if keyword else ""
    whole = key + place.text
    begun = re.split(r"[=,]", whole)[-1]
    every = catalog.continuations(whole, given) if "=" in whole else _names(whole, given)
    found = [one for one in every if one.startswith(whole)]
    return begun, [one[len(whole) - len(begun) :] for one in found]


def _names(begun: str, given: list[str]) -> list[str]:
    """Return the groups that begin so, each with the keys of its choice, or the keys; given: overrides."""
    from fastflow.config import catalog

    groups = [one for one in catalog.continuations(begun, given) if one.startswith(begun)]
    inner = [key for one in groups if "." not in one for key in catalog.continuations(f"{one[:-1]}.", given)]
    return [*groups, *(key for key in inner if any(key.startswith(f"{one[:-1]}.") for one in groups))]


def _match(shell: InteractiveShell, context: CompletionContext) -> SimpleMatcherResult:
    """Answer IPython, which asks how a cell goes on where its cursor is."""
    from IPython.core.completer import SimpleCompletion

    lines = context.full_text.split("\n")
    code = "\n".join([*lines[: context.cursor_line], lines[context.cursor_line][: context.cursor_position]])
    begun, found = continuations(code, shell.user_ns)
    return {
        "completions": [SimpleCompletion(text, type="fastflow") for text in found],
        "matched_fragment": begun,
        "suppress": bool(found) and begun != "",
    }


def _png(figure: Figure) -> bytes:
    """Return a figure as a picture."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    return file.getvalue()


def load(shell: InteractiveShell) -> None:
    """Have a shell complete arguments and show figures; twice is as once."""
    from IPython.core.completer import context_matcher

    matchers = shell.Completer.custom_matchers
    if not any(getattr(one, "matcher_identifier", "") == _HOUSE for one in matchers):

        @context_matcher(identifier=_HOUSE)  # type: ignore[untyped-decorator]
        def match(context: CompletionContext) -> SimpleMatcherResult:
            return _match(shell, context)

        matchers.append(match)
    display = shell.display_formatter
    pictures = None if display is None else display.formatters["image/png"]
    if pictures is not None and ".".join(_FIGURE) not in pictures:  # as it is once pyplot was imported
        pictures.for_type_by_name(*_FIGURE, _png)


def unload(shell: InteractiveShell) -> None:
    """Have a shell complete no arguments of fastflow any more."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [one for one in matchers if getattr(one, "matcher_identifier", "") != _HOUSE]
