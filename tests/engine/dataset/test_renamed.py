"""Datasets of before 0.2.0: every column, cell and option with an old name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastflow
from fastflow.core import advice
from fastflow.core.errors import InputError
from fastflow.engine.dataset.reader import find
from fastflow.engine.dataset.renamed import current_column
from fastflow.engine.dataset.schema import TYPES
from fastflow.engine.dataset.selected_columns import select_columns
from fastflow.schema import find_result
from fastflow.schema.renamed import COLUMNS, new_column

CELLS = {"float": 0.25, "int": 3, "bool": True, "str": "a"}
POINT = ("model=gemm", "tech=n7", "mem=hbm3", "system.devices=1")


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "_given", set())


def write(folder: Path, columns: dict[str, Any], own: str = "", **about: str) -> str:
    """Write a dataset of one row without a kind; own: its column from a user's file."""
    fields = [
        pa.field(name, column.type, metadata={"own": "yes"} if name == own else None)
        for name, column in columns.items()
    ]
    metadata = {f"fastflow.{key}": text for key, text in ({"version": "0.1.0"} | about).items()}
    schema = pa.schema(fields, metadata=metadata)
    pq.write_table(pa.Table.from_arrays(list(columns.values()), schema=schema), folder / "part-00000.parquet")
    return str(folder)


@pytest.mark.parametrize("old", COLUMNS)
def test_every_old_column_is_read_by_its_new_name(
    old: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = old.replace("l*", "l1")
    new = new_column(asked)
    column = find_result(new)
    assert column is not None
    cell = CELLS[column.kind]
    name = write(tmp_path, {"point": pa.array([0]), asked: pa.array([cell], TYPES[column.kind])}, points="1")
    dataset = find(name)
    assert dataset.schema.names == ["point", new]
    assert dataset.read([new])[new].tolist() == [cell]
    with pytest.raises(InputError, match=f"a dataset with {asked.replace('*', '.')}"):
        dataset.read([asked])
    find(name)
    assert capsys.readouterr().err == f"{name}: its columns have new names: {asked} is {new}\n"


def test_keys_and_their_values_in_an_old_grid(tmp_path: Path) -> None:
    columns = {
        "point": pa.array([0, 1]), "pins": pa.array(["kept", "none"]), "parallel.zero": pa.array([1, 3]),
    }  # fmt: skip
    axes = '["pins", "parallel.zero", "tech"]'
    dataset = find(write(tmp_path, columns, points="2", axes=axes, overrides='["pins=kept,none"]'))
    assert dataset.schema.names == ["point", "calibration", "parallel.zero_stage"]
    assert dataset.read(["calibration"])["calibration"].tolist() == ["measured", "none"]
    assert dataset.texts("axes") == ["calibration", "parallel.zero_stage", "tech"]
    assert dataset.user_overrides == ["calibration=measured,none"]


def test_a_dataset_of_today_may_have_a_column_of_an_old_name(tmp_path: Path) -> None:
    """A user's own group of choices may be called `flat`."""
    columns = {"point": pa.array([0]), "flat": pa.array(["mine"])}
    assert find(write(tmp_path, columns, points="1", kind="grid")).schema.names == ["point", "flat"]


def test_a_column_of_a_users_file_keeps_its_name(tmp_path: Path) -> None:
    columns = {"line": pa.array([2]), "figure": pa.array(["7a"]), "queue": pa.array([1.0])}
    dataset = find(write(tmp_path, columns, own="figure", measurements="a.csv", kind="GEMMs"))
    assert dataset.schema.names == ["line", "figure", "waiting_requests"]
    assert (dataset.kind, dataset.about("measured")) == ("validation", "GEMMs")


def test_cells_that_hold_names_have_the_new_ones(tmp_path: Path) -> None:
    placement = pa.array(["kp1-lp-dp", None])
    grid = {"point": pa.array([0, 1]), "placement": placement, "placement_asked": placement}
    (tmp_path / "grid").mkdir()
    rows = find(write(tmp_path / "grid", grid, points="2")).read(["placement", "placement_requested"])
    assert rows["placement"].tolist() == rows["placement_requested"].tolist()
    assert rows["placement"].iloc[0] == "kp1-pp-dp"
    (tmp_path / "errors").mkdir()
    errors = {"by": pa.array(["billions", "dtype"]), "value": pa.array(["7", "bf16"]),
              "rows": pa.array([1, 2]), "mean_error": pa.array([0.1, 0.2])}  # fmt: skip
    dataset = find(write(tmp_path / "errors", errors, measurements="a.csv", kind="GEMMs"))
    assert dataset.kind == "validation_errors"
    assert dataset.read(["by"])["by"].tolist() == ["parameters_billions", "dtype"]


def test_metadata_name_an_objective_by_its_new_name(tmp_path: Path) -> None:
    columns = {"figure": pa.array(["a"]), "figure_value": pa.array([1.0]), "elasticity": pa.array([1.0])}
    dataset = find(write(tmp_path, columns, objective="again_s"))
    assert (dataset.kind, dataset.about("objective")) == ("sensitivity", "recompute_s")


@pytest.mark.parametrize(
    ("asked", "columns", "said"),
    [
        ("lp_Bps", ["pp_Bps"], ["lp_Bps is now pp_Bps"]),
        ("time_s,lp_*", ["time_s", "pp_Bps", "pp_hops"], ["lp_Bps is now pp_Bps", "lp_hops is now pp_hops"]),
        ("gemm_l*_stays", ["gemm_l1_stationary"], ["gemm_l1_stays is now gemm_l1_stationary"]),
        ("pp_*", ["pp_Bps", "pp_hops"], []),
    ],
)
def test_columns_are_selected_by_their_old_names(
    asked: str, columns: list[str], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("time_s", "pp_Bps", "pp_hops", "gemm_l1_stationary")
    assert select_columns(asked, names) == columns
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": the column ")[2] for line in lines] == said


def test_a_user_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert [current_column("again_s") for _ in range(3)] == ["recompute_s"] * 3
    assert current_column("time_s") == "time_s"
    assert capsys.readouterr().err == "the column again_s is now recompute_s\n"


def test_a_column_of_points_is_found_by_its_old_name(capsys: pytest.CaptureFixture[str]) -> None:
    points = fastflow.evaluate(*POINT)
    assert points["gemm_parts"].equals(points["gemm_split_k"])
    assert [*points[["lp_hops", "time_s"]]] == ["pp_hops", "time_s"]
    assert capsys.readouterr().err.splitlines() == [
        "the column gemm_parts is now gemm_split_k", "the column lp_hops is now pp_hops",
    ]  # fmt: skip
    for missing in ("nothing", ["lp_hops", "nothing"], ["lp_hops", 3], 3):
        with pytest.raises(KeyError):
            points[missing]


def test_an_objective_is_found_by_its_old_name(capsys: pytest.CaptureFixture[str]) -> None:
    found = fastflow.sensitivity(*POINT, objective="gemm_parts")
    assert found.objective == "gemm_split_k"
    assert "the column gemm_parts is now gemm_split_k" in capsys.readouterr().err
    assert found.figures is found.parameters
