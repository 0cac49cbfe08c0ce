"""The registry of stored columns of points that serve."""

from __future__ import annotations

from fastflow.core.field import Column
from fastflow.schema.carbon import CARBON_TOKEN, EMISSIONS
from fastflow.schema.cost import COSTS, MILLION, TOKEN
from fastflow.schema.power import LIMITS, SITE, TOKENS_PER_MW
from fastflow.schema.results import ASSUMPTIONS, DTYPE, HIDDEN, LAYERS, NO_EFFECT, TYPICAL, TYPICAL_TTFT

_NO_PERCENTILES = "of simulated points only"
_NO_MEDIAN = "null: of a point that is not simulated, where the analytic estimate may be far off"
_NO_SESSIONS = "null: the file has no sessions"
_OF_GROUPS = (
    "requests, 50th, 90th, 95th and 99th percentiles of ttft_s, tpot_s and e2e_s, goodput_per_s,"
    " prefix_hit_rate and tier_hit_rate"
)

# of points that serve, in addition to some of the columns above
SERVED: tuple[Column, ...] = (
    Column("ttft_s", "float", "s", "time to the first token (TTFT), waiting included, mean over requests"),
    TYPICAL_TTFT,
    Column("ttft_p50_s", "float", "s", f"median of ttft_s over requests; {_NO_MEDIAN}"),
    Column("ttft_p90_s", "float", "s", f"90th percentile of ttft_s over requests; {_NO_PERCENTILES}"),
    Column("ttft_p95_s", "float", "s", f"95th percentile of ttft_s over requests; {_NO_PERCENTILES}"),
    Column("ttft_p99_s", "float", "s", f"99th percentile of ttft_s over requests; {_NO_PERCENTILES}"),
    Column(
        "ttft_slo_s",
        "float",
        "s",
        "time that serve.slo.ttft is compared with: of simulated points ttft_s at"
        " serve.slo.percentile, else the mean ttft_s",
    ),
    Column(
        "encode_s",
        "float",
        "s",
        "part of ttft_s: pass of the vision tower over the images of a request (serve.images), alone on its"
        " server; null: no request has images",
    ),
    Column("image_tokens", "float", "", "tokens of the images of a request, beside serve.isl"),
    Column("tpot_s", "float", "s", "time per output token after the first (TPOT), mean over requests"),
    Column("tpot_p50_s", "float", "s", f"median of tpot_s over requests; {_NO_MEDIAN}"),
    Column("tpot_p90_s", "float", "s", f"90th percentile of tpot_s over requests; {_NO_PERCENTILES}"),
    Column("tpot_p95_s", "float", "s", f"95th percentile of tpot_s over requests; {_NO_PERCENTILES}"),
    Column("tpot_p99_s", "float", "s", f"99th percentile of tpot_s over requests; {_NO_PERCENTILES}"),
    Column(
        "tpot_slo_s",
        "float",
        "s",
        "time that serve.slo.tpot is compared with: of simulated points tpot_s at"
        " serve.slo.percentile, else the mean tpot_s",
    ),
    Column("e2e_s", "float", "s", "time of a request from sending to its last token, mean over requests"),
    Column("e2e_p50_s", "float", "s", f"median of e2e_s over requests; {_NO_PERCENTILES}"),
    Column("e2e_p90_s", "float", "s", f"90th percentile of e2e_s over requests; {_NO_PERCENTILES}"),
    Column("e2e_p95_s", "float", "s", f"95th percentile of e2e_s over requests; {_NO_PERCENTILES}"),
    Column("e2e_p99_s", "float", "s", f"99th percentile of e2e_s over requests; {_NO_PERCENTILES}"),
    Column(
        "tokens_per_s_per_user",
        "float",
        "1/s",
        "tokens per second that one request gets while it decodes: 1 / tpot_s",
    ),
    Column("requests_per_s", "float", "1/s", "requests that end per second, all devices"),
    Column("prefill_tokens_per_s", "float", "1/s", "prompt tokens that are computed per second, all devices"),
    Column("running_requests", "float", "", "requests that decode at the same time, all servers"),
    Column("waiting_requests", "float", "", "requests that wait to start, all servers"),
    Column("prefill_strategy", "str", "", "strategy of the devices that only prefill (serve=disaggregated)"),
    Column("prefill_devices", "int", "", "number of devices that only prefill"),
    Column(
        "prefill_power_limit_W",
        "float",
        "W",
        "most power that a device may draw that only prefills: serve.prefill.power_limit, or the limit of its"
        " chip; null: no limit",
    ),
    Column(
        "transfer_s",
        "float",
        "s",
        "time to send the KV cache of a request from prefill to decode, once its prompt is computed; mean"
        " over requests",
    ),
    Column("attention_devices", "int", "", "number of devices that only compute attention"),
    Column(
        "attention_devices_s",
        "float",
        "s",
        "time of time_s in which devices of attention compute (serve.attention), without the host",
    ),
    Column(
        "other_devices_s",
        "float",
        "s",
        "time of time_s in which the other devices compute, which have no attention (serve.attention)",
    ),
    Column(
        "other_devices_weight_B",
        "float",
        "B",
        "weights of a device that does all but attention (serve.attention); weight_B is of one of attention",
    ),
    Column(
        "other_devices_footprint_B",
        "float",
        "B",
        "memory of a device that does all but attention: weights and workspace, and no caches",
    ),
    Column("encoder_devices", "int", "", "number of devices that only encode images (serve.encoder)"),
    Column(
        "encode_wait_s",
        "float",
        "s",
        "part of ttft_s: a request waits for an encoder that has its own devices (serve.encoder); mean",
    ),
    Column(
        "embedding_transfer_s",
        "float",
        "s",
        "part of ttft_s: to send the embeddings of a request's images from an encoder to a server",
    ),
    Column(
        "encoder_utilization", "float", "", "share of the time in which devices of encoders encode images"
    ),
    Column("encoder_weight_B", "float", "B", "weights of a device that only encodes images (serve.encoder)"),
    Column("prefill_share", "float", "", "share of iterations that contain prompts"),
    Column(
        "prefill_bound_by",
        "str",
        "",
        "what limits passes over prompts: a part of the chip, the network, the host, or lower tiers of memory"
        " (weight_tiers)",
    ),
    Column(
        "decode_bound_by",
        "str",
        "",
        "what limits passes that decode: a part of the chip, the network, the host, or lower tiers of memory"
        " (weight_tiers)",
    ),
    Column("exchange_s", "float", "s", "part of time_s: exposed communication"),
    Column("pipeline_stall_s", "float", "s", "part of time_s: a batch waits for the slowest pipeline stage"),
    Column(
        "weight_read_s",
        "float",
        "s",
        "part of time_s: a pass waits for weights that are read from lower tiers (server.cpu_offload)",
    ),
    Column(
        "weight_read_B",
        "float",
        "B",
        "weights that a device reads from lower tiers in a pass of time_s, mean over pipeline stages",
    ),
    Column("offloaded_B", "float", "B", "weights of one device that lie in lower tiers"),
    Column("serve_host_s", "float", "s", "part of time_s: work of the host"),
    Column(
        "simulated",
        "bool",
        "",
        "whether every iteration was simulated, because of serve.simulate, serve.slo at a"
        " percentile, or an analytic estimate that may be far off",
    ),
    Column(
        "stationary",
        "bool",
        "",
        "whether an open loop at random times has reached its stationary state; null: another kind of load",
    ),
    Column(
        "preemptions", "float", "", "number of times that requests were preempted; of simulated points only"
    ),
    Column(
        "prefix_hit_rate",
        "float",
        "",
        "share of the prompts of serve.trace that the KV cache has when they start, over all their tokens",
    ),
    Column(
        "tier_hit_rate",
        "float",
        "",
        "part of the prompts of serve.trace that is read from lower tiers (serve.tiers), over all their"
        " tokens",
    ),
    Column(
        "goodput_per_s",
        "float",
        "1/s",
        "requests of serve.trace within both limits of serve.slo per second; a deadline of the file replaces"
        " serve.slo.ttft; null: no limit is set",
    ),
    Column(
        "classes",
        "str",
        "",
        f"of each class of service of serve.trace: {_OF_GROUPS}, as JSON; null: the file has no classes",
    ),
    Column("sessions", "float", "", f"number of sessions of serve.trace; {_NO_SESSIONS}"),
    Column(
        "session_p50_s",
        "float",
        "s",
        "median of the time from sending the first request of a session to the last token of its last answer,"
        f" times to think included; {_NO_SESSIONS}",
    ),
    Column("session_p99_s", "float", "s", f"99th percentile of the same time; {_NO_SESSIONS}"),
    Column(
        "session_wait_p50_s",
        "float",
        "s",
        f"median of the time that a session waits for answers: e2e_s of all its requests; {_NO_SESSIONS}",
    ),
    Column("session_wait_p99_s", "float", "s", f"99th percentile of the same time; {_NO_SESSIONS}"),
    Column(
        "later_turns_hit_rate",
        "float",
        "",
        "prefix_hit_rate of the turns of sessions after the first; null: there are none",
    ),
    Column(
        "turns",
        "str",
        "",
        "of the first turns of sessions (1), the second ones (2), the third to fifth (3-5) and later ones"
        f" (6+): {_OF_GROUPS}, as JSON; {_NO_SESSIONS}",
    ),
    Column("servers_on", "float", "", "servers that are on (serve.autoscale), mean over time"),
    Column("server_starts", "float", "", "how often servers were started (serve.autoscale)"),
    Column(
        "adapter_loads",
        "float",
        "",
        "how often an adapter or a model was loaded from where all of them lie; null: server.adapters=none",
    ),
    Column(
        "adapter_load_s",
        "float",
        "s",
        "time of such a load, with the wait for others before it, mean over loads; null: there was none",
    ),
    Column("replicas", "int", "", "number of servers that work independently"),
    Column("kv_B", "float", "B", "KV cache in use on one device, mean over time"),
    Column(
        "kv_window_B", "float", "B", "part of kv_B in layers that keep the last model.window tokens alone"
    ),
    Column("kv_states_B", "float", "B", "part of kv_B that states of linear-time mixers take"),
    Column("kv_token_B", "float", "B", "KV cache of one token on one device"),
    Column(
        "kv_window_token_B",
        "float",
        "B",
        "part of kv_token_B in layers that keep the last model.window tokens alone",
    ),
    Column(
        "kv_state_B",
        "float",
        "B",
        "states of linear-time mixers of one request on one device, whatever its number of tokens",
    ),
    Column("kv_cache_capacity_B", "float", "B", "memory of one device that is free for the KV cache"),
    Column(
        "max_concurrent_requests",
        "float",
        "",
        "number of whole requests that the KV cache has room for, all servers",
    ),
    Column("library_B", "float", "B", "memory of libraries outside the allocator, on one device"),
    Column("graph_B", "float", "B", "captured graphs (CUDA graphs), on one device"),
    Column(
        "joules_per_token",
        "float",
        "J",
        "energy of an output token, all devices; of one pass, of a token of the pass",
    ),
    Column("power_W", "float", "W", "power of one device, mean over time"),
    Column(
        "meets_slo",
        "bool",
        "",
        "whether ttft_slo_s and tpot_slo_s are within serve.slo, and the servers carry the load",
    ),
)
SHARED_WITH_SERVED = (
    "point", "tech", "mem", "net", "chip", "system", "model", "strategy", "tiling", "time_s",
    "tokens_per_s", "tokens_per_s_per_device", "energy_J", "weight_B", "footprint_B", "workspace_B",
    "communicator_B", "context_B", "dram_capacity_B", "dram_offered_B",
    "dram_devices", "dram_Bps", "compute_flops", "l*_B", "l*_Bps", "l*_banks", "intra_Bps", "inter_Bps",
    "idle_W", "full_W", "core_V", "core_Hz", "power_limit_W", "throttled_frac", "mcus",
    "bundles", "devices", "parameters", LAYERS.name, HIDDEN.name, DTYPE.name,
    "feasible", "reason", "reason_code", NO_EFFECT.name, ASSUMPTIONS.name,
    *(column.name for column in (*SITE, *LIMITS, *COSTS, *EMISSIONS, *TYPICAL)), TOKENS_PER_MW.name,
    TOKEN.name, MILLION.name,
    CARBON_TOKEN.name,
)  # fmt: skip
"""Result columns that points that serve share with other points."""
