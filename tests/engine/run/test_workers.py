"""`engine=dask`: a real scheduler and two worker processes on loopback."""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

import fastflow
from fastflow.analysis.search.options import read_options
from fastflow.analysis.search.run import search_designs
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core import jit
from fastflow.core.errors import InputError
from fastflow.engine.dataset.store import Store
from fastflow.engine.grid.plan import plan
from fastflow.engine.run import execute
from tests.support.paths import ROOT

pytestmark = pytest.mark.long  # processes of a cluster
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
GRID = (
    "tech=n12,n7", "mem=hbm2,hbm3", "net=ndr_x8,gdr_x8",
    "model.batch=range(1024,16385,1024)", "model.hidden=range(1024,16385,1024)",
    "parallel.strategy=d512,CR-8-d64",
)  # fmt: skip


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def start_worker(address, folder):
    nanny = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(folder / "dask"))
    return start("worker", address, *nanny)


@pytest.fixture
def scheduler(tmp_path):
    """The address of a scheduler without workers."""
    file = tmp_path / "scheduler.json"
    process = start(
        "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)
    )
    address = None
    while address is None:
        assert process.poll() is None
        time.sleep(0.05)
        with contextlib.suppress(OSError, ValueError):
            address = json.loads(file.read_text())["address"]
    yield address
    process.kill()
    process.wait()


