"""The registry of stored columns: results of points, of searches and of validations."""

from __future__ import annotations

from fastflow.core.field import Column
from fastflow.schema.carbon import CARBON_TOKEN, CARBON_TRAIN, EMISSIONS
from fastflow.schema.cost import COSTS, ITERATION, MILLION, TOKEN, TRAIN
from fastflow.schema.power import LIMITS, SITE, TOKENS_PER_MW

TYPICAL: tuple[Column, ...] = (
    Column(
        "typical_error",
        "float",
        "",
        "mean relative error of predictions of the same class (validation_class) where hardware"
        " was measured; of served points the error of tpot_s and of rates; null: the class was"
        " never measured",
    ),
    Column(
        "typical_bias",
        "float",
        "",
        "median of predicted over measured time in the same class; below 1: predictions are too fast",
    ),
    Column("validated_rows", "int", "", "number of measured rows in the class"),
    Column(
        "validation_class",
        "str",
        "",
        "class of validation that the point belongs to, or why it belongs to none",
    ),
)
"""Errors of predictions of the same class."""
TYPICAL_TTFT = Column(
    "ttft_typical_error", "float", "", "mean relative error of ttft_s in the same class, as typical_error"
)

NO_EFFECT = Column(
    "no_effect",
    "str",
    "",
    "keys that the user set and that change no result, and the setting that gives the same results",
)
ASSUMPTIONS = Column(
    "assumptions",
    "str",
    "",
    "what fastflow assumed because the user did not set it: the machine of a chip, values of the"
    " paper where published values differ",
)
BETWEEN = "; "
"""Separator of keys, and of assumptions."""

