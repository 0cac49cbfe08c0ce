"""The registry of every input and every result column: name, type, unit, meaning, bounds.

Everything that must agree on what a column is reads it here: the check of a configuration, the
unit that a value is converted to, the Parquet schema and its metadata, and the tables in the docs.

An *input* is a leaf of the composed configuration, named by its dotted key (`tech.core.nominal_power`);
`*` stands for one name that the user chooses (a memory level, a memory component, a data type).
A *result* is a column of the dataset; `l*` stands for every on-chip memory level of the chip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from math import inf
from typing import Literal, NamedTuple

Kind = Literal["float", "int", "bool", "str"]
DTYPE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
SCOPES = ("mcu", "bundle", "global")
DATAFLOWS = ("weight", "activation", "output", "best")
OPTIMIZERS = ("sgd", "momentum", "adam")
OPERATORS = (
    "elementwise", "add", "sub", "mul", "div", "pow", "exp", "relu", "tanh", "sigmoid", "silu", "gelu",
    "softmax", "log_softmax", "layernorm", "rmsnorm",
)  # fmt: skip
CELLS = ("rnn_relu", "rnn_tanh", "gru", "lstm")
PARTS = ("all", "forward", "backward_inputs", "backward_weights")
TOPOLOGIES = ("ring", "mesh", "torus", "fully_connected", "switch", "fat_tree")
ALGORITHMS = (
    "auto", "ring", "halving-doubling", "double-binary-tree", "direct", "hierarchical", "per-dimension",
)  # fmt: skip
SCHEDULES = ("gpipe", "1f1b")


class Column(NamedTuple):
    """One input or result column."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    low: float = -inf
    high: float = inf
    above_low: bool = False  # the lower bound itself is not allowed
    choices: tuple[str, ...] = ()

    def allowed(self) -> str:
        """Say in words which values the column takes."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        unit = f" {self.unit}" if self.unit else ""
        what = {"int": "a whole number", "bool": "true or false", "str": "a text"}.get(
            self.kind, f"a number in {self.unit}" if self.unit else "a number"
        )
        bounds = []
        if self.low > -inf:
            bounds.append(f"{'above' if self.above_low else 'at least'} {self.low:g}{unit}")
        if self.high < inf:
            bounds.append(f"at most {self.high:g}{unit}")
        return f"{what} {' and '.join(bounds)}".strip()


def _positive(name: str, unit: str, meaning: str) -> Column:
    return Column(name, "float", unit, meaning, low=0.0, above_low=True)


def _nonnegative(name: str, unit: str, meaning: str) -> Column:
    return Column(name, "float", unit, meaning, low=0.0)


def _fraction(name: str, meaning: str) -> Column:
    return Column(name, "float", "", meaning, low=0.0, high=1.0)


def _share(name: str, meaning: str) -> Column:
    return Column(name, "float", "", meaning, low=0.0, high=1.0, above_low=True)


def _count(name: str, meaning: str, low: int = 1) -> Column:
    return Column(name, "int", "", meaning, low=float(low), high=1e12)


def _text(name: str, meaning: str, choices: tuple[str, ...] = ()) -> Column:
    return Column(name, "str", "", meaning, choices=choices)


def _supply(prefix: str) -> tuple[Column, ...]:
    """Return the voltage and frequency attributes that every scaled component has (Table 2)."""
    return (
        _positive(f"{prefix}.nominal_voltage", "V", "supply at which the nominal figures hold"),
        _positive(f"{prefix}.threshold_voltage", "V", "threshold of the alpha-power law"),
        _positive(f"{prefix}.minimum_voltage", "V", "lowest supply the component works at"),
        _positive(f"{prefix}.maximum_voltage", "V", "highest supply the component stands"),
    )


def _link(prefix: str, where: str) -> tuple[Column, ...]:
    """Return the attributes of a network link (Table 2, last block)."""
    return (
        *_supply(prefix),
        _positive(f"{prefix}.nominal_frequency", "bit/s", f"rate of one {where} link at nominal supply"),
        _nonnegative(f"{prefix}.nominal_energy", "J/bit", f"energy of one bit over a {where} link"),
        _positive(f"{prefix}.nominal_area", "m^2", f"die area of one {where} link's I/O cell"),
        _positive(f"{prefix}.links_per_length", "1/m", f"{where} links that escape a metre of die edge"),
        _count(f"{prefix}.maximum_links", f"{where} links a device has at most (the width of its port)"),
        _nonnegative(f"{prefix}.latency", "s", f"latency of one message over a {where} link"),
        _share(f"{prefix}.utilization", f"share of the {where} link rate that payload achieves"),
    )


def _breakdown(name: str, what: str, parts: Iterable[str]) -> tuple[Column, ...]:
    return tuple(_fraction(f"chip.{name}.{part}", f"share of the {what} for {part}") for part in parts)


INPUTS: tuple[Column, ...] = (
    # --- logic technology (4.1.1, 4.1.2)
    _text("tech.name", "technology node"),
    _count("tech.generation", "full nodes after the base whose figures these are", low=0),
    _positive("tech.scaling.area", "", "factor by which a component's area shrinks a generation"),
    _positive("tech.scaling.power", "", "factor by which its power shrinks a generation, same speed"),
    _positive("tech.core.nominal_power", "W", "power of one MCU at nominal voltage and frequency"),
    _positive("tech.core.nominal_area", "m^2", "area of one MCU"),
    _positive("tech.core.nominal_frequency", "Hz", "MCU clock at nominal voltage"),
    *_supply("tech.core"),
    _positive("tech.core.flop_per_cycle.*", "flop", "operations of one MCU in a cycle, by data type"),
    _text("tech.memory.*.technology", "kind of cell"),
    _nonnegative("tech.memory.*.latency", "s", "latency of one access"),
    _positive("tech.memory.*.dynamic_energy", "J/bit", "energy to read or write one bit"),
    _nonnegative("tech.memory.*.static_power", "W/bit", "leakage of one bit"),
    _positive("tech.memory.*.cell_area", "m^2/bit", "area of one bit cell"),
    Column("tech.memory.*.overhead", "float", "", "share of a bank's area that is not cells", 0.0, 0.99),
    _positive("tech.memory.*.bank_capacity", "B", "capacity of one bank"),
    _positive("tech.memory.*.bank_width", "B", "bytes that one bank moves in a cycle"),
    _positive("tech.memory.*.bank_frequency", "Hz", "clock of a bank"),
    _nonnegative("tech.memory.*.controller_power", "W", "power of one bank's controller"),
    _nonnegative("tech.memory.*.controller_area", "m^2", "area of one bank's controller"),
    _nonnegative("tech.memory.*.link_area", "m^2", "crossbar area for one bank and one component in scope"),
    # --- main memory (4.1.2, 4.4.3)
    _text("mem.name", "memory technology"),
    _count("mem.links_per_device", "data links of one device (an HBM stack's DQ)"),
    _positive("mem.links_per_length", "1/m", "memory links that escape a metre of die edge"),
    _positive("mem.dynamic_energy", "J/bit", "energy of one bit moved, at nominal voltage"),
    _nonnegative("mem.static_power", "W/bit", "standby power of one bit"),
    _positive("mem.device_capacity", "B", "capacity of one device"),
    _positive("mem.device_area", "m^2", "package area of one device"),
    _positive("mem.controller_area", "m^2", "controller and I/O area on the compute die, one device"),
    *_supply("mem"),
    _positive("mem.nominal_frequency", "bit/s", "rate of one link at nominal voltage"),
    _nonnegative("mem.latency", "s", "latency of one access"),
    # --- networks (4.1.3, 4.4.4)
    _text("net.name", "network technology"),
    *_link("net.intra", "in-package"),
    *_link("net.inter", "off-package"),
    _nonnegative("net.inter.collective_overhead", "s", "time of a collective's call beside its steps"),
    # --- chip: the architecture template and its budgets (4.2, 4.3)
    _text("chip.name", "chip"),
    _positive("chip.node_area", "m^2", "area of the package: compute die and memory devices"),
    _positive("chip.die_area", "m^2", "area of the compute die"),
    _positive("chip.tdp", "W", "power budget of the node"),
    *_breakdown("area", "die area", ("core", "l*", "dram", "intra", "inter")),
    *_breakdown("power", "node's power", ("core", "l*", "dram", "intra", "inter")),
    *_breakdown("perimeter", "die's edge", ("dram", "intra", "inter")),
    _count("chip.mcu.m", "rows of the matrix unit (dimension m)"),
    _count("chip.mcu.k", "depth of the matrix unit (dimension k)"),
    _count("chip.mcu.n", "columns of the matrix unit (dimension n)"),
    _text("chip.mcu.dataflow", "operand that stays in the unit", DATAFLOWS),
    _count("chip.mcus_per_bundle", "MCUs of one bundle (tensor cores of an SM)"),
    Column("chip.matrix.*", "bool", "", "whether matrix units multiply this data type, or vector lanes"),
    _share("chip.utilization", "highest share of the matrix units' peak that a kernel reaches"),
    _share("chip.vector_utilization", "highest share of the vector lanes' peak that a kernel reaches"),
    _share("chip.dram_utilization", "share of the main memory's bandwidth that a kernel reaches"),
    _nonnegative("chip.launch_overhead", "s", "time of one kernel beside its work, others queued behind it"),
    _nonnegative("chip.call_overhead", "s", "time of a framework's call on an idle device beside its kernel"),
    _text("chip.blocks.matrix", "block tiles of the kernel library on matrix units, as 128x64 64x64"),
    _text("chip.blocks.vector", "block tiles of the kernel library on vector lanes"),
    _text("chip.blocks.batched_vector", "block tiles of batched products on vector lanes"),
    _text("chip.blocks.warp", "largest tile of a warp within a block, as 64x64"),
    _nonnegative("chip.strided.cost", "", "time added to compute where both operands are strided"),
    _positive("chip.strided.reach", "B", "reach of address translation in such a product"),
    _nonnegative("chip.strided.miss", "", "time added to compute where address translation does not reach"),
    _fraction("chip.rate.*", "share of the MCU's rate that the chip has in a data type; 0: it cannot"),
    _text("chip.made.tech", "technology node that the pinned quantities belong to"),
    _text("chip.made.mem", "memory technology that the pinned quantities belong to"),
    _text("chip.memory.l*.component", "component of the technology library (tech.memory)"),
    _text("chip.memory.l*.scope", "what one instance of the level serves", SCOPES),
    _share("chip.memory.l*.utilization", "share of the level's bandwidth that a kernel reaches"),
    # --- what a chip pins: generated quantities that are known
    _count("chip.pinned.mcus", "number of MCUs"),
    _positive("chip.pinned.core_Hz", "Hz", "core clock"),
    _positive("chip.pinned.core_V", "V", "core voltage"),
    _positive("chip.pinned.boost_W", "W", "power of the node at that clock with every unit at work"),
    _positive("chip.pinned.l*_B", "B", "capacity of an on-chip level, all instances"),
    _positive("chip.pinned.l*_Bps", "B/s", "bandwidth of an on-chip level, all instances"),
    _positive("chip.pinned.dram_capacity_B", "B", "main memory capacity"),
    _positive("chip.pinned.dram_Bps", "B/s", "main memory bandwidth"),
    _positive("chip.pinned.intra_Bps", "B/s", "in-package bandwidth, one direction"),
    _positive("chip.pinned.inter_Bps", "B/s", "off-package bandwidth, one direction"),
    # --- system and strategy (3.3, 4.2.3)
    _count("system.devices", "accelerators in the system"),
    _text("system.topology", "network between packages", TOPOLOGIES),
    _text("system.shape", "mesh or torus: 1d, 2d or 3d for the most even one, or its sides, as 16x32"),
    _count("system.leaf", "fat tree: devices of a leaf switch"),
    Column("system.taper", "float", "", "fat tree: bandwidth into a leaf switch over that out of it", 1.0),
    _count("system.package.devices", "accelerators of one package"),
    _text("system.package.topology", "network within a package", TOPOLOGIES),
    _text("system.package.shape", "as system.shape, within a package"),
    _text("system.collective", "algorithm of collectives; auto is the fastest for each message", ALGORITHMS),
    _text("parallel.strategy", "parallel strategy, as RC-4-2-d3 or d512; auto is the best of all"),
    _text("parallel.embedding", "own cut of embedding layers, as RC-1-8; same: as the strategy"),
    _text("parallel.hidden", "own cut of hidden layers"),
    _text("parallel.softmax", "own cut of softmax layers"),
    _count("parallel.microbatches", "micro-batches; 0: four a pipeline stage, one without stages", low=0),
    _text("parallel.schedule", "order of micro-batches in a pipeline", SCHEDULES),
    _count("parallel.concurrent_kernels", "kernels that a device may run at once"),
    _text(
        "placement", "order in which parallel dimensions fill the network, as kp1-kp2-dp-lp; auto: the best"
    ),
    # --- tiling search (6.2)
    _text("tiling.tiles", "where the tried tiles come from", ("random", "divisors", "blocks")),
    _text("tiling.search", "exact search, or all combinations one by one", ("exact", "brute")),
    Column("tiling.samples", "int", "", "tiles tried at each level (the paper's N)", 1.0, 1000.0),
    _count("tiling.seed", "seed of the tile sequence", low=0),
    Column("tiling.overlap", "float", "", "order of the soft maximum of times; 0: the maximum", 0.0, 64.0),
    Column("tiling.parts", "int", "", "most parts of the inner dimension", 1.0, 64.0),
    # --- workloads
    _text("model.name", "workload", ("gemm", "operator", "rnn", "lstm_lm", "graph")),
    _text("model.file", "network as a YAML file, relative to the working directory"),
    _text("model.dtype", "data type of the operands", tuple(DTYPE_BYTES)),
    Column("model.training", "bool", "", "forward, backward and update; or forward alone"),
    _text("model.optimizer", "optimizer", OPTIMIZERS),
    _count("model.devices", "accelerators that the published study runs on"),
    _text("model.strategy", "strategy of the published study"),
    _count("model.m", "rows of A and C"),
    _count("model.k", "columns of A, rows of B"),
    _count("model.n", "columns of B and C"),
    Column("model.transposed", "bool", "", "B is stored as n x k, so that both operands are read along k"),
    _text("model.op", "pointwise or normalisation operator", OPERATORS),
    _count("model.rows", "rows of an operator's tensors"),
    _count("model.cols", "columns of an operator's tensors"),
    _count("model.tensors", "tensors that an operator reads and writes; 0: as many as it must", low=0),
    _count("model.batch", "independent GEMMs, or sequences of the global batch"),
    _text("model.cell", "recurrent cell", CELLS),
    _text("model.part", "part of a recurrent layer; all: forward, and backward when training", PARTS),
    _count("model.hidden", "hidden units of a recurrent layer"),
    _count("model.vocabulary", "words"),
    _count("model.layers", "LSTM layers"),
    _count("model.sequence", "steps of a sequence"),
)

RESULTS: tuple[Column, ...] = (
    Column("point", "int", "", "number of the point in the grid's written order"),
    Column("tech", "str", "", "logic technology"),
    Column("mem", "str", "", "main memory technology"),
    Column("net", "str", "", "network technology"),
    Column("chip", "str", "", "chip template and budgets"),
    Column("system", "str", "", "system"),
    Column("model", "str", "", "workload"),
    Column("strategy", "str", "", "parallel strategy (3.3)"),
    Column("placement", "str", "", "order in which parallel dimensions fill the network, innermost first"),
    Column("placement_asked", "str", "", "the order that was asked for, or auto"),
    Column("tiling", "str", "", "source of the tiles"),
    Column("time_s", "float", "s", "one iteration; null where the budgets leave a component empty"),
    Column("forward_s", "float", "s", "forward pass"),
    Column("backward_s", "float", "s", "backward pass, to the last gradient exchanged"),
    Column("update_s", "float", "s", "gradient clipping and weight update"),
    Column("compute_s", "float", "s", "kernels of a device of the busiest pipeline stage, with launches"),
    Column("comm_s", "float", "s", "communication of one device of the stage that has most, hidden or not"),
    Column("exposed_comm_s", "float", "s", "communication that no kernel hides"),
    Column("bubble_s", "float", "s", "pipeline: time that the busiest stage has nothing to do"),
    Column("bound_by", "str", "", "what most of the iteration waits for"),
    Column("compute_bound_frac", "float", "", "share of kernel time limited by compute"),
    Column("l*_bound_frac", "float", "", "share of kernel time limited by this memory level"),
    Column("dram_bound_frac", "float", "", "share of kernel time limited by main memory"),
    Column("launch_bound_frac", "float", "", "share of kernel time limited by kernel launches"),
    Column("candidates", "int", "", "tiles that the tiling search looked at for the kernels of one device"),
    Column("gemm", "str", "", "the GEMM that takes longest, all launches; what follows is of one launch"),
    Column("gemm_s", "float", "s", "its time, launch included"),
    Column("gemm_bound_by", "str", "", "what limits it"),
    Column("gemm_utilization", "float", "", "operations of it over the peak operations in its time"),
    Column("gemm_waves", "int", "", "waves of tiles over the bundles"),
    Column("gemm_parts", "int", "", "parts of the inner dimension that different bundles work on"),
    Column("gemm_busy_frac", "float", "", "share of the bundles that work, over all waves"),
    Column("gemm_compute_s", "float", "s", "what its operations take, idle bundles included"),
    Column("gemm_l*_tile", "str", "", "its tile in the level, m x k x n"),
    Column("gemm_l*_stays", "str", "", "operand that stays put in the level"),
    Column("gemm_l*_moved_B", "float", "B", "bytes that the level serves"),
    Column("gemm_l*_s", "float", "s", "time that the level takes to serve them"),
    Column("gemm_dram_moved_B", "float", "B", "bytes that main memory serves"),
    Column("gemm_dram_s", "float", "s", "time that main memory takes to serve them"),
    Column("flop", "float", "flop", "operations of the model in one iteration, all devices"),
    Column(
        "intensity",
        "float",
        "flop/B",
        "operations over bytes of main memory, all kernels and launches of a device",
    ),
    Column("mfu", "float", "", "model operations over the peak operations of all devices in time_s"),
    Column("energy_J", "float", "J", "one iteration, all devices"),
    Column(
        "footprint_B", "float", "B", "memory that one device needs, of the pipeline stage that needs most"
    ),
    Column("weight_B", "float", "B", "weights of one device, master copies included"),
    Column("gradient_B", "float", "B", "gradients of one device"),
    Column("optimizer_B", "float", "B", "optimizer state of one device"),
    Column(
        "activation_B",
        "float",
        "B",
        "activations of one device kept for the backward pass; of a GEMM, A and C",
    ),
    Column("fullest_stage", "int", "", "pipeline stage whose devices need most memory, counted from 0"),
    Column("dram_capacity_B", "float", "B", "main memory of one device"),
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
    Column("mcus", "int", "", "minimal compute units"),
    Column("bundles", "int", "", "MCU bundles"),
    Column("devices", "int", "", "devices that the strategy uses"),
    Column("microbatches", "int", "", "micro-batches of an iteration"),
    Column("kp1_Bps", "float", "B/s", "bandwidth of a device to its neighbours along kernel parallelism KP1"),
    Column("kp2_Bps", "float", "B/s", "along KP2"),
    Column("dp_Bps", "float", "B/s", "along data parallelism"),
    Column("lp_Bps", "float", "B/s", "along the pipeline"),
    Column("kp1_hops", "int", "", "most links on the path between neighbours along KP1; 0: no neighbours"),
    Column("kp2_hops", "int", "", "along KP2"),
    Column("dp_hops", "int", "", "along data parallelism"),
    Column("lp_hops", "int", "", "along the pipeline"),
    Column("feasible", "bool", "", "whether the point has a time and fits its memory"),
    Column("reason", "str", "", "why a point is not feasible"),
)

# of a search's history and of its ranking, beside the columns above
SEARCH: tuple[Column, ...] = (
    Column("rank", "int", "", "place among the candidates that compete, from 1"),
    Column("design", "int", "", "number of the design in the order of scoring"),
    Column("candidate", "int", "", "workload on a system under one strategy, counted from 0"),
    Column("start", "int", "", "starting point of the search; 0 is the chip's own breakdown"),
    Column("step", "int", "", "step of the start; 0: the own breakdown before any search"),
    Column("score", "float", "", "what the method sees: log of the objective; 100 and more: not feasible"),
    Column("objective", "float", "", "what the search makes small"),
    Column("second_objective", "float", "", "the other objective of a front"),
    Column("own_objective", "float", "", "the objective under the chip's own breakdown"),
    Column("own_feasible", "bool", "", "whether the chip's own breakdown is feasible"),
    Column("gain", "float", "", "own_objective over objective"),
    Column("designs", "int", "", "designs scored of the candidate"),
)

# of a validation's rows, beside the columns of its file and of RESULTS, and of its errors
VALIDATION: tuple[Column, ...] = (
    Column("line", "int", "", "line of the file of measurements, the header's being 1"),
    Column("part", "str", "", "part of the workload that was measured"),
    Column(
        "timed",
        "str",
        "",
        "kernel: kernels alone, or back to back; call: single calls of a framework",
    ),
    Column("measured_s", "float", "s", "what was measured"),
    Column("predicted_s", "float", "s", "what is predicted; null where `reason` says why nothing is"),
    Column("host_s", "float", "s", "of predicted_s, what the host that measured adds"),
    Column("ratio", "float", "", "predicted_s over measured_s"),
    Column("error", "float", "", "distance of predicted_s from measured_s, over measured_s"),
    Column("needs_compute_s", "float", "s", "what all launches of all kernels take of computing alone"),
    Column("needs_l*_s", "float", "s", "of this memory level alone"),
    Column("needs_dram_s", "float", "s", "of main memory alone"),
    Column("needs_launch_s", "float", "s", "of launches alone"),
    Column("latency_s", "float", "s", "what a collective of an empty message takes"),
    Column("by", "str", "", "what measurements are grouped by"),
    Column("value", "str", "", "what those of a group have in common"),
    Column("rows", "int", "", "measurements of the group"),
    Column("mean_error", "float", "", "mean error"),
    Column("median_error", "float", "", "median error"),
    Column("p90_error", "float", "", "error that nine measurements in ten do not exceed"),
    Column("bias", "float", "", "median ratio of predicted to measured"),
    Column("log_correlation", "float", "", "Pearson correlation of the logarithms of predicted and measured"),
)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Compile a registered name: `l*` is a numbered level, a lone `*` any one name."""
    escaped = re.escape(name).replace(r"l\*", r"l\d+").replace(r"\*", r"[A-Za-z_]\w*")
    return re.compile(escaped)


