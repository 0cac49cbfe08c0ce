"""Predictions held against files of measurements: what is read, predicted, said, left and refused."""

from functools import partial

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.analysis.measurements.kind import KINDS
from fastflow.analysis.validation.error_metrics import accuracy, categories_of, errors
from fastflow.cli.commands.sweep import main as sweep
from fastflow.cli.commands.validate import main
from tests.naive import accuracy as naive
from tests.support.checks import cases, near
from tests.support.commands import report

GEMMS = """\
device,dtype,m,k,n,batch,app,time_s
here,fp16,4096,4096,4096,1,x,6e-4
here,fp16,128,1024,4096,1,y,1.5e-05

here,fp32,512,512,512,8,x,1e-4
here,fp32,64,64,64,1,z,2e-5
"""
LAYERS = """\
cell,hidden,batch,timesteps,dtype,fwd_s,bwd_inputs_s,bwd_weights_s
LSTM,512,16,25,fp32,1e-3,2e-3,1e-3
GRU,256,32,10,fp32,2e-3,,
"""
EXCHANGES = """\
ranks,bytes,collective,time_s
2,1048576,,2e-5
8,1048576,,1e-4
8,16777216,all-gather,1e-4
"""
ITERATIONS = """\
tech,model.batch,parallel.strategy,time_s
n12,2048,d16,2.0
n7,4096,RC-1-4-d4,1.0
n7,,d32,1.0
"""
WORKLOADS = "model,time_s\ngemm,1e-3\nlstm_lm,5\ngemm,2e-3\n"


TIME_S = st.floats(1e-6, 1e2)
TIMES = st.lists(
    st.tuples(TIME_S, TIME_S), min_size=3, max_size=40, unique_by=(lambda pair: pair[0], lambda pair: pair[1])
)


@cases(60)
@given(TIMES)
def test_figures_of_errors_are_those_of_the_definitions(pairs):
    measured, predicted = (np.array(column) for column in zip(*pairs, strict=True))
    found = accuracy(measured, predicted)
    assert found.rows == len(pairs)
    for got, expected in zip(found[1:], naive.figures(measured.tolist(), predicted.tolist()), strict=True):
        assert near(got, expected, 1e-6)


def test_errors_are_grouped_by_size_limiter_and_category():
    measured = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    predicted = measured * np.array([1.1, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.4, np.nan])
    frame = pd.DataFrame(
        {
            "measured_s": measured,
            "predicted_s": predicted,
            "bound_by": [*"ccddddddd"],
            "op": [*"xyxyxyxy", ""],
        }
    )
    table = errors(frame, ["op"]).set_index(["by", "value"])
    assert table.loc[("all", ""), "rows"] == 8
    assert near(table.loc[("all", ""), "mean_error"], 0.6 / 8, 1e-9)
    assert near(table.loc[("bound_by", "c"), "mean_error"], 0.1, 1e-9)
    assert near(table.loc[("op", "y"), "mean_error"], 0.5 / 4, 1e-9)
    sizes = table.loc["measured time"]
    assert sizes["rows"].tolist() == [2, 2, 2, 2]
    assert sizes.index[0] == "1 s to 2.75 s"
    assert near(sizes["mean_error"].iloc[0], 0.1, 1e-9)


def test_categories_are_columns_of_few_values():
    frame = pd.DataFrame(
        {
            "op": [*"aabb" * 5],
            "same_cut": [1, 1, 2, 2] * 5,
            "of_each": range(20),
            "one": ["x"] * 20,
            "share": [0.1, 0.2] * 10,
            "ranks": [2.0, 4.0, 8.0, np.nan] * 5,
        }
    )
    assert categories_of(frame) == ["op", "ranks"]


def test_categories_have_two_rows_a_value_and_eight_values_at_most():
    """Cells without a value are no rows."""
    cells = {"two": [1, 2, 3, 4] * 4, "fewer": [*range(8), *range(7), np.nan], "most": [*range(8)] * 2}
    assert categories_of(pd.DataFrame(cells)) == ["two", "most"]
    assert categories_of(pd.DataFrame({"nine": [*range(9)] * 2})) == []


