"""The registry of inputs: the leaves of a composed configuration, by their dotted keys.

An input that the model reads must be there, unless the registry says what its absence means (`absent`).
"""

from __future__ import annotations

from collections.abc import Iterable

from fastflow.core.field import Column, count, fraction, nonnegative, positive, share, text
from fastflow.physics.network.collectives.algorithms import CHOICES as ALGORITHMS
from fastflow.physics.parallelism.options import (
    CP_COMM_TYPES,
    DISPATCHER,
    DISPATCHERS,
    OFFLOADS,
    REDUCES,
    SCHEDULES,
    SPLITS,
    SWITCH,
)
from fastflow.physics.workload.precision import (
    ATTENTION_TYPES,
    CACHE_TYPES,
    EXPERT_TYPES,
    MASTER_TYPES,
    ROLE_TYPES,
)
from fastflow.schema.chiplets import CHIPLET
from fastflow.schema.components import link, supply
from fastflow.schema.cost import COST
from fastflow.schema.serving import ALL_REDUCE_BACKENDS, SERVING
from fastflow.schema.technology import SCALING
from fastflow.schema.workload import WORKLOAD

SCOPES = ("mcu", "bundle", "global")
OPERANDS = ("registers", "l1")
SCALERS = ("lanes", "units")
DATAFLOWS = ("weight", "activation", "output", "best")
TOPOLOGIES = ("ring", "mesh", "torus", "fully_connected", "switch", "fat_tree")
LIBRARIES = ("none", "nccl")


def _shares(name: str, whole: str, parts: Iterable[str]) -> tuple[Column, ...]:
    return tuple(fraction(f"chip.{name}.{part}", f"share of the {whole} that {part} gets") for part in parts)


