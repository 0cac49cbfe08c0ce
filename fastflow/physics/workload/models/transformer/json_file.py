"""A JSON file as plain values: of bounded size and depth, with unique keys and finite numbers."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any

from fastflow.core.yaml_file import MAX_BYTES, MistakeError, shown


def read_version(path: str, size: int) -> dict[str, Any]:
    """Return the object in a file of `size` bytes; raises MistakeError."""
    if size > MAX_BYTES:  # before it is read
        raise MistakeError(f"a file of at most {MAX_BYTES:,} bytes, not {size:,}")
    text = Path(path).read_bytes()
    if len(text) > MAX_BYTES:
        raise MistakeError(f"a file of at most {MAX_BYTES:,} bytes, not {len(text):,}")
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number)
    except json.JSONDecodeError as error:
        raise MistakeError(f"a JSON file (line {error.lineno}, column {error.colno}: {error.msg})") from None
    except UnicodeDecodeError:
        raise MistakeError("a JSON file (its text is not UTF-8)") from None
    except RecursionError:
        raise MistakeError("a JSON file (nested too deeply)") from None
    except ValueError:  # of digits, more than Python reads
        raise MistakeError("a JSON file (a number of too many digits)") from None
    if not isinstance(document, dict):
        raise MistakeError(f"a JSON file that holds an object, not {shown(json.dumps(document))}")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in members if names.count(name) > 1)
        raise MistakeError(f"a JSON file ({shown(twice)} is given twice)")
    return members


def _constant(name: str) -> Any:
    raise MistakeError(f"a JSON file ({name} is no number)")


def _number(text: str) -> float:
    if not isfinite(number := float(text)):
        raise MistakeError(f"a JSON file ({shown(text)} is too large a number)")
    return number
