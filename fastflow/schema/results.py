"""The registry of stored columns: results of points, of searches and of validations."""

from __future__ import annotations

from fastflow.core.field import Column
from fastflow.schema.cost import COSTS, ITERATION, MILLION, TOKEN, TRAIN

TYPICAL: tuple[Column, ...] = (
    Column(
        "typical_error",
        "float",
        "",
        "mean relative error of such predictions where they were measured (validation_class); of what serves"
        " that of tpot_s and of rates; null where they never were",
    ),
    Column(
        "typical_bias", "float", "", "median of predicted over measured there; below 1: predictions are fast"
    ),
    Column("validated_rows", "int", "", "measured rows of the class"),
    Column("validation_class", "str", "", "class of validation that the point is in, or why it is in none"),
)
"""Errors of predictions of the same class."""
TYPICAL_TTFT = Column("ttft_typical_error", "float", "", "the same as typical_error, of ttft_s")

NO_EFFECT = Column(
    "no_effect", "str", "", "keys of the user that change no result, and as with what results are"
)
ASSUMPTIONS = Column(
    "assumptions",
    "str",
    "",
    "what was taken without being asked for: the machine of a chip, figures of the paper where published ones"
    " differ",
)
BETWEEN = "; "
"""Separator of keys, and of assumptions."""

