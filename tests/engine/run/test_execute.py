"""Running and storing: chunks, datasets, refusals, and the functions that Python users call."""

import importlib
import json
import subprocess
import sys

import hydra
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra

import fastflow
from fastflow.config.library import library_root
from fastflow.core import jit
from fastflow.core.errors import InputError
from fastflow.core.tables import is_broadcast
from fastflow.engine.dataset import schema
from fastflow.performance import crossflow, results
from fastflow.schema import RESULTS, find_result, result_order

ADDED = {"point", "tech", "mem", "net", "chip", "system", "model", "tiling"}
GRID = ("model=gemm", "model.m=range(1,41)", "model.k=range(1,31)")


@pytest.fixture
def stand_in(monkeypatch):
    """A model that answers at once: time_s is m + 1000 k, null where m is 7; l2 is null on other chips."""
    calls = []

    def predict(inputs):
        for values in inputs.values():
            assert is_broadcast(values) or (values.flags.c_contiguous and values.flags.writeable)
        calls.append(inputs["model.m"].size)
        return inputs

    def summary(inputs):
        points = inputs["model.m"].size
        values = {"float": 1.5, "int": 2, "bool": True, "str": "some text"}
        levels = sum(key.startswith("chip.memory.") and key.endswith(".scope") for key in inputs)
        table = {
            name: np.full(points, values[find_result(name).kind])
            for name in result_order(levels)
            if name not in ADDED
        }
        table["time_s"] = np.where(
            inputs["model.m"] == 7, np.nan, inputs["model.m"] + 1000.0 * inputs["model.k"]
        )
        table["feasible"] = inputs["model.m"] != 7
        return table

    monkeypatch.setattr(crossflow, "predict", predict)
    monkeypatch.setattr(results, "summary", summary)
    return calls


@pytest.mark.long
def test_rows_are_in_written_order_whatever_the_chunk(stand_in):
    reference = fastflow.evaluate(*GRID)
    assert reference["point"].tolist() == list(range(1200))
    assert reference["model.m"].tolist() == [m for m in range(1, 41) for _ in range(1, 31)]
    assert (reference["time_s"].isna() == (reference["model.m"] == 7)).all()
    timed = reference[reference["model.m"] != 7]
    assert (timed["time_s"] == timed["model.m"] + 1000 * timed["model.k"]).all()
    for engine in (
        ("engine.chunk=1", "engine.jobs=1"),
        ("engine.chunk=37", "engine.jobs=3"),
        ("engine.chunk=999",),
    ):
        pd.testing.assert_frame_equal(fastflow.evaluate(*GRID, *engine), reference)
    assert max(stand_in) <= 999


def test_columns_are_the_registry_and_what_is_swept(stand_in):
    frame = fastflow.evaluate("model=gemm", "mem=hbm2,hbm3", "chip.tdp=200 W,0.3 kW", "model.dtype=fp16,fp32")
    registered = [column.name for column in RESULTS if "*" not in column.name]
    assert set(registered) | {"chip.tdp", "model.dtype"} <= set(frame.columns)
    assert list(frame.columns)[:3] == ["point", "tech", "mem"]
    assert frame["chip.tdp"].tolist() == [200.0, 200.0, 300.0, 300.0] * 2
    assert frame["mem"].tolist() == ["hbm2"] * 4 + ["hbm3"] * 4
    assert frame["mcus"].dtype == "int64"
    assert frame["feasible"].dtype == "bool"
    assert frame.attrs["units"] | {"chip.tdp": "W", "time_s": "s", "dram_Bps": "B/s"} == frame.attrs["units"]
    assert "mfu" not in frame.attrs["units"]


def test_batches_of_different_chips_share_a_table(stand_in, tmp_path):
    chip = yaml.safe_load((library_root() / "conf" / "chip" / "pathfinding.yaml").read_text())
    del chip["memory"]["l2"]
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip" / "flat.yaml").write_text(yaml.safe_dump(chip))
    assert "l2_B" not in fastflow.evaluate("model=gemm", "chip=flat", config_dir=tmp_path).columns
    mixed = fastflow.evaluate("model=gemm", "chip=flat,pathfinding", "model.m=1,2", config_dir=tmp_path)
    assert mixed["chip"].tolist() == ["flat", "flat", "pathfinding", "pathfinding"]
    assert mixed["time_s"].notna().all()
    assert mixed["l2_B"].isna().tolist() == mixed["l2_banks"].isna().tolist() == [True, True, False, False]


def test_an_axis_that_is_no_input_is_a_column_of_text(stand_in):
    frame = fastflow.evaluate("model=gemm", "+chip.pinned={mcus:3},null", "model.m=1,2")
    assert frame["chip.pinned"].tolist() == ["{mcus:3}", "{mcus:3}", "null", "null"]


