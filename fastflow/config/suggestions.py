"""Suggestions for a choice or a key that does not exist: similar choices and keys."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from fastflow.config.messages import suggestion
from fastflow.schema.renamed import KEYS

_MAX_NAMES = 4  # names in one advice
_PARTS = re.compile(r"[a-z]+|\d+")
_WORDS = re.compile(r"[a-z0-9]+")
_CLOSE, _CLOSE_LAST, _CLOSE_ALL = 0.8, 0.82, 0.85
"""Least likeness of two names, of last parts, and of names with other numbers; 1: they are the same."""
_NEAR_NUMBER = 0.5  # largest relative difference of the numbers of similar names


def advice_on_choice(name: str, choices: Sequence[str]) -> str:
    """Return "; did you mean X?" with the choices similar to a name, by the first kind that matches.

    A name in other letters, the beginning of names ("b200"), words of names ("a100_80"), a typing error,
    the same letters with another number ("hbm5"): of these the nearest numbers.
    """
    return _question(_similar(name, sorted(choices, key=_natural)))


def advice_on_key(key: str, known: Iterable[str], conditions: Mapping[str, str]) -> str:
    """Return "; did you mean X?" with keys similar to a key: by its last part, or as a whole.

    A last part of before a renaming counts too: `model.zero` is close to `parallel.zero_stage`.

    known: keys and groups of the configuration. conditions: further keys, and what has to be chosen for each.
    """
    configured, group = sorted(known), key.partition("@")[0]
    if group != key and group in configured:
        return _question([group])
    last = _normalised(key.rpartition(".")[2])
    siblings = [name for name in configured if "." in key and name.startswith(f"{key.rpartition('.')[0]}.")]
    similar = suggestion(key, siblings or [name for name in configured if _is_near(key, name)])
    by_last_part: dict[str, list[str]] = {}
    for name in sorted(
        {*configured, *conditions},
        key=lambda known_key: (known_key not in configured, known_key.count("."), known_key),
    ):
        by_last_part.setdefault(_normalised(name.rpartition(".")[2]), []).append(name)
    for old, name in KEYS.items():
        if name in configured or name in conditions:
            by_last_part.setdefault(old.rpartition(".")[2], [name])
    exact = [name for name in by_last_part.get(last, ()) if name != key]
    if similar and not (exact and "." not in key):
        return similar
    if not exact:
        close = difflib.get_close_matches(last, by_last_part, n=1, cutoff=_CLOSE_LAST)
        exact = by_last_part[close[0]] if close else []
    return _question(
        [
            f"{name} (with {conditions[name]})" if name not in configured and conditions.get(name) else name
            for name in exact
        ]
    )


def _is_near(key: str, name: str) -> bool:
    """Say whether a name of the same depth is like a key."""
    if key.count(".") != name.count("."):
        return False
    return difflib.SequenceMatcher(None, _normalised(key), _normalised(name)).ratio() >= _CLOSE


def _similar(name: str, choices: Sequence[str]) -> list[str]:
    """Return the choices similar to a name, by the first kind of similarity that matches any."""
    normalised, words = _normalised(name), _WORDS.findall(name.lower())
    same = [choice for choice in choices if _normalised(choice) == normalised]
    starting = [choice for choice in choices if normalised and _normalised(choice).startswith(normalised)]
    if same or starting:
        return same or starting
    with_words = [choice for choice in choices if words and all(_has_word(choice, word) for word in words)]
    if with_words:
        return with_words
    numbers = _numbers(name)
    slips = [choice for choice in choices if _numbers(choice) == numbers]
    close = difflib.get_close_matches(
        normalised, {_normalised(choice): choice for choice in slips}, n=_MAX_NAMES, cutoff=_CLOSE
    )
    if close:
        matching = [choice for choice in slips if _normalised(choice) == close[0]]
        return _with_product_words(words, matching, choices) or matching
    letters = _letters(name)
    others = [choice for choice in choices if letters and _letters(choice)[: len(letters)] == letters]
    distances = [_distance(numbers, _numbers(choice)) for choice in others]
    nearest = min(distances, default=inf)
    neighbours = [
        choice
        for choice, distance in zip(others, distances, strict=True)
        if distance == nearest <= _NEAR_NUMBER
    ]
    return neighbours or difflib.get_close_matches(name.lower(), choices, n=1, cutoff=_CLOSE_ALL)


def _with_product_words(words: Sequence[str], matching: Sequence[str], choices: Sequence[str]) -> list[str]:
    """Return choices that have the words of letters and numbers ("h200") that those of like names lack."""
    coded = {word for word in words if not word.isalpha() and not word.isdigit()}
    if not coded or any(coded <= {*_WORDS.findall(choice.lower())} for choice in matching):
        return []
    return [choice for choice in choices if coded <= {*_WORDS.findall(choice.lower())}]


def _has_word(name: str, word: str) -> bool:
    return any(part.startswith(word) for part in _WORDS.findall(name.lower()))


def _numbers(name: str) -> list[int]:
    return [int(part) for part in _PARTS.findall(name.lower()) if part.isdigit()]


def _letters(name: str) -> list[str]:
    """Return the words of a name up to its first number."""
    first = re.split(r"\d", name.lower(), maxsplit=1)[0]
    return re.findall(r"[a-z]+", first)


def _distance(numbers: Sequence[int], others: Sequence[int]) -> float:
    """Return the relative difference of the first numbers of two names."""
    return abs(numbers[0] - others[0]) / max(numbers[0], 1) if numbers and others else inf


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Return what sorts names by letters, and by the size of their numbers."""
    return [
        (part.isdigit(), int(part) if part.isdigit() else 0, part) for part in _PARTS.findall(name.lower())
    ]


def _normalised(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "_", name.lower()).strip("_")


def _question(names: Sequence[str]) -> str:
    """Return the question, "" without names."""
    if not names:
        return ""
    shown = [*names[:_MAX_NAMES], *([f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else [])]
    *before, last = shown
    return f"; did you mean {', '.join(before)} or {last}?" if before else f"; did you mean {last}?"
