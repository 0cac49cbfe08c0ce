"""Search of the designs of many candidates at once, with successive halving of competing candidates.

A *candidate* is a workload on a system under one strategy; its design is what is searched. Candidates of a
group compete: every rung keeps the best quarter and gives each four times the steps, so that the budget
goes to the promising (Jamieson and Talwalkar, AISTATS 2016; a reduction of 4 as in Li et al., Hyperband,
JMLR 18, 2018). Rungs search from the candidate's configured breakdown alone; the finalists search from every
start. The designs of a step, of all starts of all candidates, are one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fastflow.analysis.search.optimizers.design_space import Space, random_designs
from fastflow.analysis.search.optimizers.methods import Method, make
from fastflow.core.tables import Floats, Ints

REDUCTION = 4
FINALISTS = 3  # of a group in the last rung, at most


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
    step: Ints  # 0: the candidate's configured breakdown, before any search
    designs: Floats

    def take(self, rows: Ints) -> DesignBatch:
        """Return some of the designs."""
        return DesignBatch(self.candidate[rows], self.start[rows], self.step[rows], self.designs[rows])


class Rung(NamedTuple):
    """A stage of a search: the number of candidates of a group, their starts and steps."""

    candidates: int
    starts: tuple[int, ...]
    steps: int  # of each start, from the beginning


Evaluate = Callable[[DesignBatch], Floats]
"""Scores a batch, shape (designs,)."""
Advance = Callable[[int], None]
"""Takes the number of further steps of starts that are done."""


def rungs(candidates: int, rules: Rules, ends: int = 1) -> list[Rung]:
    """Return the stages of a group of so many candidates; the last one is the whole search.

    ends: 1, or 2 where the first and the last start search for different objectives.
    """
    last = min(candidates, FINALISTS * ends)
    first = (0, rules.starts - 1)[:ends]
    ladder = [Rung(last, tuple(range(rules.starts)), rules.steps)]
    num_candidates, steps = last, rules.steps
    while num_candidates < candidates and steps >= REDUCTION:
        num_candidates, steps = min(candidates, num_candidates * REDUCTION), steps // REDUCTION
        ladder.insert(0, Rung(num_candidates, first, steps))
    return ladder


def steps_of(groups: Iterable[int], rules: Rules, ends: int = 1) -> int:
    """Return the most steps that starts of groups of these sizes take, in all."""
    total = 0
    for size in groups:
        steps_done: dict[int, int] = {}
        for rung in rungs(size, rules, ends):
            total += rung.candidates * sum(rung.steps - steps_done.get(start, 0) for start in rung.starts)
            steps_done |= dict.fromkeys(rung.starts, rung.steps)
    return total


class Start:
    """One start of one candidate: the steps taken, and whether it has converged."""

    def __init__(self, candidate: int, number: int, method: Method) -> None:
        """Set the candidate, the number of the start, and its method."""
        self.candidate, self.number, self.method = candidate, number, method
        self.steps = 0
        self.converged = False


Goal = tuple[Start, int]
"""A start, and the steps that it takes in all."""
RunStarts = Callable[[Sequence[Goal], Evaluate, Advance], Iterator[tuple[DesignBatch, Floats]]]
"""Runs starts to their goals, as `run_starts` does."""


def run_starts(
    goals: Sequence[Goal], evaluate: Evaluate, advance: Advance
) -> Iterator[tuple[DesignBatch, Floats]]:
    """Run starts to their goals, a step of all at a time; yields every step's designs and scores."""
    while True:
        active = [(start, goal) for start, goal in goals if start.steps < goal and not start.converged]
        if not active:
            return
        requests = []
        for start, goal in active:
            designs = start.method.ask()
            if len(designs) == 0:
                start.converged = True
                advance(goal - start.steps)
            else:
                requests.append((start, designs))
        if not requests:
            continue
        batch = _merge_designs(requests)
        scores = evaluate(batch)
        for (start, _), score in zip(requests, _split_scores(scores, requests), strict=True):
            start.method.tell(score)
            start.steps += 1
        advance(len(requests))
        yield batch, scores


def successive_halving(
    templates: Floats,
    space: Space,
    group: Ints,
    screening_scores: Floats,
    rules: Rules,
    evaluate: Evaluate,
    advance: Advance = lambda steps: None,
    run: RunStarts = run_starts,
) -> None:
    """Search the designs of candidates; `run` scores them by `evaluate`, or elsewhere.

    templates: each candidate's configured breakdown, (candidates, shares); group: which candidates compete,
    (candidates,); screening_scores: by which the first rung chooses, lower is better, (candidates, ends), two
    ends where the first and the last start search for different objectives. The first start of a candidate
    is its configured breakdown, the others are random, seeded, and the same for all.
    """
    others = random_designs(rules.starts - 1, space, rules.seed)
    ends = (0, rules.starts - 1)[: screening_scores.shape[1]]
    best = np.full(screening_scores.shape, np.inf)
    starts: dict[tuple[int, int], Start] = {}

    def start(candidate: int, number: int) -> Start:
        if (candidate, number) not in starts:
            begin = templates[candidate] if number == 0 else others[number - 1]
            seed = int(np.random.SeedSequence([rules.seed, number]).generate_state(1)[0])
            starts[candidate, number] = Start(candidate, number, make(rules.method, space, begin, seed))
        return starts[candidate, number]

    ladders = {int(which): rungs(int((group == which).sum()), rules, len(ends)) for which in np.unique(group)}
    for level in range(max(len(ladder) for ladder in ladders.values())):
        goals: list[Goal] = []
        for which, ladder in ladders.items():
            if level < len(ladder):
                members = np.flatnonzero(group == which)
                scores = screening_scores if level == 0 else best
                rung = ladder[level]
                goals += [
                    (start(candidate, number), rung.steps)
                    for candidate in _best_candidates(members, scores[members], rung.candidates)
                    for number in rung.starts
                ]
        for batch, score in run(goals, evaluate, advance):
            for end, number in enumerate(ends):
                rows = batch.start == number
                np.minimum.at(best[:, end], batch.candidate[rows], score[rows])


def _best_candidates(members: Ints, scores: Floats, count: int) -> list[int]:
    """Return so many candidates, in turns the best of each end; scores: (members, ends), lower is better."""
    ranking = np.argsort(scores, axis=0, kind="stable").ravel()
    return [int(members[index]) for index in dict.fromkeys(ranking.tolist())][:count]


def _merge_designs(requests: list[tuple[Start, Floats]]) -> DesignBatch:
    """Merge the designs of starts into one batch."""
    sizes = [len(designs) for _, designs in requests]
    return DesignBatch(
        candidate=np.repeat([start.candidate for start, _ in requests], sizes),
        start=np.repeat([start.number for start, _ in requests], sizes),
        step=np.repeat([start.steps + 1 for start, _ in requests], sizes),
        designs=np.concatenate([designs for _, designs in requests]),
    )


def _split_scores(scores: Floats, requests: list[tuple[Start, Floats]]) -> Iterator[Floats]:
    """Split a batch's scores by start."""
    yield from np.split(scores, np.cumsum([len(designs) for _, designs in requests])[:-1])
