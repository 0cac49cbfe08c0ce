"""Screening of candidates: those that fit the system and some breakdown, without duplicates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fastflow.analysis.search.optimizers.design_space import fill, random_designs
from fastflow.analysis.search.optimizers.halving import DesignBatch
from fastflow.analysis.search.optimizers.objective import LACKS_MEMORY, NO_CHIP, devices_short, largest_memory
from fastflow.analysis.search.scorer import Scorer
from fastflow.core.dedupe import unique_rows
from fastflow.core.errors import CompositionError
from fastflow.core.tables import Bools, Floats, Ints

_ALIKE = (
    "time_s", "ttft_s", "tpot_s", "tokens_per_s", "compute_s", "comm_s", "exposed_comm_s", "bubble_s",
    "energy_J", "footprint_B",
)  # fmt: skip
"""What candidates agree in that do the same."""
_TRIALS = 8  # random designs under which they have to agree as well


def screen(scorer: Scorer) -> tuple[Floats, NDArray[np.object_]]:
    """Look at every candidate with its own breakdown, or with an even one where that makes no chip.

    Returns what each promises by the objective, (candidates, 1), or by both of a front, (candidates, 2),
    memory left aside; and why it is not worth a search, "" where it is. Left out are strategies that do not
    suit, those whose memory no breakdown can hold wherever there are others, and those that do what another
    does. Raises InputError where none is left.
    """
    candidates = scorer.candidates
    everybody = np.arange(candidates.point.size)
    scorer.holdable[:] = False  # what lacks memory is not known before it has been looked at without
    largest = _largest(scorer)
    table = _tried(scorer, everybody, candidates.templates, largest)
    nothing = np.flatnonzero(table["score"].to_numpy() > NO_CHIP)
    if nothing.size:
        even = fill(np.ones((nothing.size, len(candidates.space.keys))), candidates.space)
        table = _replaced(table, nothing, _tried(scorer, nothing, even, largest))
    footprint = table["footprint_B"].to_numpy(zero_copy_only=False)
    scorer.holdable[:] = ~(footprint > largest)  # one without a time is not known to lack any
    score = table["score"].to_numpy()
    reason = np.full(everybody.size, "", dtype=object)
    _leave_out(reason, score == NO_CHIP, table["reason"].to_pylist())  # nothing is short, and no time
    texts = [
        f"needs {needed / 1e9:.4g} GB of memory a device; no breakdown has more than {most / 1e9:.4g} GB"
        for needed, most in zip(footprint, largest, strict=True)
    ]
    for group in np.unique(candidates.group):
        members = (candidates.group == group) & (reason == "")
        if (members & scorer.holdable).any():
            _leave_out(reason, members & ~scorer.holdable, texts)
    if (reason != "").all():
        raise CompositionError(f"no design can be searched: {reason[0]}")
    _leave_out_alike(scorer, reason, table, largest)
    return _promise(scorer, table, score), reason


def _tried(scorer: Scorer, whom: Ints, designs: Floats, largest: Floats) -> pa.Table:
    """Score a design of each of some candidates beside any search, and note them; largest: of `_largest`."""
    before, zeros = scorer.history.told, np.zeros_like(whom)
    table = scorer.table(DesignBatch(candidate=whom, start=zeros, step=zeros, designs=designs))
    score: Floats = table["score"].to_numpy()
    footprint, held = (
        table[name].to_numpy(zero_copy_only=False) for name in ("footprint_B", "dram_capacity_B")
    )
    lacks = np.flatnonzero((footprint > held) & (score < LACKS_MEMORY))
    value = score.copy()
    for place, inputs in scorer.candidates.inputs(whom[lacks], designs[lacks]):
        short = devices_short(inputs, footprint[lacks[place]])
        holdable = footprint[lacks[place]] <= largest[whom[lacks[place]]]
        value[lacks[place]] = np.where(holdable, LACKS_MEMORY + short, value[lacks[place]])
    scorer.note(whom, value, before)
    return table


def _replaced(table: pa.Table, rows: Ints, others: pa.Table) -> pa.Table:
    """Return a table with some of its rows replaced by others."""
    order = np.arange(table.num_rows)
    order[rows] = table.num_rows + np.arange(rows.size)
    return pa.concat_tables([table, others]).take(order)


def _promise(scorer: Scorer, table: pa.Table, score: Floats) -> Floats:
    """Return what candidates promise, lower is better, by every objective that is asked for."""
    if scorer.options.pareto is None:
        return score[:, None]
    second = np.log(table["second_objective"].to_numpy())
    return np.column_stack([score, np.where(np.isnan(second), score, second)])


def _largest(scorer: Scorer) -> Floats:
    """Return the most memory that any breakdown gives candidates' devices [B], shape (candidates,)."""
    candidates = scorer.candidates
    largest = np.zeros(candidates.point.size)
    for place, inputs in candidates.inputs(np.arange(largest.size), candidates.templates):
        largest[place] = largest_memory(inputs, candidates.space)
    return largest


def _leave_out(reason: NDArray[np.object_], whom: Bools, texts: list[str]) -> None:
    for candidate in np.flatnonzero(whom).tolist():
        reason[candidate] = texts[candidate]


def _leave_out_alike(scorer: Scorer, reason: NDArray[np.object_], table: pa.Table, largest: Floats) -> None:
    """Keep the first of candidates that compete and agree to the last bit, whatever the design.

    On a switch many strategies do the same: they differ in who sits where alone. They have to agree under
    several random designs too, as one may hide an exchange that another shows.
    """
    alike = [name for name in _ALIKE if name in table.column_names]
    whom = np.flatnonzero((reason == "") & ~np.isnan(table["time_s"].to_numpy()))
    columns = [scorer.candidates.group[whom], *(table[name].to_numpy()[whom] for name in alike)]
    _, place = unique_rows(columns, whom.size)
    many = np.bincount(place)[place] > 1
    whom, columns = whom[many], [place[many]]
    if not whom.size:
        return
    for design in random_designs(_TRIALS, scorer.candidates.space, scorer.options.rules.seed):
        tried = _tried(scorer, whom, np.tile(design, (whom.size, 1)), largest)
        columns += [tried[name].to_numpy() for name in alike]
    first, place = unique_rows(columns, whom.size)
    for candidate, other in zip(whom.tolist(), whom[first][place].tolist(), strict=True):
        if candidate != other:
            reason[candidate] = f"gives the same results as {scorer.candidates.strategy[other]}"
