"""Hold a benchmark run against the committed baseline: `python bench/check.py RUN.json`; exit 1 if worse.

RUN.json is what `pytest bench --benchmark-json` writes. A count may not grow at all. A ratio, both
sides of which were timed in turns in one run, may fall to the baseline's margin of its value: these
machines are shared. A better value is worth a new baseline, and is said, not demanded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(run: Path) -> int:
    """Print every count and ratio beside its baseline; returns the exit code."""
    baseline = json.loads(Path(__file__).with_name("baseline.json").read_text())
    margin = baseline.pop("margin of a ratio")
    found = {
        name: value
        for benchmark in json.loads(run.read_text())["benchmarks"]
        for name, value in benchmark["extra_info"].items()
    }
    worse = False
    for name, expected in baseline.items():
        value = found.get(name)
        if value is None:
            missing_compiler = name == "ratio:c_over_numba"
            worse = worse or not missing_compiler
            print(f"{name}: not measured, baseline {expected:g}")
            continue
        is_worse = value > expected if name.startswith("count:") else value < margin * expected
        worse = worse or is_worse
        print(f"{name}: {value:g}, baseline {expected:g}{'  WORSE' if is_worse else ''}")
    return int(worse)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
