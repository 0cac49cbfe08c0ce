"""Record what fastflow answers, and compare two recordings to the bit.

    python bench/same_results.py record FOLDER [--measurements FOLDER] [--only PATTERN] [--processes N]
    python bench/same_results.py compare FOLDER_A FOLDER_B [--renames FILE.csv] [--only PATTERN] [--values]

`record` runs the commands of `same_results.txt`, and the functions of `same_results_functions.py`, with the
fastflow that is importable: set PYTHONPATH to another checkout to record that. Of each dataset FOLDER has the
rows (NAME.parquet), and of each screen and file the text (NAME.txt). `recording.json` has a hash of each
column and text; alone it is enough to say what differs. --measurements: whole files of measurements, by
default `../shared/measurements` beside this checkout. --only: commands whose name matches; a recording that
is there gets these anew. Versions, digests, paths, dates, and the time that commands take are masked.

`compare` prints each dataset, column and line of a text that differs, with the first values of both, and
exits 1 where anything does. A difference that several datasets or texts have is printed once. Keys, their
values and columns that fastflow has renamed (`fastflow/schema/renamed.py`) count as the same, in either
recording by the new name; in a text with an old name, the widths of tables do not count. --renames: more
lines of `old,new`, for columns, and for whole words of texts. --values: columns' values, nulls and types
alone, not the metadata and texts. --only: what commands left whose name matches.

`record` uses nothing of fastflow but commands and public functions, so that it holds through any redesign.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from difflib import SequenceMatcher
from functools import partial
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
FILE = "recording.json"
SHOWN = 3  # rows or lines of a difference
LEVELS = 8  # most on-chip memory levels of a chip
AROUND = 60  # characters of a long text on each side of a difference

MASKS = (  # what may differ between two runs of the same fastflow
    (r"(?<![\w.])(?=\d*[a-f])[0-9a-f]{12,}\b", "DIGEST"),
    (r"\b\d{4}-\d\d-\d\d[ T/_-]\d\d[:-]\d\d[:-]\d\d[\d.-]*", "DATE"),
    (r"\b(fastflow[ =]?v?)\d+\.\d+[\w.+]*", r"\1VERSION"),
    (r"\bin [\d.,]+ (?:ms|s|min|h)\b(?:: [\d.,]+ \w+/s)?(?=;|$)", "in TIME"),
)
IGNORED = re.compile(
    r"(?:^|[._])(?:version|model|fingerprint|digest|path|date|pandas|kind|measured)$"
)  # keys of a schema


class Recording:
    """Datasets and texts of one fastflow, in a folder."""

    def __init__(self, folder: Path, hide: Callable[[str], str] = str) -> None:
        """hide: what masks a text."""
        self.folder, self.hide = folder, hide
        self.datasets: dict[str, Any] = {}
        self.texts: dict[str, str] = {}

    def add_table(self, name: str, table: pa.Table) -> None:
        columns = {}
        for at, field in enumerate(table.schema):
            column = _plain(table.column(at))
            if pa.types.is_string(column.type):
                masked = [None if text is None else self.hide(text) for text in column.to_pylist()]
                column = pa.array(masked, column.type)
            table = table.set_column(at, field, column)
            about = self._masked(field.metadata)
            columns[field.name] = {"type": str(field.type), "hash": _hash(column), "metadata": about}
        about = self._masked(table.schema.metadata)
        self.datasets[name] = {"rows": table.num_rows, "metadata": about, "columns": columns}
        path = self.folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.replace_schema_metadata(None), path)

    def add_text(self, name: str, text: str) -> None:
        text = "\n".join(line.rstrip() for line in self.hide(text).splitlines())
        self.texts[name] = hashlib.sha256(text.encode()).hexdigest()
        path = self.folder / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def forget(self, name: str) -> None:
        """Leave out what a command of this name has left before."""
        for kept in (self.datasets, self.texts):
            for key in [key for key in kept if key.startswith(f"{name}/")]:
                del kept[key]
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def save(self) -> None:
        parts = {"datasets": dict(sorted(self.datasets.items())), "texts": dict(sorted(self.texts.items()))}
        (self.folder / FILE).write_text(json.dumps(parts, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, hide: Callable[[str], str] = str) -> Recording:
        recording = cls(folder, hide)
        parts = json.loads((folder / FILE).read_text(encoding="utf-8"))
        recording.datasets, recording.texts = parts["datasets"], parts["texts"]
        return recording

    def column(self, dataset: str, name: str) -> pa.Array | None:
        path = self.folder / f"{dataset}.parquet"
        return _plain(pq.read_table(path, columns=[name]).column(0)) if path.exists() else None

    def text(self, name: str) -> list[str]:
        path = self.folder / f"{name}.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def _masked(self, metadata: dict[bytes, bytes] | None) -> dict[str, str]:
        pairs = ((key.decode(), value.decode()) for key, value in (metadata or {}).items())
        return {key: self.hide(value) for key, value in pairs if not IGNORED.search(key)}


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _bits(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return where a column is null, and its values: numbers as they are stored, others as texts."""
    null = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        values = pc.fill_null(column, pa.scalar(0, column.type)).to_numpy(zero_copy_only=False)
        return null, values.view(f"u{values.dtype.itemsize}")  # -0.0 is not 0.0
    return null, np.array([repr(value) for value in column.to_pylist()], dtype=object)


