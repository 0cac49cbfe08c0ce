"""Search methods beside each other: the table of docs/searches.md, and its figure.

    python bench/methods.py                  # all 20 problems: a quarter of an hour; also writes methods.svg
    python bench/methods.py --problems 4     # the first four

A problem is a technology, a workload and a strategy. Every method has as many designs as the paper's search,
and the best time found so far is noted after a number of them. Times are over the best that any method found
for the problem.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fastflow.analysis.search.history import PART_ROWS
from fastflow.analysis.search.optimizers.halving import Rules
from fastflow.analysis.search.optimizers.methods import METHODS, defaults
from fastflow.analysis.search.optimizers.objective import LACKS_MEMORY
from fastflow.analysis.search.options import SearchOptions
from fastflow.analysis.search.run import search_designs
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.engine.grid.plan import plan
from fastflow.reporting.charts.style import SEQUENTIAL, draw_heading, render

TECHNOLOGIES = (
    "tech=n12 mem=hbm2 net=ndr_x8",
    "tech=n7 mem=hbm2e net=ndr_x8",
    "tech=n5 mem=hbm3 net=xdr_x8",
    "tech=n3 mem=hbm3 net=gdr_x8",
    "tech=n1 mem=hbm4 net=gdr_x8",
)
WORKLOADS = (
    "parallel.strategy=d512",
    "parallel.strategy=RC-1-16-d32",
    "model=graph model.file={transformer} model.devices=64 parallel.strategy=RC-1-4-d16",
    "model=gemm model.m=65536 model.k=65536 model.n=65536 model.training=true model.devices=64 "
    "parallel.strategy=CR-8-d8",
)
MARKS = (300, 600, 1_000, 1_800, 5_400, 18_000)
"""Designs after which the best one is noted; a tenth of the paper's search is 1,800."""


def transformer(folder: Path) -> Path:
    """Write the transformer of docs/graphs.md to a file."""
    text = (Path(__file__).parents[1] / "docs" / "graphs.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    file = folder / "transformer.yaml"
    file.write_text(next(block for block in blocks if block.startswith("name: transformer")))
    return file


def rules_of(method: str, most: int) -> Rules:
    """Return a method's own starts, with steps for as many designs."""
    starts, steps = defaults(method)
    return Rules(method, starts, steps if starts > 1 else most, 0)


class Enough(Exception):  # noqa: N818 - not an error
    """A search has scored as many designs as it may."""


def best_so_far(overrides: list[str], method: str, folder: Path) -> list[float]:
    """Return the best time after each of MARKS [s]; infinite where no design was feasible so far."""
    most = MARKS[-1]
    with hydra_rules():
        study = plan(Composer.of_library(config_name="search"), overrides)
    asked = SearchOptions(rules_of(method, most), "time", None, "software")
    steps = 0

    def advance(done: int) -> None:
        nonlocal steps
        steps += done
        if steps % 50 == 0 and sum(1 for _ in folder.glob("part-*")) * PART_ROWS >= most:
            raise Enough

    with suppress(Enough):
        search_designs(study, asked, str(folder), advance=advance)
    history = pd.read_parquet(folder, columns=["score"])["score"].to_numpy()
    best = np.minimum.accumulate(np.where(history < LACKS_MEMORY, history, np.inf))
    return [float(np.exp(best[min(mark, best.size) - 1])) for mark in MARKS]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=len(TECHNOLOGIES) * len(WORKLOADS))
    parser.add_argument("--figure", default="methods.svg")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = transformer(folder)
        problems = [(t, w.format(transformer=file)) for w in WORKLOADS for t in TECHNOLOGIES][
            : asked.problems
        ]
        for number, (technology, workload) in enumerate(problems):
            for method in METHODS:
                overrides = [*technology.split(), *workload.split()]
                times = best_so_far(overrides, method, folder / f"{number}-{method}")
                rows.append((number, technology, workload.replace(str(file), "transformer"), method, *times))
                print(*rows[-1], sep="\t", flush=True)
    frame = pd.DataFrame(rows, columns=["problem", "technology", "workload", "method", *MARKS])
    report(frame)
    Path(asked.figure).write_bytes(render(lambda: draw(frame)))


def over_best(frame: pd.DataFrame) -> pd.DataFrame:
    """Return times as what they exceed the best of any method by, a row a problem and method."""
    marks = list(MARKS)
    best = frame.groupby("problem")[marks[-1]].transform("min")
    return frame[["problem", "method"]].join(frame[marks].div(best, axis=0) - 1.0)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the median over problems, and its quartiles, over the designs scored."""
    figure = Figure(figsize=(6.4, 3.9))
    problems = frame["problem"].nunique()
    about = f"time over the best that any method found; median and quartiles of {problems} problems"
    draw_heading(figure, "Search methods side by side", about)
    axes = figure.add_axes((0.1, 0.13, 0.87, 0.67))
    for colour, (method, part) in zip(
        reversed(SEQUENTIAL), over_best(frame).groupby("method", sort=False), strict=False
    ):
        low, middle, high = (part[list(MARKS)].quantile(q).clip(1e-5) for q in (0.25, 0.5, 0.75))
        axes.fill_between(MARKS, low, high, color=colour, alpha=0.13, linewidth=0)
        axes.plot(MARKS, middle, color=colour, marker="o", markersize=3.5, linewidth=1.6, label=method)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(3e-4, 0.6)
    axes.set_xticks(MARKS, [f"{mark:,}" for mark in MARKS])
    axes.set_xticks([], minor=True)
    axes.set_yticks([1e-3, 1e-2, 1e-1], ["0.1%", "1%", "10%"])
    axes.set_xlabel("designs scored")
    axes.legend(loc="lower left")
    return figure


def report(frame: pd.DataFrame) -> None:
    """Print the tables of the docs: each problem's best time, and over all problems by designs scored."""
    marks = list(MARKS)
    over = over_best(frame)
    print("\n| designs |", " | ".join(f"{mark:,}" for mark in marks), "|")
    print("|---|" + "---|" * len(marks))
    for what, summary in (("median", "median"), ("worst", "max")):
        for method, row in over.groupby("method", sort=False)[marks].agg(summary).iterrows():
            cells = " | ".join("none" if np.isinf(value) else f"{value:.1%}" for value in row)
            print(f"| `{method}`, {what} | {cells} |")
    paper = frame[frame["method"] == "gradient"].set_index("problem")[marks[-1]]
    for method, part in frame.groupby("method", sort=False):
        times = part.set_index("problem")
        tenth = int((times[1_800] <= paper).sum())
        same = int((times[marks[-1]] < paper).sum())
        print(f"{method}: at a tenth of the designs as good as the paper's search in {tenth} of {len(paper)}")
        print(f"{method}: with as many, better in {same}")
    print("\n| problem | " + " | ".join(f"`{method}`" for method in METHODS) + " |")
    print("|---|" + "---|" * len(METHODS))
    for (technology, workload), part in frame.groupby(["technology", "workload"], sort=False):
        cells = " | ".join(f"{row[1_800]:.4g}, {row[marks[-1]]:.4g}" for _, row in part.iterrows())
        print(f"| {technology}, {workload} | {cells} |")


if __name__ == "__main__":
    main()