RESULTS: tuple[Column, ...] = (
    Column("point", "int", "", "number of the point in the grid's written order"),
    Column("tech", "str", "", "logic technology"),
    Column("mem", "str", "", "main memory technology"),
    Column("net", "str", "", "network technology"),
    Column("chip", "str", "", "chip template and budgets"),
    Column("system", "str", "", "system"),
    Column("model", "str", "", "workload"),
    Column("strategy", "str", "", "parallel strategy (3.3)"),
    Column(
        "layer_strategies",
        "str",
        "",
        "strategies of layers, or kinds of them, that differ from the point's, such as softmax RC-1-64-d8",
    ),
    Column("placement", "str", "", "order in which parallel dimensions fill the network, innermost first"),
    Column(
        "devices_per_package",
        "int",
        "",
        "devices in use of each package; a smaller job, or an uneven one, uses a part",
    ),
    Column("placement_requested", "str", "", "requested placement, or auto"),
    Column("tiling", "str", "", "source of the tried tiles"),
    Column("time_s", "float", "s", "time of one iteration; null where none can be predicted (see reason)"),
    *TYPICAL,
    Column("forward_s", "float", "s", "forward pass"),
    Column("backward_s", "float", "s", "backward pass, up to the last gradient exchange"),
    Column("update_s", "float", "s", "gradient clipping and weight update"),
    Column(
        "compute_s",
        "float",
        "s",
        "kernel time of one device, launches included; of a pipeline, in the stage that sets the pace",
    ),
    Column(
        "comm_s", "float", "s", "communication of one device in the stage with the most, hidden or exposed"
    ),
    Column("exposed_comm_s", "float", "s", "exposed communication: time that no kernel hides"),
    Column("bubble_s", "float", "s", "pipeline bubble: idle time of the stage that sets the pace"),
    Column(
        "bottleneck_stage",
        "int",
        "",
        "pipeline stage that sets the pace, counted from 0: it has most work for a micro-batch; null: there"
        " is no pipeline",
    ),
    Column("bound_by", "str", "", "limiter of the iteration"),
    Column("compute_bound_frac", "float", "", "share of compute_s limited by compute"),
    Column("l*_bound_frac", "float", "", "share of compute_s limited by this memory level"),
    Column("dram_bound_frac", "float", "", "share of compute_s limited by main memory"),
    Column("launch_bound_frac", "float", "", "share of compute_s limited by kernel launches"),
    Column("candidates", "int", "", "candidate tiles of the tiling search, all kernels of one device"),
    Column("gemm", "str", "", "longest GEMM over all launches; the other gemm columns are of one launch"),
    Column("gemm_s", "float", "s", "time of one launch, launch overhead included"),
    Column("gemm_bound_by", "str", "", "limiter of the GEMM"),
    Column("gemm_utilization", "float", "", "its operations over the peak operations in its time"),
    Column("gemm_waves", "int", "", "waves of tiles over the bundles"),
    Column("gemm_split_k", "int", "", "parts of the inner dimension (split-K) over the bundles"),
    Column("gemm_busy_frac", "float", "", "share of busy bundles, over all waves"),
    Column("gemm_compute_s", "float", "s", "compute time, idle bundles included"),
    Column("gemm_l*_tile", "str", "", "tile of the GEMM in the level, m x k x n"),
    Column("gemm_l*_stationary", "str", "", "stationary operand of the level"),
    Column("gemm_l*_moved_B", "float", "B", "bytes served by the level"),
    Column("gemm_l*_s", "float", "s", "time of the level to serve its bytes"),
    Column("gemm_dram_moved_B", "float", "B", "bytes served by main memory"),
    Column("gemm_dram_s", "float", "s", "time of main memory to serve its bytes"),
    Column("flop", "float", "flop", "operations of the model in one iteration, all devices"),
    Column(
        "intensity",
        "float",
        "flop/B",
        "arithmetic intensity: operations over bytes of main memory, all kernels of a device; null: no bytes",
    ),
    Column(
        "mfu",
        "float",
        "",
        "model FLOP utilisation: flop over the peak operations in time_s of all devices' fastest busy units",
    ),
    Column("energy_J", "float", "J", "energy of one iteration, all devices"),
    *COSTS,
    ITERATION,
    Column(
        "footprint_B", "float", "B", "memory footprint of one device, in the pipeline stage with the largest"
    ),
    Column("weight_B", "float", "B", "weights of one device, master copies included"),
    Column("gradient_B", "float", "B", "gradients of one device"),
    Column("optimizer_B", "float", "B", "optimizer state of one device"),
    Column(
        "activation_B",
        "float",
        "B",
        "activations of one device, kept for the backward pass; A and C of a single GEMM",
    ),
    Column(
        "buffer_B", "float", "B", "whole copies of weights and gradients that ZeRO deals out, of one device"
    ),
    Column("peak_memory_stage", "int", "", "pipeline stage with the largest footprint, counted from 0"),
    Column("dram_capacity_B", "float", "B", "main memory capacity of one device"),
    Column("compute_flops", "float", "flop/s", "peak of one device in the model's data type"),
    Column("dram_devices", "int", "", "memory devices (HBM stacks)"),
    Column("dram_Bps", "float", "B/s", "main memory bandwidth"),
    Column("l*_B", "float", "B", "capacity of the level, all instances"),
    Column("l*_Bps", "float", "B/s", "bandwidth of the level, all instances, before utilisation"),
    Column("l*_banks", "int", "", "banks of the level, all instances"),
    Column("intra_Bps", "float", "B/s", "in-package bandwidth of one device, one direction"),
    Column("inter_Bps", "float", "B/s", "off-package bandwidth of one device, one direction"),
    Column("core_V", "float", "V", "core voltage"),
    Column("core_Hz", "float", "Hz", "core clock"),
    Column("mcus", "int", "", "MCUs (minimal compute units) of one device"),
    Column("bundles", "int", "", "MCU bundles of one device"),
    Column("devices", "int", "", "devices that the strategy uses"),
    Column("microbatches", "int", "", "micro-batches of an iteration"),
    Column("kp1_Bps", "float", "B/s", "bandwidth of a device to its neighbours along kernel parallelism KP1"),
    Column("kp2_Bps", "float", "B/s", "bandwidth of a device to its neighbours along kernel parallelism KP2"),
    Column("tp_Bps", "float", "B/s", "bandwidth of a device to its neighbours along tensor parallelism"),
    Column("cp_Bps", "float", "B/s", "bandwidth of a device to its neighbours along context parallelism"),
    Column("ep_Bps", "float", "B/s", "bandwidth of a device to its neighbours along expert parallelism"),
    Column("dp_Bps", "float", "B/s", "bandwidth of a device to its neighbours along data parallelism"),
    Column("pp_Bps", "float", "B/s", "bandwidth of a device to its neighbours along the pipeline"),
    Column("kp1_hops", "int", "", "largest number of links between neighbours along KP1; 0: no neighbours"),
    Column("kp2_hops", "int", "", "largest number of links between neighbours along KP2"),
    Column("tp_hops", "int", "", "largest number of links between neighbours along tensor parallelism"),
    Column("cp_hops", "int", "", "largest number of links between neighbours along context parallelism"),
    Column("ep_hops", "int", "", "largest number of links between neighbours along expert parallelism"),
    Column("dp_hops", "int", "", "largest number of links between neighbours along data parallelism"),
    Column("pp_hops", "int", "", "largest number of links between neighbours along the pipeline"),
    Column("feasible", "bool", "", "whether the point has a time and fits its memory"),
    Column("reason", "str", "", "why a point is not feasible"),
    Column("reason_code", "str", "", "kind of the reason, such as memory (see Codes of reasons)"),
    NO_EFFECT,
    ASSUMPTIONS,
)

