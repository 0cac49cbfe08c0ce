"""Resident size of a sweep against its number of points: the table in `docs/speed.md`.

    python bench/memory.py [POINTS ...]      default: 100000 1000000 10000000

Each is a process of its own; what is printed is the most memory that the kernel saw it hold.
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


def measure(points: int) -> tuple[int, float]:
    """Return the largest resident size [B] and the points a second of a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        batches = f"model.batch=range(1,{1 + points // POINTS_A_BATCH})"
        run = subprocess.Popen(
            [sys.executable, *COMMAND, batches, f"output={folder}/out"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert run.stdout is not None
        with run.stdout as out:
            said = out.read()
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    rate = re.search(r"([\d,]+) points/s", said)
    assert run.returncode == 0
    assert rate is not None
    return used.ru_maxrss * 1024, float(rate[1].replace(",", ""))


if __name__ == "__main__":
    print("| points | resident MB | points a second |\n|---|---|---|")
    for points in [int(text) for text in sys.argv[1:]] or [10**5, 10**6, 10**7]:
        size, rate = measure(points)
        print(f"| {points:,} | {size / 1e6:.0f} | {rate:,.0f} |", flush=True)
