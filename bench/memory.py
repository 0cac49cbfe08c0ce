"""Resident size of a sweep against its number of points: the table in `docs/speed.md`.

    python bench/memory.py [POINTS ...]      default: 100000 1000000 10000000
    python bench/memory.py requests [REQUESTS ...]      default: 100000 1000000 3000000

The second form is of a fleet of eight servers with two tiers, against the requests of its trace: the figure
in `docs/fleets.md`. Each is a process of its own; what is printed is the most memory that the kernel saw it
hold.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile

COMMAND = (
    "-m", "fastflow.sweep", "-m", "mem=hbm2,hbm3", "model.hidden=range(1024,20481,1024)",
    "parallel.strategy=d512,CR-8-d64,RC-2-8-d32,RC-8-8-d8,RC-1-16-d32",
)  # fmt: skip
POINTS_A_BATCH = 2 * 20 * 5
FLEET = (
    "-m", "fastflow.sweep", "serve=continuous", "server=vllm", "model=llama3_8b", "model.dtype=fp8",
    "system=dgx_h100", "parallel.strategy=TP-1", "router=session_sticky",
    "serve.shared_prefix=1000", "serve.trace=trace.csv", "serve.tiers.host.capacity='100 GB'",
    "serve.tiers.remote.capacity='2 TB'", "engine.jobs=1",
)  # fmt: skip
TURNS = 5
"""Of a session, on average."""


def resident(command: tuple[str, ...], folder: str) -> tuple[int, str]:
    """Return the largest resident size [B] of a command of Python in a folder, and what it said."""
    run = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder,
    )  # fmt: skip
    assert run.stdout is not None
    with run.stdout as out:
        said = out.read()
    _, status, used = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    assert run.returncode == 0
    return used.ru_maxrss * 1024, said


def measure_trace(requests: int) -> int:
    """Return the largest resident size of a fleet [B], with a trace of so many requests, or nearly."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = f"sessions={requests // TURNS}", f"turns={TURNS}", "isl=300", "osl=150", "shared_prefix=1000"
        resident(("-m", "fastflow.requests", "output=trace.csv", "rate='12 1/s'", *sizes), folder)
        return resident(FLEET, folder)[0]


def measure(points: int) -> tuple[int, float]:
    """Return the largest resident size [B] and the points a second of a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        batches = f"model.batch=range(1,{1 + points // POINTS_A_BATCH})"
        size, said = resident((*COMMAND, batches, f"output={folder}/out"), os.curdir)
    rate = re.search(r"([\d,]+) points/s", said)
    assert rate is not None
    return size, float(rate[1].replace(",", ""))


if __name__ == "__main__":
    if sys.argv[1:2] == ["requests"]:
        print("| requests | resident MB |\n|---|---|")
        for requests in [int(text) for text in sys.argv[2:]] or [10**5, 10**6, 3 * 10**6]:
            print(f"| {requests:,} | {measure_trace(requests) / 1e6:.0f} |", flush=True)
        sys.exit()
    print("| points | resident MB | points a second |\n|---|---|---|")
    for points in [int(text) for text in sys.argv[1:]] or [10**5, 10**6, 10**7]:
        size, rate = measure(points)
        print(f"| {points:,} | {size / 1e6:.0f} | {rate:,.0f} |", flush=True)