LAYERS = Column("layers", "int", "", "layers of the model, as model.size scales it")
HIDDEN = Column("hidden", "int", "", "columns of a token between layers, as model.size scales them")
DTYPE = Column(
    "dtype", "str", "", "data type of products, which model.dtype stands for, and of experts if they differ"
)

# of models with layer runs, in addition to the columns above
TRANSFORMER: tuple[Column, ...] = (
    Column("parameters", "float", "", "weights of the model, gains and biases among them"),
    Column("active_parameters", "float", "", "those that a token meets; of a mixture, its experts"),
    LAYERS,
    HIDDEN,
    DTYPE,
    Column("chunks", "int", "", "chunks of layers of each pipeline stage"),
    Column("split", "str", "", "how layers are assigned to pipeline stages"),
    Column("microbatch", "int", "", "sequences of a micro-batch on one device"),
    Column("schedule", "str", "", "order of micro-batches in the pipeline"),
    Column("recompute", "str", "", "what the backward pass computes again"),
    Column("zero", "int", "", "stage of ZeRO"),
    Column("tokens_per_s", "float", "1/s", "tokens of the global batch over time_s"),
    Column("tokens_per_s_per_device", "float", "1/s", "tokens_per_s over devices"),
    TOKEN,
    MILLION,
    Column("model_flops_per_device", "float", "flop/s", "operations of the model over time_s and devices"),
    Column(
        "hardware_flops_per_device",
        "float",
        "flop/s",
        "operations that devices do, what is computed again included, over time_s and devices",
    ),
    Column("attention_s", "float", "s", "part of compute_s: attention and its products"),
    Column("feed_forward_s", "float", "s", "part of compute_s: feed-forward layers"),
    Column("experts_s", "float", "s", "part of compute_s: routers, experts and what goes with them"),
    Column("lm_head_s", "float", "s", "part of compute_s: embedding, head and loss"),
    Column("optimizer_s", "float", "s", "part of compute_s: gradient clipping and weight update"),
    Column("other_s", "float", "s", "part of compute_s: norms and sums between layers"),
    Column("recompute_s", "float", "s", "part of all these: what the backward pass computes again"),
    Column("tp_comm_exposed_s", "float", "s", "part of exposed_comm_s: exchanges of tensor parallelism"),
    Column("cp_comm_exposed_s", "float", "s", "part of exposed_comm_s: exchanges of context parallelism"),
    Column("ep_comm_exposed_s", "float", "s", "part of exposed_comm_s: exchanges of expert parallelism"),
    Column("param_gather_exposed_s", "float", "s", "part of exposed_comm_s: gathers of weights (ZeRO)"),
    Column("grad_reduce_exposed_s", "float", "s", "part of exposed_comm_s: sums of weight gradients"),
    Column("pp_comm_exposed_s", "float", "s", "part of exposed_comm_s: messages between pipeline stages"),
    Column("offload_exposed_s", "float", "s", "part of exposed_comm_s: what moves between device and host"),
    Column(
        "joint_exposed_s",
        "float",
        "s",
        "part of exposed_comm_s: messages, gathers and sums that hide one another, each counted alone above",
    ),
    Column("host_B", "float", "B", "what is offloaded of one device, in its host's memory"),
    Column("train_s", "float", "s", "time to train on model.train_tokens, or those of each parameter"),
    Column("train_energy_J", "float", "J", "energy to train on as many, all devices"),
    TRAIN,
)

