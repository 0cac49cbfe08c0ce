"""Names in a file, as people write them, matched to names of a table of the library."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

_WORD = re.compile(r"[a-z0-9]+")


def alias_table(leaves: Mapping[str, Any], section: str) -> dict[str, str]:
    """Return a table of a configuration: the keys below a section and their values, without documentation.

    Of names with the same words ("Llama 70B", Llama_70B) the value of the last wins: it is the user's.
    """
    prefix = f"{section}."
    aliases: dict[tuple[str, ...], tuple[str, str]] = {}
    for key, value in leaves.items():
        if key.startswith(prefix) and value is not None:
            name = key.removeprefix(prefix)
            first_spelling, _ = aliases.get(_words(name), (name, ""))
            aliases[_words(name)] = first_spelling, str(value)
    return dict(aliases.values())


def key_for(text: str) -> str:
    """Return a text as a key of a table that the command line can read: with `_` for a blank."""
    words = "_".join(re.findall(r"[A-Za-z0-9]+", text)) or "NAME"
    return words if words[0].isalpha() else f"_{words}"


def match_name(text: str, known: Iterable[str]) -> str:
    """Return the longest of some known names that match a text, "" for none.

    A name matches a text if each word of the name begins a word of the text: "H100 96GB" is in
    "NVIDIA H100-96GB-HBM2e", and B200 is not in GB200.
    """
    words = _words(text)
    matches = [
        name for name in known if all(any(other.startswith(word) for other in words) for word in _words(name))
    ]
    return max(matches, key=lambda name: sum(map(len, _words(name))), default="")


@lru_cache(maxsize=1024)
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))
