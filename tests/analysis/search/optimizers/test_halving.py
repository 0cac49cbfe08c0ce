"""Searching many candidates at once: batches, rungs and seeds."""

import numpy as np
import pytest

from fastflow.analysis.search.optimizers import halving
from fastflow.analysis.search.optimizers.design_space import Space
from fastflow.analysis.search.optimizers.halving import Rules, Rung, rungs, steps_of, successive_halving

SPACE = Space(("chip.area.core", "chip.area.l2", "chip.power.core"), np.array([0, 0, 1]))


ALL = tuple(range(10))


class Walk:
    """Asks for its start, moved a little further every step; keeps what it is told."""

    def __init__(self, start, size=2, until=None):
        self.at, self.size, self.until, self.told = np.array(start), size, until, []

    def ask(self):
        if self.until is not None and len(self.told) >= self.until:
            return np.zeros((0, self.at.size))
        return np.tile(self.at * 0.9 ** len(self.told), (self.size, 1))

    def tell(self, score):
        self.told.append(score.copy())


@pytest.fixture
def walks(monkeypatch):
    made = []

    def make(name, space, start, seed):
        made.append((Walk(start), seed))
        return made[-1][0]

    monkeypatch.setattr(halving, "make", make)
    return made


def run(group, promise, rules, evaluate, steps=None):
    templates = np.full((len(group), 3), 0.25)
    batches = []

    def scored(batch):
        batches.append(batch)
        return evaluate(batch)

    promises = np.array(promise, dtype=np.float64).reshape(len(group), -1)
    successive_halving(
        templates, SPACE, np.array(group), promises, rules, scored, steps or (lambda count: None)
    )
    return batches


def test_a_lone_candidate_searches_from_every_start_at_once(walks):
    batches = run([0], [1.0], Rules("cma", 3, 4, 7), lambda batch: np.arange(batch.candidate.size) * 1.0)
    assert len(batches) == 4  # one a step
    for step, batch in enumerate(batches, start=1):
        assert batch.start.tolist() == [0, 0, 1, 1, 2, 2]
        assert (batch.step == step).all()
    np.testing.assert_array_equal(batches[0].designs[0], [0.25, 0.25, 0.25])  # its own breakdown
    np.testing.assert_allclose(batches[0].designs[2, :2].sum(), 1.0)  # a random one
    seeds = [seed for _, seed in walks]
    assert len(set(seeds)) == 3
    np.testing.assert_array_equal(walks[1][0].told[0], [2.0, 3.0])  # every start hears of its own designs


def test_random_starts_are_the_same_for_all_and_follow_from_the_seed(walks):
    first = run([0, 1], [1.0, 2.0], Rules("cma", 3, 1, 7), lambda batch: np.zeros(batch.candidate.size))[0]
    again = run([0], [1.0], Rules("cma", 3, 1, 7), lambda batch: np.zeros(batch.candidate.size))[0]
    other = run([0], [1.0], Rules("cma", 3, 1, 8), lambda batch: np.zeros(batch.candidate.size))[0]
    mine = first.designs[first.candidate == 0]
    np.testing.assert_array_equal(mine, first.designs[first.candidate == 1])
    np.testing.assert_array_equal(mine, again.designs)
    assert not np.array_equal(mine[2:], other.designs[2:])


def test_rungs_keep_a_quarter_and_give_it_four_times_the_steps():
    assert rungs(1, Rules("cma", 10, 100, 0)) == [Rung(1, ALL, 100)]
    assert rungs(3, Rules("cma", 10, 100, 0)) == [Rung(3, ALL, 100)]
    assert rungs(160, Rules("cma", 10, 100, 0)) == [
        Rung(160, (0,), 1), Rung(48, (0,), 6), Rung(12, (0,), 25), Rung(3, ALL, 100),
    ]  # fmt: skip
    assert rungs(10, Rules("cma", 10, 100, 0)) == [Rung(10, (0,), 25), Rung(3, ALL, 100)]
    assert rungs(160, Rules("cma", 10, 2, 0)) == [Rung(3, ALL, 2)]


def test_the_budget_goes_to_the_promising(walks):
    value = np.arange(40.0)[::-1]  # the last candidate is best; the promise of the first is wrong
    promise = np.where(np.arange(40) < 4, -1.0, value)
    rules = Rules("cma", 2, 15, 0)
    done = []
    batches = run([0] * 40, promise, rules, lambda batch: value[batch.candidate], done.append)
    spent = np.bincount(np.concatenate([batch.candidate for batch in batches]), minlength=40)
    assert [rung.candidates for rung in rungs(40, rules)] == [12, 3]
    assert (spent[[37, 38, 39]] == 2 * 15 * 2).all()  # both starts of three finalists
    assert (spent[:4] == 3 * 2).all()  # promised much and kept little
    assert (spent[4:32] == 0).all()
    assert sum(done) == steps_of([40], rules) == 12 * 3 + 3 * (12 + 15)


def test_both_ends_of_a_front_keep_their_best(walks):
    # the first half is good for the first objective, the second half for the other
    first, last = np.arange(20.0), np.arange(20.0)[::-1]
    rules = Rules("cma", 3, 4, 0)

    def evaluate(batch):
        return np.where(batch.start == 2, last[batch.candidate], first[batch.candidate])

    done = []
    batches = run([0] * 20, np.column_stack([first, last]), rules, evaluate, done.append)
    spent = np.bincount(np.concatenate([batch.candidate for batch in batches]), minlength=20)
    assert np.flatnonzero(spent == spent.max()).tolist() == [0, 1, 2, 17, 18, 19]
    assert sum(done) == steps_of([20], rules, 2) == 20 * 2 * 1 + 6 * (3 + 4 + 3)


def test_groups_do_not_compete(walks):
    value = np.array([5.0, 1.0, 2.0, 3.0, 0.0])
    rules = Rules("cma", 2, 3, 0)
    batches = run([0, 1, 1, 1, 1], value, rules, lambda batch: value[batch.candidate])
    spent = np.bincount(np.concatenate([batch.candidate for batch in batches]), minlength=5)
    assert spent.tolist() == [12, 12, 12, 0, 12]
    assert {*batches[0].candidate.tolist()} == {0, 1, 2, 4}  # both groups in one batch


def test_a_start_that_has_converged_asks_no_more(monkeypatch):
    monkeypatch.setattr(halving, "make", lambda name, space, start, seed: Walk(start, until=2))
    done = []
    batches = run(
        [0], [0.0], Rules("cma", 2, 5, 0), lambda batch: np.zeros(batch.candidate.size), done.append
    )
    assert len(batches) == 2
    assert sum(done) == 10