def test_a_correlation_needs_three_rows_and_both_times_to_vary():
    measured, same = np.array([1.0, 2.0, 4.0]), np.full(3, 2.0)
    assert near(accuracy(measured, 3.0 * measured**2).log_correlation, 1.0)
    for one, other in ((measured, same), (same, measured), (measured[:2], measured[:2]), (same, same)):
        assert np.isnan(accuracy(one, other).log_correlation)


@pytest.mark.parametrize(("rows", "sizes"), [(7, 0), (8, 4)])
def test_sizes_are_shown_of_two_rows_a_quarter(rows, sizes):
    times = np.arange(1.0, 1.0 + rows)
    frame = pd.DataFrame({"measured_s": times, "predicted_s": times, "bound_by": "dram"})
    assert errors(frame, [])["by"].tolist() == ["all", *["measured time"] * sizes, "bound_by"]


def test_gemms_of_several_types_are_predicted_as_one_by_one(file):
    found = fastflow.validate(file(GEMMS), "chip=a100", "model.copies=0")
    rows = found.rows
    assert rows["line"].tolist() == [2, 3, 5, 6]
    for row in rows.itertuples():
        alone = fastflow.predict_gemm(row.m, row.k, row.n, "a100", row.dtype, row.batch)
        assert row.predicted_s == alone
        assert near(row.error, abs(alone - row.measured_s) / row.measured_s)
    assert "time_s" not in rows
    assert set(rows["timed"]) == {"kernel"}
    assert rows["app"].tolist() == ["x", "y", "x", "z"]
    assert rows.attrs["units"]["predicted_s"] == "s"
    assert near(found.errors["mean_error"][0], rows["error"].mean())


def test_a_call_costs_what_its_host_takes(file, compose):
    call = compose("model=gemm", "chip=a100")["chip.call_overhead"]
    text = "m,k,n,timed,time_s\n" + "".join(f"512,512,512,{timed},1e-5\n" for timed in ("kernel", "call"))
    rows = fastflow.validate(file(text), "chip=a100", "model.copies=0").rows
    alone = fastflow.predict_gemm(512, 512, 512, "a100")
    assert rows["predicted_s"].tolist() == [alone, alone + call]
    assert rows["host_s"].tolist() == [0.0, pytest.approx(call)]
    assert rows["bound_by"][1] == "host"
    everywhere = fastflow.validate(file(text), "chip=a100", "timed=kernel", "model.copies=0").rows
    assert (everywhere["predicted_s"] == alone).all()
    assert everywhere["file.timed"].tolist() == ["kernel", "call"]
    assert (everywhere["timed"] == "kernel").all()
    by_default = fastflow.validate(file("m,k,n,op,time_s\n512,512,512,linear,1e-5\n"), "chip=a100").rows
    assert by_default["timed"].tolist() == ["call"]


def test_an_operator_runs_while_its_host_goes_on(file, compose):
    """The longer of the call, and half of it with the operator; a layer norm's host takes longer."""
    inputs = compose("model=operator", "chip=v100_sxm")
    call, launch = inputs["chip.call_overhead"], inputs["chip.launch_overhead"]
    sizes = [(8, 8, "add"), (65536, 4096, "add"), (8, 8, "layernorm"), (8, 8, "relu")]
    lines = "".join(f"{rows},{cols},{op},fp32,1e-5\n" for rows, cols, op in sizes)
    rows = fastflow.validate(file(f"rows,cols,op,dtype,time_s\n{lines}"), "chip=v100_sxm").rows
    asked = ("model.op=add", "model.rows=65536", "model.cols=4096", "model.dtype=fp32")
    alone = fastflow.evaluate("model=operator", "chip=v100_sxm", *asked)["time_s"][0]
    expected = [call, 0.5 * call + alone - launch, 1.78 * call, 1.17 * call]
    assert rows["predicted_s"].tolist() == pytest.approx(expected)


