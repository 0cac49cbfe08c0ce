"""Datasets: read by everybody alike, written whole or not at all, completed and never mixed."""

import errno
import io
import json
import os
import signal
import sys
import threading
import time

import duckdb
import fsspec
import joblib
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import fastflow
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core.errors import InputError
from fastflow.engine.dataset import schema
from fastflow.engine.dataset.folder import folder_at
from fastflow.engine.dataset.part import read_part
from fastflow.engine.dataset.reader import find
from fastflow.engine.dataset.store import Store, parts_of
from fastflow.engine.grid.plan import plan
from fastflow.engine.run import execute

GRID = (
    "model=gemm",
    "chip=a100,v100",
    "model.m=range(64,1089,64)",
    "model.n=range(64,2049,64)",
)  # 1088 points


def study_of(*overrides):
    with hydra_rules():
        return plan(Composer.of_library(), overrides)


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return fastflow.sweep(*GRID, output=tmp_path_factory.mktemp("dataset") / "whole")


def test_parts_are_cut_by_the_number_of_points_alone():
    assert parts_of(1)[:] == (1, 256)
    assert [parts_of(1088).range(number) for number in range(5)] == [
        (0, 256), (256, 512), (512, 768), (768, 1024), (1024, 1088),
    ]  # fmt: skip
    assert parts_of(10**6)[:] == (10**6, 8192)
    many = parts_of(10**10)
    assert many.range(many.total - 1)[1] == 10**10
    names = [many.name(number) for number in (0, 9, 10, 99_999, 100_000, many.total - 1)]
    assert names == sorted(names)
    assert parts_of(1088).name(3) == "part-00003.parquet"


def test_pandas_pyarrow_duckdb_and_polars_read_the_same(dataset):
    frame = pd.read_parquet(dataset)
    assert frame["point"].tolist() == list(range(1088))
    names = list(frame.columns)
    pd.testing.assert_frame_equal(frame, fastflow.evaluate(*GRID))

    arrow = pyarrow.dataset.dataset(dataset).to_table()
    assert arrow.column_names == names
    pd.testing.assert_frame_equal(arrow.to_pandas(), frame)

    duck = duckdb.sql(f"select * from '{dataset}/*.parquet' order by point").arrow().read_all()
    assert duck.column_names == names
    assert duck.to_pylist() == arrow.to_pylist()

    for source in (dataset, f"{dataset}/*.parquet"):
        polar = polars.read_parquet(source)
        assert polar.columns == names
        assert polar.to_dicts() == arrow.to_pylist()


def test_readers_skip_what_is_not_whole(dataset, tmp_path):
    for name, content in files_in(dataset).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "_part-00001.parquet.0badcafe").write_text("torn")
    assert len(pd.read_parquet(tmp_path)) == 1088
    assert pyarrow.dataset.dataset(tmp_path).count_rows() == 1088
    assert duckdb.sql(f"select count(*) from '{tmp_path}/*.parquet'").fetchall() == [(1088,)]
    assert polars.scan_parquet(f"{tmp_path}/*.parquet").select(polars.len()).collect().item() == 1088


def test_every_part_says_what_it_is(dataset):
    for path in dataset.iterdir():
        schema = pq.read_schema(path)
        assert schema.field("time_s").metadata[b"unit"] == b"s"
        assert schema.field("time_s").metadata[b"meaning"].startswith(b"time of one iteration")
        assert schema.metadata[b"fastflow.points"] == b"1088"
        assert len(json.loads(schema.metadata[b"fastflow.axes"])) > 1
        assert len(schema.metadata[b"fastflow.fingerprint"]) == 64


def test_what_is_missing_is_added_and_nothing_else(dataset, tmp_path, monkeypatch):
    whole = files_in(dataset)
    for name in ("part-00000.parquet", "part-00003.parquet"):
        (tmp_path / name).write_bytes(whole[name])
    done = []
    evaluated = execute.evaluated
    monkeypatch.setattr(
        execute, "evaluated", lambda grid, start, *rest: done.append(start) or evaluated(grid, start, *rest)
    )
    fastflow.sweep(*GRID, output=tmp_path)
    assert sorted(done) == [256, 512, 1024]
    assert files_in(tmp_path) == whole
    fastflow.sweep(*GRID, output=tmp_path)
    assert len(done) == 3


