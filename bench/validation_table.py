"""Errors by class of validation: `python bench/validation_table.py ../shared/measurements`.

It predicts the rows of every file of the folder that a kind of measurements reads, and writes
fastflow/performance/accuracy/table.csv, and its part in docs/validation.md, which nobody edits by hand.
Files of kernels, training runs and served points are predicted a second time,
on chips generated from their budgets.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml

from fastflow.analysis.measurements.aliases import match_name
from fastflow.analysis.measurements.kind import KINDS
from fastflow.analysis.measurements.plan import PlannedFile, plan_file
from fastflow.analysis.validation.error_metrics import accuracy
from fastflow.analysis.validation.tables import predicted_tables
from fastflow.config import catalog
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core import jit
from fastflow.core.errors import InputError
from fastflow.core.version import version
from fastflow.engine.grid.run import naming_errors
from fastflow.performance.accuracy import table
from fastflow.performance.accuracy.classes import (
    FIRST_TOKENS,
    TRAINING,
    Point,
    describe,
    work_of,
)

CHIPS = {  # of what files of kernels call a device
    "A100 SXM4 80GB": "a100_sxm_80", "A100 80GB": "a100_sxm_80", "A100 PCIe 40GB": "a100_pcie_40",
    "B200": "b200_sxm", "GB200": "gb200", "H100 80GB HBM3": "h100_sxm", "L40S": "l40s", "MI300X": "mi300x",
    "P100 PCIe": "p100", "V100 PCIe": "v100_pcie", "V100 SXM2": "v100_sxm",
}  # fmt: skip
MACHINES = {"GB200": "gb200_nvl72"}  # of collectives; of others fastflow finds the machine itself
NOT_READ = {
    "energy_served": "lengths of its prompts are assumed, so that its times per token are of no class",
    "energy_training": "iterations of MLPerf's models, BERT among them, whose times are in training_mlperf",
    "custom_allreduce": "collectives of servers, which run as part of their passes",
    "deepep": "exchanges of experts, of which there is no class",
}
CALIBRATED_WORK = {
    "blackwell": ("products", "attention", "latent attention", "experts", "collectives"),
    "ada": ("products", "attention", "collectives"),
    "cdna3": ("products", "experts"),
}
"""Architecture to the work that something was calibrated to: other work on it is that of chips without
calibration. All work, for others that were calibrated."""
OF_THE_LIBRARY = ("GEMMs", "attention", "latent attention", "expert layers", "recurrent layers")
"""Kinds of kernels that generated chips are held to."""
OWN = {
    "recurrent layers": ("recurrent.gap='0 s'", "recurrent.call='0 s'"),
    # a sweep predicts the device alone, without a measuring host
}
PINS = (
    "mcus", "core_Hz", "boost_W", "l0_B", "l0_Bps", "l1_B", "l1_Bps", "l2_B", "l2_Bps", "dram_capacity_B",
    "dram_Bps", "dram_JpB",
)  # fmt: skip
"""What budgets make instead, where links stay as they were bought."""
BY_DTYPE = ("products", "experts")
"""Kinds of work whose classes are also of one data type each."""
DIGITS = 4
COLLECTIVES = "collectives"
"""A kind of measurement, each row of which is a class."""
DOCS = Path(__file__).parents[1] / "docs" / "validation.md"
BEGIN, END = "<!-- written by bench/validation_table.py -->\n", "<!-- up to here -->\n"
HEAD = """\
# Written by bench/validation_table.py with fastflow {version}, {model}; not by hand.
# Errors of predictions by class of validation (docs/validation.md). A class is of a kind of work, of model
# and of data type (empty: any) and of chips: measured: this chip; relative: of this architecture; unmeasured:
# of this maker, where nothing was calibrated to any chip of their architecture; generated: from budgets.
"""


class Task(NamedTuple):
    """One file, or one device's rows of it, and how they are predicted."""

    path: Path
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called while it runs."""
        is_generated = any("pin" in text for text in self.overrides)
        plain = [text for text in self.overrides if "pin" not in text and "recurrent" not in text]
        return "-".join([self.path.stem, *plain, *(["generated"] if is_generated else [])])


def tasks(folder: Path) -> Iterator[Task]:
    """Yield what is predicted of a folder."""
    for path in sorted(folder.glob("*.csv")):
        columns = list(pd.read_csv(path, nrows=0).columns)
        claims = [kind for kind in KINDS.values() if kind.needed and kind.claims(columns, ())]
        if not claims or path.stem in NOT_READ:
            continue
        kind = claims[0]
        if kind.is_of_a_system and kind.name != COLLECTIVES:
            yield Task(path, ())
            yield Task(path, tuple(f"chip.pinned.{name}=null" for name in PINS))
            continue
        for device in pd.read_csv(path, usecols=["device"])["device"].dropna().astype(str).unique():
            chosen = match_name(device, CHIPS)
            if kind.name == COLLECTIVES:
                machine = MACHINES.get(device)
                yield Task(path, (f"system={machine}",) if machine else ())
            elif chosen:
                own = (f"device='{device}'", f"chip={CHIPS[chosen]}", *OWN.get(kind.name, ()))
                yield Task(path, own)
                if kind.name in OF_THE_LIBRARY:
                    yield Task(path, (*own, "calibration=none"))


def rows_of(task: Task) -> pd.DataFrame:
    """Predict a task's rows: the class of each as far as its file and configuration say it, and p over t."""
    with hydra_rules():
        composer = Composer.of_library(config_name="validate")
        planned = plan_file(composer, [f"measurements={task.path}", *task.overrides])
        with naming_errors(composer, planned.run):
            ratio = predicted_tables(planned).rows["ratio"].to_numpy(zero_copy_only=False)
    found = _described(planned)
    found["ratio"] = ratio[found.pop("row")]
    return found[found["ratio"].notna()]