EXPOSED = {
    "tensor": "tp_comm_exposed_s", "context": "cp_comm_exposed_s", "expert": "ep_comm_exposed_s",
    "weight": "param_gather_exposed_s", "gradient": "grad_reduce_exposed_s", "send": "pp_comm_exposed_s",
    "offload": "offload_exposed_s", "joint": "joint_exposed_s",
}  # fmt: skip
"""Parts of exposed_comm_s by what is waited for: name on screens, and column."""

# of points that serve, in addition to some of the columns above
SERVED: tuple[Column, ...] = (
    Column("ttft_s", "float", "s", "time to the first token, waiting included, mean of requests"),
    TYPICAL_TTFT,
    Column("ttft_median_s", "float", "s", "median of it; of simulated points, as the next"),
    Column("ttft_p99_s", "float", "s", "99th percentile of it"),
    Column(
        "ttft_slo_s",
        "float",
        "s",
        "what serve.slo.ttft is compared with: it at serve.slo.percentile of simulated points, else ttft_s",
    ),
    Column("tpot_s", "float", "s", "time per output token after the first, mean of requests"),
    Column("tpot_median_s", "float", "s", "median of it; of simulated points, as the next"),
    Column("tpot_p99_s", "float", "s", "99th percentile of it"),
    Column(
        "tpot_slo_s",
        "float",
        "s",
        "what serve.slo.tpot is compared with: it at serve.slo.percentile of simulated points, else tpot_s",
    ),
    Column(
        "tokens_per_s_per_user", "float", "1/s", "tokens that a request gets while it decodes: 1 / tpot_s"
    ),
    Column("requests_per_s", "float", "1/s", "requests that end, all devices"),
    Column("prefill_tokens_per_s", "float", "1/s", "tokens of prompts that are computed, all devices"),
    Column("running_requests", "float", "", "requests that decode at a time, all servers"),
    Column("waiting_requests", "float", "", "requests that wait to start, all servers"),
    Column("prefill_strategy", "str", "", "strategy of devices that compute prompts alone"),
    Column("prefill_devices", "int", "", "how many these are"),
    Column("transfer_s", "float", "s", "a cache's way from prefill to decode, mean of requests"),
    Column("prefill_share", "float", "", "share of iterations with prompts"),
    Column("prefill_bound_by", "str", "", "what limits passes over prompts: a limiter, network or host"),
    Column("decode_bound_by", "str", "", "what limits passes that decode: a limiter, network or host"),
    Column("exchange_s", "float", "s", "part of time_s: waiting for the network"),
    Column("pipeline_stall_s", "float", "s", "part of time_s: a batch waits for the slowest pipeline stage"),
    Column("serve_host_s", "float", "s", "part of time_s: the host"),
    Column(
        "simulated",
        "bool",
        "",
        "every iteration was: serve.simulate, serve.slo at a percentile, or a fast form that may be far off",
    ),
    Column(
        "stationary",
        "bool",
        "",
        "an open loop at random times is in its stationary state; null: no such loop",
    ),
    Column("preemptions", "float", "", "times that requests gave their places up; of simulated points"),
    Column("replicas", "int", "", "servers that share nothing"),
    Column("kv_B", "float", "B", "caches of one device, mean over time"),
    Column("kv_token_B", "float", "B", "cache of one token on one device"),
    Column("kv_cache_capacity_B", "float", "B", "what one device has for caches"),
    Column("max_concurrent_requests", "float", "", "whole requests that caches hold, all servers"),
    Column(
        "joules_per_token", "float", "J", "energy of an output token, or of a token of a pass, all devices"
    ),
    Column("power_W", "float", "W", "power of one device, mean over time"),
    Column(
        "meets_slo",
        "bool",
        "",
        "whether ttft_slo_s and tpot_slo_s are within serve.slo, and the load is carried",
    ),
)
SHARED_WITH_SERVED = (
    "point", "tech", "mem", "net", "chip", "system", "model", "strategy", "tiling", "time_s",
    "tokens_per_s", "tokens_per_s_per_device", "energy_J", "weight_B", "footprint_B", "dram_capacity_B",
    "dram_devices", "dram_Bps", "compute_flops", "l*_B", "l*_Bps", "l*_banks", "intra_Bps", "inter_Bps",
    "core_V", "core_Hz", "mcus", "bundles", "devices", "parameters", LAYERS.name, HIDDEN.name, DTYPE.name,
    "feasible", "reason", "reason_code", NO_EFFECT.name, ASSUMPTIONS.name,
    *(column.name for column in (*COSTS, *TYPICAL)), TOKEN.name, MILLION.name,
)  # fmt: skip
"""Result columns that points that serve share with other points."""

