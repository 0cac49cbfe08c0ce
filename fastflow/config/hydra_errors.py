"""Translation of Hydra's errors into one line with the key, the allowed values and the origin."""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from fastflow.config.catalog import choices, groups, keys
from fastflow.config.hub_names import MODEL, advice_on_hub_name
from fastflow.config.hydra_composer import COMPOSITION_ERRORS, HydraComposer
from fastflow.config.library import is_user_file
from fastflow.config.messages import first_line, key_of, one_of
from fastflow.config.model_inputs import is_documentation
from fastflow.config.suggestions import advice_on_choice, advice_on_key
from fastflow.core.errors import CompositionError, InputError
from fastflow.schema import INPUTS, OTHER_CHIPS, find_input

_NO_SUCH_KEY = re.compile(r"Could not (?:override|delete from config\.) '([^']+)'")
_NOT_CHOSEN = re.compile(r"Could not delete '([^'=]+)=([^']*)'")
_OTHER_VALUE = re.compile(r"Could not delete from config\. The value of '([^']+)' is (.*) and not", re.DOTALL)
_UNEXPECTED = re.compile(
    r"(?:(?:mismatched|extraneous) input|missing \w+ at) '(.+?)'|no viable alternative at input '(.+)'"
)
_NO_CHOICE = ("Config group override must be", "cannot be composed")
_EXISTING_KEY = re.compile(r"Could not append to config\. An item is already at '([^']+)'")
_NEEDS_MULTIRUN = re.compile(r"(?:Ambiguous value for argument|Sweep parameters) '(.+?)'", re.DOTALL)
_SERVE = "serve"
_REFERENCED = ("model.devices", "model.strategy")
"""Keys that others refer to, system.devices and parallel.strategy, which are meant."""
_PARENT = re.compile(r"In '([^']+)'")


def translated(error: Exception, composer: HydraComposer | None, overrides: Sequence[str]) -> InputError:
    """Return a one-line error for a user's mistake, from the exception in Hydra.

    `composer` looks up choices and nearby keys; without it the line is Hydra's message.
    """
    if isinstance(error, InputError):
        return error
    if isinstance(error, OverrideParseException):
        return _unreadable(error)
    if isinstance(error, yaml.YAMLError):
        return CompositionError(_yaml_line(error))
    if isinstance(error, MissingConfigException):
        return _missing_config(error, composer, overrides)
    if composer is not None and any(text in str(error) for text in _NO_CHOICE):
        return _not_a_choice(error, composer, overrides)
    multirun_key = _NEEDS_MULTIRUN.search(str(error))
    if multirun_key is not None:
        return CompositionError(f"{multirun_key.group(1)}: several values make a grid, which needs -m")
    unknown_key = _NO_SUCH_KEY.search(str(error))
    if unknown_key is not None and composer is not None and not unknown_key.group(1).startswith("hydra"):
        return _unknown_key(unknown_key.group(1), composer, overrides, _PARENT.match(str(error)))
    other_value = _OTHER_VALUE.search(str(error)) or _NOT_CHOSEN.search(str(error))
    if other_value is not None and composer is not None:
        return _deleted_other_value(other_value.group(1), composer, overrides)
    existing = _EXISTING_KEY.search(str(error))
    if existing is not None and composer is not None:
        value = _override_value(existing.group(1), overrides)
        allowed = "its key without +, which adds one that is not there"
        return InputError(f"+{existing.group(1)}", value, allowed, composer.origin_of_overrides)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        return CompositionError(f"{lines[0]} {lines[1]}")
    cause = error.__cause__
    detail = f" ({first_line(cause)})" if isinstance(cause, OmegaConfBaseException) else ""
    return CompositionError(f"{first_line(error)}{detail}" or type(error).__name__)


def _unreadable(error: OverrideParseException) -> CompositionError:
    """Explain an override that does not parse, without the parser's jargon."""
    text = error.override or ""
    shown = text if text.strip() and text.isprintable() else repr(text)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(("Error parsing override", "See http"))]
    reason = reasons[0] if reasons else "no such override"
    unexpected = _UNEXPECTED.search(reason)
    if "Lexer" in reason:
        reason = "a character in it is out of place, or needs quotes"
    elif unexpected is not None:
        token = unexpected.group(1) or unexpected.group(2)
        reason = "it ends too early" if token == "<EOF>" else f"{token} is out of place"
    return CompositionError(f"{shown}: cannot be read ({reason}); expected key=value")


def _yaml_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or first_line(error)
    location = f"{mark.name}, line {mark.line + 1}" if mark is not None else "a configuration file"
    return f"{location}: not valid YAML ({problem})"


def _override_value(key: str, overrides: Sequence[str]) -> str | None:
    """Return the value that the overrides give a key, None without one."""
    for override in reversed(overrides):
        if key_of(override).split("@")[0] == key:
            return override.partition("=")[2]
    return None


def _missing_config(
    error: MissingConfigException, composer: HydraComposer | None, overrides: Sequence[str]
) -> InputError:
    path = error.missing_cfg_file or ""
    if "/" not in path and str(error).startswith("Cannot find primary config"):
        return InputError("--config-name", path, "a configuration on the search path, such as config")
    group = _group_of_path(path, composer, overrides) if composer is not None else ""
    if not group or composer is None:
        return CompositionError(first_line(error))
    choice = path[len(group) + 1 :]
    parent = _PARENT.match(str(error))
    if parent is not None and parent.group(1).startswith(f"{group}/"):
        origin = composer.file_of(parent.group(1))  # a choice of the group is based on another choice
    elif _override_value(group, overrides) is not None or parent is None:
        origin = composer.origin_of_overrides
    else:
        origin = composer.file_choosing(group, choice) or composer.file_of(parent.group(1))
    known = composer.choices(group)
    if is_user_file(choice):
        return InputError(group, choice, f"a file that exists, or {one_of(known)}", origin)
    if group == MODEL and "/" in choice:
        advice = advice_on_hub_name(choice)
    else:
        advice = advice_on_choice(choice, known) or _groups_with_choice(choice)
    return InputError(group, choice, f"{one_of(known)}, or a file such as mine.yaml{advice}", origin)


