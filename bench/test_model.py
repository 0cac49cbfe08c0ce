"""How fast the model's stages are; a smoke for CI, compiled and warm before the clock starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from conftest import TECHNOLOGY
from pytest_benchmark.fixture import BenchmarkFixture

from fastflow.config.composer import Composer
from fastflow.core.tables import Inputs, take
from fastflow.engine.grid.plan import plan
from fastflow.performance.crossflow import predict
from fastflow.physics.hardware.chip import generate

Points = Callable[..., Inputs]


def test_compose_84_points(benchmark: BenchmarkFixture) -> None:
    study = benchmark(lambda: plan(Composer.of_library(), TECHNOLOGY))
    benchmark.extra_info["points"] = study.grid.points
    benchmark.extra_info["compositions"] = study.grid.compositions
    assert study.grid.points == 84


def test_generate_10000_chips(benchmark: BenchmarkFixture, points: Points) -> None:
    inputs = take(dict(points(*TECHNOLOGY)), np.arange(10_000) % 84)
    chip = benchmark(generate, inputs)
    assert (chip.cores.mcus > 0).all()


def test_predict_one_point(benchmark: BenchmarkFixture, points: Points) -> None:
    prediction = benchmark(predict, points())
    assert prediction.timed.size == 1


def test_predict_84_points_in_one_batch(benchmark: BenchmarkFixture, points: Points) -> None:
    prediction = benchmark(predict, points(*TECHNOLOGY))
    assert prediction.timed.size == 84


def test_predict_64_gemms(benchmark: BenchmarkFixture, points: Points) -> None:
    sizes = "4096,8192,16384,32768"
    inputs = points("model=gemm", "chip=a100", f"model.m={sizes}", f"model.k={sizes}", f"model.n={sizes}")
    prediction = benchmark(predict, inputs)
    assert prediction.timed.size == 64


def test_readme_sweep_from_a_shell(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """README's six points as a whole process, start to dataset."""
    command = [sys.executable, "-m", "fastflow.sweep", "-m", "tech=n12,n7,n3", "mem=hbm2,hbm3"]
    benchmark.pedantic(
        lambda: subprocess.run([*command, "output=out"], cwd=tmp_path, check=True, capture_output=True),
        rounds=3,
        warmup_rounds=1,
    )
    assert (tmp_path / "out" / "part-00000.parquet").exists()