def test_operands_lie_as_the_file_says(file):
    cells = ["linear,,", "bmm,,", "bmm,T,N", "linear,N,N", ",N,T", ",,"]
    lines = "".join(f"256,384,4096,fp32,{text},1e-5\n" for text in cells)
    asked = (file(f"m,k,n,dtype,op,trans_a,trans_b,time_s\n{lines}"), "chip=p100", "timed=kernel")
    rows = fastflow.validate(*asked).rows
    along, across = (
        fastflow.evaluate("model=gemm", "chip=p100", *LINEAR, f"model.transposed={text}")["time_s"][0]
        for text in ("true", "false")
    )
    assert along != across
    assert rows["predicted_s"].tolist() == [along, across, along, across, across, across]


LINEAR = ("model.m=256", "model.k=384", "model.n=4096", "model.dtype=fp32")


DEVICE_ALONE = ("recurrent.call=0 s", "recurrent.gap=0 s")


def test_every_time_of_a_recurrent_layer_is_a_measurement(file):
    rows = fastflow.validate(file(LAYERS), "chip=v100_sxm", *DEVICE_ALONE).rows
    assert rows["line"].tolist() == [2, 2, 2, 3]
    assert rows["part"].tolist() == ["forward", "backward_inputs", "backward_weights", "forward"]
    assert rows["measured_s"].tolist() == [1e-3, 2e-3, 1e-3, 2e-3]
    for row in rows.itertuples():
        own = (
            f"cell={row.cell.lower()}",
            f"hidden={row.hidden}",
            f"batch={row.batch}",
            f"sequence={row.timesteps}",
        )
        asked = [f"model.{text}" for text in (*own, f"part={row.part}", "dtype=fp32")]
        alone = fastflow.evaluate("model=rnn", "chip=v100_sxm", *asked)
        assert near(alone["time_s"][0], row.predicted_s)


STEPS = """\
cell,hidden,batch,timesteps,dtype,fwd_s,bwd_inputs_s,bwd_weights_s
lstm,512,32,25,fp32,1e-3,2e-3,1e-3
lstm,512,32,150,fp32,1e-3,2e-3,1e-3
"""


@pytest.mark.parametrize("timed", ["kernel", "call"])
def test_a_recurrent_layer_waits_for_its_host(file, timed):
    """One call, and 5 us in each of the first 100 steps; the weight gradient has no steps."""
    host = ("recurrent.call=70 us", "recurrent.gap=5 us", "recurrent.gap_steps=100", f"timed={timed}")
    alone = fastflow.validate(file(STEPS), "chip=v100_sxm", *DEVICE_ALONE).rows["predicted_s"]
    rows = fastflow.validate(file(STEPS), "chip=v100_sxm", *host).rows
    added = [195e-6, 195e-6, 70e-6, 570e-6, 570e-6, 70e-6]
    assert rows["host_s"].tolist() == pytest.approx(added)
    assert rows["predicted_s"].tolist() == pytest.approx(alone + added)


def test_a_layers_host_is_that_of_the_library_by_default(file):
    rows = fastflow.validate(file(STEPS), "chip=v100_sxm").rows
    added = [55 + 25 * 26, 55 + 25 * 26, 55, 55 + 80 * 26, 55 + 80 * 26, 55]
    assert rows["host_s"].tolist() == pytest.approx([1e-6 * us for us in added])


@pytest.mark.long
def test_what_is_said_of_recurrent_layers(cli, file):
    code, out, _ = cli(main, file(LAYERS), "chip=v100_sxm", "output=here")
    assert code == 0
    assert out[1] == "host: 55 us a call, 26 us in each of the first 80 steps (recurrent.*)"


BAD_HOSTS = [
    (
        "recurrent.gap=26",
        "recurrent.gap=26 (from the overrides) is invalid: expected a number in s at least 0 s",
    ),
    (
        "recurrent.call=-1 us",
        "recurrent.call=-1 us (from the overrides) is invalid: expected a number in s at least",
    ),
    (
        "recurrent.gap_steps=1.5",
        "recurrent.gap_steps=1.5 (from the overrides) is invalid: expected a whole number",
    ),
    ("recurrent.gap=1 us,2 us", "recurrent.gap"),
    ("recurrent.gap=1.001 s", "at most 1 s"),
    ("recurrent.call=1.001 s", "at most 1 s"),
    ("recurrent.gap_steps=1000000000001", "at most"),
    ("recurrent.gaps=1 us", "recurrent.gaps"),
    (
        "+recurrent.gaps=1 us",
        "one of call, gap, gap_steps; did you mean gap",
    ),
]


