"""Screening of candidates: those that fit the system and some breakdown, without duplicates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fastflow.analysis.search.optimizers.design_space import fill, random_designs
from fastflow.analysis.search.optimizers.halving import DesignBatch
from fastflow.analysis.search.optimizers.objective import (
    NO_CHIP,
    devices_short,
    largest_memory,
    with_shortage,
)
from fastflow.analysis.search.scorer import Scorer
from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import CompositionError
from fastflow.core.reasons.columns import column_of
from fastflow.core.reasons.forms import duplicate, no_breakdown_fits
from fastflow.core.tables import Bools, Columns, Floats, Ints
from fastflow.engine.run.predict import has_wrong_degree

_COMPARED_RESULTS = (
    "time_s", "ttft_s", "tpot_s", "tokens_per_s", "compute_s", "comm_s", "exposed_comm_s", "bubble_s",
    "energy_J", "footprint_B",
)  # fmt: skip
"""Results that are equal for duplicates."""
REASON = ("reason", "reason_code")
"""Columns of the reason why a candidate is left out."""
_TRIALS = 8  # random designs under which duplicates have to agree, too


def screen(scorer: Scorer) -> tuple[Floats, Columns]:
    """Score every candidate with its configured breakdown, or with an even one where that makes no chip.

    Returns scores without regard to memory, by the objective, (candidates, 1), or by both objectives of a
    front, (candidates, 2); and the columns `reason` and `reason_code` of candidates that are not searched, ""
    of others. Left out are strategies that do not fit the system, those that fit no breakdown's memory if
    others do, and duplicates. Raises InputError where none is left.
    """
    candidates = scorer.candidates
    every_candidate = np.arange(candidates.point.size)
    scorer.holdable[:] = False  # unknown before the first scores, which ignore memory
    largest = _largest(scorer)
    table = _score_each(scorer, every_candidate, candidates.templates, largest)
    no_chip = np.flatnonzero(table["score"].to_numpy() > NO_CHIP)
    if no_chip.size:
        even = fill(np.ones((no_chip.size, len(candidates.space.keys))), candidates.space)
        table = _replace_rows(table, no_chip, _score_each(scorer, no_chip, even, largest))
    footprint = table["footprint_B"].to_numpy(zero_copy_only=False)
    scorer.holdable[:] = ~(footprint > largest)  # unknown without a time
    score = table["score"].to_numpy()
    left_out: Columns = {name: np.full(every_candidate.size, "", dtype=object) for name in REASON}
    no_time = np.flatnonzero(score == NO_CHIP)  # there no budget is short
    _leave_out(left_out, no_time, {name: np.array(table[name].to_pylist())[no_time] for name in REASON})
    too_large = np.zeros(every_candidate.size, dtype=np.bool_)
    for group in np.unique(candidates.group):
        members = (candidates.group == group) & ~is_left_out(left_out)
        if (members & scorer.holdable).any():
            too_large |= members & ~scorer.holdable
    rows = np.flatnonzero(too_large)
    shortages = zip(footprint[rows].tolist(), largest[rows].tolist(), strict=True)
    reasons = column_of(no_breakdown_fits(needed=needed, largest=most) for needed, most in shortages)
    _leave_out(left_out, rows, reasons.columns())
    if is_left_out(left_out).all():
        ((_, inputs),) = candidates.inputs(np.zeros(1, dtype=np.int64), candidates.templates[:1])
        raise CompositionError(
            f"no design can be searched: {left_out['reason'][0]}", has_wrong_degree(inputs)
        )
    _leave_out_duplicates(scorer, left_out, table, largest)
    return _promises(scorer, table, score), left_out


def _score_each(scorer: Scorer, candidates: Ints, designs: Floats, largest: Floats) -> pa.Table:
    """Score a design of each of some candidates, and update their best designs; largest: of `_largest`."""
    before, zeros = scorer.history.num_consumed, np.zeros_like(candidates)
    table = scorer.table(DesignBatch(candidate=candidates, start=zeros, step=zeros, designs=designs))
    score: Floats = table["score"].to_numpy()
    footprint, capacity = (
        table[name].to_numpy(zero_copy_only=False) for name in ("footprint_B", "dram_offered_B")
    )
    lacks = np.flatnonzero((footprint > capacity) & (score < NO_CHIP))
    value = score.copy()
    for index, inputs in scorer.candidates.inputs(candidates[lacks], designs[lacks]):
        short = devices_short(inputs, footprint[lacks[index]])
        holdable = footprint[lacks[index]] <= largest[candidates[lacks[index]]]
        without_memory = value[lacks[index]]
        value[lacks[index]] = np.where(holdable, with_shortage(without_memory, short), without_memory)
    scorer.update_best(candidates, value, before)
    return table


def _replace_rows(table: pa.Table, rows: Ints, others: pa.Table) -> pa.Table:
    """Return a table with some of its rows replaced by others."""
    order = np.arange(table.num_rows)
    order[rows] = table.num_rows + np.arange(rows.size)
    return pa.concat_tables([table, others]).take(order)


def _promises(scorer: Scorer, table: pa.Table, score: Floats) -> Floats:
    """Return scores of candidates by every objective of the search, lower is better."""
    if scorer.options.pareto is None:
        return score[:, None]
    second = np.log(table["second_objective"].to_numpy())
    return np.column_stack([score, np.where(np.isnan(second), score, second)])


def _largest(scorer: Scorer) -> Floats:
    """Return the most memory that any breakdown gives candidates' devices [B], shape (candidates,)."""
    candidates = scorer.candidates
    largest = np.zeros(candidates.point.size)
    for index, inputs in candidates.inputs(np.arange(largest.size), candidates.templates):
        largest[index] = largest_memory(inputs, candidates.space)
    return largest


