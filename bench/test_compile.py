"""What is compiled until the first results: kernels and signatures, counted in a cache of their own."""

import json
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
COUNT = """
import importlib, json, sys
from numba.core import event
from fastflow.performance import precompile

class Listener(event.Listener):
    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("fastflow."):
            compiled.append(f"{function.__module__}:{function.__name__}")

    def on_end(self, event):
        pass

compiled = []
event.register("numba:compile", Listener())
precompile._MAX_PROCESSES = 1  # all of it here
if sys.argv[1] == "ahead":
    precompile._compile_all(precompile._calls("network, searched"))
else:
    assert importlib.import_module(f"fastflow.{sys.argv.pop(1)}").main() == 0
print(json.dumps(compiled))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A function that runs a command: returns the kernels that it compiled, each once for each signature."""
    home = tmp_path_factory.mktemp("compile")
    environment = os.environ | {"FASTFLOW_CACHE": str(home / "cache"), "PYTHONPATH": str(ROOT)}

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-c", COUNT, *words], cwd=home, env=environment, capture_output=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_what_is_compiled(benchmark, compiled):
    ahead, rest = compiled("ahead"), compiled(*FIRST, "output=first")
    info = benchmark.extra_info
    info["count:kernels_of_the_first_sweep"] = len({*ahead, *rest})
    info["count:signatures_of_the_first_sweep"] = len(ahead) + len(rest)
    info["count:signatures_not_compiled_ahead"] = len(rest)
    for name, (command, *overrides) in NEXT.items():
        further = compiled(command, *overrides, f"output={name}")
        info[f"count:further_signatures_of_the_first_{name}"] = len(further)
    benchmark.pedantic(lambda: None, rounds=1)