@pytest.mark.parametrize(("override", "says"), BAD_HOSTS, ids=[says for _, says in BAD_HOSTS])
def test_what_is_wrong_with_a_layers_host_is_said(file, override, says):
    with pytest.raises(fastflow.InputError) as caught:
        fastflow.validate(file(LAYERS), "chip=v100_sxm", override)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_operators_move_the_bytes_that_the_file_says(file):
    text = (
        "rows,cols,op,dtype,min_bytes,time_s\n4096,1024,softmax,fp32,,1e-4\n4096,1024,,fp32,50331648,1e-4\n"
    )
    rows = fastflow.validate(file(text), "chip=v100_sxm", "timed=kernel").rows
    for overrides, time in zip((["op=softmax"], ["tensors=3"]), rows["predicted_s"], strict=True):
        asked = [f"model.{text}" for text in (*overrides, "rows=4096", "cols=1024", "dtype=fp32")]
        assert near(fastflow.evaluate("model=operator", "chip=v100_sxm", *asked)["time_s"][0], time)


def test_collectives_are_those_of_the_system(file):
    rows = fastflow.validate(file(EXCHANGES), "system=dgx_a100").rows
    for row, name in zip(rows.itertuples(), ("all-reduce", "all-reduce", "all-gather"), strict=True):
        assert row.predicted_s == fastflow.predict_collective(name, row.bytes, row.ranks, "system=dgx_a100")
        assert row.bound_by == ("latency" if row.latency_s > 0.5 * row.predicted_s else "network")
    assert rows.attrs["fastflow.where"].startswith("dgx_a100 of a100")


@pytest.mark.parametrize(
    ("device", "ranks", "overrides", "where", "says"),
    [
        ("NVIDIA H100 80GB HBM3", 8, (), "dgx_h100 of h100_sxm", "system: dgx_h100, 8 devices (assumed"),
        ("A100-SXM4-80GB", 2, (), "dgx_a100 of a100", "system: dgx_a100, 8 devices (assumed"),
        ("Tesla V100", 20, (), "dgx_v100 of v100_sxm", "system: dgx_v100, 24 devices (assumed"),
        ("A100-SXM4-80GB", 2, ("system=dgx_h100",), "dgx_h100 of h100_sxm", ""),
        ("GH100", 2, (), "cluster of pathfinding", ""),
        ("", 2, (), "cluster of pathfinding", ""),
    ],
)
def test_the_machine_of_collectives_is_that_of_the_device(file, device, ranks, overrides, where, says):
    text = f"device,ranks,bytes,time_s\n{device},{ranks},1e6,1e-4\n{device},2,1e6,1e-4\n"
    rows = fastflow.validate(file(text), *overrides).rows
    assert rows.attrs["fastflow.where"] == where
    assert ("assumed" in rows.attrs["fastflow.said"]) == bool(says)
    assert says in rows.attrs["fastflow.said"]
    assert rows["predicted_s"].notna().all()


def test_several_devices_are_predicted_each_with_its_own_machine(file):
    rows = fastflow.validate(
        file("device,ranks,bytes,time_s\nA100,2,8,1e-5\nH100,4,8,1e-5\nA100,8,8,1e-5\n")
    ).rows
    assert rows.attrs["fastflow.where"] == "dgx_a100, dgx_h100 of a100, h100_sxm"
    alone = [
        fastflow.predict_collective("all-reduce", 8.0, ranks, f"system=dgx_{name}")
        for name, ranks in (("a100", 2), ("h100", 4), ("a100", 8))
    ]
    assert rows["predicted_s"].tolist() == alone
    one = fastflow.validate(file("device,ranks,bytes,time_s\nA100,2,8,1e-5\nGH100,2,8,1e-5\n")).rows
    assert one.attrs["fastflow.where"] == "cluster of pathfinding"


