"""The layouts of a transformer that `parallel.strategy=auto` tries (docs/strategies.md).

A layout is a strategy with what frameworks choose beside it: micro-batch, recomputation, stage of ZeRO, and
balanced stages where none are even. What an input gives of these is not searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from fastflow.core.errors import InputError
from fastflow.core.tables import Columns, Inputs
from fastflow.physics.hardware.packages import per_package
from fastflow.physics.parallelism.bounds import KEY as WITHIN
from fastflow.physics.parallelism.bounds import Bound, limits, parse
from fastflow.physics.parallelism.mesh import AXES
from fastflow.physics.parallelism.options import AUTO, SCHEDULES
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

STRATEGY, MICROBATCH, ZERO = "parallel.strategy", "parallel.microbatch", "parallel.zero"
SPLIT = "parallel.split"
CHOSEN = (STRATEGY, MICROBATCH, RECOMPUTE, ZERO, SPLIT)
"""The inputs that are chosen."""
MICROBATCHES = (1, 2, 4, 8)  # sequences; more are for sequences that are short
GPIPE, _, _, ZERO_BUBBLE = SCHEDULES


def every_layout(inputs: Inputs) -> Columns:
    """Return the layouts of a transformer on its devices, as columns of CHOSEN, (layouts,).

    inputs: of one point, (1,). Where there is none at all it is data parallelism, and the model says what is
    wrong. Raises InputError where `parallel.within` leaves none.
    """
    own = {key: column[0].item() for key, column in inputs.items() if key.startswith(("model.", "parallel."))}
    devices, machine = int(inputs["system.devices"][0]), int(per_package(inputs)[0])
    found = list(_layouts(own, devices, parse(own[WITHIN]), machine))
    if not found and next(_layouts(own, devices, parse("tp>=1"), machine), None):
        raise InputError(WITHIN, own[WITHIN], f"bounds that leave a layout for system.devices={devices}")
    found = found or [(f"d{devices}", *(own[key] for key in CHOSEN[1:]))]
    return {key: np.array(column) for key, column in zip(CHOSEN, zip(*found, strict=True), strict=True)}


def _layouts(
    own: Mapping[str, Any], devices: int, bounds: tuple[Bound, ...], machine: int
) -> Iterator[tuple[str, int, str, int, str]]:
    """Yield layouts in the order in which ties go: few stages first, and what is computed again last."""
    span, batch = limits(bounds, machine), own["model.batch"]

    def some(name: str, values: Iterable[int]) -> list[int]:
        return [one for one in values if span[name][0] <= one <= span[name][1]]

    for pp in some("pp", divisors(devices)):
        deals = [one for one in _deals(own, pp) if some("chunks", one[1:])]
        for cp in some("cp", divisors(devices // pp)) if deals else ():
            for tp in some("tp", divisors(devices // pp // cp)):
                dp = devices // pp // cp // tp
                uneven = own["model.heads"] % tp or own["model.sequence"] % (tp * cp * (2 if cp > 1 else 1))
                if uneven or batch % dp or not some("dp", [dp]):
                    continue
                every_ep = some("ep", divisors(max(own["model.experts"], 1)))
                for ep, (split, chunks) in product(every_ep, deals):
                    one = Strategy(TENSOR, tp=tp, cp=cp, ep=ep, dp=dp, lp=pp, chunks=chunks)
                    if ep > 1 and not _can_share(one, not own["parallel.expert_tensor"]):
                        continue
                    sizes = some("microbatch", _microbatches(own, batch // dp, pp, chunks))
                    beside = product(sizes, _recomputed(own), _zeros(own, pp, dp * cp), [split])
                    yield from ((str(one), *choice) for choice in beside)


def _deals(own: Mapping[str, Any], stages: int) -> Iterator[tuple[str, int]]:
    """Yield how layers may be dealt to stages, and in how many chunks each."""
    layers = own["model.layers"]
    in_chunks = stages > 1 and own["parallel.schedule"] not in (GPIPE, ZERO_BUBBLE)
    chunks = np.arange(1, ((layers + OTHER_LAYERS) // stages if in_chunks else 1) + 1)
    even = [(EVEN, int(one)) for one in chunks[divides(stages * chunks, np.full_like(chunks, layers))]]
    if own[SPLIT] != BALANCED:
        yield from even
    if own[SPLIT] == BALANCED or (own[SPLIT] == AUTO and not even):  # which any number of stages can be
        yield from [(BALANCED, 1)] if stages <= layers else ()


def _can_share(strategy: Strategy, whole_experts: bool) -> bool:
    """Say whether the devices of a strategy can share experts so."""
    degrees, dealing = strategy.on_mesh(whole_experts)
    return degrees[AXES.index("ep")] > 1 or dealing > 0


def _microbatches(own: Mapping[str, Any], rows: int, stages: int, chunks: int) -> list[int]:
    """Return the sequences that a micro-batch may have, of so many of a device; 0: as their number says."""
    given, count = own[MICROBATCH], own["parallel.microbatches"]
    sizes = [given] if given or count else [one for one in MICROBATCHES if rows % one == 0]
    return [one for one in sizes if chunks == 1 or (count or rows // one) % stages == 0]


def _recomputed(own: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the backward pass may compute again; a fused attention does so by itself."""
    if own[RECOMPUTE] != AUTO:
        return (own[RECOMPUTE],)
    if not own["model.training"]:
        return (NONE,)
    return (NONE, FULL) if own["model.fused_attention"] else (NONE, SELECTIVE, FULL)


def _zeros(own: Mapping[str, Any], stages: int, shared: int) -> tuple[int, ...]:
    """Return the stages of ZeRO among so many devices with the same weights.

    Stage 0 takes as long as 1, and more memory. Where there are pipeline stages, 2 keeps all gradients over
    the micro-batches as 1 does, and 3 would gather weights for every one.
    """
    if own[ZERO] >= 0:
        return (own[ZERO],)
    return (1, 2, 3) if stages == 1 and shared > 1 and own["model.training"] else (1,)