@pytest.fixture
def workers(scheduler, tmp_path):
    """Two worker processes of one thread each."""
    started = [start_worker(scheduler, tmp_path) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.wait()


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_workers_write_what_threads_write_and_one_may_die(scheduler, workers, tmp_path, monkeypatch):
    from dask.distributed import Client

    local = fastflow.sweep(*GRID, output=tmp_path / "local")
    with Client(scheduler, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
    engine = ("engine=dask", f"engine.address={scheduler}")

    with hydra_rules():
        study = plan(Composer.of_library(), (*GRID, *engine))
    seen = []

    def kill_one(points):
        seen.append(points)
        if len(seen) == 4:
            workers[0].send_signal(signal.SIGKILL)

    dataset = execute.store(study, tmp_path / "far", advance=kill_one)
    assert workers[0].wait() == -signal.SIGKILL
    assert sum(seen) == study.grid.points == 4096
    assert len(seen) == dataset.parts.total == 16
    assert files_in(tmp_path / "far") == files_in(local)

    # the one that is left does what is missing, and nothing else
    (tmp_path / "far" / "part-00002.parquet").unlink()
    fastflow.sweep(*GRID, *engine, output=tmp_path / "far")
    assert files_in(tmp_path / "far") == files_in(local)

    # the last one dies too, and another comes
    def kill_the_other(points):
        seen.append(points)
        if len(seen) == 3:
            workers[1].send_signal(signal.SIGKILL)
            workers.append(start_worker(scheduler, tmp_path))

    seen.clear()
    execute.store(study, tmp_path / "resumed", advance=kill_the_other)
    assert workers[1].wait() == -signal.SIGKILL
    assert files_in(tmp_path / "resumed") == files_in(local)

    # a folder that only the worker has, here its memory
    with pytest.raises(
        InputError,
        match=r"^output=memory://.*the workers share with this process; missing in it: 16 parts",
    ):
        fastflow.sweep(*GRID, *engine, output="memory://fastflow/elsewhere")

    # a worker with another fastflow refuses, and its line reaches the user
    monkeypatch.setattr(jit, "MODEL_DIGEST", "another")
    with pytest.raises(InputError, match=rf"^engine\.address={scheduler} .*workers with the same fastflow"):
        fastflow.sweep(*engine, output=tmp_path / "none")
    assert not (tmp_path / "none").exists()


SEARCH = ("tech=n7,n5", "mem=hbm3", "parallel.strategy=auto", "steps=96", "starts=2")


def searched(address, output, advance):
    """The history of a search on a cluster, as a table."""
    engine = ("engine=dask", f"engine.address={address}")
    with hydra_rules():
        run = plan(Composer.of_library(config_name="search"), (*SEARCH, *engine))
    options = read_options(run.first.leaves)
    return search_designs(run, options, str(output), advance=advance).history.table()


def test_workers_search_as_threads_do_and_may_die(scheduler, workers, tmp_path, monkeypatch):
    local = fastflow.search(*SEARCH, output=tmp_path / "local")
    engine = ("engine=dask", f"engine.address={scheduler}")
    far = fastflow.search(*SEARCH, *engine, output=tmp_path / "far")
    assert far.chips == local.chips
    for suffix in ("", "-ranking"):
        assert files_in(tmp_path / f"far{suffix}") == files_in(tmp_path / f"local{suffix}")

    # one dies, then the other, and another comes
    heard = []

    def kill(steps):
        heard.append(steps)
        if len(heard) == 1:
            workers[0].send_signal(signal.SIGKILL)
        if len(heard) == 4:
            workers[1].send_signal(signal.SIGKILL)
            workers.append(start_worker(scheduler, tmp_path))

    resumed = searched(scheduler, tmp_path / "resumed", kill)
    assert [worker.wait() for worker in workers[:2]] == [-signal.SIGKILL] * 2
    assert files_in(tmp_path / "resumed") == files_in(tmp_path / "local")
    assert resumed.num_rows == len(local.history)

    # a worker with another fastflow refuses, and its line reaches the user
    monkeypatch.setattr(jit, "MODEL_DIGEST", "another")
    with pytest.raises(InputError, match=rf"^engine\.address={scheduler} .*workers with the same fastflow"):
        fastflow.search(*SEARCH, *engine, output=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_a_task_carries_is_small():
    with hydra_rules():
        study = plan(Composer.of_library(), ("+sweeps=million",))
    store = Store("/nowhere", study.grid)
    job = execute.Job(study.grid, study.settings, store.schema, store)
    assert len(pickle.dumps(job)) < 200_000  # once for each worker
    assert len(pickle.dumps(execute.CancellationToken())) < 1_000  # with each task, beside its number


def test_an_address_that_nobody_answers_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr("fastflow.engine.run.workers._TIMEOUT_S", 0.5)
    with pytest.raises(
        InputError, match=r"^engine\.address=tcp://127\.0\.0\.1:9 .*a Dask scheduler that answers"
    ):
        fastflow.sweep("engine=dask", "engine.address=tcp://127.0.0.1:9", output=tmp_path / "none")
    for address in ("engine.address=here", "engine.chunk=10"):
        with pytest.raises(InputError, match=r"^engine\.address=.*tcp://"):
            fastflow.evaluate("engine=dask", address)
    assert list(tmp_path.iterdir()) == []


def test_a_scheduler_without_workers_is_one_line(scheduler, monkeypatch, tmp_path):
    monkeypatch.setattr("fastflow.engine.run.workers._TIMEOUT_S", 2)
    with pytest.raises(InputError, match=r"a scheduler with workers"):
        fastflow.sweep("engine=dask", f"engine.address={scheduler}", output=tmp_path / "none")


@pytest.fixture
def mortal(tmp_path):
    """The process of a scheduler with one worker, and its address."""
    file = tmp_path / "scheduler.json"
    scheduler = start(
        "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)
    )
    while not file.exists() or not file.read_text():
        time.sleep(0.05)
    address = json.loads(file.read_text())["address"]
    worker = start_worker(address, tmp_path)
    yield scheduler, address
    for process in (scheduler, worker):
        process.kill()
        process.wait()


def test_a_scheduler_that_dies_leaves_what_is_done(mortal, tmp_path):
    scheduler, address = mortal
    with hydra_rules():
        study = plan(Composer.of_library(), (*GRID, "engine=dask", f"engine.address={address}"))
    with pytest.raises(InputError, match=r"^engine\.address=.*; \d+ of 16 parts are kept in") as refused:
        execute.store(study, tmp_path / "far", advance=lambda points: scheduler.kill())
    assert "a Dask scheduler that answers" in str(refused.value)
    execute.store(study._replace(settings=study.settings._replace(address="")), tmp_path / "far")
    assert len(list((tmp_path / "far").iterdir())) == 16


def test_a_scheduler_that_dies_leaves_what_was_scored(mortal, tmp_path):
    scheduler, address = mortal
    with pytest.raises(InputError, match=r"^engine\.address=.*; [\d,]+ designs kept in") as refused:
        searched(address, tmp_path / "far", lambda steps: scheduler.kill())
    assert "a Dask scheduler that answers" in str(refused.value)
    found = fastflow.search(*SEARCH, output=tmp_path / "far")
    pd.testing.assert_frame_equal(found.history, fastflow.search(*SEARCH).history, check_exact=True)
