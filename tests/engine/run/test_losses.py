"""A cluster's work where all its workers are lost: it goes on with others, as long as something is done."""

import pytest

from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core.errors import InputError
from fastflow.engine.grid.plan import plan
from fastflow.engine.run import execute, workers
from fastflow.engine.run.workers import CancellationToken, Cluster, Lost, Stopped

ITEMS = list("abcdefgh")


class _Cluster(Cluster):
    """A cluster without a scheduler, which counts how often it connects again."""

    def __init__(self, settings):
        self.settings, self._context, self.connected = settings, "told", 0

    def _reconnect(self):
        self.connected += 1


def losing(monkeypatch, *done):
    """A cluster whose workers do so many tasks before they are lost, one after the other; at last all."""
    left = [*done]

    def distribute(work, context, items, settings, in_order=False):
        count = left.pop(0) if left else None
        for number, item in enumerate(items):
            if number == count:
                raise Lost("gone")
            yield work(context, item)
        if count is not None:
            raise Lost("gone")  # as many as there are, and then

    monkeypatch.setattr(workers, "distribute", distribute)
    monkeypatch.setattr(
        workers, "_run_numbered", lambda work, context, task: (task[0], work(context, task[1]))
    )
    return _Cluster(None)


def upper(context, item):
    assert context == "told"
    return item.upper()


@pytest.mark.parametrize(
    ("done", "connected"),
    [
        ((), 0),
        ((3,), 1),
        ((0,), 1),  # one loss before anything is done
        ((2, 3), 2),  # two losses with progress before each
        ((0, 2, 0, 1, 0), 5),  # losses in vain, never two in a row
        ((1,) * 8, 8),
    ],
)
def test_work_goes_on_as_long_as_losses_leave_something_done(monkeypatch, done, connected):
    cluster, heard = losing(monkeypatch, *done), []
    assert cluster.map(upper, ITEMS, CancellationToken(), heard.append) == [item.upper() for item in ITEMS]
    assert sorted(heard) == [item.upper() for item in ITEMS]  # each once
    assert cluster.connected == connected


@pytest.mark.parametrize(("done", "heard"), [((0, 0), 0), ((3, 0, 0), 3), ((2, 0, 2, 0, 0), 4)])
def test_two_losses_in_a_row_that_leave_nothing_done_are_told(monkeypatch, done, heard):
    cluster, results = losing(monkeypatch, *done), []
    with pytest.raises(Lost, match=r"a scheduler that keeps its workers \(gone\)"):
        cluster.map(upper, ITEMS, CancellationToken(), results.append)
    assert len(results) == heard
    assert cluster.connected == len(done) - 1


def test_who_asks_to_stop_is_heard_after_a_loss(monkeypatch):
    cluster, token = losing(monkeypatch, 3), CancellationToken()
    with pytest.raises(Stopped):
        cluster.map(upper, ITEMS, token, lambda done: token.cancel() if done == "C" else None)


GRID = ("model=gemm", "chip=a100", "model.m=range(64,1089,64)", "model.n=range(64,4097,64)")  # 1088 points


@pytest.fixture
def lossy(monkeypatch, tmp_path):
    """A function that evaluates five parts, whose workers are lost after so many of those that are left."""
    with hydra_rules():
        run = plan(Composer.of_library(), GRID)
    distribute_parts, begun = execute._distribute_parts, []

    def sweep(*done):
        left = [*done]

        def losing(run, job, numbers, token):
            count = left.pop(0) if left else None
            yield from distribute_parts(run, job, list(numbers)[:count], token)
            if count is not None:
                raise Lost("gone")

        monkeypatch.setattr(execute, "_distribute_parts", losing)
        return execute.store(run, tmp_path, begun.append), begun

    return sweep


@pytest.mark.parametrize("done", [(2,), (1, 1), (1, 2, 1), (4, 1)])
def test_a_dataset_is_completed_as_long_as_losses_leave_a_part_written(lossy, done):
    dataset, begun = lossy(*done)
    assert dataset.missing() == []
    parts = [sum(done[:number]) for number in range(len(done) + 1)]
    assert begun == [min(256 * count, 1088) for count in parts]


@pytest.mark.parametrize("done", [(0,), (1, 0), (2, 1, 0)])
def test_a_loss_that_leaves_no_part_written_is_told(lossy, done):
    kept = f"; {sum(done)} of 5 parts are kept" if sum(done) else "$"
    with pytest.raises(InputError, match=f"they left before they wrote a part{kept}"):
        lossy(*done)
