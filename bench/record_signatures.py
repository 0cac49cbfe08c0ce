"""Record the kernels that runs call, and with which types: `python bench/record_signatures.py`.

Writes fastflow/performance/signatures.json, the slowest kernel first.
Takes two minutes: every kind of run compiles anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

RUNS = {
    "network, searched": (("tech=n7,n5", "mem=hbm2,hbm3", "parallel.strategy=auto"),),
    "network, blocks": (("chip=a100", "parallel.strategy=auto", "system.devices=8", "model.batch=512,1024"),),
    "transformer, searched": (
        ("model=transformer", "tech=n7,n5", "system.devices=64", "parallel.strategy=TP-4-d16,TP-4-d4-p4x2"),
    ),
    "transformer, blocks": (
        ("model=llama3_8b", "system=superpod_h100", "system.devices=64", "parallel.strategy=TP-4-d16"),
        (
            "model=mixtral_8x7b",
            "system=superpod_a100",
            "system.devices=64",
            "parallel.strategy=TP-2-e4-d8-p4",
        ),
    ),
    "server, searched": (
        ("serve=continuous", "model=llama3_8b", "tech=n7,n5", "system.devices=2", "parallel.strategy=TP-2"),
    ),
    "server, blocks": (
        (
            "serve=continuous",
            "model=llama3_8b",
            "system=dgx_h100",
            "parallel.strategy=TP-2-d4",
            "serve.simulate=false,true",
        ),
        (
            "serve=disaggregated",
            "model=mixtral_8x7b",
            "system=dgx_h100",
            "parallel.strategy=TP-4",
            "serve.prefill.devices=4",
            "serve.prefill.strategy=TP-4",
            "serve.simulate=false,true",
        ),
    ),
    "fleet, blocks": (
        (
            "serve=continuous",
            "model=llama3_8b",
            "system=dgx_h100",
            "parallel.strategy=TP-2-d4",
            "serve.trace=requests.csv",
            "serve.tiers.host.capacity='1 GB'",
        ),
        (
            "serve=disaggregated",
            "model=llama3_8b",
            "system=dgx_h100",
            "parallel.strategy=TP-4",
            "serve.prefill.devices=4",
            "serve.trace=requests.csv",
        ),
    ),
    "layer, searched": (("model=gemm",), ("model=gemm", "model.training=true", "tech=n7,n5")),
    "layer, blocks": (("model=gemm", "chip=a100"), ("model=operator", "chip=a100")),
    "search": (("tech=n7", "parallel.strategy=d512", "starts=2", "steps=4"),),
}


REQUESTS = "arrival_time,isl,osl,session,think_time\n0,100,9,0,\n,200,9,0,1\n"
"""The file `requests.csv` of runs with a trace."""


def record(kind: str) -> list[tuple[str, list[Any]]]:
    """Return the kernels that a kind of run calls from Python, and the types of their arguments."""
    from numba.core import event

    import fastflow
    from fastflow.core.jit.signatures import write_type
    from fastflow.performance import precompile

    precompile._checked_kinds.update(RUNS)  # nothing is compiled beforehand
    calls: list[tuple[float, str, list[Any]]] = []
    depth: list[float] = []

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            depth.append(perf_counter())

        def on_end(self, event: Any) -> None:
            seconds = perf_counter() - depth.pop()
            function = event.data["dispatcher"].py_func
            if not depth and function.__module__.startswith("fastflow."):
                name = f"{function.__module__}:{function.__name__}"
                calls.append((seconds, name, list(map(write_type, event.data["args"]))))

    event.register("numba:compile", Listener())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("requests.csv").write_text(REQUESTS)
        for overrides in RUNS[kind]:
            (fastflow.search if kind == precompile.SEARCH else fastflow.evaluate)(*overrides)
        os.chdir("/")
    return [(name, signature) for _, name, signature in sorted(calls, key=lambda call: -call[0])]


def main() -> None:
    """Record every kind in a process and a cache of its own."""
    from fastflow.performance import precompile

    found = {}
    for kind in RUNS:
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, __file__, kind]
            done = subprocess.run(
                command,
                env=os.environ | {"FASTFLOW_CACHE": cache},
                capture_output=True,
                text=True,
                check=True,
            )
        found[kind] = json.loads(done.stdout)
        print(f"{kind}: {len(found[kind])} kernels")
    lines = (
        f'"{kind}": [\n' + ",\n".join(json.dumps(call) for call in calls) + "\n]"
        for kind, calls in found.items()
    )
    precompile.SIGNATURES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(record(sys.argv[1])))
    else:
        main()