def test_a_dataset_reads_back_in_one_call(stand_in, tmp_path):
    folder = fastflow.sweep(*GRID, "engine.chunk=100", output=tmp_path / "new" / "grid")
    assert folder == tmp_path / "new" / "grid"
    assert sorted(path.name for path in folder.iterdir()) == [f"part-{i:05d}.parquet" for i in range(5)]
    frame = pd.read_parquet(folder)
    pd.testing.assert_frame_equal(frame, fastflow.evaluate(*GRID))
    schema = pq.read_schema(folder / "part-00000.parquet")
    assert schema.field("time_s").metadata[b"unit"] == b"s"
    assert schema.field("time_s").metadata[b"meaning"]
    assert schema.metadata[b"fastflow.version"].decode() == fastflow.__version__
    assert len(schema.metadata[b"fastflow.fingerprint"]) == 64
    assert json.loads(schema.metadata[b"fastflow.overrides"]) == list(GRID)
    assert schema.metadata[b"fastflow.points"] == b"1200"


def test_a_rerun_adds_nothing_and_another_configuration_is_refused(stand_in, tmp_path, monkeypatch):
    fastflow.sweep(*GRID, "engine.chunk=100", output=tmp_path)
    (tmp_path / "_part-00042.parquet.0badcafe").write_text("torn")
    stand_in.clear()
    fastflow.sweep(*GRID, "engine.chunk=600", "engine.jobs=1", output=tmp_path)
    assert stand_in == []
    assert len(list(tmp_path.iterdir())) == 5
    assert len(pd.read_parquet(tmp_path)) == 1200
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match="a dataset of another configuration"):
        fastflow.sweep("model=gemm", "model.m=1,2", output=tmp_path)
    written = rf"another fastflow \(version {schema.version()}, model {jit.MODEL_DIGEST}\): fastflow report"
    for place, name in ((schema, "version"), (jit, "MODEL_DIGEST")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, "99" if name.isupper() else lambda: "99")
            with pytest.raises(InputError, match=written):
                fastflow.sweep(*GRID, output=tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["notes.txt", "part-00000.parquet", "inner/part-00000.parquet"])
def test_a_folder_with_something_else_is_refused(stand_in, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("not ours")
    with pytest.raises(InputError, match=r"^output=.*expected a new or empty folder"):
        fastflow.sweep("model=gemm", output=tmp_path)
    assert (tmp_path / name).read_text() == "not ours"


def test_an_unwritable_folder_is_refused(stand_in, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^output=.*expected a folder that can be written to"):
        fastflow.sweep("model=gemm", output=tmp_path / "file")
    with pytest.raises(InputError, match=r"^output=.*expected a folder that can be written to"):
        fastflow.sweep("model=gemm", output=tmp_path / "file" / "below")


def test_a_missing_input_is_named_with_its_file(tmp_path):
    (tmp_path / "tech").mkdir()
    (tmp_path / "tech" / "bare.yaml").write_text("name: bare\ncore: {nominal_power: 1 W}\n")
    with pytest.raises(
        InputError, match=r"tech\.[\w.]+=nothing \(from .*bare\.yaml\) is invalid: .* it is missing"
    ):
        fastflow.evaluate("tech=bare", config_dir=tmp_path)


def test_the_models_refusal_names_the_command_line_or_the_file(tmp_path):
    with pytest.raises(InputError, match=r"parallel\.strategy=x \(from the overrides\)"):
        fastflow.evaluate("parallel.strategy=d512,x")
    (tmp_path / "parallel").mkdir()
    (tmp_path / "parallel" / "mine.yaml").write_text("strategy: x\n")
    with pytest.raises(InputError, match=r"parallel\.strategy=x \(from .*mine\.yaml\)"):
        fastflow.evaluate("parallel=mine", config_dir=tmp_path)


def test_sweep_is_the_function_before_and_after_its_module_is_imported(stand_in, tmp_path):
    assert callable(fastflow.sweep)
    module = importlib.import_module("fastflow.sweep")
    assert fastflow.sweep("model=gemm", output=tmp_path / "a") == tmp_path / "a"
    assert callable(module.main)
    from fastflow import sweep

    assert sweep("model=gemm", output=tmp_path / "b") == tmp_path / "b"


def test_importing_fastflow_is_cheap():
    heavy = ["numpy", "pandas", "pyarrow", "numba", "hydra", "omegaconf", "rich", "joblib", "pint"]
    code = f"import sys, fastflow; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_inside_another_hydra_application(stand_in, tmp_path):
    (tmp_path / "config.yaml").write_text("a: 1\n")
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.2"):
        mine = GlobalHydra.instance().hydra
        assert len(fastflow.evaluate("model=gemm", "model.m=1,2")) == 2
        assert GlobalHydra.instance().hydra is mine
        assert hydra.compose("config").a == 1
        assert hydra.version.getbase() == hydra.version._get_version("1.2")
