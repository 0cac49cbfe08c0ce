"""The registry of inputs: the leaves of a composed configuration, by their dotted keys.

An input that the model reads must be there, unless the registry says what its absence means (`absent`).
"""

from __future__ import annotations

from collections.abc import Iterable

from fastflow.core.field import Column, count, fraction, nonnegative, positive, share, text
from fastflow.physics.network.collectives.algorithms import CHOICES as ALGORITHMS
from fastflow.schema.carbon import CARBON
from fastflow.schema.chiplets import CHIPLET
from fastflow.schema.components import link, supply
from fastflow.schema.cost import COST
from fastflow.schema.memory import MEMORY
from fastflow.schema.parallelism import PARALLEL
from fastflow.schema.power import POWER_OF_SITE
from fastflow.schema.precision import PRECISION
from fastflow.schema.routing import ROUTING
from fastflow.schema.servers import ALL_REDUCE_BACKENDS, SERVERS
from fastflow.schema.serving import SERVING
from fastflow.schema.technology import SCALING
from fastflow.schema.workload import WORKLOAD

SCOPES = ("mcu", "bundle", "global")
OPERANDS = ("registers", "l1")
SCALERS = ("lanes", "units")
DATAFLOWS = ("weight", "activation", "output", "best")
TOPOLOGIES = ("ring", "mesh", "torus", "fully_connected", "switch", "fat_tree", "host")
LIBRARIES = ("none", "nccl")


_PARTS = {
    "core": "the cores", "l*": "this memory level", "dram": "the interface to main memory",
    "intra": "links within a package", "inter": "links between packages",
}  # fmt: skip
"""Components of a chip that share its budgets."""


def _shares(name: str, whole: str, parts: Iterable[str]) -> tuple[Column, ...]:
    return tuple(
        fraction(f"chip.{name}.{part}", f"share of the {whole} for {_PARTS[part]}") for part in parts
    )


