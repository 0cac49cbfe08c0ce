#!/usr/bin/env bash
# Run the benchmarks, and hold their counts and ratios against bench/baseline.json.
set -euo pipefail
cd "$(dirname "$0")/.."

run=$(mktemp)
trap 'rm -f "$run"' EXIT
pytest bench --benchmark-disable-gc --benchmark-max-time=0.2 --benchmark-columns=median,ops,rounds -q \
    --benchmark-json="$run"
python bench/check.py "$run"