INPUTS: tuple[Column, ...] = (
    # --- logic technology (4.1.1, 4.1.2)
    text("tech.name", "technology node"),
    count("tech.generation", "full nodes after the base node, which gives the values", low=0),
    positive("tech.scaling.area", "", "factor by which the area of a component shrinks per generation"),
    positive("tech.scaling.power", "", "factor by which its power shrinks per generation, at the same speed"),
    *SCALING,
    positive("tech.core.nominal_power", "W", "power of one MCU at nominal voltage and frequency"),
    positive("tech.core.nominal_area", "m^2", "area of one MCU"),
    count("tech.core.nominal_bundle", "MCUs of the bundle that these are of"),
    fraction("tech.core.shared_area", "share of that area that a bundle has once, for all its MCUs"),
    fraction("tech.core.shared_power", "share of that power that a bundle takes once, for all its MCUs"),
    positive("tech.core.nominal_frequency", "Hz", "MCU clock frequency at nominal voltage"),
    *supply("tech.core"),
    positive("tech.core.flop_per_cycle.*", "flop", "operations of one MCU per cycle, by data type"),
    text("tech.memory.*.technology", "type of memory cell"),
    nonnegative("tech.memory.*.latency", "s", "latency of one access"),
    positive("tech.memory.*.dynamic_energy", "J/bit", "energy to read or write one bit"),
    nonnegative("tech.memory.*.static_power", "W/bit", "leakage power of one bit"),
    positive("tech.memory.*.cell_area", "m^2/bit", "area of one bit cell"),
    Column("tech.memory.*.overhead", "float", "", "share of a bank's area outside its cells", 0.0, 0.99),
    positive("tech.memory.*.bank_capacity", "B", "capacity of one bank"),
    positive("tech.memory.*.bank_width", "B", "bytes that one bank moves per cycle"),
    positive("tech.memory.*.bank_frequency", "Hz", "clock frequency of a bank"),
    nonnegative("tech.memory.*.controller_power", "W", "power of a bank's controller at work"),
    nonnegative("tech.memory.*.controller_area", "m^2", "area of one bank's controller"),
    positive("tech.memory.*.ports", "", "ports of the crossbar, on the side of what the level serves"),
    nonnegative("tech.memory.*.link_area", "m^2", "crossbar area for one bank and one port"),
    # --- main memory (4.1.2, 4.4.3)
    text("mem.name", "memory technology"),
    count("mem.links_per_device", "data links of one device (an HBM stack's DQ)"),
    positive("mem.links_per_length", "1/m", "memory links per metre of die edge"),
    positive("mem.dynamic_energy", "J/bit", "energy of one bit moved, at nominal voltage"),
    nonnegative("mem.static_power", "W/bit", "standby power of one bit"),
    positive("mem.device_capacity", "B", "capacity of one device"),
    positive("mem.device_area", "m^2", "package area of one device"),
    positive("mem.controller_area", "m^2", "area of controller and I/O on the compute die, for one device"),
    *supply("mem"),
    positive("mem.nominal_frequency", "bit/s", "rate of one link at nominal voltage"),
    nonnegative("mem.latency", "s", "latency of one access"),
    # --- networks (4.1.3, 4.4.4)
    text("net.name", "network technology"),
    *link("net.intra", "in-package"),
    *link("net.inter", "off-package"),
    nonnegative("net.inter.collective_overhead", "s", "overhead of a collective's call, added to its steps"),
    nonnegative("net.library.launch", "s", "NCCL: launch of a ring's kernel that sends by LL"),
    nonnegative("net.library.ll128", "", "NCCL: the same by LL128, over that"),
    nonnegative("net.library.simple", "", "NCCL: the same by Simple, over that"),
    nonnegative("net.library.send", "", "NCCL: launch of a direct send by LL, over that of a ring"),
    nonnegative("net.library.send_simple", "", "NCCL: the same by Simple"),
    nonnegative("net.library.fill", "s", "NCCL: time that a direct send by LL takes longer from 64 KiB on"),
    nonnegative(
        "net.library.peer", "", "NCCL: latency that every peer of a direct send adds, in steps by LL"
    ),
    nonnegative(
        "net.library.block", "", "NCCL: share by which a whole block of threads is slower than one warp"
    ),
    nonnegative("net.library.tree", "", "NCCL: latency of a tree's step over that of a ring"),
    fraction(
        "net.library.reduce", "NCCL: share of its links that a switch reaches that reduces; 0: it does not"
    ),
    share("net.library.load", "share of its links that loads from peers' memory reach"),
    text(
        "net.all_reduce_backend",
        "nccl: the library of collectives alone; custom: kernels of serving libraries beside it",
        ALL_REDUCE_BACKENDS,
    )._replace(absent="nccl"),
    # --- chip: the architecture template and its budgets (4.2, 4.3)
    text("chip.name", "chip"),
    text("chip.architecture", "architecture: chips of one run the same kernels")._replace(
        absent="none that other chips have"
    ),
    text("chip.maker", "maker, whose libraries its kernels are of")._replace(absent="not said"),
    positive("chip.node_area", "m^2", "area of the package, for the compute die and the memory devices"),
    positive("chip.die_area", "m^2", "area of the compute die"),
    positive("chip.tdp", "W", "power budget of the node"),
    *_shares("area", "die area", ("core", "l*", "dram", "intra", "inter")),
    *_shares("power", "node's power", ("core", "l*", "dram", "intra", "inter")),
    *_shares("perimeter", "die's edge", ("dram", "intra", "inter")),
    count("chip.mcu.m", "rows of the matrix unit (dimension m)"),
    count("chip.mcu.k", "depth of the matrix unit (dimension k)"),
    count("chip.mcu.n", "columns of the matrix unit (dimension n)"),
    text("chip.mcu.dataflow", "stationary operand of the matrix unit", DATAFLOWS),
    count("chip.mcus_per_bundle", "MCUs per bundle (tensor cores per SM)"),
    Column("chip.matrix.*", "bool", "", "true: matrix units multiply this data type; false: vector lanes do"),
    share("chip.utilization", "highest share of the matrix units' peak that a kernel reaches"),
    share("chip.vector_utilization", "highest share of the vector lanes' peak that a kernel reaches"),
    share("chip.dram_utilization", "share of the main memory's bandwidth that a kernel reaches"),
    nonnegative(
        "chip.launch_overhead", "s", "overhead of one kernel launch, with other kernels queued behind it"
    ),
    nonnegative(
        "chip.call_overhead", "s", "overhead of one framework call on an idle device, added to its kernel"
    ),
    text(
        "chip.blocks.matrix", "thread block tiles of the kernel library on matrix units, such as 128x64 64x64"
    ),
    text("chip.blocks.vector", "thread block tiles of the kernel library on vector lanes"),
    text("chip.blocks.batched_vector", "thread block tiles of batched products on vector lanes"),
    text("chip.blocks.warp", "largest tile of a warp within a thread block, such as 64x64"),
    text("chip.blocks.operands", "where matrix units read operands: registers, or L1 itself", OPERANDS),
    count("chip.blocks.cluster", "thread blocks that read the columns of B together, on matrix units"),
    count("chip.blocks.pair", "bundles whose matrix units multiply a tile together"),
    Column("chip.blocks.persistent", "bool", "", "whether a block's end overlaps with the next one's start"),
    text("chip.blocks.scales", "what scales the sums of fp8_block: vector lanes, or matrix units", SCALERS),
    positive(
        "chip.matrix_power", "", "power of busy matrix units over that of busy vector lanes, of boost_W"
    ),
    share(
        "chip.sustained_power_fraction",
        "share of the power budget that cores and caches have in runs of minutes",
    ),
    Column(
        "chip.flash_attention",
        "bool",
        "",
        "whether FlashAttention 2 and cuDNN have fused attention for it; what frameworks fuse follows",
    )._replace(absent="true"),
    Column("chip.boost", "bool", "", "whether idle bundles leave their power to those at work"),
    nonnegative(
        "chip.step_latency", "s", "least time of a thread block for 128 B of every row that it reads"
    ),
    positive(
        "chip.special_functions", "", "exponentials and the like that a bundle starts in a cycle of its cores"
    ),
    nonnegative("chip.strided.cost", "", "share of compute time added where both operands are strided"),
    positive("chip.strided.reach", "B", "bytes that address translation reaches in such a product"),
    nonnegative(
        "chip.strided.miss", "", "share of compute time added beyond the reach of address translation"
    ),
    fraction(
        "chip.rate.*", "share of the MCU's rate that the chip reaches in a data type; 0: not supported"
    )._replace(absent="0"),
    text("chip.made.tech", "technology node of the pinned quantities")._replace(absent="any"),
    text("chip.made.mem", "memory technology of the pinned quantities")._replace(absent="any"),
    text("chip.memory.l*.component", "component of the technology library (tech.memory)"),
    text("chip.memory.l*.scope", "scope of one instance of the level", SCOPES),
    positive("chip.memory.l*.capacity", "B", "capacity of one instance")._replace(
        absent="all that its budgets allow"
    ),
    share("chip.memory.l*.utilization", "share of the level's bandwidth that a kernel reaches"),
    count(
        "chip.memory.l*.partitions", "parts of an instance, each of which holds what its own bundles read"
    )._replace(absent="1"),
    # --- pinned quantities of a chip: known values in place of generated ones
    *(
        column._replace(absent="no limit" if column.name.endswith("boost_W") else "it is generated")
        for column in (
            count("chip.pinned.mcus", "number of MCUs"),
            positive("chip.pinned.core_Hz", "Hz", "core clock"),
            positive("chip.pinned.core_V", "V", "core voltage"),
            positive("chip.pinned.boost_W", "W", "power of the node at that clock with all units busy"),
            positive("chip.pinned.l*_B", "B", "capacity of an on-chip level, all instances"),
            positive("chip.pinned.l*_Bps", "B/s", "bandwidth of an on-chip level, all instances"),
            positive("chip.pinned.dram_capacity_B", "B", "main memory capacity"),
            positive("chip.pinned.dram_Bps", "B/s", "main memory bandwidth"),
            positive("chip.pinned.intra_Bps", "B/s", "in-package bandwidth, one direction"),
            positive("chip.pinned.inter_Bps", "B/s", "off-package bandwidth, one direction"),
        )
    ),
    # --- system and strategy (3.3, 4.2.3)
    count("system.devices", "accelerators in the system"),
    text("system.topology", "network between packages", TOPOLOGIES),
    text("system.shape", "mesh or torus: 1d, 2d or 3d (the most even sides), or its sides, such as 16x32"),
    count("system.leaf_radix", "fat tree: devices per leaf switch, the ports of its radix that go down"),
    Column(
        "system.oversubscription",
        "float",
        "",
        "fat tree: bandwidth into a leaf switch over bandwidth out of it",
        1.0,
    ),
    count("system.package.devices", "accelerators per package"),
    text("system.package.topology", "network within a package", TOPOLOGIES),
    text("system.package.shape", "same as system.shape, within a package"),
    text("system.library", "what runs collectives: the algorithms of system.collective, or NCCL", LIBRARIES),
    text("system.collective", "algorithm of the collectives; auto: the fastest for each message", ALGORITHMS),
    text("parallel.strategy", "parallel strategy, such as RC-4-2-d3 or d512; auto: the best of all"),
    text(
        "parallel.search_bounds",
        "bounds of what strategy=auto of a transformer tries, such as tp<=8, pp<=16; any: none of your own",
    ),
    text("parallel.embedding", "cut of the embedding layers, such as RC-1-8; same: that of the strategy"),
    text("parallel.hidden", "cut of the hidden layers; same: that of the strategy"),
    text("parallel.softmax", "cut of the softmax layers; same: that of the strategy"),
    text(
        "parallel.layers", "cuts of layers by name, in place of these: tower: RC-1-8, head: CR-8; same: none"
    ),
    Column("parallel.per_layer", "bool", "", "true, with strategy=auto: the best cut for each layer"),
    text(
        "parallel.sequence_parallel",
        "true: TP cuts the tokens too, wherever it cuts nothing else; auto: true in transformers",
        SWITCH,
    ),
    Column(
        "parallel.expert_tensor_parallel",
        "bool",
        "",
        "true: TP cuts each expert; false: EP has its devices first",
    ),
    text(
        DISPATCHER,
        "how tokens reach experts of other machines: a copy for each of its experts (alltoall), or one"
        " a machine (flex); auto: flex in training with model.topk_groups",
        DISPATCHERS,
    ),
    text(
        "parallel.cp_comm_type",
        "how attention meets the tokens that cp cuts: keys and values sent on (p2p), or heads sharded (a2a)",
        CP_COMM_TYPES,
    ),
    Column(
        "parallel.zero_stage",
        "int",
        "",
        "stage of ZeRO: devices share optimizer state (1), gradients too (2), weights too (3); 0: none; "
        "auto (-1): 1 of a transformer, else 0",
        0.0,
        3.0,
        auto=-1.0,
    ),
    Column(
        "parallel.reshard_after_forward",
        "bool",
        "",
        "ZeRO 3: true: weights are given up after the forward pass, and gathered anew",
    ),
    Column(
        "parallel.hybrid_shard_size",
        "int",
        "",
        "devices along dp, cp and ep that have parts of all weights, states or gradients under ZeRO; 0: all",
        0.0,
    ),
    text(
        "parallel.grad_reduce",
        "a transformer's weight gradients are summed over devices for every micro-batch, or once (step);"
        " auto: for every one from ZeRO 2 on, but once in a pipeline; buffer: the same, from ZeRO 3 on",
        REDUCES,
    ),
    text("parallel.pipeline_partition", "how layers are assigned to pipeline stages; auto: evenly", SPLITS),
    text(
        "parallel.offload",
        "what lies in the host's memory: the optimizer's states, activations, or both",
        OFFLOADS,
    ),
    positive("parallel.host_bandwidth", "B/s", "bandwidth of a device's link to its host, one direction"),
    text(
        "parallel.recompute",
        "what the backward pass computes again: none (auto), selective, full, or layers a chunk",
    ),
    *(
        Column(f"parallel.overlap.{name}", "bool", "", f"true: {meaning}")
        for name, meaning in (
            ("tensor", "exchanges of tensor parallelism hide behind products"),
            ("context", "keys and values that cp sends on hide behind attention"),
            ("expert", "exchanges of experts hide behind the kernels of another micro-batch"),
            ("data", "sums of gradients hide behind the backward pass, gathers of weights behind layers"),
            ("pipeline", "stages work on while they send"),
        )
    ),
    count("parallel.overlap.bundles", "bundles that a collective takes from kernels beside it", low=0),
    text("parallel.layout", "YAML file that says what every axis of the mesh cuts, in the strategy's place"),
    count(
        "parallel.microbatches",
        "micro-batches; 0: as parallel.microbatch says, else four per pipeline stage, one without stages",
        low=0,
    ),
    count(
        "parallel.microbatch",
        "sequences of a micro-batch on one device; auto (0): as parallel.microbatches, of a transformer 1",
        low=0,
    )._replace(auto=0.0),
    text("parallel.schedule", "order of micro-batches in a pipeline", SCHEDULES),
    Column(
        "parallel.concurrent_kernels",
        "int",
        "",
        "kernels that a device may run at the same time",
        1.0,
        1024.0,
    ),
    text(
        "placement",
        "order in which parallel dimensions fill the network, such as kp1-kp2-dp-pp; auto: the best",
    ),
    # --- tiling search (6.2)
    text("tiling.tiles", "source of the tried tiles", ("random", "divisors", "blocks")),
    text("tiling.search", "exact: pruned search; brute: all combinations", ("exact", "brute")),
    Column("tiling.samples", "int", "", "tiles tried at each level (the paper's N)", 1.0, 1000.0),
    count("tiling.seed", "seed of the tile sequence", low=0),
    Column(
        "tiling.soft_max_order", "float", "", "order of the soft maximum of times; 0: the maximum", 0.0, 64.0
    ),
    Column(
        "tiling.max_split_k", "int", "", "largest number of parts of the inner dimension (split-K)", 1.0, 64.0
    ),
    # --- data types by the roles of tensors
    *(
        text(f"precision.{role}", f"data type of {tensors}; operand: that of model.dtype", ROLE_TYPES)
        for role, tensors in (
            ("weight", "weights"),
            ("activation", "activations and of their gradients"),
            ("gradient", "weight gradients, held and summed"),
            ("state", "optimizer state"),
        )
    ),
    text(
        "precision.cache",
        "data type of the keys and values of tokens read before; operand: that of activations",
        CACHE_TYPES,
    ),
    text(
        "precision.attention",
        "data type that attention computes in; auto: fp8 where caches are and the chip has it, else that of"
        " products, or bf16 where they quantise",
        ATTENTION_TYPES,
    ),
    text(
        "precision.experts",
        "data type of the weights of experts; where the chip does not multiply in it, they turn into bf16",
        EXPERT_TYPES,
    ),
    text(
        "precision.master",
        "data type of master weights; auto: fp32 where weights have fewer bytes; none: no master weights",
        MASTER_TYPES,
    ),
    *SERVING,
    *CHIPLET,
    *COST,
    # --- workloads
    *WORKLOAD,
)
