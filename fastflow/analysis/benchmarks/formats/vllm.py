"""`vllm bench serve --save-result --save-detailed`, and benchmark_serving.py of before: a JSON object a run.

TensorRT-LLM and others have copies of that script, which write the same. `start_times`, `latencies` (from the
start to the last token) and `burstiness` are of later versions (vllm/benchmarks/serve.py).
"""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastflow.analysis.benchmarks.benchmark_run import BenchmarkRun, Requests, SentAs, completed
from fastflow.analysis.benchmarks.result_format import ResultFormat, RunObject, register

START_TIMES, LATENCIES = "start_times", "latencies"


def read(run: RunObject) -> BenchmarkRun:
    """Return the run of an object; raises MistakeError."""
    isl, osl, ttft = run.counts("input_lens"), run.counts("output_lens"), run.seconds("ttfts")
    rest, errors = run.sums("itls"), run.texts("errors", isl.size)
    lists: dict[str, NDArray[Any]] = {
        "input_lens": isl,
        "output_lens": osl,
        "ttfts": ttft,
        "itls": rest,
        "errors": errors,
    }
    e2e, sent = None, np.zeros(0)
    if run.has(LATENCIES):
        e2e = lists[LATENCIES] = run.seconds(LATENCIES)
    if run.has(START_TIMES):
        sent = lists[START_TIMES] = run.seconds(START_TIMES)
    run.same_sizes(lists)
    e2e = ttft + rest if e2e is None else e2e
    # a ramp has no one rate
    rate = nan if run.has("ramp_up_strategy") else run.rate("request_rate")
    sent_as = SentAs(rate, int(run.number("max_concurrency", 0.0)), run.number("burstiness", 1.0))
    return completed(Requests(isl, osl, ttft, e2e, sent, errors), sent_as)


FORMAT = register(
    ResultFormat(
        "vllm",
        "vllm bench serve",
        ("tokenizer_id", "endpoint_type"),
        ("input_lens", "output_lens", "ttfts", "itls"),
        "--save-result --save-detailed",
        read,
    )
)
