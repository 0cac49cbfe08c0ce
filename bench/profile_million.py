"""Where the microseconds of `sweeps/million` go, on one thread: the first table of `docs/speed.md`.

    python bench/profile_million.py

Parts from all over the grid are evaluated and stored under cProfile, which costs a few per cent here: a
chunk of 2048 points makes a few hundred Python calls.
"""

from __future__ import annotations

import cProfile
import pstats
import tempfile
from functools import partial
from pathlib import Path

from fastflow.config.composer import Composer
from fastflow.engine.dataset.store import Store
from fastflow.engine.grid.plan import plan
from fastflow.engine.run import execute
from fastflow.engine.run.chunks import warm_up
from fastflow.engine.run.workers import CancellationToken

PARTS = range(4, 124, 6)
# stage, and the functions (file, name) whose cumulative times make it up
STAGES = (
    ("decode points to input columns", [("grid.py", "inputs"), ("chunks.py", "_points_in_memory")]),
    ("generate chips (4)", [("admission.py", "generate_chips")]),
    ("compute graphs (3.2)", [("__init__.py", "build_graph")]),
    ("layouts, cut, stages, footprint (3.3, 5.1)", [
        ("admission.py", "_read_strategies"), ("admission.py", "_count_microbatches"),
        ("partition.py", "cut"), ("pipeline.py", "pipeline"), ("footprint.py", "footprint"),
    ]),
    ("tiling search (6.2)", [("roofline.py", "_search")]),
    ("roofline of every kernel (6.1)", [("roofline.py", "time_kernels")]),
    ("placement and collectives (5.2, 6.4)", [("communication.py", "communicate")]),
    ("schedule (6.5)", [("timeline.py", "schedule")]),
    ("energy", [("energy.py", "energy")]),
    ("all of the model", [("crossflow.py", "predict")]),
    ("result columns", [("chunks.py", "tabulate")]),
    ("Arrow", [("schema.py", "to_arrow")]),
    ("Parquet, compression", [("core.py", "write_table")]),
    ("file, sync, rename", [("folder.py", "write")]),
)  # fmt: skip
INSIDE = {
    "roofline of every kernel (6.1)": "tiling search (6.2)",
    "file, sync, rename": "Parquet, compression",
}


def main() -> None:
    """Print the table."""
    grid = (study := plan(Composer.of_library(), ["+sweeps=million"])).grid
    warm_up(grid)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder, grid)
        store.open()
        work = partial(
            execute._do_part, CancellationToken(), execute.Job(grid, study.settings, store.schema, store)
        )
        work(0)
        profile = cProfile.Profile()
        profile.enable()
        for number in PARTS:
            work(number)
        profile.disable()
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / (
            (len(PARTS) + 1) * store.parts.size
        )
    points = len(PARTS) * store.parts.size
    times = pstats.Stats(profile).stats  # type: ignore[attr-defined]

    def of(function: tuple[str, str]) -> float:
        """Return what a function takes with all that it calls [us a point]."""
        return max(
            cumulative / points * 1e6
            for (file, _, name), (_, _, _, cumulative, _) in times.items()
            if (Path(file).name, name) == function
        )

    spent = {stage: sum(map(of, functions)) for stage, functions in STAGES}
    for outer, inner in INSIDE.items():
        spent[outer] -= spent[inner]
    total = pstats.Stats(profile).total_tt / points * 1e6  # type: ignore[attr-defined]
    print(
        f"{points:,} points, {total:.1f} us a point, {size:.0f} B a row\n\n| stage | us a point |\n|---|---|"
    )
    for stage, microseconds in spent.items():
        print(f"| {stage} | {microseconds:.2f} |")


if __name__ == "__main__":
    main()