RESULTS: tuple[Column, ...] = (
    Column("point", "int", "", "number of the point in the grid's written order"),
    Column("tech", "str", "", "logic technology"),
    Column("mem", "str", "", "main memory technology"),
    Column("net", "str", "", "network technology"),
    Column("chip", "str", "", "chip template and budgets"),
    Column("system", "str", "", "system: devices, packages and network"),
    Column("model", "str", "", "workload"),
    Column(
        "strategy", "str", "", "parallel strategy (DeepFlow paper, section 3.3), such as RC-4-2-d3 or TP-8-d4"
    ),
    Column(
        "layer_strategies",
        "str",
        "",
        "strategies of layers, or of kinds of layers, that differ from the point's strategy, such"
        " as softmax RC-1-64-d8",
    ),
    Column("placement", "str", "", "order in which parallel dimensions fill the network, innermost first"),
    Column(
        "devices_per_package",
        "int",
        "",
        "devices in use of each package; a job that is small or does not divide evenly uses only"
        " some of them",
    ),
    Column("placement_requested", "str", "", "placement that the user asked for, or auto"),
    Column("tiling", "str", "", "how the candidate tiles are chosen"),
    Column("time_s", "float", "s", "time of one iteration; null where no time can be predicted (see reason)"),
    *TYPICAL,
    Column("forward_s", "float", "s", "time of the forward pass"),
    Column("backward_s", "float", "s", "time of the backward pass, up to the last gradient exchange"),
    Column("update_s", "float", "s", "time of gradient clipping and weight update"),
    Column(
        "compute_s",
        "float",
        "s",
        "kernel time of one device, launches included; in a pipeline, of the stage that sets the pace",
    ),
    Column(
        "comm_s",
        "float",
        "s",
        "communication time of one device, hidden or exposed, in the pipeline stage with the most",
    ),
    Column("exposed_comm_s", "float", "s", "exposed communication: communication time that no kernel hides"),
    Column("bubble_s", "float", "s", "pipeline bubble: idle time of the stage that sets the pace"),
    Column(
        "bottleneck_stage",
        "int",
        "",
        "pipeline stage that sets the pace, counted from 0: the stage with the most work for a"
        " micro-batch; null: no pipeline",
    ),
    Column(
        "bound_by",
        "str",
        "",
        "what limits most of the iteration: compute, l0 (registers), l1, l2, dram, network or launch",
    ),
    Column("compute_bound_frac", "float", "", "share of compute_s limited by compute"),
    Column("l*_bound_frac", "float", "", "share of compute_s limited by this memory level"),
    Column("dram_bound_frac", "float", "", "share of compute_s limited by main memory"),
    Column("launch_bound_frac", "float", "", "share of compute_s limited by kernel launches"),
    Column(
        "throttled_frac",
        "float",
        "",
        "share of compute_s, or of the time of servers' kernels, in kernels that chip.power_limit slows down",
    ),
    Column("candidates", "int", "", "candidate tiles of the tiling search, over all kernels of one device"),
    Column(
        "gemm",
        "str",
        "",
        "GEMM with the longest time over all its launches; the other gemm columns are of one launch",
    ),
    Column("gemm_s", "float", "s", "time of one launch, launch overhead included"),
    Column("gemm_bound_by", "str", "", "what limits the GEMM"),
    Column("gemm_utilization", "float", "", "operations of the GEMM over the peak operations in its time"),
    Column("gemm_waves", "int", "", "number of waves in which tiles run on the bundles"),
    Column("gemm_split_k", "int", "", "number of parts into which split-K divides the inner dimension"),
    Column("gemm_busy_frac", "float", "", "share of bundles that are busy, over all waves"),
    Column("gemm_compute_s", "float", "s", "compute time of the GEMM, idle bundles included"),
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
        "arithmetic intensity: operations over bytes of main memory, all kernels of one device;"
        " null: no bytes are moved",
    ),
    Column(
        "mfu",
        "float",
        "",
        "model FLOP utilisation: flop over the peak operations in time_s; the peak is of the"
        " fastest units that the model uses, on all devices",
    ),
    Column("energy_J", "float", "J", "energy of one iteration, all devices"),
    *SITE,
    *LIMITS,
    *COSTS,
    ITERATION,
    *EMISSIONS,
    Column(
        "footprint_B",
        "float",
        "B",
        "memory footprint of one device, in the pipeline stage with the largest footprint",
    ),
    Column("weight_B", "float", "B", "weights of one device, master copies included"),
    Column("gradient_B", "float", "B", "gradients of one device"),
    Column("optimizer_B", "float", "B", "optimizer state of one device"),
    Column(
        "activation_B",
        "float",
        "B",
        "activations of one device that are kept for the backward pass; of a single GEMM, A and C",
    ),
    Column("buffer_B", "float", "B", "unsharded copies of weights and gradients under ZeRO, on one device"),
    Column("workspace_B", "float", "B", "workspaces of libraries, on one device"),
    Column("fragment_B", "float", "B", "memory of one device that the allocator holds and cannot use"),
    Column("communicator_B", "float", "B", "buffers of collectives, on one device"),
    Column("context_B", "float", "B", "context of the process, on one device"),
    Column(
        "allocated_B",
        "float",
        "B",
        "peak of the tensors and workspaces of one device, as an allocator counts them:"
        " torch.cuda.max_memory_allocated()",
    ),
    Column(
        "reserved_B",
        "float",
        "B",
        "allocated_B with what the allocator cannot use: torch.cuda.max_memory_reserved(); footprint_B has"
        " communicators and the context too",
    ),
    Column("peak_memory_stage", "int", "", "pipeline stage with the largest footprint, counted from 0"),
    Column("dram_capacity_B", "float", "B", "main memory capacity of one device"),
    Column("dram_offered_B", "float", "B", "part of dram_capacity_B that programs may fill"),
    Column("compute_flops", "float", "flop/s", "peak of one device in the model's data type"),
    Column("dram_devices", "int", "", "number of memory devices (HBM stacks) of one device"),
    Column("dram_Bps", "float", "B/s", "main memory bandwidth of one device"),
    Column("l*_B", "float", "B", "capacity of the level, all instances"),
    Column("l*_Bps", "float", "B/s", "bandwidth of the level, all instances, before utilisation"),
    Column("l*_banks", "int", "", "banks of the level, all instances"),
    Column("intra_Bps", "float", "B/s", "in-package bandwidth of one device, one direction"),
    Column("inter_Bps", "float", "B/s", "off-package bandwidth of one device, one direction"),
    Column("idle_W", "float", "W", "power of one device at rest: its clocks are up, and no kernel runs"),
    Column("full_W", "float", "W", "power of one device with all units and memories busy"),
    Column("core_V", "float", "V", "core voltage"),
    Column("core_Hz", "float", "Hz", "core clock"),
    Column(
        "power_limit_W",
        "float",
        "W",
        "chip.power_limit, the most power that a device may draw, but for those that only prefill"
        " (prefill_power_limit_W); null: no limit",
    ),
    Column("mcus", "int", "", "MCUs (minimal compute units: matrix units, or tensor cores) of one device"),
    Column("bundles", "int", "", "bundles of MCUs (SMs) of one device"),
    Column("devices", "int", "", "devices that the strategy uses"),
    Column("microbatches", "int", "", "micro-batches of an iteration"),
    Column("kp1_Bps", "float", "B/s", "bandwidth of a device to its neighbours along kernel parallelism KP1"),
    Column("kp2_Bps", "float", "B/s", "bandwidth of a device to its neighbours along kernel parallelism KP2"),
    Column("tp_Bps", "float", "B/s", "bandwidth of a device to its neighbours along tensor parallelism"),
    Column("cp_Bps", "float", "B/s", "bandwidth of a device to its neighbours along context parallelism"),
    Column("ep_Bps", "float", "B/s", "bandwidth of a device to its neighbours along expert parallelism"),
    Column("dp_Bps", "float", "B/s", "bandwidth of a device to its neighbours along data parallelism"),
    Column("pp_Bps", "float", "B/s", "bandwidth of a device to its neighbours along the pipeline"),
    Column(
        "kp1_hops",
        "int",
        "",
        "largest number of links between neighbours along KP1; 0: there are no neighbours",
    ),
    Column("kp2_hops", "int", "", "largest number of links between neighbours along KP2"),
    Column("tp_hops", "int", "", "largest number of links between neighbours along tensor parallelism"),
    Column("cp_hops", "int", "", "largest number of links between neighbours along context parallelism"),
    Column("ep_hops", "int", "", "largest number of links between neighbours along expert parallelism"),
    Column("dp_hops", "int", "", "largest number of links between neighbours along data parallelism"),
    Column("pp_hops", "int", "", "largest number of links between neighbours along the pipeline"),
    Column(
        "feasible",
        "bool",
        "",
        "whether the point has a time, fits its memory, and meets its limits of load, latency and power",
    ),
    Column("reason", "str", "", "why a point is not feasible"),
    Column("reason_code", "str", "", "kind of the reason, such as memory (see Codes of reasons)"),
    NO_EFFECT,
    ASSUMPTIONS,
)

