"""Inputs of serving: the load of servers, and how they batch (docs/serving.md)."""

from __future__ import annotations

from fastflow.core.field import Column, count, nonnegative, share, text
from fastflow.schema.scheduling import CHOICES

NO_SERVING = "none"
MODES = (NO_SERVING, "prefill", "decode", "continuous", "disaggregated")
ALL_REDUCE_BACKENDS = ("nccl", "custom")


def _length(name: str, meaning: str) -> Column:
    return Column(name, "float", "", meaning, low=1.0, high=1e9)


def _overhead(name: str, meaning: str) -> Column:
    return Column(name, "float", "s", meaning, low=0.0, high=1e9)


SERVING: tuple[Column, ...] = (
    text("serve.mode", "what is predicted: an iteration, one pass, or servers", MODES),
    _length("serve.isl", "tokens of a prompt, on average"),
    _length("serve.osl", "tokens of an answer, on average"),
    text("serve.lengths", "file of requests, CSV or JSON Lines: their tokens, and times of arrival"),
    Column(
        "serve.length_range_ratio",
        "float",
        "",
        "lengths are uniform, the shortest 1 - this of the longest; 0: all alike",
        0.0,
        1.0,
    ),
    Column(
        "serve.prefix_cache_hit_rate", "float", "", "share of a prompt that the cache holds already", 0.0, 1.0
    ),
    count("serve.num_unique_prompts", "prompts of a benchmark that differ; 0: all", low=0),
    count("serve.concurrency", "requests at a time of a closed loop; 0: open", low=0, high=1e6),
    nonnegative(
        "serve.request_rate", "1/s", "requests of an open loop (Poisson); 0: closed, or as serve.lengths says"
    ),
    count(
        "serve.num_requests",
        "requests that are sent in all; 0: ten for each at a time, or until a rate is stationary",
        low=0,
        high=1e7,
    ),
    Column("serve.simulate", "bool", "", "true: every iteration; false: the fast form, where it is near"),
    count(
        "serve.batch",
        "most requests of a server in flight, 0: that fit; or sequences of one pass",
        low=0,
        high=1e6,
    ),
    count("serve.context", "tokens in the cache in one pass of decoding; 0: isl + osl / 2", low=0, high=1e9),
    count(
        "serve.num_speculative_tokens", "tokens that are proposed and verified in each pass", low=0, high=64
    ),
    Column("serve.mean_acceptance_length", "float", "", "tokens that a pass yields then", 1.0, 65.0),
    text("serve.speculative_method", "what proposes tokens", ("mtp", "model")),
    Column(
        "serve.draft_cost_ratio",
        "float",
        "",
        "share of a pass that a proposed token of a model takes",
        0.0,
        1.0,
    ),
    count("serve.prefill.devices", "devices that compute prompts alone; the rest decodes", low=0),
    text("serve.prefill.strategy", "their strategy, for servers; same: servers as those that decode"),
    text("serve.prefill.chip", "their chip, of the group chip; null: the same"),
    nonnegative("serve.bandwidth", "B/s", "of a cache's way between devices; 0: that of their links"),
    nonnegative("serve.slo.ttft", "s", "longest time to the first token that is allowed; 0: any"),
    nonnegative("serve.slo.tpot", "s", "longest time per further token that is allowed; 0: any"),
    Column(
        "serve.slo.percentile", "float", "", "of requests, at which both must hold; 0: their mean", 0.0, 100.0
    ),
    _overhead("server.step_overhead", "what the host adds to each iteration"),
    _overhead("server.step_overhead_per_request", "what the host adds for each request of an iteration"),
    _overhead("server.request_overhead", "from the client to the queue and back, of a first token"),
    count("server.max_num_batched_tokens", "most tokens of an iteration on a rank", high=1e8),
    count("server.max_num_seqs", "most requests in flight on a rank", high=1e6),
    share("server.gpu_memory_utilization", "share of a device's memory that a server takes"),
    text(
        "server.memory_fraction_of",
        "of the total memory, with weights and work; or of what these leave free, for caches",
        ("total", "free"),
    ),
    count(
        "server.moe_alignment",
        "rows that each expert computes at least, chosen or not, of fp8 with scales of blocks",
        low=0,
        high=1e6,
    ),
    text(
        "server.extra_layers",
        "pipeline stages with a layer more, where stages do not divide the layers",
        ("first", "before_last", "last"),
    ),
    text(
        "server.all_reduce_backend",
        "what runs all-reduces: net.all_reduce_backend of a server",
        ALL_REDUCE_BACKENDS,
    ),
    text(
        "server.policy",
        "which requests, and how many of their tokens, the next iteration has; auto: by server.mixed_batches",
        CHOICES,
    ),
    Column("server.mixed_batches", "bool", "", "true: chunks of prompts share iterations with what decodes"),
    Column("server.chunked_prefill", "bool", "", "true: prompts are cut where an iteration is full"),
    Column("server.guaranteed_no_evict", "bool", "", "true: requests start once all of them fits the cache"),
)
