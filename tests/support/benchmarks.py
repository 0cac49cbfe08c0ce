"""Outputs of benchmarks, as their tools write them, of naive servers whose figures are known."""

import json
from contextlib import contextmanager
from unittest import mock

import numpy as np

from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.engine.grid.plan import plan
from fastflow.engine.run.predict import results_of
from fastflow.performance.serving import predict
from fastflow.performance.serving.requests.load import trip_share
from tests.naive import serving as naive

POINT = (
    "model=llama3_8b", "chip=h100_sxm", "parallel.strategy=TP-1", "system.devices=1",
    "server.eager_launch_time='0 s'", "server.cuda_graph_interval=1",
)  # fmt: skip
FIGURES = {"step_overhead": 4e-3, "step_overhead_per_request": 0.15e-3, "request_overhead": 45e-3}
"""Figures of the measured server's host [s]."""
_TABLES = ("shared", "experts", "head", "decode", "prefill", "prefill_more")


@contextmanager
def _scenarios():
    """Collect the scenarios that are predicted."""
    scenarios, phases_of = [], predict.phases_of

    def seen(scenario):
        scenarios.append(scenario)
        return phases_of(scenario)

    with mock.patch.object(predict, "phases_of", seen):
        yield scenarios


def scenario_of(*overrides):
    """Return the scenario of a point that serves."""
    with hydra_rules(), _scenarios() as scenarios:
        run = plan(Composer.of_library(), ["serve=continuous", "serve.simulate=true", *overrides])
        results_of(run.grid.first_inputs())
    return scenarios[0]


def lengths_of(count, seed):
    """Return prompts and answers of requests [tokens]."""
    rng = np.random.default_rng(seed)
    return rng.integers(64, 900, count).tolist(), rng.integers(8, 60, count).tolist()


def run(isl, osl, concurrency=0, arrivals=None, figures=FIGURES, overrides=("server=vllm", *POINT)):
    """Return the requests of a run, as the naive server has them: when sent, ttft and e2e [s].

    concurrency: of a closed loop; or arrivals: when requests are sent [s].
    """
    texts = [f"server.{name}='{value} s'" for name, value in figures.items()]
    scenario = scenario_of(
        *overrides, *texts, f"serve.isl={max(isl)}", f"serve.osl={max(osl)}", f"serve.concurrency={len(isl)}"
    )
    times = scenario.passes.times
    tables = {name: getattr(times, name).tolist() for name in times._fields if name != "overlap"}
    tables |= {name: tables[name][0] for name in _TABLES}
    columns = scenario.servers._asdict()
    columns |= columns["host"]._asdict() | columns["intake"]._asdict() | columns["graph"]._asdict()
    pipeline = columns["pipeline"]
    columns |= {"in_flight": pipeline.in_flight, "widest": pipeline.widest, "last": pipeline.last}
    server = {name: column[0] for name, column in columns.items() if isinstance(column, np.ndarray)}
    pairs = list(zip(isl, osl, strict=True))
    requests, _ = naive.simulate(tables, server, pairs, arrivals, concurrency, 0.0, trip_share)
    requests.sort(key=lambda request: request.number)
    of_prompt = scenario.inputs["server.request_overhead_per_token"][0] * np.mean(isl)
    overhead = figures.get("request_overhead", 0.0) + of_prompt
    return [
        (request.sent, request.first - request.sent + overhead, request.end - request.sent + overhead)
        for request in requests
    ]


def lists_of(isl, osl, requests):
    """Return the lists that both tools write."""
    gaps = [
        [(e2e - ttft) / max(tokens - 1, 1)] * (tokens - 1)
        for (_, ttft, e2e), tokens in zip(requests, osl, strict=True)
    ]
    return {
        "input_lens": isl, "output_lens": osl, "ttfts": [ttft for _, ttft, _ in requests], "itls": gaps,
        "generated_texts": ["text"] * len(isl), "errors": [""] * len(isl),
    }  # fmt: skip


def of_vllm(isl, osl, requests, **members):
    """Return the object of `vllm bench serve --save-result --save-detailed`."""
    about = {
        "date": "20260131-120000", "endpoint_type": "openai", "backend": "openai", "label": None,
        "model_id": "meta-llama/Llama-3.1-8B-Instruct", "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct",
        "num_prompts": len(isl), "request_rate": "inf", "burstiness": 1.0, "max_concurrency": None,
        "duration": max(sent + e2e for sent, _, e2e in requests), "completed": len(isl), "failed": 0,
        "start_times": [5000.0 + sent for sent, _, _ in requests],
    }  # fmt: skip
    return about | lists_of(isl, osl, requests) | members


def of_sglang(isl, osl, requests, **members):
    """Return the object of `sglang.bench_serving --output-file FILE --output-details`."""
    about = {
        "tag": None, "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"),
        "max_concurrency": None, "sharegpt_output_len": None, "random_input_len": 1024,
        "duration": max(sent + e2e for sent, _, e2e in requests), "completed": len(isl),
        "mean_e2e_latency_ms": 1e3 * float(np.mean([e2e for _, _, e2e in requests])),
    }  # fmt: skip
    return about | lists_of(isl, osl, requests) | members


def write(path, *objects):
    """Write objects, one a line."""
    path.write_text("".join(json.dumps(members) + "\n" for members in objects))
    return str(path)
