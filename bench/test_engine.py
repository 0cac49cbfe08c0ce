"""The batch engine: what describing a million points costs, what a second thread brings, order, memory."""

from __future__ import annotations

import cProfile
import pstats
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import fastflow
from fastflow.config.composer import Composer
from fastflow.engine.grid.plan import plan
from fastflow.engine.run import execute
from fastflow.physics.timing.tiling import cache

PART_OF_A_MILLION = ("+sweeps=million", "tech=n12,n3", "mem=hbm2,hbm3")  # 144,000 points
NETWORKS = "net=ndr_x8,xdr_x8,gdr_x8"
DESIGNS = (
    "tech=n7", "mem=hbm3", "model.batch=range(1024,20481,1024)", "model.hidden=range(1024,20481,1024)",
    "parallel.strategy=d512,CR-8-d64,RC-2-8-d32,RC-8-8-d8",
)  # fmt: skip
NAMES = ("llama2_7b", "llama3_70b", "mixtral_8x7b", "deepseek_v3", "gpt_oss_120b", "kimi_k2")
MODELS = {
    "served": (
        "serve=continuous", "server=vllm", "system.devices=16", "parallel.strategy=TP-8-d2",
        "chip=h100_sxm,h200_sxm,b200_sxm,a100_sxm_80", "serve.concurrency=1,4,16,64",
        "serve.isl=1024,4096,8192",
    ),
    "trained": (
        "system.devices=64", "chip=h100_sxm,h200_sxm,a100_sxm_80", "model.batch=256,512,1024,2048",
        "parallel.strategy=TP-8-d8,TP-4-d16,TP-8-d4-p2,TP-2-d32,TP-4-c2-d8",
    ),
}  # fmt: skip
ROUNDS = 3
IMPORTS = "import numba, pandas, pyarrow.parquet, hydra, rich, joblib"
MACHINES = (64, 128, 256, 512, 1024)
CHUNKS = {1: (1,), 2: (1, 4, 10, 40), 4: (1, 5, 20), 8: (1, 5, 10), 16: (1, 5)}  # by stages, of 80 layers
LAYOUTS = [
    (devices, f"TP-{tp}-c{cp}-d{devices // (tp * cp * stages)}-p{stages}x{chunks}")
    for devices in MACHINES for tp in (1, 2, 4, 8) for cp in (1, 2, 4) for stages in CHUNKS
    for chunks in CHUNKS[stages] if devices >= tp * cp * stages
]  # fmt: skip
TRANSFORMERS = (
    "tech=n12,n3", "mem=hbm2,hbm4", "model=llama3_70b", "model.batch=4096", "parallel.microbatch=1,2,4,8",
    "parallel.recompute=none,full",
)  # fmt: skip


def test_describe_a_million_points(benchmark: BenchmarkFixture) -> None:
    study = benchmark.pedantic(
        lambda: plan(Composer.of_library(), ["+sweeps=million"]), rounds=ROUNDS, warmup_rounds=1
    )
    assert study.grid.points == 1_008_000
    benchmark.extra_info["count:compositions_of_a_million_points"] = study.grid.compositions


def test_two_threads(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """One thread and two in turns, each a whole dataset."""
    seconds: dict[int, list[float]] = {1: [], 2: []}

    def sweep(jobs: int, number: int) -> None:
        study = plan(Composer.of_library(), [*PART_OF_A_MILLION, f"engine.jobs={jobs}"])
        cache._caches.clear()
        start = perf_counter()
        execute.store(study, tmp_path / f"{jobs}-{number}")
        seconds[jobs].append(perf_counter() - start)

    sweep(2, -1)
    seconds[2].clear()
    for number in range(ROUNDS):
        sweep(1, number)
        sweep(2, number)
    benchmark.pedantic(lambda: sweep(2, ROUNDS), rounds=1)
    benchmark.extra_info["ratio:one_thread_over_two"] = median(seconds[1]) / median(seconds[2])


def test_grid_of_transformers(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """A 70B model: devices, layouts, micro-batches, technologies and memories, beside the time of imports."""
    devices, layouts = (",".join(map(str, column)) for column in zip(*LAYOUTS, strict=True))
    zipped = [{"system.devices": devices, "parallel.strategy": layouts}]
    study = plan(Composer.of_library(), TRANSFORMERS, {"zip": zipped})
    seconds, imports = [], []
    for number in range(ROUNDS + 1):
        start = perf_counter()
        subprocess.run([sys.executable, "-c", IMPORTS], check=True)
        imports.append(perf_counter() - start)
        start = perf_counter()
        execute.store(study, tmp_path / str(number))
        seconds.append(perf_counter() - start)
    benchmark.pedantic(lambda: execute.store(study, tmp_path / "last"), rounds=1)
    a_million = median(seconds[1:]) / study.grid.points * 1e6 / median(imports[1:])
    benchmark.extra_info["ratio:90_imports_over_a_million_transformers"] = 90.0 / a_million
    benchmark.extra_info["count:compositions_of_a_grid_of_transformers"] = study.grid.compositions


@pytest.mark.parametrize(("name", "asked"), MODELS.items())
def test_calls_of_a_grid_of_models(benchmark: BenchmarkFixture, name: str, asked: tuple[str, ...]) -> None:
    """Function calls of a repeated grid, of which each takes time wherever few points share their model."""
    asked = ("engine.jobs=1", f"model={','.join(NAMES)}", *asked)
    for _ in range(2):  # until what calls keep is the same before each
        fastflow.evaluate(*asked)
    profile = cProfile.Profile()
    frame = profile.runcall(fastflow.evaluate, *asked)
    calls = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    benchmark.extra_info[f"count:thousands_of_calls_of_{len(frame)}_{name}_points"] = -(-calls // 1000)
    benchmark.pedantic(fastflow.evaluate, asked, rounds=3)


def test_gemms_solved_in_either_order(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,800 points in small chunks; on one thread, as two may solve the same GEMM at once."""
    found: list[int] = []
    keep = cache.TilingCache.keep

    def count(self: cache.TilingCache, tag: cache.Words, *rest: Any) -> None:
        found.append(tag.size)
        keep(self, tag, *rest)

    monkeypatch.setattr(cache.TilingCache, "keep", count)

    def gemms(*axes: str) -> int:
        run = plan(Composer.of_library(), [*axes, "engine.jobs=1", "engine.chunk=256"])
        cache._caches.clear()
        found.clear()
        execute.collect(run)
        return sum(found)

    benchmark.extra_info["count:gemms_solved_with_networks_last"] = gemms(*DESIGNS, NETWORKS)
    first = benchmark.pedantic(lambda: gemms(NETWORKS, *DESIGNS), rounds=1)
    benchmark.extra_info["count:gemms_solved_with_networks_first"] = first


def test_memory_does_not_grow(benchmark: BenchmarkFixture) -> None:
    """Resident size of whole processes over 100,000 and 400,000 points."""

    def measure() -> list[float]:  # in a small process: Linux counts a parent's pages as its child's
        command = [sys.executable, str(Path(__file__).with_name("memory.py")), "100000", "400000"]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [float(line.split("|")[2]) * 1e6 for line in out.splitlines()[2:]]

    small, large = benchmark.pedantic(measure, rounds=1)
    benchmark.extra_info["ratio:resident_of_100k_over_400k_points"] = small / large
    assert large < 1e9