def _described(planned: PlannedFile) -> pd.DataFrame:
    """Return the class of every row that is predicted, by the rules of the engine itself."""
    measurements, run = planned
    grid = run.grid
    every = np.arange(measurements.rows)
    if measurements.name == COLLECTIVES:
        parts = [(every, grid.first_inputs())]
    elif measurements.is_of_a_system:
        parts = list(measurements.points(grid, every[measurements.reason == ""]))
    else:
        parts = list(measurements.points(grid, every))
    found = []
    for some, inputs in parts:
        points, place = describe(inputs, np.ones(next(iter(inputs.values())).size, np.bool_))
        for row, point in zip(some.tolist(), np.resize(place, some.size).tolist(), strict=True):
            found.append((row, *_class_of(points[point], measurements.name, str(measurements.part[row]))))
    frame = pd.DataFrame(
        found, columns=["row", "work", "kind", "dtype", "chip", "architecture", "maker", "generated"]
    ).set_index("row", drop=False)
    return frame.sort_index()


def _class_of(point: Point, kind: str, part: str) -> tuple[str, str, str, str, str, str, bool]:
    if kind == COLLECTIVES:
        work, of = COLLECTIVES, ""
    else:
        work, of = work_of(point._replace(training=point.name == "transformer"))
        if work in FIRST_TOKENS and part == "ttft":
            work = FIRST_TOKENS[work]
    assert work, point
    return work, of, point.dtype, point.chip, point.architecture, point.maker, point.generated


def calibrated() -> set[str]:
    """Return the architectures of the library to whose chips something was calibrated."""
    found = set()
    for chip in catalog.choices("chip"):
        path = catalog.path_of("chip", chip)
        assert path is not None
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "calibrated:" in str(content.get("source", "")) and chip != "pathfinding":
            with hydra_rules():
                found.add(Composer.of_library().compose([f"chip={chip}"]).leaves["chip.architecture"])
    return found


def classes(rows: pd.DataFrame) -> Iterator[tuple[table.Key, pd.DataFrame]]:
    """Yield every class and its rows."""
    known = rows[~rows["generated"]]
    is_foreign = ~known["architecture"].isin({*calibrated(), *CALIBRATED_WORK})
    for architecture, work in CALIBRATED_WORK.items():
        is_foreign |= (known["architecture"] == architecture) & ~known["work"].isin(work)
    foreign = known[is_foreign]
    for standing, some, of in (
        (table.MEASURED, known, "chip"),
        (table.RELATIVE, known, "architecture"),
        (table.UNMEASURED, foreign, "maker"),
        (table.GENERATED, rows[rows["generated"]], ""),
    ):
        for by_dtype in (False, True):
            chosen = some[some["work"].isin(BY_DTYPE)] if by_dtype else some
            by = ["work", "kind", *(["dtype"] if by_dtype else []), *([of] if of else [])]
            for values, group in chosen.groupby(by):
                one = dict(zip(by, values, strict=True))
                key = table.Key(one["work"], one["kind"], one.get("dtype", ""), standing, one.get(of, ""))
                yield key, group


def written(rows: pd.DataFrame) -> str:
    """Return the table of rows, as a file."""
    text = io.StringIO()
    text.write(HEAD.format(version=version(), model=jit.MODEL_DIGEST))
    to = csv.writer(text, lineterminator="\n")
    to.writerow([*table.Key._fields, *table.Errors._fields, "files"])
    for key, group in sorted(classes(rows), key=lambda one: one[0]):
        if len(group) >= table.MIN_ROWS:
            ratio = group["ratio"].to_numpy(np.float64)
            of = accuracy(np.ones(ratio.size), ratio)
            errors = (round(value, DIGITS) for value in (of.mean_error, of.median_error, of.bias))
            to.writerow([*key, len(group), *errors, " ".join(sorted(group["file"].unique()))])
    return text.getvalue()


def summary(text: str) -> str:
    """Return the classes of training and of serving for the docs: of single chips, and of generated ones."""
    lines = [
        "| work | model | chip | rows | mean error | median | predicted / measured |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, errors in table.read_table(text).items():
        is_whole = key.work in (TRAINING, *FIRST_TOKENS, *FIRST_TOKENS.values())
        if is_whole and key.standing in (table.MEASURED, table.GENERATED):
            chip = key.chip or "made from budgets (`calibration=none`)"
            figures = f"{errors.mean_error:.0%} | {errors.median_error:.0%} | {errors.bias:.2f}"
            lines.append(f"| {key.work} | {key.kind} | {chip} | {errors.rows:,} | {figures} |")
    return "\n".join(lines) + "\n"


def in_docs(page: str, text: str) -> str:
    """Return a page with the summary of a table in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{summary(text)}{END}{after}"


def every_row(folder: Path) -> pd.DataFrame:
    """Return the rows of all tasks."""
    found = []
    for task in tasks(folder):
        begin = time.monotonic()
        try:
            rows = rows_of(task)
        except InputError as error:
            print(f"{task.name}: left out: {error}", file=sys.stderr, flush=True)
            continue
        found.append(rows.assign(file=task.path.stem))
        took = time.monotonic() - begin
        print(f"{task.name}: {len(rows):,} rows in {took:.0f} s", file=sys.stderr, flush=True)
    return pd.concat(found, ignore_index=True)


def main() -> None:
    """Write the table, and show it in the docs."""
    text = written(every_row(Path(sys.argv[1])))
    table.PATH.write_text(text, encoding="utf-8")
    DOCS.write_text(in_docs(DOCS.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(f"{table.PATH}: {len(table.read_table(text))} classes")


if __name__ == "__main__":
    main()