def test_whole_iterations_are_points_of_a_grid(file):
    rows = fastflow.validate(file(ITERATIONS), "model.devices=16", "mem=hbm3").rows
    for row in rows[:2].itertuples():
        asked = (
            f"tech={row.tech}",
            f"model.batch={rows['model.batch'][row.Index]:.0f}",
            f"parallel.strategy={row._4}",
        )
        assert row._4 == rows["parallel.strategy"][row.Index]
        alone = fastflow.evaluate("model.devices=16", "mem=hbm3", *asked)
        assert alone["time_s"][0] == row.predicted_s
    assert np.isnan(rows["predicted_s"][2])
    assert "(32 here)" in rows["reason"][2]
    assert rows.attrs["fastflow.where"] == "cluster of pathfinding"


def test_rows_of_several_workloads_stay_in_their_order(file):
    rows = fastflow.validate(file(WORKLOADS), "chip=a100").rows
    assert rows["model"].tolist() == ["gemm", "lstm_lm", "gemm"]
    for name, time in zip(rows["model"], rows["predicted_s"], strict=True):
        assert fastflow.evaluate(f"model={name}", "chip=a100")["time_s"][0] == time


@pytest.mark.parametrize(("text", "key"), [(GEMMS, "chip=a100"), (ITERATIONS, "model.devices=16")])
def test_rows_do_not_depend_on_how_many_go_together(file, monkeypatch, text, key):
    whole = fastflow.validate(file(text), key).rows
    for kind in KINDS.values():
        monkeypatch.setattr(kind, "batch_size", 1)
    pd.testing.assert_frame_equal(fastflow.validate(file(text), key).rows, whole, check_exact=True)


@pytest.mark.long
def test_a_validation_from_the_command_line(cli, tmp_path, file):
    code, out, err = cli(main, file(GEMMS), "chip=a100", "output=here")
    assert code == 0
    assert err == [f"4 rows of {tmp_path / 'some.csv'} (GEMMs)"]
    assert out[0] == "4 rows of some.csv (GEMMs) on a100; measured on here"
    assert out[1].startswith("timed: kernel (assumed;")
    assert out[2] == "not used: app"
    frame, of_errors = pd.read_parquet("here"), pd.read_parquet("here-errors")
    assert out[-4:] == [
        f"mean relative error {frame['error'].mean():.1%}",
        "Figure: here-validation.svg",
        "Errors: here-errors",
        "Dataset: here",
    ]
    worst = int(frame["error"].argmax())
    explained = next(place for place, line in enumerate(out) if line.startswith("  line "))
    assert out[explained].startswith(f"  line {frame['line'][worst]}: ")
    assert frame["bound_by"][worst] in out[explained]
    assert "dram" in out[explained + 1]
    assert "launch" in out[explained + 1]
    assert "tiles l2" in out[explained + 2]
    assert of_errors["by"].iloc[0] == "all"
    assert "dtype" in set(of_errors["by"])
    schema = pq.read_schema(tmp_path / "here" / "part-00000.parquet")
    assert schema.field("predicted_s").metadata[b"unit"] == b"s"
    assert all(b"meaning" in field.metadata for field in schema)
    picture = (tmp_path / "here-validation.svg").read_bytes()
    assert cli(main, file(GEMMS), "chip=a100", "output=here")[0] == 0  # takes the place of the first
    assert (tmp_path / "here-validation.svg").read_bytes() == picture
    (tmp_path / "here-validation.svg").unlink()
    for name in ("here", "here-errors"):
        code, again, err = cli(partial(report, [name]))
        assert (code, err) == (0, [])
        assert again == out
    assert (tmp_path / "here-validation.svg").read_bytes() == picture


@pytest.mark.long
def test_rows_without_a_prediction_are_counted_and_named(cli, file):
    code, out, _ = cli(main, file(ITERATIONS), "model.devices=16", "mem=hbm3", "output=here")
    assert code == 0
    (said,) = (line for line in out if "cannot be predicted" in line)
    assert said.startswith("1 of 3 rows cannot be predicted (line 4); the first one: ")
    assert "whole iterations" in out[0]


