"""Inputs of parallelism: how work is divided over devices (docs/strategies.md, docs/splits.md)."""

from __future__ import annotations

from fastflow.core.field import Column, count, nonnegative, positive, text
from fastflow.physics.parallelism.options import (
    CP_COMM_TYPES,
    DISPATCHER,
    DISPATCHERS,
    OFFLOAD_DEVICES,
    OFFLOAD_UPDATES,
    OFFLOADS,
    REDUCES,
    SCHEDULES,
    SPLITS,
    SWITCH,
)

PARALLEL: tuple[Column, ...] = (
    text(
        "parallel.strategy",
        "parallel strategy, such as RC-4-2-d3 or d512; auto: the best of all; for a transformer,"
        " together with every other key of the layout that is auto",
    ),
    text(
        "parallel.search_bounds",
        "bounds for the layouts that strategy=auto tries for a transformer, such as tp<=8, pp<=16; any: none",
    ),
    text(
        "parallel.embedding",
        "cut of the embedding layers on the same devices, such as RC-1-8; same: that of the strategy",
    ),
    text("parallel.hidden", "cut of the hidden layers; same: that of the strategy"),
    text("parallel.softmax", "cut of the softmax layers; same: that of the strategy"),
    text(
        "parallel.layers",
        "cuts of layers by name, which override embedding, hidden and softmax: tower:"
        " RC-1-8, head: CR-8; null or same: none",
    ),
    Column("parallel.per_layer", "bool", "", "true, with strategy=auto: the best cut for each layer"),
    text(
        "parallel.sequence_parallel",
        "true: TP also splits the tokens of norms and residual sums (sequence parallelism); auto:"
        " true in transformers",
        SWITCH,
    ),
    Column(
        "parallel.expert_tensor_parallel",
        "bool",
        "",
        "true: TP splits each expert, as in Megatron-core; false: EP uses the devices of TP first",
    ),
    text(
        DISPATCHER,
        "how tokens reach experts of other machines: one copy for each of a token's experts there"
        " (alltoall), one copy for each machine (flex: DeepEP, HybridEP), or all tokens to all ranks that"
        " share the experts (allgather); auto: flex in"
        " training of models with model.topk_groups, such as DeepSeek-V3, else alltoall",
        DISPATCHERS,
    ),
    text(
        "parallel.cp_comm_type",
        "how attention reads the tokens that CP splits: keys and values go round a ring (p2p), or"
        " heads are sharded (a2a, Ulysses)",
        CP_COMM_TYPES,
    ),
    Column(
        "parallel.zero_stage",
        "int",
        "",
        "stage of ZeRO: devices shard optimizer state (1), gradients too (2), weights too (3, as"
        " FSDP); 0: nothing; auto (-1): 1 (the distributed optimizer) for a transformer, else 0",
        0.0,
        3.0,
        auto=-1.0,
    ),
    Column(
        "parallel.reshard_after_forward",
        "bool",
        "",
        "zero_stage=3: true: weights are freed after the forward pass and gathered again; false:"
        " they stay until the backward pass",
    ),
    Column(
        "parallel.zero_init",
        "bool",
        "",
        "zero_stage=3: true: a program makes its weights sharded (zero.Init of DeepSpeed, the meta device of"
        " FSDP); false: a device has all weights of its stage first, and its allocator keeps their memory",
    ),
    Column(
        "parallel.hybrid_shard_size",
        "int",
        "",
        "devices along DP, CP and EP that together hold all that ZeRO shards; more devices hold"
        " further copies (FSDP's hybrid sharding); 0: all devices hold one copy",
        0.0,
    ),
    text(
        "parallel.grad_reduce",
        "when a transformer's weight gradients are summed over devices: for every micro-batch"
        " (microbatch), as FSDP and DeepSpeed do, or once per iteration (step, FSDP's no_sync); auto:"
        " microbatch from ZeRO 2 on, but step in a pipeline and below ZeRO 2; buffer: as auto, but"
        " microbatch only from ZeRO 3 on (Megatron's gradient buffer)",
        REDUCES,
    ),
    text(
        "parallel.pipeline_partition",
        "how layers are assigned to pipeline stages: even (auto): the same number on each, if"
        " necessary with embedding and head as one layer each; balanced: the slowest stage is as"
        " fast as possible",
        SPLITS,
    ),
    text(
        "parallel.pipeline_layout",
        "layers of each virtual stage of a pipeline, in Megatron-Core's notation, such as"
        " Et*3|(tt|)*29m|L; auto: by pipeline_partition",
    ),
    text(
        "parallel.offload",
        "what is stored in the host's memory: optimizer (its state: offload_optimizer of DeepSpeed),"
        " activations (those that hidden layers keep; with recomputation, the inputs of these layers),"
        " weights (of ZeRO 3, with gradients and optimizer: offload_param and offload_optimizer), or all",
        OFFLOADS,
    ),
    text(
        "parallel.offload_device",
        "where offloaded weights and optimizer state are: in the host's memory, or on its NVMe drives;"
        " activations are in its memory",
        OFFLOAD_DEVICES,
    ),
    text(
        "parallel.offload_update",
        "where offloaded weights are updated: on the device, which gets their state, or on the host"
        " (DeepSpeedCPUAdam)",
        OFFLOAD_UPDATES,
    ),
    nonnegative(
        "parallel.host_launch_time",
        "s",
        "time in which the host launches a kernel of a transformer, one after the other; a device waits"
        " where its kernels are shorter; 0: any number at once (captured graphs, compiled programs)",
    ),
    positive("parallel.host_bandwidth", "B/s", "bandwidth of a device's link to its host, one direction"),
    positive(
        "parallel.nvme_bandwidth", "B/s", "a device's share of the host's NVMe bandwidth, one direction"
    ),
    positive(
        "parallel.host_memory_bandwidth",
        "B/s",
        "a device's share of the memory bandwidth that an update on the host reaches",
    ),
    Column(
        "parallel.max_live_parameters",
        "float",
        "",
        "zero_stage=3: gathered parameters that a device may have at once (stage3_max_live_parameters of"
        " DeepSpeed); 0: those of the largest tensor",
        0.0,
        1e15,
    ),
    Column(
        "parallel.reduce_bucket_size",
        "float",
        "",
        "zero_stage=2 and 3: gradients of the buffer that collects them before they are summed over devices"
        " (reduce_bucket_size of DeepSpeed); 0: those of the largest tensor",
        0.0,
        1e15,
    ),
    Column(
        "parallel.ddp_bucket_size",
        "float",
        "",
        "parameters whose gradients are summed, and updated weights gathered, in one message"
        " (--ddp-bucket-size of Megatron-LM); 0: each tensor is a message",
        0.0,
        1e15,
    ),
    text(
        "parallel.recompute",
        "what the backward pass recomputes: none (auto), selective (the core of attention that is"
        " not fused), full, the number of layers of each chunk, or parts of all layers by Megatron's names"
        " (core_attn, moe_act, layernorm, mla_up_proj, mlp, moe, shared_experts; several with +)",
    ),
    *(
        Column(f"parallel.overlap.{name}", "bool", "", f"true: {meaning}")
        for name, meaning in (
            ("tensor", "communication of tensor parallelism hides behind the GEMMs beside it"),
            ("context", "keys and values that CP sends round a ring hide behind attention"),
            ("expert", "communication of experts hides behind the kernels of another micro-batch"),
            ("data", "gradient reductions hide behind the backward pass, weight gathers behind layers"),
            ("pipeline", "stages compute while they send messages to the next stage"),
        )
    ),
    count(
        "parallel.overlap.bundles",
        "bundles (SMs) that a collective takes from kernels that run at the same time",
        low=0,
    ),
    text(
        "parallel.layout",
        "YAML file that says what every axis of the device mesh cuts, in place of the strategy; null: none",
    ),
    count(
        "parallel.microbatches",
        "micro-batches of an iteration; 0: as parallel.microbatch says, else four per pipeline"
        " stage, one without stages",
        low=0,
    ),
    count(
        "parallel.microbatch",
        "sequences of a micro-batch on one device; auto (0): as parallel.microbatches says; if that is"
        " 0 too, 1 for a transformer",
        low=0,
    )._replace(auto=0.0),
    text(
        "parallel.schedule",
        "order of micro-batches in a pipeline; in transformers, 1f1b is interleaved where stages have"
        " chunks; all but gpipe and 1f1b are for transformers only; zb-v and dualpipe-v have two chunks a"
        " stage, dualpipe an even number of stages without chunks",
        SCHEDULES,
    ),
    Column(
        "parallel.concurrent_kernels",
        "int",
        "",
        "kernels that a device may run at the same time",
        1.0,
        1024.0,
    ),
)
