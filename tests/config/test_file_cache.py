"""What Python calls keep of configurations, and when they notice that a file is another one."""

import os
import threading

import pytest

import fastflow
from fastflow.config import composer
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core.errors import InputError
from fastflow.engine.grid.plan import plan

OLD = 1_000_000_000


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, text, age=OLD):
    """Write a file that looks old: a fresh one is never trusted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (age, age))


def batch(*overrides, folder=None):
    with hydra_rules():
        inputs = plan(Composer.of_library(folder), overrides).grid.first_inputs()
    return inputs["model.batch"].tolist()


def of(batch):
    return f"defaults: [gemm, _self_]\nbatch: {batch}\n"


def test_a_composer_is_kept(home):
    write(home / "model" / "mine.yaml", of(3))
    cached = Composer.of_library(home)
    cached.compose(["model=mine"])
    assert Composer.of_library(home) is cached
    assert cached.compositions == 0
    assert Composer.of_library() is not cached
    assert Composer.of_library(home, "elsewhere") is not cached
    found = []
    thread = threading.Thread(target=lambda: found.append(Composer.of_library(home)))
    thread.start()
    thread.join()
    assert found[0] is not cached


def test_an_edit_is_noticed(home):
    for value in (3, 5):
        write(home / "model" / "mine.yaml", of(value), OLD + value)
        assert batch("model=mine", folder=home) == [value]


def test_an_edit_within_one_tick_of_the_clock_is_noticed(home):
    path = home / "model" / "mine.yaml"
    for value in (3, 5, 3):
        path.parent.mkdir(exist_ok=True)
        path.write_text(of(value))
        assert batch("model=mine", folder=home) == [value]


def test_a_file_that_was_not_there_is_noticed_and_one_that_is_gone(home):
    with pytest.raises(InputError, match="model=mine"):
        fastflow.evaluate("model=mine", config_dir=home)
    write(home / "model" / "mine.yaml", of(3))
    assert batch("model=mine", folder=home) == [3]
    (home / "model" / "mine.yaml").unlink()
    with pytest.raises(InputError, match="model=mine"):
        fastflow.evaluate("model=mine", config_dir=home)


def test_a_group_that_was_not_there_is_noticed(home):
    with pytest.raises(InputError, match="patch"):
        fastflow.evaluate("model=gemm", "+patch=mine", config_dir=home)
    write(home / "patch" / "mine.yaml", "# @package model\nbatch: 7\n")
    assert batch("model=gemm", "+patch=mine", folder=home) == [7]


def test_an_own_file_is_that_of_the_working_folder(home, monkeypatch):
    for folder, value in (("one", 3), ("two", 5)):
        write(home / folder / "mine.yaml", of(value))
        monkeypatch.chdir(home / folder)
        assert batch("model=mine.yaml") == [value]


def test_what_one_call_asked_for_does_not_show_in_the_next(monkeypatch):
    overrides = ("model=gemm", "output=${oc.env:fastflow_TEST}")
    for value in ("3", "5"):
        monkeypatch.setenv("fastflow_TEST", value)
        with hydra_rules():
            assert plan(Composer.of_library(), overrides).output == value
    assert batch("model=gemm", "model.batch=3") == [3]
    assert batch("model=gemm") == [1]


def test_nothing_grows_without_end(home, monkeypatch):
    monkeypatch.setattr("fastflow.config.hydra_composer._MAX_PARSED", 5)
    for number in range(20):
        folder = home / str(number)
        folder.mkdir()
        cached = Composer.of_library(folder)
        cached.read([f"model.batch={number}", "model=gemm"])
    assert len(composer._COMPOSERS.__dict__) <= composer._MAX_COMPOSERS
    for number in range(20):
        cached = Composer.of_library(home)
        cached.read([f"model.batch={number}"])
    assert len(cached._parsed) <= 7