# of a search's history and ranking, in addition to the columns above
SEARCH: tuple[Column, ...] = (
    Column("rank", "int", "", "rank among the competing candidates, from 1"),
    Column("design", "int", "", "number of the design in the order of scoring"),
    Column("candidate", "int", "", "workload on a system under one strategy, counted from 0"),
    Column("start", "int", "", "starting point of the search; 0 is the chip's own breakdown"),
    Column("step", "int", "", "step of the start; 0: the chip's own breakdown, before the search"),
    Column(
        "score",
        "float",
        "",
        "value that the method minimises: log of the objective; 100 or more: not feasible",
    ),
    Column("objective", "float", "", "value that the search minimises"),
    Column("second_objective", "float", "", "second objective of a Pareto front"),
    Column("baseline_objective", "float", "", "objective of the chip's own breakdown"),
    Column("baseline_feasible", "bool", "", "whether the chip's own breakdown is feasible"),
    Column("gain", "float", "", "improvement: baseline_objective over objective"),
    Column("gap", "float", "", "objective over that of the best candidate of those that compete, less 1"),
    Column("designs", "int", "", "number of designs scored for the candidate"),
)

ROOFLINE = "roofline_"
"""Prefix of the times that each resource alone takes."""

# of a validation's rows, in addition to the columns of its file and of RESULTS; and of its errors
VALIDATION: tuple[Column, ...] = (
    Column("line", "int", "", "line in the file of measurements; the header is line 1"),
    Column("part", "str", "", "measured part of the workload"),
    Column(
        "timed",
        "str",
        "",
        "kernel: kernels alone or back to back; call: single calls of a framework",
    ),
    Column("measured_s", "float", "s", "measured time"),
    Column("predicted_s", "float", "s", "predicted time; null where `reason` says why there is none"),
    Column("host_s", "float", "s", "part of predicted_s that the measuring host adds"),
    Column("ratio", "float", "", "predicted_s over measured_s"),
    Column("error", "float", "", "relative error: |predicted_s - measured_s| / measured_s"),
    Column("roofline_compute_s", "float", "s", "compute time alone, all launches of all kernels"),
    Column("roofline_l*_s", "float", "s", "time of this memory level alone, all launches of all kernels"),
    Column("roofline_dram_s", "float", "s", "time of main memory alone, all launches of all kernels"),
    Column("roofline_launch_s", "float", "s", "launch overhead alone, all launches of all kernels"),
    Column("latency_s", "float", "s", "time of the collective with an empty message"),
    Column("complete", "bool", "", "whether the row of a training run says its layout"),
    Column("library", "str", "", "choice of the group framework that a training run was taken for"),
    Column("family", "str", "", "family of models that a training run was taken for"),
    Column("parameters_billions", "float", "", "parameters of a training run in billions, at least"),
    Column("origin", "str", "", "source of a training run, without its revision"),
    Column("by", "str", "", "column that groups the measurements"),
    Column("value", "str", "", "value of that column in the group"),
    Column("rows", "int", "", "number of measurements in the group"),
    Column("mean_error", "float", "", "mean relative error"),
    Column("median_error", "float", "", "median relative error"),
    Column("p90_error", "float", "", "90th percentile of the error"),
    Column("bias", "float", "", "median of predicted over measured; below 1: predictions are too fast"),
    Column("log_correlation", "float", "", "Pearson correlation of the logarithms of predicted and measured"),
)
