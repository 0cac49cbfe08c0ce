"""What many tests start from: points as the model takes them, and commands run in this process."""

import gc
import logging
import os
import pickle
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigSource

import fastflow
from fastflow.cli.commands import COMMANDS
from fastflow.config.chiplets import with_chiplets
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules, library_root
from fastflow.config.model_inputs import find_input, model_inputs, to_column
from fastflow.performance import crossflow, precompile, results


def pytest_configure():
    """Collect no garbage while tests are imported, and seldom afterwards: it took a tenth of all time."""
    gc.disable()


def pytest_collection_finish():
    """Take what is there before the first test for no garbage."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def kernels(request):
    """Kernels that are compiled: commands say that they compile, once. For many tests, those of every run."""
    if request.session.testscollected > 1000:
        precompile.compile_every_kind()
    fastflow.evaluate("tech=n7")


@pytest.fixture(autouse=True)
def modules_of_commands_are_gone():
    """No test leaves the module `fastflow.sweep`: `python -m fastflow.sweep` warns where it is loaded."""
    yield
    for name in COMMANDS:
        sys.modules.pop(f"fastflow.{name}", None)


@pytest.fixture(scope="session", autouse=True)
def inputs_have_their_types():
    """Inputs have the types of the schema, wherever they come from: other types compile kernels anew."""
    compile_ahead = precompile.compile_ahead

    @cache
    def kind_of(key):
        return to_column(key, []).dtype.kind

    def compile_checked(inputs, kind=""):
        wrong = [
            f"{key}: {values.dtype}"
            for key, values in inputs.items()
            if find_input(key) and values.dtype.kind != kind_of(key)
        ]
        assert not wrong, wrong
        compile_ahead(inputs, kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precompile, "compile_ahead", compile_checked)
        yield


@pytest.fixture(scope="session", autouse=True)
def library_read_once():
    """The library's files, each parsed once for all tests: a tenth of their time."""
    (source,) = (one for one in Plugins.instance().discover(ConfigSource) if one.scheme() == "file")
    read, known = source.load_config, {}

    def load_config(self, config_path):
        if not Path(self.path).is_relative_to(library_root()):
            return read(self, config_path)
        key = (self.path, self.provider, config_path)
        if key not in known:
            known[key] = pickle.dumps(read(self, config_path))
        return pickle.loads(known[key])  # a sixth of the time of a deep copy

    with pytest.MonkeyPatch.context() as patch:
        for one in {source, FileConfigSource}:  # Hydra imports its plugins anew: it has a class of its own
            patch.setattr(one, "load_config", load_config)
        yield


@pytest.fixture(scope="session")
def compose():
    """A function from Hydra overrides to one point's inputs: dotted key to scalar, in SI units."""
    composer, known = Composer.of_library(), {}

    def composed(overrides):
        with hydra_rules():
            return with_chiplets(composer, model_inputs(composer.resolved(composer.compose(list(overrides)))))

    def point(*overrides):
        if any(".yaml" in text or "/" in text for text in overrides):  # of a file that may change
            return composed(overrides)
        if overrides not in known:
            known[overrides] = composed(overrides)
        return {**known[overrides]}

    return point


def columns_of(points):
    """Lay points with the same keys out as the columns that the model takes."""
    return {key: to_column(key, [point[key] for point in points]) for key in points[0]}


@pytest.fixture(scope="session")
def predict():
    """A function from points to the model's prediction."""
    return lambda points: crossflow.predict(columns_of(points))


@pytest.fixture(scope="session")
def summary(predict):
    """A function from points to result columns."""
    return lambda points: results.summary(predict(points))


@pytest.fixture
def file(tmp_path):
    """A function from a network's text to the path of a file of it."""

    def write(text):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def copied(tmp_path):
    """A copy of the package that a test may edit: its folder, and a function from code to what it prints."""
    package = Path(fastflow.__file__).parent
    copy = shutil.copytree(package, tmp_path / "fastflow", ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"FASTFLOW_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}

    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    return copy, run


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """A function that runs a command here: exit code, lines of standard output and of standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # so that it is restored
    # tests that compose by Hydra's own means leave handlers that a process of its own does not have
    monkeypatch.setattr(logging.root, "handlers", [logging.NullHandler()])

    def run(main, *arguments):
        monkeypatch.setattr("sys.argv", ["fastflow", *arguments])
        try:
            code = main()
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return code, out.splitlines(), err.splitlines()

    return run