def _hash(column: pa.Array) -> str:
    null, values = _bits(column)
    data = "\0".join(values).encode() if values.dtype == object else values.tobytes()
    return hashlib.sha256(null.tobytes() + data).hexdigest()


def commands() -> dict[str, str]:
    """Return each command of the list beside this file, by its name."""
    text = re.sub(r"\n +", " ", Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
    short = dict(re.findall(r"^([A-Z0-9]+) = (.*)$", text, re.MULTILINE))
    return {name: asked.format(**short) for name, asked in re.findall(r"^(\w+): (.*)$", text, re.MULTILINE)}


def record(folder: Path, measurements: Path, only: str, processes: int) -> int:
    """Run all commands, and keep what they leave; returns the exit code."""
    begin = time.monotonic()
    jobs = {name: asked for name, asked in commands().items() if re.search(only, name)}
    if not measurements.is_dir():
        jobs = {name: asked for name, asked in jobs.items() if not name.startswith("whole_")}
    spec = find_spec("fastflow")
    print(f"{len(jobs)} commands of {spec.origin if spec else 'no fastflow'}", flush=True)
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(processes) as pool:
        work = Path(place).resolve()
        hide = partial(_hide, work=work)
        recording = Recording.load(folder, hide) if (folder / FILE).exists() else Recording(folder, hide)
        _write_inputs(work / "in", measurements)
        runs = {pool.submit(_run, work / name, asked): name for name, asked in jobs.items()}
        for done, run in enumerate(as_completed(runs), 1):
            name, (code, screen, seconds) = runs[run], run.result()
            recording.forget(name)
            _keep(recording, work / name, name)
            recording.add_text(f"{name}/screen", screen)
            recording.save()
            end = f", exit code {code}" if code else ""
            took = f"{done} of {len(jobs)}, {time.monotonic() - begin:.0f} s"
            print(f"{took}: {name}, {seconds:.1f} s{end}", flush=True)
    print(f"{len(recording.datasets)} datasets and {len(recording.texts)} texts in {folder}")
    return 0


def _hide(text: str, work: Path) -> str:
    text = text.replace(str(work), "WORK").replace(str(ROOT), "ROOT")
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text


def _run(folder: Path, asked: str) -> tuple[int, str, float]:
    """Run a command in a folder of its own; returns its exit code, what it shows, and its time [s]."""
    folder.mkdir()
    command, *words = shlex.split(asked)
    last = {word.partition("=")[0]: word for word in words}
    output = "out.yaml" if command == "calibrate" else "out"
    line = [sys.executable, "-m", f"fastflow.{command}", *last.values(), f"output={output}"]
    if command == "functions":
        line = [sys.executable, str(Path(__file__).resolve().with_name("same_results_functions.py"))]
    begin = time.monotonic()
    found = os.pathsep.join(map(os.path.abspath, filter(None, os.getenv("PYTHONPATH", "").split(os.pathsep))))
    screen = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
    given = {**os.environ, **screen, "PYTHONPATH": found}
    done = subprocess.run(line, cwd=folder, env=given, capture_output=True, encoding="utf-8", check=False)
    shown = f"exit code {done.returncode}\n{done.stdout}" + (done.stderr if done.returncode else "")
    return done.returncode, shown, time.monotonic() - begin


def _write_inputs(folder: Path, measurements: Path) -> None:
    """Write the files that commands read: a network, a trace, measurements, and some that nobody has made."""
    data = ROOT / "tests" / "data"
    shutil.copytree(data / "measured", folder / "sample")
    shutil.copy(data / "trace_azure.csv", folder)
    (folder / "products").mkdir()
    shutil.copy(data / "measured" / "gemm_a100_llm.csv", folder / "products")
    if measurements.is_dir():
        (folder / "whole").symlink_to(measurements.resolve(), target_is_directory=True)
    served = ["system,model,isl,osl,concurrency,tp,backend,silicon_ttft_ms,silicon_tpot_ms"]
    served += [f"h100_sxm,Qwen/Qwen3-32B,1024,128,{n},4,vllm,{100 + 8 * n},{9 + n / 8}" for n in (4, 16, 64)]
    iterations = ["model,system.devices,parallel.strategy,time_s"]
    iterations += [f"lstm_lm,{n},d{n},{700 / n}" for n in (64, 128, 256)]
    net = "name: net\nrows: 8192\nlayers:\n- name: block\n  repeat: 2\n  kernels:\n"
    net += "  - {name: up, type: gemm, inner: 512, cols: 2048}\n"
    net += "  - {name: down, type: gemm, inner: 2048, cols: 512}\n"
    for name, text in (("served.csv", served), ("iterations.csv", iterations), ("net.yaml", [net])):
        (folder / name).write_text("\n".join(text) + "\n", encoding="utf-8")


def _keep(recording: Recording, folder: Path, name: str) -> None:
    """Keep every dataset and every text file that a command has left."""
    for path in sorted(folder.rglob("*")):
        where = f"{name}/{path.relative_to(folder).as_posix()}"
        if path.is_dir() and any(path.glob("*.parquet")):
            recording.add_table(where, pq.read_table(path))
        elif path.suffix in (".yaml", ".json", ".svg", ".csv"):
            text = path.read_text(encoding="utf-8")
            recording.add_text(where, text.replace("},{", "},\n{"))  # an event of a trace is a line


class Renames(NamedTuple):
    """Names that fastflow has changed, old to new."""

    words: dict[str, str]
    """Keys, groups, columns, functions and further words."""
    values: dict[str, dict[str, str]]
    """Values of a key or a column, by its new name."""

    @classmethod
    def known(cls) -> Renames:
        """Return those of `fastflow/schema/renamed.py`, and the pipeline's axis."""
        renamed = runpy.run_path(str(ROOT / "fastflow" / "schema" / "renamed.py"))
        words = {"lp": "pp"} | renamed["KEYS"]
        words |= {f"fastflow.{old}": f"fastflow.{new}" for old, new in renamed["FUNCTIONS"].items()}
        for pair in renamed["COLUMNS"].items():
            words |= [[name.replace("l*", f"l{level}") for name in pair] for level in range(LEVELS)]
        return cls(words, renamed["VALUES"])

    def in_text(self, text: str | None) -> str | None:
        """Return a text with new names, and new values after a key and `=`."""
        if text is None:
            return None
        text = re.sub(r"[\w.]*\w", lambda word: self.words.get(word[0], word[0]), text)
        return re.sub(r"([\w.]*\w)=([\w,]+)", lambda pair: f"{pair[1]}={self._new(pair[1], pair[2])}", text)

    def in_cell(self, column: str, text: str | None) -> str | None:
        """Return a cell of a column with new names; column: its new name."""
        return self._new(column, text) if text and column in self.values else self.in_text(text)

    def _new(self, key: str, values: str) -> str:
        words = self.values.get(key, {})
        return ",".join(words.get(value, value) for value in values.split(","))


class Comparison:
    """What differs between two recordings."""

    def __init__(self, first: Recording, second: Recording, renames: Renames, values: bool) -> None:
        """values: whether values, nulls and types alone are compared."""
        self.first, self.second, self.renames, self.values = first, second, renames, values
        self.differences: dict[tuple[str, str], list[str]] = {}
        """What differs, by its column and its text: names of the datasets and texts."""
        self.columns = self.cells = 0

    def run(self) -> None:
        self._lacks("dataset", self.first.datasets, self.second.datasets)
        for name in self.first.datasets.keys() & self.second.datasets.keys():
            self._compare_dataset(name)
        if self.values:
            return
        self._lacks("text", self.first.texts, self.second.texts)
        for name in self.first.texts.keys() & self.second.texts.keys():
            if self.first.texts[name] != self.second.texts[name]:
                self._compare_texts(name)

    def lines(self) -> list[str]:
        """Return what differs, in the order of names: the same difference of several in one line."""
        shown = []
        for (about, what), names in self.differences.items():
            first, *others = sorted(names)
            head, *rest = what.split("\n")
            more = f" (and in {len(others)} more: {', '.join(others[:SHOWN])})" if others else ""
            shown.append("\n".join([": ".join(filter(None, (first, about, head))) + more, *rest]))
        return sorted(shown)

    def counts(self) -> str:
        """Return how much was compared."""
        datasets = len(self.first.datasets.keys() & self.second.datasets.keys())
        texts = 0 if self.values else len(self.first.texts.keys() & self.second.texts.keys())
        return f"compared {datasets} datasets, {self.columns} columns, {self.cells} values, {texts} texts"

    def _compare_texts(self, name: str) -> None:
        """Compare the lines of a text; a recording without files knows only that it differs."""
        sides = [side.text(name) for side in (self.first, self.second)]
        renamed = [[self.renames.in_text(line) or "" for line in side] for side in sides]
        old, new = renamed if renamed == sides else [list(map(_without_widths, side)) for side in renamed]
        if not old:
            self._differ(f"text {name}", "", "differs, which a recording has no more")
        for tag, begin, end, other_begin, other_end in SequenceMatcher(None, old, new, False).get_opcodes():
            if tag != "equal":
                for pair in zip_longest(old[begin:end], new[other_begin:other_end]):
                    self._differ(f"text {name}", "", "a line differs", [("", *pair)])

    def _compare_dataset(self, name: str) -> None:
        first, second = self.first.datasets[name], self.second.datasets[name]
        names = {self._new_name(column, second["columns"]): column for column in first["columns"]}
        self._lacks("column", names, second["columns"], name)
        common = [column for column in names if column in second["columns"]]
        if common != [column for column in second["columns"] if column in names]:
            self._differ(name, "", "the columns have another order")
        if first["rows"] != second["rows"]:
            self._differ(name, "", f"{first['rows']} rows | {second['rows']} rows")
        self._metadata(name, "", first["metadata"], second["metadata"])
        for column in common:
            self.columns += 1
            self.cells += second["rows"]
            old, new = first["columns"][names[column]], second["columns"][column]
            if old["type"] != new["type"]:
                self._differ(name, column, f"type {old['type']} | {new['type']}")
            if old["hash"] != new["hash"]:
                self._compare_cells(
                    name, column, self.first.column(name, names[column]), self.second.column(name, column)
                )
            self._metadata(name, column, old["metadata"], new["metadata"])

    def _new_name(self, column: str, others: Any) -> str:
        """Return the name that a column of the first recording has in the second; others: its columns."""
        new = self.renames.words.get(column, column)
        return new if new in others or column not in others else column

    def _compare_cells(self, name: str, column: str, first: pa.Array | None, second: pa.Array | None) -> None:
        if first is None or second is None:
            self._differ(name, column, "values differ, which a recording has no more")
            return
        are_renamed = False
        if {first.type, second.type} <= {pa.string(), pa.large_string()}:
            stored = first, second
            renamed = partial(self.renames.in_cell, column)
            first, second = (pa.array(map(renamed, side.to_pylist()), pa.string()) for side in stored)
            are_renamed = (first, second) != stored
        rows = min(len(first), len(second))
        (null, bits), (other_null, other_bits) = _bits(first[:rows]), _bits(second[:rows])
        if bits.dtype != other_bits.dtype:
            bits, other_bits = (
                np.array([repr(value.as_py()) for value in side[:rows]]) for side in (first, second)
            )
        at = np.flatnonzero((null != other_null) | (bits != other_bits))
        if at.size:
            shown = [(f"row {row}", first[row].as_py(), second[row].as_py()) for row in at[:SHOWN].tolist()]
            self._differ(name, column, f"{at.size} of {rows} values differ", shown)
        elif len(first) == len(second) and first.type == second.type and not are_renamed:
            self._differ(name, column, "the hashes differ, the files do not: not of their recordings")

    def _metadata(self, name: str, column: str, first: dict[str, str], second: dict[str, str]) -> None:
        keys = [] if self.values else [key for key in {**first, **second} if not IGNORED.search(key)]
        for key in keys:
            old, new = self.renames.in_text(first.get(key)), self.renames.in_text(second.get(key))
            if old != new:
                self._differ(name, column, f"metadata {key}", [("", old, new)])

    def _lacks(self, what: str, first: Any, second: Any, dataset: str = "") -> None:
        for side, name in [("second", name) for name in first if name not in second] + [
            ("first", name) for name in second if name not in first
        ]:
            self._differ(dataset, f"{what} {name}", f"is not in the {side} recording")

    def _differ(
        self, name: str, about: str, what: str, pairs: list[tuple[str, Any, Any]] | tuple[()] = ()
    ) -> None:
        lines = [
            f"    {label}: {_around(old, new)} | {_around(new, old)}" for label, old, new in pairs[:SHOWN]
        ]
        names = self.differences.setdefault((about, "\n".join([what, *lines])), [])
        if name not in names:
            names.append(name)


def _without_widths(line: str) -> str:
    """Return a line of a table without the widths of its columns, which follow from names."""
    return re.sub(r" {2,}", "  ", re.sub(r"─+", "─", line)).strip()


def _around(value: Any, other: Any) -> str:
    """Return a value as it is shown: of a long text what is around the first difference from another."""
    if not isinstance(value, str) or len(value) < 2 * AROUND:
        return repr(value)
    differs = (at for at, (old, new) in enumerate(zip(value, str(other), strict=False)) if old != new)
    begin = max(0, next(differs, min(len(value), len(str(other)))) - AROUND)
    return f"...{value[begin : begin + 2 * AROUND]!r}..."


def compare(first: Path, second: Path, renames: Path | None, only: str, values: bool) -> int:
    """Print what differs; returns the exit code."""
    known = Renames.known()
    if renames is not None:
        with renames.open(encoding="utf-8", newline="") as file:
            known.words.update({row[0].strip(): row[1].strip() for row in csv.reader(file) if row})
    sides = [Recording.load(folder) for folder in (first, second)]
    for side in sides:
        for kept in (side.datasets, side.texts):
            for name in [name for name in kept if not re.search(only, name.split("/")[0])]:
                del kept[name]
    comparison = Comparison(*sides, known, values)
    comparison.run()
    for line in comparison.lines():
        print(line)
    found = len(comparison.differences)
    print(f"{comparison.counts()}: {f'{found} differences' if found else 'no difference'}")
    return int(bool(comparison.differences))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record")
    recorder.add_argument("folder", type=Path)
    recorder.add_argument("--measurements", type=Path, default=ROOT.parent / "shared" / "measurements")
    recorder.add_argument("--only", default="", help="names of commands, a regular expression")
    recorder.add_argument("--processes", type=int, default=os.cpu_count())
    comparer = commands.add_parser("compare")
    comparer.add_argument("first", type=Path)
    comparer.add_argument("second", type=Path)
    comparer.add_argument("--renames", type=Path)
    comparer.add_argument("--only", default="", help="names of commands, a regular expression")
    comparer.add_argument("--values", action="store_true")
    given = vars(parser.parse_args(arguments))
    return {"record": record, "compare": compare}[given.pop("command")](**given)


if __name__ == "__main__":
    sys.exit(main())
