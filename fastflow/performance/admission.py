"""Which points are timed: those whose budgets make a chip, and whose strategy suits the model and the system.

The others get a reason. Points that are timed may be refused by a later stage of the model (`validity`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastflow.core.dedupe import compute_unique
from fastflow.core.reasons.columns import ReasonColumn, first_reasons
from fastflow.core.tables import Inputs, Ints, take
from fastflow.performance.kernel_times import HARDWARE
from fastflow.performance.prediction import Parallelism
from fastflow.physics.cost.rent import invalid_rent, is_rented
from fastflow.physics.hardware.chip import Chip, generate
from fastflow.physics.hardware.infeasible import chip_faults, unsupported_dtype
from fastflow.physics.network.collectives.custom_all_reduce import BACKEND
from fastflow.physics.network.routes import invalid_network
from fastflow.physics.parallelism.options import DUALPIPE
from fastflow.physics.parallelism.pipeline import microbatches
from fastflow.physics.parallelism.sharding.layout import indivisible_dims, names_layers, resolve_layouts
from fastflow.physics.parallelism.strategy import invalid_strategy, parse_column
from fastflow.physics.workload import (
    STRUCTURE,
    count_layers,
    family_of,
    invalid_model_dims,
    row_shard_limit,
    trained_types,
)
from fastflow.physics.workload.precision import (
    HOLDS_SUMS,
    LATENT,
    READS,
    SCALES,
    Precision,
    invalid_training_types,
    precision,
    product_type,
    unmodelled_types,
)

# inputs that strategies depend on, and that data types depend on
STRATEGY = ("parallel.", "system.", BACKEND, "placement", "model.name", *STRUCTURE)
LAYERS = ("model.",)  # inputs that names of layers depend on, in addition to those of strategies
TYPES = (
    "precision.", "model.dtype", "model.optimizer", "model.training", "model.fused_gradients", LATENT,
    "chip.rate.", HOLDS_SUMS, READS, SCALES,
)  # fmt: skip


class Points(NamedTuple):
    """The points of a call that are timed, and the inputs of their graphs; shape (points,)."""

    rows: Ints  # their rows among all points
    inputs: Inputs
    chip: Chip
    parallelism: Parallelism
    microbatches: Ints
    precision: Precision
    by_layer: bool  # whether the strategy of some point of the call names layers


class ValidatedPoints(NamedTuple):
    """All points of a call, and those that are timed."""

    parallelism: Parallelism  # of all points
    reason: ReasonColumn  # why a point has no time
    timed: Points


def generate_chips(inputs: Inputs) -> tuple[Chip, ReasonColumn]:
    """Generate every point's chip (4.2 to 4.4), with the reason why it is infeasible; (points,)."""
    return compute_unique(generate_chip, inputs, *HARDWARE, broadcast=True, cached=True)


def generate_chip(inputs: Inputs) -> tuple[Chip, ReasonColumn]:
    """Do the same without looking for equal points."""
    chip = generate(inputs)
    computed = {**inputs, "model.dtype": product_type(inputs, inputs["model.dtype"])}
    reasons = chip_faults(computed, chip), unmodelled_types(inputs), unsupported_dtype(computed)
    return chip, first_reasons(*reasons)


def validate_points(
    inputs: Inputs, chip: Chip, faults: ReasonColumn, refused: ReasonColumn
) -> ValidatedPoints:
    """Read the strategies of all points (3.3), and drop the points that have a reason to have no time.

    chip, faults: as `generate_chips` returns them; refused: why a stage refused a point before.
    """
    by_layer = names_layers(inputs)
    read = (*STRATEGY, *(column.name for column in family_of(inputs).structure))
    read = (*read, *LAYERS) if by_layer else read
    parallelism, invalid_strategies = compute_unique(_read_strategies, inputs, *read)
    count, invalid_batch = _count_microbatches(inputs, parallelism, invalid_strategies)
    reason = first_reasons(
        faults,
        invalid_strategies,
        invalid_batch,
        invalid_model_dims(inputs),
        indivisible_dims(inputs, parallelism.strategies),
        compute_unique(_invalid_training_types, inputs, *TYPES, "model.name"),
        refused,
    )
    if is_rented(inputs):
        reason = first_reasons(reason, invalid_rent(inputs))
    rows = np.flatnonzero(~reason.exists)
    timed = dict(inputs), chip, parallelism, count
    timed = timed if rows.size == reason.size else take(timed, rows)
    numbers = compute_unique(precision, timed[0], *TYPES)
    return ValidatedPoints(parallelism, reason, Points(rows, *timed, numbers, by_layer))


def _read_strategies(inputs: Inputs) -> tuple[Parallelism, ReasonColumn]:
    """Return strategies and their layouts, and why a strategy does not suit its system or model (3.3)."""
    strategies, printed = parse_column(
        inputs["parallel.strategy"],
        ~inputs["parallel.expert_tensor_parallel"],
        inputs["parallel.schedule"] == DUALPIPE,
    )
    wrong_strategy = invalid_strategy(strategies, printed, inputs["system.devices"], count_layers(inputs))
    layouts, invalid_layout = resolve_layouts(inputs, strategies)
    return Parallelism(strategies, layouts, printed), first_reasons(
        invalid_network(inputs, strategies.pp, layouts), wrong_strategy, invalid_layout
    )


def _count_microbatches(
    inputs: Inputs, parallelism: Parallelism, invalid: ReasonColumn
) -> tuple[Ints, ReasonColumn]:
    """Return every point's micro-batches, 1 where its strategy is invalid, and why they cannot be."""
    strategies, layouts, _ = parallelism
    count, reason = microbatches(inputs, *row_shard_limit(inputs), layouts, strategies.pp)
    return np.where(invalid.exists, 1, count), reason


def _invalid_training_types(inputs: Inputs) -> ReasonColumn:
    return invalid_training_types(inputs, trained_types(inputs))