def without_a_row(content):
    """The content of a part that lacks a row between its first and its last one."""
    table, file = pq.read_table(io.BytesIO(content)), io.BytesIO()
    pq.write_table(pa.concat_tables([table.slice(0, 100), table.slice(101)]), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content, other: content[:5000], "part-00001.parquet is damaged: remove it"),
        (lambda content, other: b"", "part-00001.parquet is damaged: remove it"),
        (lambda content, other: other, "part-00001.parquet holds other points"),
        (lambda content, other: without_a_row(content), "part-00001.parquet holds other points"),
    ],
)
def test_a_part_that_is_not_what_was_written_is_refused(dataset, tmp_path, damage, says):
    whole = files_in(dataset)
    name = "part-00001.parquet"
    (tmp_path / name).write_bytes(damage(whole[name], whole["part-00002.parquet"]))
    with pytest.raises(InputError, match=says):
        fastflow.sweep(*GRID, output=tmp_path)
    (tmp_path / name).unlink()
    fastflow.sweep(*GRID, output=tmp_path)
    assert files_in(tmp_path) == whole


@pytest.mark.parametrize("wanted", [["point"], ["time_s"], ["chip", "time_s"]])
def test_a_part_that_lacks_a_row_is_not_read(dataset, tmp_path, wanted):
    """Nor is a dataset without it in its place; one of fewer whole parts is."""
    whole = files_in(dataset)
    for name in ("part-00001.parquet", "part-00003.parquet"):
        (tmp_path / name).write_bytes(whole[name])
    assert len(find(str(tmp_path)).read(wanted)) == 512
    (tmp_path / "part-00003.parquet").write_bytes(without_a_row(whole["part-00003.parquet"]))
    with pytest.raises(InputError, match=r"part-00003.parquet lacks some of its rows"):
        find(str(tmp_path)).read(wanted)


@pytest.mark.long
@pytest.mark.parametrize(
    "engine",
    [
        ("engine.jobs=1",),
        ("engine.jobs=3", "engine.chunk=7"),
        ("engine.chunk=100", "engine.chunk_bytes=1 MB"),
        ("engine.chunk_bytes=0.5 MB",),
    ],
)
def test_the_same_bytes_for_any_number_of_jobs_and_any_chunk(dataset, tmp_path, engine):
    assert files_in(fastflow.sweep(*GRID, *engine, output=tmp_path)) == files_in(dataset)


@pytest.mark.long
def test_the_same_bytes_from_processes(dataset, tmp_path):
    with joblib.parallel_config(backend="loky", n_jobs=2):
        assert files_in(fastflow.sweep(*GRID, output=tmp_path)) == files_in(dataset)


def test_the_same_bytes_at_a_url(dataset):
    url = "memory://fastflow/whole"
    assert fastflow.sweep(*GRID, output=url) == url
    files = fsspec.filesystem("memory")
    found = {path.rpartition("/")[2]: files.cat(path) for path in files.ls("/fastflow/whole", detail=False)}
    assert found == files_in(dataset)
    assert len(pd.read_parquet(url)) == 1088
    files.rm("/fastflow/whole/part-00002.parquet")
    fastflow.sweep(*GRID, output=url)
    assert files.cat("/fastflow/whole/part-00002.parquet") == found["part-00002.parquet"]
    with pytest.raises(
        InputError, match=r"^output=memory://fastflow/whole is invalid: .*another configuration"
    ):
        fastflow.sweep("model=gemm", output=url)


def test_a_file_url_is_a_folder_here(dataset, tmp_path):
    url = f"file://{tmp_path}/a%20b"
    assert fastflow.sweep(*GRID, output=url) == url
    assert files_in(tmp_path / "a b") == files_in(dataset)


@pytest.mark.long
def test_parts_that_do_not_arrive_are_no_success():
    # processes share no memory, and so not this folder
    with (
        joblib.parallel_config(backend="loky", n_jobs=2),
        pytest.raises(InputError, match="missing in it: 5 parts"),
    ):
        fastflow.sweep(*GRID, output="memory://fastflow/lost")


