"""Inputs of serving: the load of servers (docs/serving.md); servers themselves are in `servers.py`."""

from __future__ import annotations

from fastflow.core.field import Column, count, nonnegative, positive, text

NO_SERVING, ONE_PREFILL, ONE_DECODE, CONTINUOUS, DISAGGREGATED = MODES = (
    "none", "prefill", "decode", "continuous", "disaggregated",
)  # fmt: skip
TIERS = {"host": "the host's memory", "flash": "local drives", "remote": "a store on the network"}
"""Tiers of memory below the devices' own, from the first one, and what they are."""
AUTOSCALE = {
    name: f"serve.autoscale.{name}"
    for name in (
        "by", "target", "interval", "stabilization", "min_replicas", "max_replicas", "start_time",
        "weights_from",
    )
}  # fmt: skip
"""Keys of autoscaling."""
SCALES_BY = ("none", "queue", "rate", "latency")
RANK, SERVER, FLEET = TIER_SCOPES = ("rank", "server", "fleet")
ON_EVICTION, THROUGH = TIER_WRITES = ("on_eviction", "through")
GREEDY, TOP_P = SAMPLINGS = ("greedy", "top_p")
WITH_PROJECTIONS, OPERATOR = ATTENTION_PARTS = ("attention", "operator")


def _length(name: str, meaning: str) -> Column:
    return Column(name, "float", "", meaning, low=1.0, high=1e9)


def _tier(name: str, meaning: str) -> tuple[Column, ...]:
    key = f"serve.tiers.{name}"
    return (
        nonnegative(
            f"{key}.capacity",
            "B",
            f"capacity of {meaning} for weights, and for texts of serve.trace: a device's share, or with"
            " scope=fleet the whole; 0: none",
        ),
        positive(f"{key}.bandwidth", "B/s", f"bandwidth at which a device reads {meaning}"),
        nonnegative(f"{key}.latency", "s", f"latency of a read of {meaning}"),
        text(f"{key}.scope", f"what shares {meaning}", TIER_SCOPES),
    )


