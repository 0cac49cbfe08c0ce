"""The layouts of a transformer that `parallel.strategy=auto` tries (docs/strategies.md).

A layout is a strategy with the options that frameworks choose too: micro-batch, recomputation, stage of ZeRO,
and balanced stages where none are even. Options that the user sets are not searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import gcd
from typing import Any

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.tables import Columns, Inputs
from fastflow.physics.hardware.packages import per_package
from fastflow.physics.parallelism.bounds import KEY as WITHIN
from fastflow.physics.parallelism.bounds import Bound, limits, parse
from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.options import AUTO, DUALPIPE, FOLDS
from fastflow.physics.parallelism.strategy import TENSOR, Strategy, divisors
from fastflow.physics.parallelism.virtual_stages import (
    BALANCED,
    EVEN,
    FULL,
    NONE,
    OTHER_LAYERS,
    RECOMPUTE,
    SELECTIVE,
    divides,
)
from fastflow.physics.workload import count_hidden_layers, family_of

STRATEGY, MICROBATCH, ZERO = "parallel.strategy", "parallel.microbatch", "parallel.zero_stage"
SPLIT = "parallel.pipeline_partition"
CHOSEN = (STRATEGY, MICROBATCH, RECOMPUTE, ZERO, SPLIT)
"""The inputs that are chosen."""
MICROBATCHES = (1, 2, 4, 8)  # sequences; more are for sequences that are short
_IN_CHUNKS = ("1f1b", "interleaved")
"""Schedules of stages with any number of chunks that are searched."""
_LAYERS, _SEQUENCES, _EXPERTS = "hidden layers", "sequences", "experts"
"""Options that follow from the inputs: the number of hidden layers, the tokens of each sequence, and the
largest number that divides the experts of every layer that has any."""


def every_layout(inputs: Inputs) -> Columns:
    """Return the layouts of a transformer on its devices, as columns of CHOSEN, (layouts,).

    inputs: of one point, (1,). Without a valid layout it is data parallelism, and the model gives the
    reason. Raises InputError where `parallel.search_bounds` excludes all layouts.
    """
    names = [key for key in inputs if key.startswith(("model.", "parallel."))]
    options = {key: inputs[key][0].item() for key in names}
    options |= {_LAYERS: int(count_hidden_layers(inputs)[0]), _SEQUENCES: _sequences(inputs)}
    options[_EXPERTS] = common_experts(inputs)
    devices, machine = int(inputs["system.devices"][0]), int(per_package(inputs)[0])
    layouts = list(_layouts(options, devices, parse(options[WITHIN]), machine))
    if not layouts and next(_layouts(options, devices, parse("tp>=1"), machine), None):
        allowed = f"bounds that leave a layout for system.devices={devices}"
        raise InputError(WITHIN, options[WITHIN], allowed, conflicts=[("system.devices", devices)])
    layouts = layouts or [(f"d{devices}", *(options[key] for key in CHOSEN[1:]))]
    return {key: np.array(column) for key, column in zip(CHOSEN, zip(*layouts, strict=True), strict=True)}


def _sequences(inputs: Inputs) -> list[int]:
    """Return the tokens of the sequences that devices share; inputs: of one point, (1,)."""
    return [int(size[0]) for size in family_of(inputs).sequences(inputs)]


def common_experts(inputs: Inputs) -> int:
    """Return the largest number that divides the experts of every layer, 1 without experts; inputs: (1,)."""
    sizes = (size for axis, _, size in family_of(inputs).divided_of_layers(inputs) if axis == "ep")
    return gcd(*(int(size[0]) for size in sizes)) or 1


def _layouts(
    options: Mapping[str, Any], devices: int, bounds: tuple[Bound, ...], machine: int
) -> Iterator[tuple[str, int, str, int, str]]:
    """Yield layouts in the order that breaks ties: few stages first, and recomputation last."""
    span, batch = limits(bounds, machine), options["model.batch"]

    def within_bounds(name: str, values: Iterable[int]) -> list[int]:
        return [value for value in values if span[name][0] <= value <= span[name][1]]

    for pp in within_bounds("pp", divisors(devices)):
        partitions = [split for split in _partitions(options, pp) if within_bounds("chunks", split[1:])]
        for cp in within_bounds("cp", divisors(devices // pp)) if partitions else ():
            for tp in within_bounds("tp", divisors(devices // pp // cp)):
                dp = devices // pp // cp // tp
                parts = tp * cp * (2 if cp > 1 else 1)
                uneven = options["model.heads"] % tp or any(size % parts for size in options[_SEQUENCES])
                if uneven or batch % dp or not within_bounds("dp", [dp]):
                    continue
                ep_degrees = within_bounds("ep", divisors(options[_EXPERTS]))
                for ep, (split, chunks) in product(ep_degrees, partitions):
                    strategy = Strategy(TENSOR, tp=tp, cp=cp, ep=ep, dp=dp, pp=pp, chunks=chunks)
                    if ep > 1 and not _can_shard_experts(
                        strategy, not options["parallel.expert_tensor_parallel"]
                    ):
                        continue
                    sizes = within_bounds("microbatch", _microbatches(options, batch // dp, pp, chunks))
                    zero_stages = _zero_stages(options, pp, dp * cp)
                    choices = product(sizes, _recompute_modes(options), zero_stages, [split])
                    yield from ((str(strategy), *choice) for choice in choices)


def _partitions(options: Mapping[str, Any], stages: int) -> Iterator[tuple[str, int]]:
    """Yield the pipeline partitions of the layers, with the chunks of each stage."""
    layers = options[_LAYERS]
    schedule = options["parallel.schedule"]
    in_chunks = stages > 1 and schedule in _IN_CHUNKS
    chunks = np.arange(1, ((layers + OTHER_LAYERS) // stages if in_chunks else 1) + 1)
    if FOLDS[schedule] and stages > 1:  # two chunks a stage, which DualPipe has without a word for them
        chunks = np.array([1 if schedule == DUALPIPE else 2])
        if stages % 2 and schedule == DUALPIPE:
            return
    even = [(EVEN, int(count)) for count in chunks[divides(stages * chunks, np.full_like(chunks, layers))]]
    if options[SPLIT] != BALANCED:
        yield from even
    if options[SPLIT] == BALANCED or (options[SPLIT] == AUTO and not even):  # valid for any number of stages
        yield from [(BALANCED, 1)] if stages <= layers else ()


def _can_shard_experts(strategy: Strategy, whole_experts: bool) -> bool:
    """Say whether the mesh of a strategy has its expert parallelism."""
    degrees, expert_axes = strategy.on_mesh(whole_experts)
    return degrees[AXES.index("ep")] > 1 or expert_axes > 0


def _microbatches(options: Mapping[str, Any], rows: int, stages: int, chunks: int) -> list[int]:
    """Return the possible sequences of a micro-batch; rows: those of a device; 0: given by `microbatches`."""
    requested, count = options[MICROBATCH], options["parallel.microbatches"]
    possible = MICROBATCHES if options["model.training"] else dict.fromkeys((*MICROBATCHES, rows))
    sizes = [requested] if requested or count else [size for size in possible if rows % size == 0]
    in_turns = chunks > 1 and options["parallel.schedule"] in _IN_CHUNKS
    return [size for size in sizes if not in_turns or (count or rows // size) % stages == 0]


def _recompute_modes(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the possible modes of recomputation; a fused attention recomputes by itself."""
    if options[RECOMPUTE] != AUTO:
        return (options[RECOMPUTE],)
    if not options["model.training"]:
        return (NONE,)
    return (NONE, FULL) if options.get("model.fused_attention", True) else (NONE, SELECTIVE, FULL)


def _zero_stages(options: Mapping[str, Any], stages: int, replicas: int) -> tuple[int, ...]:
    """Return the stages of ZeRO to try; replicas: devices with the same weights.

    Stage 0 takes as long as 1, and more memory. Where there are pipeline stages, 2 keeps all gradients over
    the micro-batches as 1 does, and 3 would gather weights for every micro-batch.
    """
    if options[ZERO] >= 0:
        return (options[ZERO],)
    return (1, 2, 3) if stages == 1 and replicas > 1 and options["model.training"] else (1,)
