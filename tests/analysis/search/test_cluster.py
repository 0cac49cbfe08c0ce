"""What workers of a cluster do for a search, without a cluster: sent, done in another order, put together."""

import pickle

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.analysis.search import cluster, history
from fastflow.analysis.search.optimizers.design_space import Space
from fastflow.analysis.search.optimizers.methods import METHODS, make
from fastflow.core.errors import InputError
from fastflow.engine.run.workers import Lost

POINT = (
    "tech=n7,n5", "mem=hbm3", "model.hidden=4096", "model.vocabulary=100000", "model.batch=2048",
    "model.devices=16",
)  # fmt: skip
FAR = ("engine=dask", "engine.address=tcp://127.0.0.1:9")
SPACE = Space(tuple("abcdefg"), np.array([0, 0, 0, 0, 1, 1, 1]))


def sent(thing):
    """What another process gets of something."""
    return pickle.loads(pickle.dumps(thing))


class Office:
    """A cluster of one who does everything by post, the last item first."""

    size = 3
    log: list  # of the work and the size of what came, for each start of a search [B]

    def __init__(self, settings, subject):
        self.subject = subject
        assert len(pickle.dumps(subject)) < 200_000

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def map(self, work, items, watch, hear=lambda done: None):
        done = {}
        for number, item in reversed(list(enumerate(items))):
            starts = len(getattr(item, "goals", "1"))
            self.log.append((work.__name__, len(pickle.dumps(item)) / starts))
            done[number] = sent(work(sent(self.subject), sent(item)))
            hear(done[number])
        return [done[number] for number in range(len(items))]


@pytest.fixture
def office(monkeypatch):
    monkeypatch.setattr(cluster, "Cluster", Office)
    monkeypatch.setattr(cluster, "MIN_DESIGNS", 40)
    Office.log = []
    return Office.log


@pytest.mark.parametrize("name", METHODS)
def test_a_method_goes_on_where_it_is_sent(name):
    rng = np.random.default_rng(2)
    method = make(name, SPACE, rng.dirichlet(np.ones(7)), 5)
    for _ in range(70):  # past the turn from mirror descent to CMA-ES, and restarts of small searches
        copy = sent(method)
        asked, again = method.ask(), copy.ask()
        np.testing.assert_array_equal(asked, again)
        score = np.abs(asked - 0.2).sum(axis=1).round(3)
        method.tell(score)
        copy.tell(score)
        method = copy if rng.random() < 0.5 else method


@pytest.mark.parametrize(
    "how",
    [
        ("parallel.strategy=auto", "steps=24", "starts=2"),
        ("parallel.strategy=auto", "steps=6", "starts=3", "method=gradient", "pareto=energy"),
        pytest.param(
            ("model.batch=1024,2048", "parallel.strategy=d16,RC-1-4-d4", "steps=40", "method=cma"),
            marks=pytest.mark.long,
        ),
        ("parallel.strategy=d16,RC-1-4-d4", "steps=8", "starts=2", "method=random"),
    ],
    ids=["mirror", "gradient", "cma", "random"],
)
@pytest.mark.long
def test_a_cluster_finds_what_one_process_finds(office, monkeypatch, how):
    own = tuple(
        text for text in POINT if text.partition("=")[0] not in {one.partition("=")[0] for one in how}
    )
    own = (*own, "tolerance=0")  # ranges are scored in pieces too
    local = fastflow.search(*own, *how)
    monkeypatch.setattr(cluster, "DESIGNS_PER_BATCH", 700)  # several stretches a rung
    far = fastflow.search(*own, *how, *FAR)
    pd.testing.assert_frame_equal(far.history, local.history, check_exact=True)
    pd.testing.assert_frame_equal(far.ranking, local.ranking, check_exact=True)
    assert far.chips == local.chips
    works = [work for work, _ in office]
    assert works.count("run_step_batch") >= 4
    assert ("score_task" in works) == ("parallel.strategy=auto" in how)  # where many are screened
    assert max(size for _, size in office) < 25_000  # a start of CMA-ES, and not what it has found


@pytest.mark.long
def test_what_is_known_is_not_handed_out_again(office, monkeypatch, tmp_path):
    monkeypatch.setattr(history, "PART_ROWS", 100)
    how = (*POINT, "parallel.strategy=d16,RC-1-4-d4", "steps=12", "tolerance=0")  # ranges are scored anew
    local = fastflow.search(*how)
    fastflow.search(*how, output=tmp_path / "run")
    parts = sorted((tmp_path / "run").iterdir())
    for part in parts[-3:]:
        part.unlink()
    fastflow.search(*how, *FAR, output=tmp_path / "run")
    assert len(office) == 2  # four starts of 13 designs a step at most, in one stretch of two pieces
    assert sorted((tmp_path / "run").iterdir()) == parts
    stored = pd.read_parquet(tmp_path / "run")
    pd.testing.assert_frame_equal(stored, local.history.reset_index(drop=True), check_dtype=False)


def test_progress_counts_every_step(office, monkeypatch):
    from fastflow.analysis.search.options import read_options
    from fastflow.analysis.search.run import search_designs
    from fastflow.config.composer import Composer
    from fastflow.config.library import hydra_rules
    from fastflow.engine.grid.plan import plan

    monkeypatch.setattr(cluster, "DESIGNS_PER_BATCH", 300)
    with hydra_rules():
        run = plan(
            Composer.of_library(config_name="search"),
            (*POINT, "parallel.strategy=auto", "steps=5", "starts=2", *FAR),
        )
    begun, heard = [], []
    search_designs(run, read_options(run.first.leaves), None, lambda *told: begun.append(told), heard.append)
    ((_, steps, there),) = begun
    assert sum(heard) == steps
    assert there == 0


def test_a_loss_keeps_what_was_scored_and_says_where(office, monkeypatch, tmp_path):
    def lose(self, work, items, *rest):
        if items:
            raise Lost("another address")
        return []

    monkeypatch.setattr(Office, "map", lose)
    how = (*POINT, "parallel.strategy=RC-1-4-d4", "steps=4", *FAR)
    with pytest.raises(InputError, match=r"^engine\.address=tcp://127.* another address; 2 designs kept in"):
        fastflow.search(*how, output=tmp_path / "run")
    assert len(pd.read_parquet(tmp_path / "run")) == 2
    with pytest.raises(InputError, match=r"^engine\.address=tcp://127.*: expected another address$"):
        fastflow.search(*how)


def test_a_mistake_at_a_worker_is_the_same_line(office, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise InputError("model.batch", 3, "another")

    monkeypatch.setattr(cluster, "score_designs", refuse)
    with pytest.raises(InputError, match=r"^model\.batch=3 .*is invalid: expected another$"):
        fastflow.search(*POINT, "parallel.strategy=RC-1-4-d4", "steps=4", *FAR, output=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
