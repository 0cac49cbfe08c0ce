"""What commands say today, as rows that the pages' figures are taken from, and how figures are written."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from fastflow.core import units
from tests.support.documents import ROOT, blocks, pages


class DocError(Exception):
    """A mark that cannot be read, or that does not suit its block."""


class Row(dict[str, Any]):
    """A row of results: `row.time_s`, `row["model.batch"]`."""

    def __getattr__(self, name: str) -> Any:
        """Return a column."""
        if name in self:
            return self[name]
        raise AttributeError(f"no column {name}")


class Answer(list[Row]):
    """What a command found, a row a point; `value` is what its Python function returns."""

    def __init__(self, value: Any, study: str = "") -> None:
        """Take a DataFrame, or an answer that has several; study: its name."""
        self.value, self.study = value, study
        super().__init__(rows(value) if hasattr(value, "columns") else ())

    def at(self, **wanted: Any) -> Row:
        """Return the row of some values; `model__batch=8` stands for `model.batch`."""
        same = {name.replace("__", "."): value for name, value in wanted.items()}
        found = [row for row in self if all(row[name] == value for name, value in same.items())]
        if len(found) != 1:
            raise DocError(f"{len(found)} rows of {wanted}")
        return found[0]

    @property
    def module(self) -> Any:
        """Return the module of a study."""
        return import_module(f"fastflow.reporting.studies.{self.study}")

    @cached_property
    def claims(self) -> list[Any]:
        """Return the claims of a study."""
        from fastflow.reporting.studies import report_of

        study = report_of(self.study)
        return study.claims(self.value[list(study.columns)])

    def claim(self, words: str) -> "Said":
        """Return what was found on the claim that begins with some words."""
        (found,) = (one for one in self.claims if one.text.startswith(words))
        return Said(
            re.findall(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?%?", found.figure), found.figure, found.holds
        )


class Said(NamedTuple):
    """What a study says of a claim."""

    figures: list[str]  # in the order of the text
    text: str
    holds: bool

    @property
    def verdict(self) -> str:
        """Yes or no."""
        return "yes" if self.holds else "no"

    @property
    def span(self) -> str:
        """The least to the largest of its figures."""
        order = sorted(self.figures, key=lambda one: float(one.rstrip("%").replace(",", "")))
        return join(order[0], order[-1])


def rows(frame: Any) -> list[Row]:
    """Return the rows of a DataFrame."""
    return [Row(zip(frame.columns, row, strict=True)) for row in frame.itertuples(index=False, name=None)]


def written(value: Any, spec: str = "") -> str:
    """Write a value: by a unit as screens do, `%` as studies do, `pct` without its sign, `x` as a factor."""
    if spec in ("s", "B", "J", "W", "USD", "B/s", "flop/s", "Hz") and not isinstance(value, str):
        return units.show(float(value), spec)
    if spec in ("%", "pct"):
        return units.percent(value) if spec == "%" else units.percent(value).rstrip("%")
    if spec == "x":
        return f"{value:.3g}x"
    return format(value, spec)


def join(low: str, high: str) -> str:
    """Write a range: 8.9% and 38% as "8.9 to 38%", 2.1 s and 6.4 s as "2.1 to 6.4 s"."""
    number, unit = re.fullmatch(r"([-\d.,]+)(.*)", low).groups()  # type: ignore[union-attr]
    if low == high:
        return low
    return f"{number if high.endswith(unit) else low} to {high}"


def span(values: Iterable[float], spec: str) -> str:
    """Write the least to the largest of some values."""
    several = list(values)
    return join(written(min(several), spec), written(max(several), spec))


HELPERS = {"span": span, "join": join, "rows": rows, "written": written, "re": re}


class Runner:
    """Runs commands, each once; files that pages show are there under their names."""

    def __init__(self, folder: Path) -> None:
        """Take an empty folder to work in."""
        self.folder = folder
        self._answers: dict[str, Answer] = {}
        self._stored: dict[str, Path] = {}
        for page in pages():
            for block in blocks(page):
                if block.file and block.language not in ("sh", "python"):
                    path = folder / block.file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(block.text, encoding="utf-8")

    def answer(self, command: str) -> Answer:
        """Return what a command finds."""
        if command not in self._answers:
            self._answers[command] = self._run(command)
        return self._answers[command]

    def _run(self, command: str) -> Answer:
        import fastflow

        name, rest = _words(command)
        study = next((word.removeprefix("+sweeps=") for word in rest if word.startswith("+sweeps=")), "")
        if study:
            import pandas as pd

            stored = self.dataset(command, study)
            ranking = stored.with_name(f"{stored.name}-ranking")
            return Answer(pd.read_parquet(ranking if ranking.exists() else stored), study)
        given: dict[str, Any] = {}
        rest = [word for word in rest if word != "-m"]
        if "--config-dir" in rest:
            place = rest.index("--config-dir")
            given["config_dir"] = rest[place + 1]
            del rest[place : place + 2]
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            return Answer(getattr(fastflow, "evaluate" if name == "sweep" else name)(*rest, **given))
        finally:
            os.chdir(before)

    def dataset(self, command: str, name: str) -> Path:
        """Return the dataset of a command, of a name that its drawing may bear."""
        if command not in self._stored:
            module, rest = _words(command)
            path = self.folder / sha256(command.encode()).hexdigest()[:12] / name
            self._shell(module, *rest, f"output={path.relative_to(self.folder)}")
            self._stored[command] = path
        return self._stored[command]

    def drawing(self, command: str, file: str) -> str:
        """Return the text of a drawing that a command makes, by its file's name in the pages."""
        if f"picture={file}" in command:
            module, rest = _words(command)
            self._shell(module, *rest)
            return (self.folder / file).read_text(encoding="utf-8")
        stored = self.dataset(command, file.removesuffix(".svg"))
        found = sorted(stored.parent.glob(f"{stored.name}-*.svg"))
        if not found:
            self._shell("report", str(stored.relative_to(self.folder)))
            found = sorted(stored.parent.glob(f"{stored.name}-*.svg"))
        return found[0].read_text(encoding="utf-8")

    def _shell(self, module: str, *words: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "110"}
        command = [sys.executable, "-m", f"fastflow.{module}", *words]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise DocError(f"{shlex.join(command)}: {done.stderr.strip()[-400:]}")


def _words(command: str) -> tuple[str, list[str]]:
    """Return the name of a command, and its arguments."""
    first, *rest = shlex.split(command)
    return (
        (rest[1].removeprefix("fastflow."), rest[2:])
        if first == "python"
        else (first.removeprefix("fastflow."), rest)
    )
