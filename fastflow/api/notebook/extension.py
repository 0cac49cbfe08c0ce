"""The IPython extension: completion of arguments of fastflow's functions, and display of figures."""

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
    "backtest", "calibrate", "evaluate", "explain_memory", "explain_sharding", "fits", "probability_better",
    "rank_strategies", "search", "sensitivity", "sweep", "validate",
)  # fmt: skip
"""Functions that take overrides."""
_OPENING = {"(": ")", "[": "]", "{": "}"}
_NAME = re.compile(r"[A-Za-z_][\w.]*$")
_KEYWORD = re.compile(r"\s*(\w+)\s*=\s*\[?[^=]*$")
_OVERRIDE = re.compile(r"""["']([\w.]+=[\w.]+)["']|(\w+)\s*=\s*["']([\w.]+)["']""")
_FIGURE = ("matplotlib.figure", "Figure")
_PACKAGE = "fastflow"
_DPI = 80


class CursorContext(NamedTuple):
    """The call around a cursor."""

    function: str
    """The called name, as written."""
    before: str
    """The arguments before the cursor."""
    argument: str
    """The part of the current argument before the string, or before the cursor outside of a string."""
    text: str | None
    """The string around the cursor, up to the cursor; None outside of a string."""


def cursor_context(code: str) -> CursorContext | None:
    """Return the call around the end of some code, None outside of a call."""
    open_brackets: list[int] = []
    quote, start, i = "", 0, 0
    while i < len(code):
        token = code[i : i + 3] if code[i : i + 3] in ('"""', "'''") else code[i]
        if quote:
            i += 2 if token == "\\" else len(quote) if code.startswith(quote, i) else 1
            quote = "" if token[: len(quote)] == quote else quote
            continue
        if token[0] in "\"'":
            quote, start = token, i
        elif token in _OPENING:
            open_brackets.append(i)
        elif token in _OPENING.values() and open_brackets:
            open_brackets.pop()
        elif token == "#":
            i = code.find("\n", i)
            if i < 0:
                return None
        i += len(token)
    while open_brackets and code[open_brackets[-1]] == "[":
        open_brackets.pop()
    if not open_brackets or code[open_brackets[-1]] != "(":
        return None
    match = _NAME.search(code[: open_brackets[-1]])
    if match is None:
        return None
    arguments = code[open_brackets[-1] + 1 :]
    end = start if quote else len(code)
    before = code[open_brackets[-1] + 1 : end]
    argument = _last_argument(before)
    return CursorContext(match[0], arguments, argument, code[start + len(quote) :] if quote else None)


def _last_argument(before: str) -> str:
    """Return the last argument of a call; commas in lists and strings do not separate arguments."""
    plain = re.sub(r"""(["'])(?:\\.|(?!\1).)*\1""", lambda match: "x" * len(match[0]), before)
    depth, at = 0, 0
    for i, letter in enumerate(plain):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            at = i + 1
    return before[at:]


def _takes_overrides(name: str, names: dict[str, Any]) -> bool:
    """Return whether a name is a function of fastflow that takes overrides; names: of the notebook."""
    first, *rest = name.split(".")
    target = names.get(first)
    for part in rest:
        if getattr(target, "__name__", "") != _PACKAGE:
            return False
        target = getattr(target, part, None)
    name = getattr(target, "__name__", "")
    # an imported command is a callable module
    qualified = name if isinstance(target, ModuleType) else f"{getattr(target, '__module__', '')}.{name}"
    return qualified.removeprefix(f"{_PACKAGE}.") in _FUNCTIONS


def continuations(code: str, names: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the end of some code to replace, and its replacements; none outside of a call.

    names: of the notebook.
    """
    context = cursor_context(code)
    if context is None or not _takes_overrides(context.function, names):
        return "", []
    from fastflow.config import catalog

    overrides = [
        text or f"{key.replace('__', '.')}={value}" for text, key, value in _OVERRIDE.findall(context.before)
    ]
    if context.text is None:  # the name of a keyword
        prefix = context.argument.strip()
        if not re.fullmatch(r"\w*", prefix):
            return "", []
        keys = _matching_keys(prefix.replace("__", "."), overrides)
        return prefix, [key_text for key in keys if (key_text := key.replace(".", "__")).startswith(prefix)]
    keyword = _KEYWORD.fullmatch(context.argument)
    key = keyword[1].replace("__", ".") + "=" if keyword else ""
    text = key + context.text
    prefix = re.split(r"[=,]", text)[-1]
    candidates = catalog.continuations(text, overrides) if "=" in text else _matching_keys(text, overrides)
    matches = [candidate for candidate in candidates if candidate.startswith(text)]
    return prefix, [match[len(text) - len(prefix) :] for match in matches]


def _matching_keys(prefix: str, overrides: list[str]) -> list[str]:
    """Return the groups with a prefix and the keys of their choices, or the keys with the prefix."""
    from fastflow.config import catalog

    groups = [group for group in catalog.continuations(prefix, overrides) if group.startswith(prefix)]
    inner = [
        key
        for group in groups
        if "." not in group
        for key in catalog.continuations(f"{group[:-1]}.", overrides)
    ]
    return [*groups, *(key for key in inner if any(key.startswith(f"{group[:-1]}.") for group in groups))]


def _match(shell: InteractiveShell, context: CompletionContext) -> SimpleMatcherResult:
    """Return the completions of a cell at its cursor, for IPython."""
    from IPython.core.completer import SimpleCompletion

    lines = context.full_text.split("\n")
    code = "\n".join([*lines[: context.cursor_line], lines[context.cursor_line][: context.cursor_position]])
    prefix, texts = continuations(code, shell.user_ns)
    return {
        "completions": [SimpleCompletion(text, type="fastflow") for text in texts],
        "matched_fragment": prefix,
        "suppress": bool(texts) and prefix != "",
    }


def _png(figure: Figure) -> bytes:
    """Return a figure as a picture."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    return file.getvalue()


def load(shell: InteractiveShell) -> None:
    """Register completion and display of figures with a shell; idempotent."""
    from IPython.core.completer import context_matcher

    matchers = shell.Completer.custom_matchers
    if not any(getattr(matcher, "matcher_identifier", "") == _PACKAGE for matcher in matchers):

        @context_matcher(identifier=_PACKAGE)  # type: ignore[untyped-decorator]
        def match(context: CompletionContext) -> SimpleMatcherResult:
            return _match(shell, context)

        matchers.append(match)
    display = shell.display_formatter
    pictures = None if display is None else display.formatters["image/png"]
    if pictures is not None and ".".join(_FIGURE) not in pictures:  # as it is once pyplot was imported
        pictures.for_type_by_name(*_FIGURE, _png)


def unload(shell: InteractiveShell) -> None:
    """Remove completion from a shell."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", "") != _PACKAGE]
