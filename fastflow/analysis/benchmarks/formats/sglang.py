"""`python -m sglang.bench_serving --output-file FILE --output-details`: JSON Lines, an object a run.

The rate is Infinity where requests are sent at once, and `trace` where they have times of their own. No
version writes when requests were sent (python/sglang/bench_serving.py, python/sglang/benchmark/serving.py).
"""

from __future__ import annotations

import numpy as np

from fastflow.analysis.benchmarks.benchmark_run import BenchmarkRun, Requests, SentAs, completed
from fastflow.analysis.benchmarks.result_format import ResultFormat, RunObject, register


def read(run: RunObject) -> BenchmarkRun:
    """Return the run of an object; raises MistakeError."""
    isl, osl, ttft = run.counts("input_lens"), run.counts("output_lens"), run.seconds("ttfts")
    rest, errors = run.sums("itls"), run.texts("errors", isl.size)
    lists = {"input_lens": isl, "output_lens": osl, "ttfts": ttft, "itls": rest, "errors": errors}
    run.same_sizes(lists)
    sent_as = SentAs(run.rate("request_rate"), int(run.number("max_concurrency", 0.0)))
    return completed(Requests(isl, osl, ttft, ttft + rest, np.zeros(0), errors), sent_as)


FORMAT = register(
    ResultFormat(
        "sglang",
        "sglang.bench_serving",
        ("mean_e2e_latency_ms", "sharegpt_output_len", "total_output_tokens_retokenized"),
        ("input_lens", "output_lens", "ttfts", "itls"),
        "--output-details",
        read,
    )
)
