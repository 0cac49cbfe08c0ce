"""From files of benchmarks to their runs, each by the format of its object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastflow.analysis.benchmarks import formats
from fastflow.analysis.benchmarks.benchmark_run import BenchmarkRun
from fastflow.analysis.benchmarks.result_format import FORMATS, ResultFormat, RunObject
from fastflow.core.errors import InputError
from fastflow.core.yaml_file import MistakeError, listed, read_current, shown

assert formats  # its modules register their formats
KEY = "requests"
"""The key that names the files."""
MAX_BYTES = 512 * 1024 * 1024  # answers of ten thousand requests, with the time of each token


def read_runs(paths: Sequence[str], origin: str = "") -> list[BenchmarkRun]:
    """Return the runs of all files, in order; raises InputError. origin: of the paths, for its message."""
    runs: list[BenchmarkRun] = []
    for path in paths:
        try:
            runs += read_current(KEY, _parse_version, path)
        except InputError as error:
            raise error if error.origin or not error.key else error.replaced(origin=origin) from None
    return runs


@lru_cache(maxsize=8)
def _parse_version(path: str, changed: int, size: int) -> tuple[BenchmarkRun, ...]:
    """Return the runs of a version of a file; raises MistakeError."""
    if size > MAX_BYTES:
        raise MistakeError(f"a file of at most {MAX_BYTES:,} bytes, not {size:,}")
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise MistakeError(_expected("which is no text")) from None
    objects = list(_objects(text))
    if not objects:
        raise MistakeError(_expected("which is empty"))
    runs = []
    for number, members in objects:
        try:
            runs.append(_run_of(members))
        except MistakeError as mistake:
            where = f" (line {number})" if len(objects) > 1 else ""
            raise MistakeError(f"{mistake}{where}") from None
    name = Path(path).name
    names = [name if len(objects) == 1 else f"{name}:{number}" for number, _ in objects]
    return tuple(run._replace(name=name) for run, name in zip(runs, names, strict=True))


def _objects(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the object of a file, or that of every line, with its line; raises MistakeError."""
    whole = _json(text)
    if isinstance(whole, dict):
        yield 1, whole
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            members = _json(line)
            if not isinstance(members, dict):
                raise MistakeError(_expected(f"whose line {number} has {shown(line.strip())}"))
            yield number, members


def _json(text: str) -> Any:
    """Return the values of a text of JSON, None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _run_of(members: dict[str, Any]) -> BenchmarkRun:
    """Return the run of an object; raises MistakeError."""
    result_format = next((known for known in FORMATS.built_ins() if known.matches(members)), None)
    if result_format is None:
        added: list[ResultFormat] = FORMATS.added(lambda known: known.matches(members))
        if not added:
            raise MistakeError(_expected(f"whose object has {listed(members) or 'no members'}"))
        result_format = added[0]
    result_format.check_details(members)
    return result_format.read(RunObject(members))._replace(tool=result_format.tool)


def _expected(file: str) -> str:
    """Return what is expected of a file, and what this one is instead."""
    tools = " or ".join(f"{known.tool} with {known.details}" for known in FORMATS.built_ins())
    return f"the JSON that a benchmark writes, {tools}, not a file {file}"