SERVING: tuple[Column, ...] = (
    text(
        "serve.mode",
        "what is predicted: an iteration of training (none), one pass (prefill, decode), or servers",
        MODES,
    ),
    _length("serve.isl", "tokens of a prompt (input sequence length), on average"),
    _length("serve.osl", "tokens of an answer (output sequence length), on average"),
    count(
        "serve.images", "images of a request, whose tokens come on top of serve.isl; 0: none", low=0, high=1e6
    ),
    text("serve.image_size", "pixels of an image: of a side, such as 1024, or height x width: 1080x1920"),
    text(
        "serve.lengths",
        "file of requests, CSV or JSON Lines: token counts, which override isl, osl and"
        " length_range_ratio, and times of arrival; null: none",
    ),
    text(
        "serve.trace",
        "file of requests, CSV or JSON Lines: times of arrival, token counts, sessions, turns, hashes of the"
        " prompts' blocks; they go through router and caches, and override isl, osl, lengths, concurrency and"
        " request_rate; null: none",
    ),
    count(
        "serve.shared_prefix",
        "tokens that every new session of serve.trace begins with, as those of a system prompt, where the"
        " file has no hashes of blocks; 0: none",
        low=0,
        high=1e9,
    ),
    positive("serve.trace_speed", "", "factor by which the requests of serve.trace arrive faster"),
    text(
        "serve.tiers.write",
        "when a tier gets texts: on_eviction, when the tier above evicts them; through, when the tier above"
        " gets them",
        TIER_WRITES,
    ),
    *(column for name, meaning in TIERS.items() for column in _tier(name, meaning)),
    text(
        AUTOSCALE["by"],
        "what the number of servers that are on follows, with serve.trace: requests that wait or run (queue),"
        " arrivals (rate), or times to the first token (latency); none: all are on",
        SCALES_BY,
    ),
    positive(
        AUTOSCALE["target"],
        "",
        "for each server: requests at a time (queue), requests a second (rate), or seconds to the first token"
        " (latency)",
    ),
    positive(AUTOSCALE["interval"], "s", "time between two decisions on the number of servers"),
    nonnegative(
        AUTOSCALE["stabilization"],
        "s",
        "time for which fewer servers must have been enough before any is off",
    ),
    count(AUTOSCALE["min_replicas"], "fewest servers that are on; 0: none without requests", low=0, high=1e6),
    count(AUTOSCALE["max_replicas"], "most servers that are on; 0: all of system.devices", low=0, high=1e6),
    nonnegative(
        AUTOSCALE["start_time"],
        "s",
        "time until a server takes requests, beyond that of its weights: process, libraries, captured graphs",
    ),
    text(
        AUTOSCALE["weights_from"],
        "tier that a server reads its weights from, at the bandwidth of serve.tiers",
        tuple(TIERS),
    ),
    Column(
        "serve.length_range_ratio",
        "float",
        "",
        "range of lengths, which are uniform: the shortest is 1 - this value of the longest; 0:"
        " all are equal",
        0.0,
        1.0,
    ),
    text(
        "serve.sampling",
        "how the next token is drawn: greedy takes the most probable one, as benchmarks of servers do; top_p"
        " draws one of the most probable tokens, as chats do",
        SAMPLINGS,
    ),
    Column(
        "serve.prefix_cache_hit_rate",
        "float",
        "",
        "share of a prompt that is in the KV cache already",
        0.0,
        1.0,
    ),
    count(
        "serve.num_unique_prompts",
        "prompts of a benchmark that differ; repeated prompts are in the KV cache; 0: all differ",
        low=0,
    ),
    count(
        "serve.concurrency",
        "requests in flight of a closed loop, on all servers; 0: an open loop (serve.request_rate)",
        low=0,
        high=1e6,
    ),
    count(
        "serve.resident_requests",
        "requests whose caches the servers that strategy=auto selects hold at once, if any servers do;"
        " 0: any number, or serve.concurrency where you set it with system.devices=auto",
        low=0,
        high=1e6,
    ),
    nonnegative(
        "serve.request_rate",
        "1/s",
        "requests per second of an open loop, at random times (Poisson); 0: a closed loop, or the"
        " arrival times of serve.lengths",
    ),
    count(
        "serve.num_requests",
        "total number of requests; 0: in a closed loop ten for each request in flight, in an"
        " open loop until the load is stationary",
        low=0,
        high=1e7,
    ),
    Column(
        "serve.simulate",
        "bool",
        "",
        "true: simulate every iteration, which gives medians and 99th percentiles; false: an"
        " analytic estimate where it is accurate enough",
    ),
    count(
        "serve.batch",
        "largest number of requests in flight on a server, 0: as many as fit; of one pass, its sequences",
        low=0,
        high=1e6,
    ),
    count(
        "serve.context",
        "tokens in the KV cache of each request in one pass of decoding; 0: isl + osl / 2",
        low=0,
        high=1e9,
    ),
    count(
        "serve.num_speculative_tokens",
        "tokens that are proposed in each pass and verified in it (speculative decoding)",
        low=0,
        high=64,
    ),
    Column(
        "serve.mean_acceptance_length",
        "float",
        "",
        "tokens that a pass yields with speculative decoding, on average",
        1.0,
        65.0,
    ),
    text(
        "serve.speculative_method",
        "what proposes tokens: multi-token prediction heads (mtp), or a draft model (model)",
        ("mtp", "model"),
    ),
    Column(
        "serve.draft_cost_ratio",
        "float",
        "",
        "time of a token of the draft model, as a share of a pass",
        0.0,
        1.0,
    ),
    count(
        "serve.prefill.devices",
        "devices of system.devices that only prefill; the rest decodes; 0: the best split, with"
        " parallel.strategy=auto",
        low=0,
    ),
    text(
        "serve.prefill.strategy",
        "strategy of the devices that only prefill; same: servers like those that decode; auto: the best",
    ),
    text(
        "serve.prefill.chip",
        "chip of the devices that only prefill, a choice of the group chip such as h100_sxm;"
        " null: the same chip as for decoding",
    ),
    positive(
        "serve.prefill.power_limit",
        "W",
        "chip.power_limit of the devices that only prefill, up to chip.tdp of their chip",
    )._replace(absent="chip.power_limit; with serve.prefill.chip, that of its file"),
    count(
        "serve.attention.devices",
        "devices of system.devices that only compute attention and have the KV caches; the others compute the"
        " rest of each layer; 0: none, each device computes whole layers",
        low=0,
    ),
    text(
        "serve.attention.strategy",
        "tensor parallelism of the devices of attention, such as TP-2; the rest of them is data-parallel:"
        " each group has requests of its own",
    ),
    text(
        "serve.attention.chip",
        "chip of the devices of attention, a choice of the group chip such as h20; null: that of the others",
    ),
    text(
        "serve.attention.part",
        "what the devices of attention compute: attention with its projections, norms, embedding and head, as"
        " in MegaScale-Infer and Step-3 (attention); or only the product of queries, keys and values, as in"
        " Lamina (operator)",
        ATTENTION_PARTS,
    ),
    count(
        "serve.attention.microbatches",
        "micro-batches of an iteration, which go back and forth between devices of attention and others",
        low=1,
        high=64,
    ),
    nonnegative(
        "serve.attention.bandwidth",
        "B/s",
        "bandwidth of a device for what devices of attention and others send each other; 0: that of their"
        " links",
    ),
    count(
        "serve.encoder.devices",
        "devices of system.devices that only encode images, each those of one request at a time; the others"
        " have no vision tower; 0: none, servers that compute prompts encode their images",
        low=0,
    ),
    text(
        "serve.encoder.chip",
        "chip of the devices that only encode images, a choice of the group chip such as l40s; null: that of"
        " the others, or of those that decode",
    ),
    nonnegative(
        "serve.encoder.bandwidth",
        "B/s",
        "bandwidth at which an encoder sends the embeddings of images to a server; 0: that of their links",
    ),
    text(
        "serve.first_token",
        "which of two servers sends the first token: prefill, that computes it; or decode, once it has the"
        " request's cache, as Dynamo with TensorRT-LLM and SGLang does",
        ("prefill", "decode"),
    ),
    nonnegative(
        "serve.bandwidth",
        "B/s",
        "bandwidth of a KV cache's transfer from a device that prefills to a device that decodes;"
        " 0: that of their links",
    ),
    Column(
        "serve.layerwise_transfer",
        "bool",
        "",
        "true: each layer of a KV cache is sent once it is computed, while the next ones are; false: all is"
        " sent once the prompt is computed",
    ),
    nonnegative("serve.slo.ttft", "s", "longest allowed time to the first token; 0: no limit"),
    nonnegative("serve.slo.tpot", "s", "longest allowed time per output token after the first; 0: no limit"),
    Column(
        "serve.slo.percentile",
        "float",
        "",
        "percentile of requests at which both limits must hold; 0: their mean must",
        0.0,
        100.0,
    ),
)