LAYERS = Column("layers", "int", "", "layers of the model, as model.size scales it")
HIDDEN = Column("hidden", "int", "", "columns of a token between layers, as model.size scales them")
DTYPE = Column(
    "dtype",
    "str",
    "",
    "data type of products, after model.dtype=auto is resolved, and that of experts if it differs",
)

# of models with layer runs, in addition to the columns above
TRANSFORMER: tuple[Column, ...] = (
    Column(
        "parameters",
        "float",
        "",
        "parameters of the model, with those of norms and biases, and of its vision tower",
    ),
    Column(
        "active_parameters",
        "float",
        "",
        "parameters that one token uses; in a mixture of experts, those of the experts that it chooses",
    ),
    LAYERS,
    HIDDEN,
    DTYPE,
    Column("chunks", "int", "", "chunks of layers of each pipeline stage"),
    Column("split", "str", "", "how layers are assigned to pipeline stages"),
    Column("microbatch", "int", "", "sequences of a micro-batch on one device"),
    Column("schedule", "str", "", "order of micro-batches in the pipeline"),
    Column("recompute", "str", "", "what the backward pass recomputes"),
    Column("zero", "int", "", "stage of ZeRO"),
    Column("tokens_per_s", "float", "1/s", "tokens of the global batch over time_s"),
    Column("tokens_per_s_per_device", "float", "1/s", "tokens_per_s over devices"),
    TOKENS_PER_MW,
    TOKEN,
    MILLION,
    CARBON_TOKEN,
    Column("model_flops_per_device", "float", "flop/s", "operations of the model over time_s and devices"),
    Column(
        "hardware_flops_per_device",
        "float",
        "flop/s",
        "operations that devices do, recomputation included, over time_s and devices",
    ),
    Column("attention_s", "float", "s", "part of compute_s: attention and its products"),
    Column("feed_forward_s", "float", "s", "part of compute_s: feed-forward layers"),
    Column(
        "experts_s",
        "float",
        "s",
        "part of compute_s: experts, routers, and the passes that sort and combine tokens",
    ),
    Column("lm_head_s", "float", "s", "part of compute_s: embedding, head and loss"),
    Column("optimizer_s", "float", "s", "part of compute_s: gradient clipping and weight update"),
    Column("other_s", "float", "s", "part of compute_s: norms, and sums between layers"),
    Column(
        "recompute_s",
        "float",
        "s",
        "time of recomputation in the backward pass; it is included in the parts above",
    ),
    Column("tp_comm_exposed_s", "float", "s", "part of exposed_comm_s: exchanges of tensor parallelism"),
    Column("cp_comm_exposed_s", "float", "s", "part of exposed_comm_s: exchanges of context parallelism"),
    Column("ep_comm_exposed_s", "float", "s", "part of exposed_comm_s: exchanges of expert parallelism"),
    Column("param_gather_exposed_s", "float", "s", "part of exposed_comm_s: gathers of weights (ZeRO)"),
    Column("grad_reduce_exposed_s", "float", "s", "part of exposed_comm_s: sums of weight gradients"),
    Column("pp_comm_exposed_s", "float", "s", "part of exposed_comm_s: messages between pipeline stages"),
    Column("offload_exposed_s", "float", "s", "part of exposed_comm_s: transfers between device and host"),
    Column("host_exposed_s", "float", "s", "part of exposed_comm_s: waits for launches by the host"),
    Column(
        "joint_exposed_s",
        "float",
        "s",
        "part of exposed_comm_s that no single kind of communication causes: while two kinds move at the"
        " same time, only the lack of both would save time",
    ),
    Column(
        "host_B", "float", "B", "bytes that one device offloads to its host: to its memory, or to its drives"
    ),
    Column(
        "train_s",
        "float",
        "s",
        "time to train on model.train_tokens, or on model.train_tokens_per_parameter for each parameter",
    ),
    Column("train_energy_J", "float", "J", "energy to train for train_s, all devices"),
    TRAIN,
    CARBON_TRAIN,
)