@cache
def find_input(key: str) -> Column | None:
    """Return the registered input that a dotted key belongs to, or None."""
    return next((column for column in INPUTS if _pattern(column.name).fullmatch(key)), None)


@cache
def find_result(name: str) -> Column | None:
    """Return the registered result column of a name, or None."""
    every = (*RESULTS, *SEARCH, *VALIDATION)
    return next((column for column in every if _pattern(column.name).fullmatch(name)), None)


def result_order(levels: int) -> list[str]:
    """Return the names of all result columns, in order, for a chip with `levels` on-chip levels."""
    names: list[str] = []
    for column in RESULTS:
        if "l*" in column.name:
            names += [column.name.replace("l*", f"l{level}") for level in range(levels)]
        else:
            names.append(column.name)
    return names


def markdown() -> str:
    """Return the registry as the tables of `docs/columns.md`."""
    lines = ["# Columns", "", "Written by `python -m fastflow.columns > docs/columns.md`.", ""]
    tables = (("Results", RESULTS), ("Searches", SEARCH), ("Validations", VALIDATION), ("Inputs", INPUTS))
    for title, columns in tables:
        lines += [f"## {title}", "", "| name | type | unit | meaning | allowed |", "|---|---|---|---|---|"]
        for column in columns:
            allowed = column.allowed() if columns is INPUTS else ""
            unit = column.unit.replace("^2", "²")
            lines.append(f"| `{column.name}` | {column.kind} | {unit} | {column.meaning} | {allowed} |")
        lines.append("")
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    print(markdown())