def test_urls_that_nothing_reaches_are_refused():
    with pytest.raises(InputError, match=r"output=nosuch://a is invalid: expected a path, or a URL"):
        folder_at("nosuch://a")


@pytest.mark.long
@pytest.mark.parametrize(
    ("error", "raised", "says"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
            InputError,
            r"No space left on device\); 2 of 5 parts are kept",
        ),
        (ZeroDivisionError("a defect"), ZeroDivisionError, "a defect"),
        (KeyboardInterrupt(), KeyboardInterrupt, "2 of 5 parts are kept in .*output=.* resumes"),
    ],
)
def test_a_failure_keeps_what_is_done(dataset, tmp_path, monkeypatch, error, raised, says):
    sync, calls = os.fsync, []

    def fail(handle):
        calls.append(handle)
        if len(calls) == 5:  # each part syncs its file and the folder
            raise error
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(raised, match=says):
            fastflow.sweep(*GRID, "engine.jobs=1", output=tmp_path / "new")
    there = files_in(tmp_path / "new")
    assert there == {name: files_in(dataset)[name] for name in ("part-00000.parquet", "part-00001.parquet")}
    fastflow.sweep(*GRID, output=tmp_path / "new")
    assert files_in(tmp_path / "new") == files_in(dataset)


def test_interrupts_that_are_ignored_stay_so(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        fastflow.sweep("model=gemm", output=tmp_path)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_failure_before_the_first_part_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fastflow.sweep(*GRID, output=tmp_path / "new" / "one")
    assert list(tmp_path.iterdir()) == []


def test_others_stop_when_one_fails(tmp_path, monkeypatch):
    started, evaluated = [], execute.evaluated

    def failing(grid, start, stop, settings):
        started.append(start)
        if len(started) == 2:
            raise ZeroDivisionError
        time.sleep(0.1)
        yield from evaluated(grid, start, stop, settings)

    monkeypatch.setattr(execute, "evaluated", failing)
    with pytest.raises(ZeroDivisionError):
        fastflow.sweep(
            "model=gemm", "model.m=range(1,101)", "model.k=range(1,101)", "engine.jobs=2", output=tmp_path
        )
    time.sleep(0.3)
    assert len(started) < 12


def test_a_twin_of_a_run_does_no_harm(dataset, tmp_path, monkeypatch):
    # another process finishes the same dataset first, and tidies up what it takes for left behind
    study = study_of(*GRID, "engine.jobs=1")
    store = Store(str(tmp_path), study.grid)
    sync = os.fsync

    def overtaken(handle):
        sync(handle)
        for path in tmp_path.glob("_part-*"):
            (tmp_path / path.name[1:].rpartition(".")[0]).write_bytes(
                files_in(dataset)[path.name[1:].rpartition(".")[0]]
            )
            path.unlink(missing_ok=True)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", overtaken)
        execute.store(study, tmp_path)
    assert store.open() == []
    assert files_in(tmp_path) == files_in(dataset)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("float", np.array([1.5, np.nan, -0.0, np.inf])),
        ("float", np.arange(6.0)[::2]),
        ("float", np.array([])),
        ("int", np.array([3, -(2**63), 2**63 - 1])),
        ("int", np.array([3, 4], dtype=np.int32)),
        ("bool", np.arange(19) % 3 == 0),
        ("str", np.array(["RC-1-32-d16", "", "µm", "日本"], dtype=object)),
        ("str", np.array(["a", None, "bc"], dtype=object)),
        ("str", np.array(["l0", "compute"])),
        ("str", np.array([], dtype=object)),
        ("str", np.array(["n7", "", "hbm2e", "~"])[::-1]),
        ("str", np.array(["l0", "µm", "日本", ""])),
        ("str", np.array([], dtype="U3")),
        ("str", np.broadcast_to(np.array(["n7"]), 5)),
        ("str", np.broadcast_to(np.array(["日本"], dtype=object), 5)),
        ("float", np.broadcast_to(np.array([np.nan]), 5)),
        ("int", np.broadcast_to(np.array([2**62]), 5)),
        ("bool", np.broadcast_to(np.array([True]), 9)),
    ],
)
def test_columns_become_the_same_arrays_with_and_without_pandas(kind, column):
    type_ = schema.TYPES[kind]
    made = schema._array_of_buffers(column, type_)
    made.validate(full=True)
    assert made.equals(schema.array_of(column, type_))
    assert "pandas" in sys.modules  # so that these are two ways


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("float", [1.5, np.nan, 2.0], [None, None, 2.0]),
        ("int", [3, 4, 5], [None, 4, 5]),
        ("bool", [True, False, True], [None, False, True]),
        ("str", ["a", None, "bc"], [None, None, "bc"]),
    ],
)
def test_masked_values_become_null(kind, values, expected):
    column = np.ma.MaskedArray(values, mask=[True, False, False])
    assert schema.array_of(column, schema.TYPES[kind]).to_pylist() == expected


