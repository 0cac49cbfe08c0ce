"""Which candidates a search leaves out: those that do as another does (docs/searches.md)."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa

import fastflow
from fastflow.analysis.search.optimizers.design_space import Space
from fastflow.analysis.search.screening import screen

SPACE = Space(tuple(f"chip.area.{name}" for name in ("core", "l1", "l0")), np.zeros(3, dtype=np.int64))
RARE = 0.5  # a first share of three above this: a quarter of all designs, 0.5^2
AGREE = ("compute_s", "comm_s", "exposed_comm_s", "bubble_s", "energy_J", "footprint_B")


class Scorer:
    """Scores a few candidates by a formula; `one` is what they do where the first share is large."""

    def __init__(self, seed, names, groups, one):
        self.one = np.array(one)
        self.options = SimpleNamespace(pareto=None, rules=SimpleNamespace(seed=seed))
        self.history = SimpleNamespace(num_consumed=0)
        self.holdable = np.ones(len(names), dtype=np.bool_)
        self.candidates = SimpleNamespace(
            point=np.arange(len(names)), group=np.array(groups), strategy=np.array(names), space=SPACE,
            templates=np.full((len(names), 3), 1 / 3), inputs=lambda *_: [],
        )  # fmt: skip

    def table(self, batch):
        rare = batch.designs[:, 0] > RARE
        time = 1.0 + batch.designs[:, 1] + np.where(rare, self.one[batch.candidate], 0.0)
        columns = dict.fromkeys(AGREE, np.zeros(time.size)) | {"dram_offered_B": np.ones(time.size)}
        return pa.table(
            columns
            | {
                "time_s": time,
                "score": np.log(time),
                "reason": [""] * time.size,
                "reason_code": [""] * time.size,
            }
        )

    def update_best(self, *_):
        pass


def test_candidates_that_differ_under_few_designs_are_hardly_ever_taken_as_alike():
    """In a quarter of all designs b differs from a: eight random ones miss that in a tenth of cases."""
    hidden = 0
    for seed in range(40):
        scorer = Scorer(seed, ["a", "b", "like a", "like b"], [0, 0, 0, 0], [0.0, 0.5, 0.0, 0.5])
        _, left_out = screen(scorer)
        reason = left_out["reason"]
        assert reason[0] == ""
        assert reason[2] == "gives the same results as a"
        assert reason[1] in ("", "gives the same results as a")
        assert reason[3] == (reason[1] or "gives the same results as b")
        hidden += reason[1] != ""
    assert hidden / 40 <= 2 * 0.75**8


def test_only_candidates_that_compete_are_compared():
    _, left_out = screen(Scorer(0, ["a", "b", "c", "d"], [0, 1, 0, 1], [0.0] * 4))
    same = ["gives the same results as a", "gives the same results as b"]
    assert left_out["reason"].tolist() == ["", "", *same]
    assert left_out["reason_code"].tolist() == ["", "", "duplicate", "duplicate"]


def test_alike_candidates_have_been_tried_under_eight_designs_and_their_own():
    small = ("model.hidden=512", "model.vocabulary=4000", "model.batch=256", "model.devices=8")
    found = fastflow.search(*small, "tech=n7", "mem=hbm3", "parallel.strategy=auto", "steps=1", "starts=1")
    alike = found.ranking["reason"].str.startswith("gives the same results as ")
    assert alike.sum() > 5
    assert (found.ranking["designs"][alike] == 1 + 8).all()
