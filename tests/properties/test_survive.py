"""A real run, killed and interrupted at random moments: what is done stays, and the rest is added."""

import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.long  # many whole processes
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}

KILLED = '''
import os, random, shutil, signal, sys, time
from pathlib import Path
import pandas as pd
import fastflow
from fastflow.engine.run import execute
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.engine.grid.plan import plan

random.seed(4)
here = Path(sys.argv[1])
with hydra_rules():
    study = plan(Composer.of_library(), ["model=gemm", "chip=a100", "model.m=range(64,2049,64)",
                                         "model.n=range(64,4097,64)", "engine.jobs=2"])
execute.store(study, here / "whole")
whole = {path.name: path.read_bytes() for path in (here / "whole").iterdir()}


def run():
    """Begin to fill `killed` in a process of its own."""
    child = os.fork()
    if child == 0:
        execute.store(study, here / "killed")
        os._exit(0)
    return child


began = time.perf_counter()
os.waitpid(run(), 0)
duration = time.perf_counter() - began
shutil.rmtree(here / "killed")
kills = halfway = finished = 0
while kills < 25 or not finished:
    child = run()
    time.sleep(random.uniform(0.0, duration if kills < 25 else 10 * duration))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    parts = sorted((here / "killed").glob("part-*")) if (here / "killed").exists() else []
    assert all(path.read_bytes() == whole[path.name] for path in parts), "a part is torn"
    if parts:
        assert len(pd.read_parquet(here / "killed")) > 0
    if os.WIFSIGNALED(status):
        kills += 1
        halfway += 0 < len(parts) < len(whole)
    else:
        assert os.WEXITSTATUS(status) == 0
        assert {path.name: path.read_bytes() for path in (here / "killed").iterdir()} == whole
        finished += 1
        shutil.rmtree(here / "killed")
print(len(whole), kills, halfway, finished)
'''


def test_killed_at_random_moments(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path)],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    parts, kills, halfway, finished = map(int, done.stdout.split())
    assert parts == 8
    assert kills >= 20
    assert halfway >= 5
    assert finished >= 1


def test_an_interrupt_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    command = [
        sys.executable, "-m", "fastflow.sweep", "-m", "tech=n12,n7", "model.hidden=range(512,8193,512)",
        "model.batch=range(512,32769,512)", "parallel.strategy=d512,CR-8-d64,RC-2-4-d64,RC-8-8-d8",
        "output=out",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob("out/part-*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    parts = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert process.returncode == 130
    assert 0 < len(parts) < 16
    assert err.splitlines()[-1] == (
        f"interrupted; {len(parts)} of 16 parts are kept in out; "
        "the same command with output=out resumes from there"
    )
    assert len(pd.read_parquet(tmp_path / "out")) == 512 * len(parts)
    again = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert f"{512 * len(parts):,} of 8,192 points are there already, from an earlier run" in again.stderr
    assert f"({512 * len(parts):,} were there already)" in again.stdout
    frame = pd.read_parquet(tmp_path / "out")
    assert frame["point"].tolist() == list(range(8192))
