"""A JSON file as plain values: of bounded size and depth, with unique keys.

Numbers may be Infinity and NaN, as Python's own parser reads and writes them: files of published models have
them in fields that no prediction reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastflow.core.yaml_file import MistakeError, shown

MAX_BYTES = 32_000_000
"""Of a file: lists of modules that are not quantised take megabytes."""


def read_version(path: str, size: int) -> dict[str, Any]:
    """Return the object in a file of `size` bytes; raises MistakeError."""
    if size > MAX_BYTES:  # before it is read
        raise MistakeError(f"a file of at most {MAX_BYTES:,} bytes, not {size:,}")
    text = Path(path).read_bytes()
    if len(text) > MAX_BYTES:
        raise MistakeError(f"a file of at most {MAX_BYTES:,} bytes, not {len(text):,}")
    try:
        document = json.loads(text, object_pairs_hook=_object)
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


def time_of_neighbour(path: str, name: str) -> int:
    """Return when another file of a file's folder was changed [ns], 0 where there is none."""
    other = Path(path).parent / name
    try:
        return other.stat().st_mtime_ns
    except (OSError, ValueError):  # the path may be no path at all
        return 0


def read_neighbour(path: str, name: str) -> dict[str, Any]:
    """Return the object in another file of a file's folder, {} where there is none; raises MistakeError."""
    other = Path(path).with_name(name)
    return read_version(str(other), other.stat().st_size) if other.is_file() else {}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in members if names.count(name) > 1)
        raise MistakeError(f"a JSON file ({shown(twice)} is given twice)")
    return members
