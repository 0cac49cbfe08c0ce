"""Names in a file, as people write them, to what a table of the library knows them by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

_WORD = re.compile(r"[a-z0-9]+")


def alias_table(leaves: Mapping[str, Any], section: str) -> dict[str, str]:
    """Return a table of a configuration: what stands below a section, but its documentation.

    Of names with the same words ("Llama 70B", Llama_70B) the last has the place of all: it is the user's.
    """
    prefix = f"{section}."
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    for key, value in leaves.items():
        if key.startswith(prefix) and value is not None:
            name = key.removeprefix(prefix)
            known, _ = found.get(_words(name), (name, ""))
            found[_words(name)] = known, str(value)
    return dict(found.values())


def key_for(text: str) -> str:
    """Return a text as a name that the command line can read, for a table: `_` stands for a blank."""
    words = "_".join(re.findall(r"[A-Za-z0-9]+", text)) or "NAME"
    return words if words[0].isalpha() else f"_{words}"


def match_name(text: str, known: Iterable[str]) -> str:
    """Return the longest of some known names that a text has, "" where it has none.

    A text has a name if each word of the name begins a word of the text: "H100 96GB" is in
    "NVIDIA H100-96GB-HBM2e", and B200 is not in GB200.
    """
    there = _words(text)
    found = [
        name for name in known if all(any(one.startswith(word) for one in there) for word in _words(name))
    ]
    return max(found, key=lambda name: sum(map(len, _words(name))), default="")


@lru_cache(maxsize=1024)
def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))