def is_left_out(left_out: Columns) -> Bools:
    """Return which candidates are not searched, (candidates,); left_out: columns of REASON, of `screen`."""
    return np.asarray(left_out["reason"] != "", dtype=np.bool_)


def _leave_out(left_out: Columns, rows: Ints, reasons: Columns) -> None:
    """Write the reasons of some candidates into left_out; reasons: columns of REASON, (rows,)."""
    for name in REASON:
        left_out[name][rows] = reasons[name]


def _leave_out_duplicates(scorer: Scorer, left_out: Columns, table: pa.Table, largest: Floats) -> None:
    """Keep the first of competing candidates whose results agree to the last bit, whatever the design.

    On a switch many strategies are duplicates: they differ in the placement of ranks alone. They have to
    agree under several random designs too, as one design may hide an exchange that another shows.
    """
    compared = [name for name in _COMPARED_RESULTS if name in table.column_names]
    candidates = np.flatnonzero(~is_left_out(left_out) & ~np.isnan(table["time_s"].to_numpy()))
    columns = [
        scorer.candidates.group[candidates],
        *(table[name].to_numpy()[candidates] for name in compared),
    ]
    _, inverse = unique_rows(columns, candidates.size)
    has_duplicate = np.bincount(inverse)[inverse] > 1
    candidates, columns = candidates[has_duplicate], [inverse[has_duplicate]]
    if not candidates.size:
        return
    for design in random_designs(_TRIALS, scorer.candidates.space, scorer.options.rules.seed):
        results = _score_each(scorer, candidates, np.tile(design, (candidates.size, 1)), largest)
        columns += [results[name].to_numpy() for name in compared]
    first, inverse = unique_rows(columns, candidates.size)
    for candidate, other in zip(candidates.tolist(), candidates[first][inverse].tolist(), strict=True):
        if candidate != other:
            same = duplicate(strategy=str(scorer.candidates.strategy[other]))
            left_out["reason"][candidate], left_out["reason_code"][candidate] = str(same), same.code.label