INPUTS: tuple[Column, ...] = (
    # --- logic technology (4.1.1, 4.1.2)
    text("tech.name", "technology node"),
    count("tech.generation", "number of full nodes after the base node, which has the nominal values", low=0),
    positive("tech.scaling.area", "", "factor by which the area of a component shrinks per generation"),
    positive(
        "tech.scaling.power",
        "",
        "factor by which the power of a component shrinks per generation, at the same speed",
    ),
    *SCALING,
    positive(
        "tech.core.nominal_power",
        "W",
        "power of one MCU (minimal compute unit, a tensor core) at nominal voltage and frequency",
    ),
    positive("tech.core.nominal_area", "m^2", "area of one MCU"),
    count(
        "tech.core.nominal_bundle",
        "number of MCUs in the bundle (SM) for which nominal_area and nominal_power are given",
    ),
    fraction("tech.core.shared_area", "share of nominal_area that all MCUs of a bundle share"),
    fraction("tech.core.shared_power", "share of nominal_power that all MCUs of a bundle share"),
    fraction(
        "tech.core.idle_power_fraction", "share of the cores' power at rest: leakage, clocks, conversion"
    ),
    fraction("tech.core.active_power_fraction", "share of the cores' power that kernels add: clocks, issue"),
    fraction(
        "tech.core.leakage_fraction", "share of the power at rest that leaks, on a die of 65 degrees Celsius"
    ),
    positive("tech.core.leakage_doubling", "", "rise of temperature that doubles leakage, in kelvins"),
    positive("tech.core.nominal_frequency", "Hz", "MCU clock frequency at nominal voltage"),
    *supply("tech.core"),
    positive("tech.core.flop_per_cycle.*", "flop", "operations of one MCU per clock, by data type"),
    text("tech.memory.*.technology", "type of memory cell"),
    nonnegative("tech.memory.*.latency", "s", "latency of one access"),
    positive("tech.memory.*.dynamic_energy", "J/bit", "energy to read or write one bit"),
    nonnegative("tech.memory.*.static_power", "W/bit", "leakage power of one bit"),
    positive("tech.memory.*.cell_area", "m^2/bit", "area of one bit cell"),
    Column("tech.memory.*.overhead", "float", "", "share of a bank's area outside its cells", 0.0, 0.99),
    positive("tech.memory.*.bank_capacity", "B", "capacity of one bank"),
    positive("tech.memory.*.bank_width", "B", "bytes that one bank moves per clock"),
    positive("tech.memory.*.bank_frequency", "Hz", "clock frequency of a bank"),
    nonnegative("tech.memory.*.controller_power", "W", "power of the controller of one busy bank"),
    nonnegative("tech.memory.*.controller_area", "m^2", "area of one bank's controller"),
    positive(
        "tech.memory.*.ports", "", "ports of the crossbar on the side of the units that the memory serves"
    ),
    nonnegative("tech.memory.*.link_area", "m^2", "crossbar area for one bank and one port"),
    # --- main memory (4.1.2, 4.4.3)
    text("mem.name", "memory technology"),
    count("mem.links_per_device", "data links of one memory device (DQ of an HBM stack)"),
    positive("mem.links_per_length", "1/m", "memory links per metre of die edge"),
    positive("mem.dynamic_energy", "J/bit", "energy of one bit moved, at nominal voltage"),
    nonnegative("mem.static_power", "W/bit", "standby power of one bit"),
    positive("mem.device_capacity", "B", "capacity of one memory device"),
    positive("mem.device_area", "m^2", "package area of one memory device"),
    positive(
        "mem.controller_area", "m^2", "area of controller and I/O on the compute die, for one memory device"
    ),
    *supply("mem"),
    positive("mem.nominal_frequency", "bit/s", "rate of one link at nominal voltage"),
    nonnegative("mem.latency", "s", "latency of one access"),
    # --- networks (4.1.3, 4.4.4)
    text("net.name", "network technology"),
    *link("net.intra", "in-package"),
    *link("net.inter", "off-package"),
    nonnegative(
        "net.inter.collective_overhead",
        "s",
        "overhead of one call of a collective, added to the time of its steps",
    ),
    nonnegative("net.library.launch", "s", "NCCL: launch overhead of a ring kernel with protocol LL"),
    nonnegative(
        "net.library.ll128", "", "NCCL: launch overhead of a ring kernel with LL128, over that with LL"
    ),
    nonnegative(
        "net.library.simple", "", "NCCL: launch overhead of a ring kernel with Simple, over that with LL"
    ),
    nonnegative(
        "net.library.send", "", "NCCL: launch overhead of a direct send with LL, over that of a ring with LL"
    ),
    nonnegative(
        "net.library.send_simple",
        "",
        "NCCL: launch overhead of a direct send with Simple, over that of a ring with LL",
    ),
    nonnegative("net.library.fill", "s", "NCCL: time added to a direct send with LL from 64 KiB on"),
    nonnegative("net.library.peer", "", "NCCL: latency that each peer adds to a direct send, in steps of LL"),
    nonnegative("net.library.block", "", "NCCL: share by which a whole thread block is slower than one warp"),
    nonnegative("net.library.tree", "", "NCCL: latency of a step of a tree over that of a ring"),
    fraction(
        "net.library.reduce",
        "NCCL: share of its links that a reducing switch reaches; 0: the switch does not reduce",
    ),
    share(
        "net.library.load",
        "share of the link bandwidth that kernels reach when they load from peers' memory, or store there"
        " (all_reduce_backend: custom, trtllm)",
    ),
    text(
        "net.all_reduce_backend",
        "nccl: NCCL alone runs all-reduces; custom: kernels of vLLM and SGLang too, within a"
        " package, where they are faster; trtllm: those of TensorRT-LLM",
        ALL_REDUCE_BACKENDS,
    )._replace(absent="nccl"),
    # --- chip: the architecture template and its budgets (4.2, 4.3)
    text("chip.name", "name of the chip"),
    text("chip.architecture", "architecture; chips of one architecture run the same kernels")._replace(
        absent="an architecture that no other chip has"
    ),
    text("chip.maker", "maker of the chip, whose libraries have its kernels")._replace(absent="not said"),
    positive("chip.node_area", "m^2", "area of the package, for the compute die and the memory devices"),
    positive("chip.die_area", "m^2", "area of the compute die"),
    positive("chip.tdp", "W", "power budget of the device: die, memory and links"),
    positive(
        "chip.power_limit",
        "W",
        "most power that the device may draw, up to chip.tdp: the clock falls where kernels would draw more",
    )._replace(absent="chip.tdp"),
    *_shares("area", "die area", ("core", "l*", "dram", "intra", "inter")),
    *_shares("power", "power budget", ("core", "l*", "dram", "intra", "inter")),
    *_shares("perimeter", "die edge", ("dram", "intra", "inter")),
    count("chip.mcu.m", "rows of the matrix unit (dimension m)"),
    count("chip.mcu.k", "depth of the matrix unit (dimension k)"),
    count("chip.mcu.n", "columns of the matrix unit (dimension n)"),
    text(
        "chip.mcu.dataflow",
        "operand that stays in the matrix unit (stationary); best: the fastest",
        DATAFLOWS,
    ),
    count("chip.mcus_per_bundle", "MCUs per bundle (tensor cores per SM)"),
    Column("chip.matrix.*", "bool", "", "true: matrix units multiply this data type; false: vector lanes do"),
    share("chip.utilization", "highest share of the matrix units' peak that a kernel reaches"),
    share("chip.vector_utilization", "highest share of the vector lanes' peak that a kernel reaches"),
    share("chip.dram_utilization", "share of the main memory's bandwidth that a kernel reaches"),
    share(
        "chip.dram_offered",
        "share of main memory that programs may fill; the rest is the driver's, the firmware's, and that of"
        " error correction",
    )._replace(absent="1"),
    positive("chip.fill_Bps", "B/s", "bandwidth of one bundle from the level beyond its own")._replace(
        absent="no limit"
    ),
    nonnegative(
        "chip.launch_overhead",
        "s",
        "overhead of one kernel launch, while other kernels wait in the queue behind it",
    ),
    nonnegative(
        "chip.call_overhead", "s", "overhead of one framework call on an idle device, added to its kernel"
    ),
    text(
        "chip.blocks.matrix", "thread block tiles of the kernel library on matrix units, such as 128x64 64x64"
    ),
    text(
        "chip.blocks.scaled",
        "thread block tiles of the kernel library of fp8_block; none: those of chip.blocks.matrix",
    ),
    text("chip.blocks.grouped", "thread block tiles of grouped products of experts")._replace(
        absent="those of chip.blocks.matrix that TensorRT-LLM has"
    ),
    text("chip.blocks.vector", "thread block tiles of the kernel library on vector lanes"),
    text("chip.blocks.batched_vector", "thread block tiles of batched products on vector lanes"),
    text("chip.blocks.warp", "largest tile of a warp within a thread block, such as 64x64"),
    text(
        "chip.blocks.operands", "where matrix units read their operands: registers, or L1 directly", OPERANDS
    ),
    count(
        "chip.blocks.stages",
        "slabs of a thread block in L1 or in flight; 1: its warps copy a slab and multiply it in turn",
    )._replace(absent="4"),
    count("chip.blocks.cluster", "thread blocks that read the same columns of B together, on matrix units"),
    count("chip.blocks.pair", "bundles whose matrix units multiply a tile together"),
    Column(
        "chip.blocks.persistent",
        "bool",
        "",
        "true: the end of a thread block overlaps with the start of the next",
    ),
    nonnegative(
        "chip.blocks.late_launch",
        "s",
        "further launch overhead of a kernel that starts only after the end of the kernel before it",
    ),
    text(
        "chip.blocks.scales",
        "units that scale the sums of fp8_block: vector lanes, or the matrix units",
        SCALERS,
    ),
    positive(
        "chip.matrix_power",
        "",
        "power of busy matrix units over that of busy vector lanes, under chip.pinned.boost_W",
    ),
    share(
        "chip.sustained_power_fraction",
        "share of the power budget that cores and caches get in runs that last minutes",
    ),
    Column(
        "chip.temperature",
        "float",
        "",
        "temperature of the die in degrees Celsius, on which leakage depends; powers were calibrated at 65",
        0.0,
        150.0,
    ),
    fraction(
        "chip.idle_power_fraction",
        "share of the power budget that a device draws at rest: leakage, refresh, links, conversion;"
        " 0: what its technology says",
    )._replace(absent="0"),
    fraction(
        "chip.active_power_fraction",
        "share of the power budget that kernels add: clocks, instructions; by technology without the other",
    )._replace(absent="0"),
    Column(
        "chip.flash_attention",
        "bool",
        "",
        "true: FlashAttention 2 and cuDNN have fused attention for the chip; frameworks fuse"
        " attention where this is true",
    )._replace(absent="true"),
    Column("chip.boost", "bool", "", "true: the power of idle bundles goes to busy bundles"),
    nonnegative(
        "chip.step_latency", "s", "least time in which a thread block reads 128 B of each of its rows"
    ),
    positive(
        "chip.special_functions",
        "",
        "exponentials and other special functions that a bundle starts per clock of its cores",
    ),
    nonnegative(
        "chip.strided.cost", "", "share of compute time that is added where both operands are strided"
    ),
    positive("chip.strided.reach", "B", "bytes of a strided operand that address translation covers"),
    nonnegative(
        "chip.strided.miss",
        "",
        "share of compute time that is added where strided operands exceed the reach of address translation",
    ),
    fraction(
        "chip.rate.*", "share of the MCU's rate that the chip reaches in a data type; 0: not supported"
    )._replace(absent="0"),
    text("chip.made.tech", "technology node that the pinned values belong to")._replace(absent="any"),
    text("chip.made.mem", "memory technology that the pinned values belong to")._replace(absent="any"),
    text("chip.memory.l*.component", "memory of tech.memory that the level is made of"),
    text(
        "chip.memory.l*.scope",
        "what shares one instance of the level: an MCU, a bundle, or the whole chip (global)",
        SCOPES,
    ),
    positive("chip.memory.l*.capacity", "B", "capacity of one instance")._replace(
        absent="all that its budgets allow"
    ),
    share("chip.memory.l*.utilization", "share of the level's bandwidth that a kernel reaches"),
    count(
        "chip.memory.l*.partitions", "parts of an instance; each part holds what its own bundles read"
    )._replace(absent="1"),
    # --- pinned quantities of a chip: known values in place of generated ones
    *(
        column._replace(absent="no limit" if column.name.endswith("boost_W") else "it is generated")
        for column in (
            count("chip.pinned.mcus", "number of MCUs"),
            positive("chip.pinned.core_Hz", "Hz", "core clock"),
            positive("chip.pinned.core_V", "V", "core voltage"),
            positive(
                "chip.pinned.boost_W", "W", "power of the device at chip.pinned.core_Hz with all units busy"
            ),
            positive("chip.pinned.l*_B", "B", "capacity of an on-chip level, all instances"),
            positive("chip.pinned.l*_Bps", "B/s", "bandwidth of an on-chip level, all instances"),
            positive("chip.pinned.dram_capacity_B", "B", "main memory capacity of one device"),
            positive("chip.pinned.dram_Bps", "B/s", "main memory bandwidth of one device"),
            positive(
                "chip.pinned.dram_JpB", "J/B", "energy of a byte on its way between main memory and registers"
            ),
            positive("chip.pinned.intra_Bps", "B/s", "in-package bandwidth of one device, one direction"),
            positive("chip.pinned.inter_Bps", "B/s", "off-package bandwidth of one device, one direction"),
        )
    ),
    # --- system and strategy (3.3, 4.2.3)
    count(
        "system.devices",
        "devices (accelerators) in the system; auto: the least number with a layout that fits their memory",
    )._replace(auto=0.0),
    text("system.topology", "network between packages", TOPOLOGIES),
    text("system.shape", "mesh or torus: 1d, 2d or 3d (the most even sides), or its sides, such as 16x32"),
    count(
        "system.leaf_radix",
        "fat tree: devices per leaf switch, which is the number of its ports that go down",
    ),
    Column(
        "system.oversubscription",
        "float",
        "",
        "fat tree: bandwidth into a leaf switch over bandwidth out of it",
        1.0,
    ),
    count("system.package.devices", "devices per package (scale-up domain), used by the job or not"),
    text(
        "system.package.topology",
        "network within a package; fat_tree and host are not possible there",
        (*TOPOLOGIES, "hybrid_cube_mesh"),
    ),
    text("system.package.shape", "mesh or torus within a package: as system.shape"),
    text(
        "system.library",
        "none: collectives run the algorithms of system.collective; nccl: those that NCCL chooses,"
        " which needs system.collective=auto and a network with NCCL's scalars, such as"
        " net=nvlink4",
        LIBRARIES,
    ),
    text(
        "system.collective",
        "algorithm of the collectives; auto: the fastest for each message; where the network does"
        " not offer the algorithm, the fastest of the others",
        ALGORITHMS,
    ),
    *PARALLEL,
    text(
        "placement",
        "order in which parallel dimensions fill the network, such as kp1-kp2-dp-pp; auto: the order of least"
        " communication",
    ),
    # --- tiling search (6.2)
    text("tiling.tiles", "how the candidate tiles are chosen", ("random", "divisors", "blocks")),
    text(
        "tiling.search",
        "exact: a pruned search, which finds the best; brute: all combinations, as a check",
        ("exact", "brute"),
    ),
    Column("tiling.samples", "int", "", "tiles tried at each level (the paper's N)", 1.0, 1000.0),
    count("tiling.seed", "seed of the tile sequence", low=0),
    Column(
        "tiling.soft_max_order",
        "float",
        "",
        "order of the soft maximum of compute and memory times; 0: the plain maximum",
        0.0,
        64.0,
    ),
    Column(
        "tiling.max_split_k", "int", "", "largest number of parts of the inner dimension (split-K)", 1.0, 64.0
    ),
    Column(
        "tiling.tuned",
        "bool",
        "",
        "true: an autotuner of the framework has chosen the library's kernels, as in servers and training;"
        " false: products in nvfp4 and mxfp4 run the library's first kernel",
    ),
    Column(
        "tiling.preshuffled",
        "bool",
        "",
        "true: weights are stored as the registers of matrix units take them, to which they go past L1",
    ),
    *PRECISION,
    *MEMORY,
    *SERVING,
    *SERVERS,
    *ROUTING,
    *CHIPLET,
    *COST,
    *CARBON,
    *POWER_OF_SITE,
    # --- workloads
    *WORKLOAD,
)