ONE = "m,n,k,time_s\n1,2,3,1\n"
WHOLE, TIME = "expected a whole number at least 1", "expected a time above 0"
BAD_FILES = [
    ("", "holds nothing"),
    ("m,n,k,time_s\n", "only a header"),
    ("a,b\n1,2\n", "this one has a, b"),
    ("m,n,k\n1,2,3\n", "a file of GEMMs with times in time_s"),
    ("m,m,n,k,time_s\n1,1,2,3,1\n", "the column m twice"),
    ("m,n,k,time_s\n1,2,3\n", "its header has 4 columns, and line 2 has 3"),
    ('m,n,k,time_s\n1,2,3,"4\n', "this is not CSV"),
    ("m,n,k,time_s\n1,2,3,1\n-1,2,3,1\n", f"m=-1 (from some.csv, line 3) is invalid: {WHOLE}"),
    ("m,n,k,time_s\n1,2,x,1\n", f"k=x (from some.csv, line 2) is invalid: {WHOLE}"),
    ("m,n,k,time_s\n1,2.5,1,1\n", f"n=2.5 (from some.csv, line 2) is invalid: {WHOLE}"),
    ("m,n,k,time_s\n1,2,3,nan\n", f"time_s=nan (from some.csv, line 2) is invalid: {TIME}"),
    ("m,n,k,time_s\n1,2,3,1\n\n1,2,3,\n", f"time_s=nothing (from some.csv, line 4) is invalid: {TIME}"),
    ("m,n,k,time_s\n1,2,3,-1e-6\n", f"time_s=-1e-6 (from some.csv, line 2) is invalid: {TIME}"),
    (
        "m,n,k,dtype,time_s\n1,2,3,fp8,1\n",
        "dtype=fp8 (from some.csv, line 2) is invalid: expected a data type of chip V100-SXM2-16GB: fp16",
    ),
    (
        "m,n,k,dtype,time_s\n1,2,3,bf16,1\n",
        "dtype=bf16 (from some.csv, line 2) is invalid: expected a data type of chip V100",
    ),
    (
        "m,n,k,trans_a,time_s\n1,2,3,Q,1\n",
        "trans_a=Q (from some.csv, line 2) is invalid: expected one of N, T",
    ),
    (
        "m,n,k,time_s\n1,2,3,1\n1,2,,1\n",
        "k=nothing (from some.csv, line 3) is invalid: expected a value in every row",
    ),
    (
        "m,n,k,rows,cols,time_s\n1,2,3,4,5,1\n",
        "a file of one kind; this one has the columns of GEMMs and of poi",
    ),
    ("m;n;k;time_s\n1;2;3;1\n", "a CSV file with a header and rows; this one is not separated by commas"),
    (
        "m,n,k,timed,time_s\n1,2,3,so,1\n",
        "timed=so (from some.csv, line 2) is invalid: expected one of kernel",
    ),
    (
        "cell,hidden,batch,timesteps,fwd_s\nlstm,8,8,8,\n",
        f"fwd_s=nothing (from some.csv, line 2) is invalid: {TIME}",
    ),
    (
        "rows,cols,min_bytes,time_s\n8,8,1,1\n",
        "min_bytes=1 (from some.csv, line 2) is invalid: expected the bytes",
    ),
    (
        "ranks,bytes,time_s\n99999,8,1\n",
        "ranks=99999 (from some.csv, line 2) is invalid: expected at most",
    ),
    (
        "ranks,bytes,time_s\n2,-8,1\n",
        "bytes=-8 (from some.csv, line 2) is invalid: expected a number of bytes",
    ),
    (
        "ranks,bytes,collective,time_s\n2,8,x,1\n",
        "collective=x (from some.csv, line 2) is invalid: expected one of all-gather, reduce-scatter, all-",
    ),
    ("model,time_s\nlstm_lm,1\nnone,1\n", "model=none (from some.csv, line 3) is invalid: expected one of"),
    (
        'model.batch,time_s\n8,1\n"8,9",1\n',
        "model.batch=8,9 (from some.csv, line 3) is invalid: expected one value",
    ),
    ("parallel.strategy,time_s\nd999,1\n", "no row can be predicted; the first one: "),
]


