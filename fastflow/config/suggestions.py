"""What a user may have meant: choices of a group and keys that are like the one that does not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from fastflow.config.messages import suggestion

_MOST = 4  # names in one advice
_PARTS = re.compile(r"[a-z]+|\d+")
_WORDS = re.compile(r"[a-z0-9]+")
_CLOSE, _CLOSE_LAST, _CLOSE_ALL = 0.8, 0.82, 0.85
"""Least likeness of two names, of last parts, and of names with other numbers; 1: they are the same."""
_NEAR_NUMBER = 0.5  # most that the number of a like name may differ, as a share of what was asked for


def advice_on_choice(name: str, choices: Sequence[str]) -> str:
    """Return "; did you mean X?" of the choices that a name may stand for, the first kind that there is.

    A name in other letters, the beginning of names ("b200"), words of names ("a100_80"), a slip of the hand,
    the same letters with another number ("hbm5"): of these the nearest numbers.
    """
    return _asked(_alike(name, sorted(choices, key=_natural)))


def advice_on_key(key: str, known: Iterable[str], conditions: Mapping[str, str]) -> str:
    """Return "; did you mean X?" of the keys that one may stand for: by its last part, or as it is written.

    known: keys and groups of the configuration. conditions: further keys, and what has to be chosen for each.
    """
    here, group = sorted(known), key.partition("@")[0]
    if group != key and group in here:
        return _asked([group])
    last = _plain(key.rpartition(".")[2])
    within = [name for name in here if "." in key and name.startswith(f"{key.rpartition('.')[0]}.")]
    near = suggestion(key, within or [name for name in here if _is_near(key, name)])
    ends: dict[str, list[str]] = {}
    for name in sorted({*here, *conditions}, key=lambda one: (one not in here, one.count("."), one)):
        ends.setdefault(_plain(name.rpartition(".")[2]), []).append(name)
    exact = [name for name in ends.get(last, ()) if name != key]
    if near and not (exact and "." not in key):
        return near
    if not exact:
        close = difflib.get_close_matches(last, ends, n=1, cutoff=_CLOSE_LAST)
        exact = ends[close[0]] if close else []
    return _asked(
        [
            f"{name} (with {conditions[name]})" if name not in here and conditions.get(name) else name
            for name in exact
        ]
    )


def _is_near(key: str, name: str) -> bool:
    """Say whether a name of the same depth is like a key."""
    if key.count(".") != name.count("."):
        return False
    return difflib.SequenceMatcher(None, _plain(key), _plain(name)).ratio() >= _CLOSE


def _alike(name: str, choices: Sequence[str]) -> list[str]:
    """Return the choices that a name may stand for, the likeliest kind alone."""
    given, words = _plain(name), _WORDS.findall(name.lower())
    same = [one for one in choices if _plain(one) == given]
    begun = [one for one in choices if given and _plain(one).startswith(given)]
    if same or begun:
        return same or begun
    held = [one for one in choices if words and all(_has_word(one, word) for word in words)]
    if held:
        return held
    numbers = _numbers(name)
    slips = [one for one in choices if _numbers(one) == numbers]
    close = difflib.get_close_matches(given, {_plain(one): one for one in slips}, n=_MOST, cutoff=_CLOSE)
    if close:
        like = [one for one in slips if _plain(one) == close[0]]
        return _of_same_product(words, like, choices) or like
    letters = _letters(name)
    others = [one for one in choices if letters and _letters(one)[: len(letters)] == letters]
    far = [_distance(numbers, _numbers(one)) for one in others]
    nearest = min(far, default=inf)
    near = [one for one, by in zip(others, far, strict=True) if by == nearest <= _NEAR_NUMBER]
    return near or difflib.get_close_matches(name.lower(), choices, n=1, cutoff=_CLOSE_ALL)


def _of_same_product(words: Sequence[str], like: Sequence[str], choices: Sequence[str]) -> list[str]:
    """Return choices that have the words of letters and numbers ("h200") that those of like names lack."""
    coded = {word for word in words if not word.isalpha() and not word.isdigit()}
    if not coded or any(coded <= {*_WORDS.findall(one.lower())} for one in like):
        return []
    return [one for one in choices if coded <= {*_WORDS.findall(one.lower())}]


def _has_word(name: str, word: str) -> bool:
    return any(one.startswith(word) for one in _WORDS.findall(name.lower()))


def _numbers(name: str) -> list[int]:
    return [int(part) for part in _PARTS.findall(name.lower()) if part.isdigit()]


def _letters(name: str) -> list[str]:
    """Return the words of a name up to its first number."""
    first = re.split(r"\d", name.lower(), maxsplit=1)[0]
    return re.findall(r"[a-z]+", first)


def _distance(numbers: Sequence[int], others: Sequence[int]) -> float:
    """Return how far the first number of a name is from another one's, as a share of it."""
    return abs(numbers[0] - others[0]) / max(numbers[0], 1) if numbers and others else inf


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Return what sorts names by letters, and by the size of their numbers."""
    return [
        (part.isdigit(), int(part) if part.isdigit() else 0, part) for part in _PARTS.findall(name.lower())
    ]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "_", name.lower()).strip("_")


def _asked(names: Sequence[str]) -> str:
    """Return the question, "" where there is nothing to ask."""
    if not names:
        return ""
    shown = [*names[:_MOST], *([f"{len(names) - _MOST} more"] if len(names) > _MOST else [])]
    *before, last = shown
    return f"; did you mean {', '.join(before)} or {last}?" if before else f"; did you mean {last}?"
