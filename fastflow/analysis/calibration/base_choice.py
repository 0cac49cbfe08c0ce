"""What a calibration goes on from, a chip or a server, as its file begins: a name, or a copy of a user's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from omegaconf import OmegaConf

from fastflow.config.library import is_user_file
from fastflow.core.errors import InputError

_SELF = "_self_"
_PACKAGE = re.compile(r"^#\s*@package\b", re.MULTILINE)


class BaseChoice(NamedTuple):
    """The beginning of the file of a choice in a group of the library."""

    defaults: list[Any]
    """Its defaults list; what it says itself comes last."""
    content: dict[str, Any]
    """What it says itself, as written."""


def base_choice(group: str, choice: str) -> BaseChoice:
    """Return the base of a file that goes on from a choice, such as a chip; raises InputError.

    A choice of the library is named. A user's file is copied: a defaults list has no name for a file in
    another folder, and a copy can be read wherever it lies.
    """
    if not is_user_file(choice):
        return BaseChoice([choice, _SELF], {})
    text = Path(choice).read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    defaults = list(content.pop("defaults", None) or [])
    if _SELF not in defaults:
        defaults.append(_SELF)
    if defaults[-1] != _SELF or _PACKAGE.search(text):
        allowed = f"a file whose defaults list ends with {_SELF}, and without @package"
        raise InputError(group, choice, f"{allowed}; a calibration cannot go on from others")
    if len(defaults) == 2 and isinstance(defaults[0], str) and is_user_file(defaults[0]):
        defaults, inner = base_choice(group, defaults[0])
        content = _merged(inner, content)
    return BaseChoice(defaults, content)


def extended(base: BaseChoice, content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file that goes on from a base; sources of both are kept."""
    source = base.content.get("source")
    if source is not None and not isinstance(source, dict):
        base = base._replace(content={**base.content, "source": {"default": source}})
    return _merged(base.content, content)


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge two contents; the second has precedence."""
    merged: Any = OmegaConf.to_container(OmegaConf.merge(first, second), resolve=False)
    return dict(merged)