@pytest.mark.parametrize(("text", "says"), BAD_FILES, ids=[says for _, says in BAD_FILES])
def test_what_is_wrong_with_a_file_is_said_with_its_place(monkeypatch, tmp_path, text, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.csv").write_text(text)
    with pytest.raises(fastflow.InputError) as caught:
        fastflow.validate("measurements=some.csv", "chip=v100_sxm", output="here")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["some.csv"]


BAD_OVERRIDES = [
    (("measurements=null",), "measurements=null (from the overrides) is invalid: expected a CSV file"),
    (("measurements=none.csv",), "No such file"),
    (("timed=so",), "timed=so (from the overrides) is invalid: expected one of kernel"),
    (("model=lstm_lm",), "model=lstm_lm (from the overrides) is invalid: expected gemm"),
    (("model.dtype=bf16",), "dtype=bf16 (from the overrides) is invalid: expected a data type of chip V100"),
    (("chip=a100,v100_sxm",), "chip: one value only; measurements are compared with one configuration"),
    (("trace=here.json",), "trace=here.json is invalid: expected null here"),
]


@pytest.mark.parametrize(("overrides", "says"), BAD_OVERRIDES, ids=[says for _, says in BAD_OVERRIDES])
def test_what_is_wrong_with_overrides_is_said(monkeypatch, tmp_path, overrides, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.csv").write_text(ONE)
    chip = [] if overrides[0].startswith("chip=") else ["chip=v100_sxm"]
    with pytest.raises(fastflow.InputError) as caught:
        fastflow.validate("measurements=some.csv", *chip, *overrides, output="here")
    assert says in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["some.csv"]


BAD_COMMANDS = [
    (("timed=so",), "timed=so (from the command line) is invalid: expected one of kernel"),
    (("-m", "model.batch=1,2"), "without -m"),
]


@pytest.mark.long
@pytest.mark.parametrize(("arguments", "says"), BAD_COMMANDS, ids=[says for _, says in BAD_COMMANDS])
def test_a_mistake_is_one_line_and_leaves_nothing(cli, tmp_path, arguments, says):
    (tmp_path / "some.csv").write_text(ONE)
    code, out, err = cli(main, *arguments, "measurements=some.csv", "output=here")
    assert (code, out, len(err)) == (2, [], 1)
    assert says in err[0]
    assert [path.name for path in tmp_path.iterdir()] == ["some.csv"]


@pytest.mark.long
def test_another_dataset_in_the_folder_is_refused(cli, tmp_path, file):
    assert cli(sweep, "model=gemm", "output=here")[0] == 0
    before = (tmp_path / "here" / "part-00000.parquet").read_bytes()
    code, _, err = cli(main, file(GEMMS), "chip=a100", "output=here")
    assert (code, len(err)) == (2, 1)
    assert "from something else" in err[0]
    assert (tmp_path / "here" / "part-00000.parquet").read_bytes() == before
    (tmp_path / "there-errors").mkdir()
    (tmp_path / "there-errors" / "mine.txt").touch()
    assert "there-errors holds mine.txt" in cli(main, file(GEMMS), "chip=a100", "output=there")[2][0]


def test_rows_of_one_device(file):
    text = file("device,m,k,n,time_s\nA,512,512,512,1e-5\nB,512,512,1024,1e-5\nA,512,512,2048,1e-5\n")
    rows = fastflow.validate(text, "chip=a100", "device=A").rows
    assert rows["line"].tolist() == [2, 4]
    with pytest.raises(fastflow.InputError, match=r"device=C .* is invalid: expected one of A, B"):
        fastflow.validate(text, "chip=a100", "device=C")


def test_the_legend_lies_where_fewer_dots_are():
    from fastflow.reporting.charts.validation import draw

    for ratio, corner in ((3.0, 4), (0.3, 2)):  # Matplotlib's codes of lower right and upper left
        rows = pd.DataFrame({"measured_s": [1e-4, 2e-4], "bound_by": "compute"})
        rows["predicted_s"] = ratio * rows["measured_s"]
        assert draw(rows, "rows").axes[-1].get_legend()._loc == corner