def _groups_with_choice(choice: str) -> str:
    """Return "; did you mean GROUP=CHOICE?" for a choice that other groups have, or ""."""
    having = [f"{group}={choice}" for group in groups() if choice in choices(group)]
    return f"; did you mean {' or '.join(having)}?" if having else ""


def _group_of_path(path: str, composer: HydraComposer, overrides: Sequence[str]) -> str:
    """Return the group of "GROUP/CHOICE", each of which may hold slashes; "" if it has none."""
    names = path.split("/")
    prefixes = ("/".join(names[:depth]) for depth in range(1, len(names)))
    groups = [prefix for prefix in prefixes if composer.is_group(prefix)]
    overridden = (group for group in groups if _override_value(group, overrides) == path[len(group) + 1 :])
    return next(overridden, groups[-1] if groups else "")


def _not_a_choice(error: Exception, composer: HydraComposer, overrides: Sequence[str]) -> InputError:
    """Return the error for a group whose override is no name, if there is one."""
    try:
        parsed = composer.read(overrides)
    except COMPOSITION_ERRORS:
        parsed = []
    for override in parsed:
        group = override.key_or_group
        if override.is_sweep_override() or override.is_delete():
            continue
        if composer.is_group(group) and not isinstance(override.value(), str | dict):
            choices = one_of(composer.choices(group))
            return InputError(group, override.get_value_string(), choices, composer.origin_of_overrides)
    return CompositionError(first_line(error))


def _deleted_other_value(key: str, composer: HydraComposer, overrides: Sequence[str]) -> InputError:
    """Return the error for `~key=value` where the key has another value."""
    allowed = f"~{key}, which removes it whatever its value"
    return InputError(f"~{key}", _override_value(key, overrides), allowed, composer.origin_of_overrides)


def _unknown_key(
    key: str, composer: HydraComposer, overrides: Sequence[str], file: re.Match[str] | None
) -> InputError:
    """Return the error for an unknown key, with its sibling keys; file: the one that Hydra names."""
    value = _override_value(key, overrides)
    known = known_keys(composer, overrides, but=key)
    parent = key
    while parent and not any(name.startswith(parent + ".") for name in known):
        parent = parent.rpartition(".")[0]
    depth = len(parent) + 1 if parent else 0
    below_parent = [name[depth:] for name in known if not parent or name.startswith(parent + ".")]
    siblings = sorted({name.split(".")[0] for name in below_parent})
    expected = (
        f"a key of {parent} ({', '.join(siblings)})"
        if parent
        else f"a group or section ({', '.join(siblings)})"
    )
    others = {name: _choices_with(name) for name in _inputs() if name not in known}
    candidates = known | {name.partition(".")[0] for name in known}
    close = advice_on_key(key, candidates.difference(_REFERENCED), others)
    if file is not None and value is None:
        return InputError(
            "defaults", f"override {key}", f"{expected}{close}", composer.file_of(file.group(1))
        )
    if f"~{key}" in overrides:
        return InputError(
            f"~{key}", "nothing", f"{expected} that has a value{close}", composer.origin_of_overrides
        )
    add = (_choices_note(key) or f"; to add it, write +{key}={value}") if _is_input(key) else ""
    return InputError(
        key, "" if value is None else value, expected + (add or close), composer.origin_of_overrides
    )


def _choices_note(key: str) -> str:
    """Return a note on the choices of `serve` that have a key, where the chosen one lacks it; or ""."""
    having = _choices_with(key)
    return f"; {having} {'have' if ',' in having else 'has'} it" if having else ""


def _choices_with(key: str) -> str:
    """Return the choices of `serve` that have a key, such as "serve=decode, prefill"; ""."""
    group = key.partition(".")[0]
    having = [choice for choice in choices(group) if key in keys(group, choice)] if group == _SERVE else []
    return f"{group}={', '.join(having)}" if having else ""


def _inputs() -> list[str]:
    """Return the keys of all inputs that have one name."""
    return [column.name for column in INPUTS if "*" not in column.name and column.name not in _REFERENCED]


def _is_input(key: str) -> bool:
    """Say whether the model knows a key, or keys below it, that this configuration lacks."""
    if key.startswith(tuple(f"{prefix}chip." for prefix in OTHER_CHIPS)):  # only the chip's file sets these
        return False
    return find_input(key) is not None or any(column.name.startswith(f"{key}.") for column in INPUTS)


def known_keys(composer: HydraComposer, overrides: Sequence[str], but: str) -> set[str]:
    """Return the leaves of the configuration without the overrides of a key, or without all overrides."""
    rest = [text for text in overrides if key_of(text).split("@")[0] != but]
    groups = [text for text in rest if composer.is_group(key_of(text))]
    for attempt in (groups, []):
        try:
            return {name for name in composer.leaves(attempt) if not is_documentation(name.partition(".")[2])}
        except COMPOSITION_ERRORS:
            continue
    return set()