EXPOSED = {
    "tensor": "tp_comm_exposed_s", "context": "cp_comm_exposed_s", "expert": "ep_comm_exposed_s",
    "weight": "param_gather_exposed_s", "gradient": "grad_reduce_exposed_s", "send": "pp_comm_exposed_s",
    "offload": "offload_exposed_s", "host": "host_exposed_s", "joint": "joint_exposed_s",
}  # fmt: skip
"""Parts of exposed_comm_s by what is waited for: name on screens, and column."""

# of a search's history and ranking, in addition to the columns above
SEARCH: tuple[Column, ...] = (
    Column("rank", "int", "", "rank among the competing candidates, from 1"),
    Column("design", "int", "", "number of the design in the order of scoring"),
    Column(
        "candidate", "int", "", "number of the candidate, from 0: a workload on a system under one strategy"
    ),
    Column("start", "int", "", "number of the starting point; 0: the chip's own area and power split"),
    Column("step", "int", "", "number of the step from this start; 0: scored before the search"),
    Column(
        "score",
        "float",
        "",
        "value that the method minimises: log of the objective; 100 or more: not feasible",
    ),
    Column("objective", "float", "", "value that the search minimises"),
    Column("second_objective", "float", "", "value of the second objective of a Pareto front"),
    Column("baseline_objective", "float", "", "objective of the chip's own area and power split"),
    Column("baseline_feasible", "bool", "", "whether the chip's own area and power split is feasible"),
    Column("gain", "float", "", "improvement: baseline_objective over objective"),
    Column(
        "gap",
        "float",
        "",
        "objective of the candidate over the best objective of all competing candidates, less 1",
    ),
    Column("designs", "int", "", "number of designs scored for the candidate"),
)
