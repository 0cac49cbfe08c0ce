"""What is compiled until the first results: kernels and signatures, counted in a cache of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIRST = ("sweep", "-m", "tech=n12,n7,n3", "mem=hbm2,hbm3", "parallel.strategy=auto")
NEXT = {
    "product": ("sweep", "model=gemm", "chip=a100"),
    "ranking": ("sweep", "tech=n7", "parallel.strategy=auto"),
    "search": ("search", "tech=n7", "parallel.strategy=d512", "steps=2", "starts=1"),
}
AHEAD = """
from fastflow import precompile
precompile._compile_all(KIND, precompile._calls(KIND))
""".replace("KIND", "'network, searched'")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("compile")
    environment = os.environ | {"FASTFLOW_CACHE": str(home / "cache"), "PYTHONPATH": str(ROOT)}

    def found(*words):
        subprocess.run(
            [sys.executable, *words], cwd=home, env=environment, capture_output=True, check=True, text=True
        )
        names = [path.name for path in (home / "cache").rglob("*.nb?")]
        return sum(name.endswith(".nbi") for name in names), sum(name.endswith(".nbc") for name in names)

    return found


def test_what_is_compiled(benchmark, run):
    kernels, ahead = run("-c", AHEAD)
    kernels, first = run("-m", f"fastflow.{FIRST[0]}", *FIRST[1:], "output=first")
    info = benchmark.extra_info
    info["count:kernels_of_the_first_sweep"] = kernels
    info["count:signatures_of_the_first_sweep"] = first
    info["count:signatures_not_compiled_ahead"] = first - ahead
    for name, (command, *overrides) in NEXT.items():
        before = first
        _, first = run("-m", f"fastflow.{command}", *overrides, f"output={name}")
        info[f"count:further_signatures_of_the_first_{name}"] = first - before
    benchmark.pedantic(lambda: None, rounds=1)