def test_a_column_of_another_kind_is_refused():
    for kind, column in (("int", np.array([1.5])), ("str", np.array([1.5, 2.0])), ("bool", np.array(["x"]))):
        with pytest.raises(TypeError):
            schema._array_of_buffers(column, schema.TYPES[kind])


@pytest.mark.parametrize(
    "overrides",
    [
        ("tech=n7",),
        ("tech=n12,n7", "mem=hbm2,hbm3", "parallel.strategy=auto"),
        ("chip.area.core=0.0,0.2", "parallel.strategy=d512,d7"),  # points without a time
        ("model=gemm,lstm_lm",),  # columns that a point lacks
        ("system.devices=16", "parallel.strategy=d4-p4,d16"),  # whole numbers with gaps
        ("system.devices=16", "parallel.strategy=d4-p4,d2-p8"),
        ("model.batch=range(512,66049,512)",),  # many rows
    ],
)
def test_a_frame_of_a_few_rows_is_the_one_by_way_of_arrow(overrides):
    tables, about = execute.collect(plan(Composer.of_library(), overrides))
    frame = schema.frame_of(tables, about)
    other = schema.to_frame([schema.to_arrow(table, about) for table in tables])
    pd.testing.assert_frame_equal(frame, other, check_exact=True)
    assert frame.attrs == other.attrs


def test_a_frame_of_a_few_rows_needs_no_arrow_unless_pandas_takes_no_blocks(monkeypatch):
    tables, about = execute.collect(study_of("tech=n12,n7"))
    with monkeypatch.context() as patched:
        patched.setattr(schema, "to_arrow", None)
        frame = schema.frame_of(tables, about)
    monkeypatch.delattr(pd.api, "internals")  # as in version 2
    pd.testing.assert_frame_equal(frame, schema.frame_of(tables, about), check_exact=True)


def test_a_frame_of_a_few_rows_can_be_worked_on():
    tables, about = execute.collect(study_of("tech=n12,n7"))
    frame = schema.frame_of(tables, about)
    before = tables[0]["time_s"].copy()
    frame.loc[0, "time_s"], frame.loc[1, "tech"], frame["twice"] = 0.0, "other", 2 * frame.time_s
    assert frame.time_s.tolist() == [0.0, before[1]]
    assert frame.tech.tolist() == ["n12", "other"]
    assert frame.set_index("tech").twice["other"] == 2 * before[1]
    assert tables[0]["time_s"].tolist() == before.tolist()  # the rest of the frame, and its source, stay


def test_a_part_is_read_in_the_thread_that_asks(tmp_path):
    """Arrow's own threads may still hold a Python file when the process ends, which aborts it."""
    table = pyarrow.table({f"c{number}": np.arange(100_000.0) for number in range(20)})
    pq.write_table(table, tmp_path / "part.parquet", row_group_size=10_000)
    readers = set()

    class File(io.FileIO):
        def read(self, size=-1):
            readers.add(threading.get_ident())
            return super().read(size)

    with File(tmp_path / "part.parquet") as file:
        assert read_part(file).equals(table)
    assert readers == {threading.get_ident()}
