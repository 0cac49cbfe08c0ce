"""Search of the designs of many candidates at once, with successive halving among those that compete.

A *candidate* is a workload on a system under one strategy; its design is what is searched. Candidates of a
group compete: every rung keeps the best quarter and gives each four times the steps, so that the budget
goes to the promising (Jamieson and Talwalkar, AISTATS 2016; a reduction of 4 as in Li et al., Hyperband,
JMLR 18, 2018). Rungs search from the candidate's own breakdown alone; those that are left at the end search
from every start. Whatever is asked for in a step, by all starts of all candidates, is one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fastflow.analysis.search.optimizers.design_space import Space, random_designs
from fastflow.analysis.search.optimizers.methods import Method, make
from fastflow.core.tables import Floats, Ints

REDUCTION = 4
FINALISTS = 3  # of a group, at most: what the last rung keeps


class Rules(NamedTuple):
    """Settings of a search."""

    method: str
    starts: int
    steps: int
    seed: int


class DesignBatch(NamedTuple):
    """Designs to be scored together; shape (designs,), but for `designs` (designs, shares)."""

    candidate: Ints
    start: Ints
    step: Ints  # 0: the candidate's own breakdown, before any search
    designs: Floats

    def take(self, rows: Ints) -> DesignBatch:
        """Return some of its designs."""
        return DesignBatch(self.candidate[rows], self.start[rows], self.step[rows], self.designs[rows])


class Rung(NamedTuple):
    """A stage of a search: how many candidates of a group take part, and how far they go."""

    candidates: int
    starts: tuple[int, ...]
    steps: int  # of each start, from the beginning


Evaluate = Callable[[DesignBatch], Floats]
"""Scores a batch, shape (designs,)."""
Advance = Callable[[int], None]
"""Is told how many further steps of starts are done."""


def rungs(candidates: int, rules: Rules, ends: int = 1) -> list[Rung]:
    """Return the stages that a group of so many candidates goes through; the last one is the whole search.

    ends: 1, or 2 where the first and the last start search for different objectives.
    """
    last = min(candidates, FINALISTS * ends)
    first = (0, rules.starts - 1)[:ends]
    ladder = [Rung(last, tuple(range(rules.starts)), rules.steps)]
    kept, steps = last, rules.steps
    while kept < candidates and steps >= REDUCTION:
        kept, steps = min(candidates, kept * REDUCTION), steps // REDUCTION
        ladder.insert(0, Rung(kept, first, steps))
    return ladder


def steps_of(groups: Iterable[int], rules: Rules, ends: int = 1) -> int:
    """Return the steps that starts of groups of these sizes take at most, in all."""
    total = 0
    for size in groups:
        gone: dict[int, int] = {}
        for rung in rungs(size, rules, ends):
            total += rung.candidates * sum(rung.steps - gone.get(start, 0) for start in rung.starts)
            gone |= dict.fromkeys(rung.starts, rung.steps)
    return total


class Start:
    """One start of one candidate: how far its search is, and whether it has converged."""

    def __init__(self, candidate: int, number: int, method: Method) -> None:
        """Take whose it is, which one, and the method that has not begun."""
        self.candidate, self.number, self.method = candidate, number, method
        self.steps = 0
        self.over = False


Goal = tuple[Start, int]
"""A start, and the steps that it is to have taken."""
Walk = Callable[[Sequence[Goal], Evaluate, Advance], Iterator[tuple[DesignBatch, Floats]]]
"""Takes starts to their goals, as `walk` does."""


def walk(goals: Sequence[Goal], evaluate: Evaluate, advance: Advance) -> Iterator[tuple[DesignBatch, Floats]]:
    """Take starts to their goals, all of them a step at a time; yields every step's designs and scores."""
    while True:
        active = [(start, goal) for start, goal in goals if start.steps < goal and not start.over]
        if not active:
            return
        asked = []
        for start, goal in active:
            designs = start.method.ask()
            if len(designs) == 0:
                start.over = True  # it has converged
                advance(goal - start.steps)
            else:
                asked.append((start, designs))
        if not asked:
            continue
        batch = _batch(asked)
        scores = evaluate(batch)
        for (start, _), score in zip(asked, _cut(scores, asked), strict=True):
            start.method.tell(score)
            start.steps += 1
        advance(len(asked))
        yield batch, scores


def successive_halving(
    templates: Floats,
    space: Space,
    group: Ints,
    promise: Floats,
    rules: Rules,
    evaluate: Evaluate,
    advance: Advance = lambda steps: None,
    walk: Walk = walk,
) -> None:
    """Search the designs of candidates, every one of which `evaluate` sees unless `walk` has it otherwise.

    templates: each candidate's own breakdown, (candidates, shares); group: which candidates compete,
    (candidates,); promise: by what the first rung chooses, lower is better, (candidates, ends), two ends
    where the first and the last start search for different objectives. The first start of a candidate is its
    own breakdown, the others are random, seeded, and the same for all.
    """
    others = random_designs(rules.starts - 1, space, rules.seed)
    ends = (0, rules.starts - 1)[: promise.shape[1]]
    best = np.full(promise.shape, np.inf)
    starts: dict[tuple[int, int], Start] = {}

    def start(candidate: int, number: int) -> Start:
        if (candidate, number) not in starts:
            begin = templates[candidate] if number == 0 else others[number - 1]
            seed = int(np.random.SeedSequence([rules.seed, number]).generate_state(1)[0])
            starts[candidate, number] = Start(candidate, number, make(rules.method, space, begin, seed))
        return starts[candidate, number]

    ladders = {int(one): rungs(int((group == one).sum()), rules, len(ends)) for one in np.unique(group)}
    for height in range(max(len(ladder) for ladder in ladders.values())):
        goals: list[Goal] = []
        for one, ladder in ladders.items():
            if height < len(ladder):
                members = np.flatnonzero(group == one)
                by = promise if height == 0 else best
                rung = ladder[height]
                goals += [
                    (start(candidate, number), rung.steps)
                    for candidate in _ahead(members, by[members], rung.candidates)
                    for number in rung.starts
                ]
        for batch, score in walk(goals, evaluate, advance):
            for end, number in enumerate(ends):
                rows = batch.start == number
                np.minimum.at(best[:, end], batch.candidate[rows], score[rows])


def _ahead(members: Ints, by: Floats, count: int) -> list[int]:
    """Return so many candidates, in turns the best of each end; by: (members, ends), lower is better."""
    turns = np.argsort(by, axis=0, kind="stable").ravel()
    return [int(members[place]) for place in dict.fromkeys(turns.tolist())][:count]


def _batch(asked: list[tuple[Start, Floats]]) -> DesignBatch:
    """Put what starts ask for into one batch."""
    sizes = [len(designs) for _, designs in asked]
    return DesignBatch(
        candidate=np.repeat([start.candidate for start, _ in asked], sizes),
        start=np.repeat([start.number for start, _ in asked], sizes),
        step=np.repeat([start.steps + 1 for start, _ in asked], sizes),
        designs=np.concatenate([designs for _, designs in asked]),
    )


def _cut(scores: Floats, asked: list[tuple[Start, Floats]]) -> Iterator[Floats]:
    """Cut a batch's scores into those of each start."""
    yield from np.split(scores, np.cumsum([len(designs) for _, designs in asked])[:-1])
