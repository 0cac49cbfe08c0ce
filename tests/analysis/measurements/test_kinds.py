"""Kinds of measurement: what the host adds, files that are hostile, and a kind that a test adds."""

from typing import NamedTuple

import numpy as np
import pytest

import fastflow
from fastflow.analysis.measurements import csv_file
from fastflow.analysis.measurements.host_overhead import (
    LayerHost,
    eager_module,
    layer_call,
    operator_call,
    product_call,
)
from fastflow.analysis.measurements.kind import KINDS, Measurements, register
from fastflow.analysis.measurements.plan import plan_file
from fastflow.analysis.measurements.predict import PredictedRows, with_reasons
from fastflow.analysis.validation.tables import predicted_tables
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.engine.dataset.schema import to_frame
from fastflow.engine.grid.run import naming_errors

# --- the host


def test_a_products_call_comes_before_its_kernel():
    time, overhead = np.array([1e-6, 2e-3]), np.array([3e-5, 4e-5])
    assert product_call(time, overhead).tolist() == [1e-6 + 3e-5, 2e-3 + 4e-5]


def test_an_operators_call_takes_the_longer_of_itself_and_half_of_itself_with_the_operator():
    cases = [  # device [s], operator, tensors, how much of a call's overhead it takes
        (1e-6, "add", 0, 1.0),
        (1e-3, "add", 0, 1.0),
        (1e-6, "relu", 0, 1.17),
        (1e-6, "elementwise", 3, 1.0),  # two inputs
        (1e-6, "elementwise", 2, 1.17),
        (1e-6, "softmax", 0, 1.25),
        (1e-6, "softmax", 3, 1.25),
        (1e-6, "log_softmax", 0, 1.25),
        (1e-3, "layernorm", 0, 1.78),
        (1e-6, "layernorm", 0, 1.78),
    ]
    time, op, tensors, work = map(np.array, zip(*cases, strict=True))
    overhead, launch = np.full(time.size, 3e-5), np.full(time.size, 5e-7)
    found = operator_call(time, overhead, launch, op, tensors)
    for got, of_device, share in zip(found, time, work, strict=True):
        own = 3e-5 * share
        assert got == max(own, own / 2 + (of_device - 5e-7))


def test_a_layers_call_has_a_gap_in_each_of_the_first_steps():
    host = LayerHost(call=1e-5, gap=1e-6, gap_steps=4)
    part = np.array(["forward", "backward_inputs", "backward_weights", "forward", "forward"])
    found = layer_call(host, np.zeros(5), part, np.array([3, 9, 9, 9, 2]))
    assert found == pytest.approx([1.3e-5, 1.4e-5, 1e-5, 1.4e-5, 1.2e-5])


def test_a_module_takes_the_slower_of_the_device_and_the_host():
    time, kernels, products = np.array([1e-3, 5e-3]), np.full(2, 30.0), np.full(2, 4.0)
    found = eager_module(time, kernels, products, np.array(["bf16", "bf16"]))
    assert found == pytest.approx([30 * 40e-6, 5e-3])
    narrow = eager_module(time, kernels, products, np.array(["fp8_block", "nvfp4"]))
    assert narrow == pytest.approx([30 * 40e-6 + 4 * 33e-6, 5e-3])


# --- a new kind


class _Pauses(Measurements):
    """A kind that no file of the package knows: a host that waits for some rounds."""

    name = "pauses"
    needed = ("rounds",)
    naming_keys = ("rounds",)
    not_fitted = "a file of something that a chip does"

    def __init__(self, rows, options):
        super().__init__(rows, options)
        self.rounds = self.file.whole_numbers("rounds", 1, 1e6)

    def predict(self, grid, rows):
        time = 1e-3 * self.rounds[rows]
        empty = np.full(rows.size, "", dtype=object)
        yield PredictedRows(rows, {"time_s": time, "bound_by": np.full(rows.size, "host"), "reason": empty})

    def notes_of_times(self):
        return ["a millisecond a round"]


def test_a_kind_is_one_class(tmp_path, monkeypatch):
    monkeypatch.setattr(KINDS, "_things", {**KINDS._things})  # so that what is added goes again
    monkeypatch.setattr(KINDS, "built_in", KINDS.built_in)
    (tmp_path / "some.csv").write_text("rounds,who,time_s\n1,x,2e-3\n4,y,4e-3\n")
    register(_Pauses)
    found = fastflow.validate(f"measurements={tmp_path / 'some.csv'}", "chip=a100")
    with pytest.raises(fastflow.InputError, match="expected a file of something that a chip does"):
        fastflow.calibrate(f"measurements={tmp_path / 'some.csv'}", "chip=a100")
    assert found.rows["predicted_s"].tolist() == [1e-3, 4e-3]
    assert found.errors["mean_error"][0] == 0.25
    assert found.rows.attrs["fastflow.measured"] == "pauses"
    assert found.rows.attrs["fastflow.said"] == '["a millisecond a round", "not used: who"]'


def test_every_kind_is_registered_once_and_by_a_file_of_its_own():
    homes = [kind.__module__ for kind in KINDS.values()]
    names = ("attention", "collective", "expert_exchange", "experts", "gemm", "iteration",
             "latent_attention", "linear_attention", "operator", "recurrent", "served_energy", "served_split",
             "serving", "sparse_attention", "training", "training_energy")  # fmt: skip
    assert sorted(homes) == [f"fastflow.analysis.measurements.kinds.{name}" for name in names]
    assert [kind.name for kind in KINDS.values()] == [*KINDS]


# --- times that are none


def test_a_time_of_the_model_that_is_none_has_a_reason():
    time = np.array([1.0, 0.0, np.inf, np.nan, np.nan, -1.0])
    reason = np.array(["needs memory", "", "", "too small", "", ""])
    code = np.array(["memory", "", "", "model", "", ""])
    columns = {"time_s": time, "reason": reason, "reason_code": code}
    found = with_reasons(PredictedRows(np.arange(6), columns)).columns
    added = "out_of_range"
    assert found["reason_code"].tolist() == ["memory", added, added, "model", added, added]
    assert found["time_s"][0] == 1.0
    assert np.isnan(found["time_s"][1:]).all()
    given = ["needs memory", *(f"the model gives {what}" for what in ("0 s", "inf s"))]
    assert found["reason"].tolist() == [
        *given,
        "too small",
        "the model gives no time",
        "the model gives -1 s",
    ]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A function that writes a file of measurements, and returns the override that names it."""
    monkeypatch.chdir(tmp_path)

    def write(content):
        content = content if isinstance(content, bytes) else content.encode()
        (tmp_path / "some.csv").write_bytes(content)
        return "measurements=some.csv"

    return write


HEAD = "m,n,k,time_s\n"
NO_TIME = " is invalid: expected a time above 0, from 1e-10 to 1e+09 seconds"
WHOLE = " is invalid: expected a whole number at least 1 and at most 1e+12"
KEY = "is invalid: expected an input of the model, or a name without a dot"
BATCH = "did you mean model.batch?"
GROUPS = ["cost", "mem", "model", "net", "precision", "serve", "system", "tech", "tiling"]
REFUSED = [
    # what no measurement is
    (HEAD + "1,2,3,5e-324\n", f"time_s=5e-324 (from some.csv, line 2){NO_TIME}"),
    (HEAD + "1,2,3,9e-11\n", NO_TIME),
    (HEAD + "1,2,3,1.1e9\n", NO_TIME),
    (HEAD + "1,2,3,1e400\n", f"time_s=1e400 (from some.csv, line 2){NO_TIME}"),
    (HEAD + "1,2,3,inf\n", NO_TIME),
    (HEAD + "1,2,3,0x1p-3\n", NO_TIME),
    # what is a number in Python alone
    (HEAD + "1_000,2,3,1\n", f"m=1_000 (from some.csv, line 2){WHOLE}"),
    (HEAD + "0x10,2,3,1\n", WHOLE),
    (HEAD + "\u0661\u0662,2,3,1\n", WHOLE),
    (HEAD + "1e400,2,3,1\n", f"m=1e400 (from some.csv, line 2){WHOLE}"),
    (HEAD + "9" * 5000 + ",2,3,1\n", f"m={'9' * 60}... (from some.csv, line 2){WHOLE}"),
    (HEAD + "nan,2,3,1\n", WHOLE),
    (HEAD + "1\ufeff,2,3,1\n", f"m=1\\ufeff (from some.csv, line 2){WHOLE}"),
    ("ranks,bytes,time_s\n1e300,8,1\n", f"ranks=1e300 (from some.csv, line 2){WHOLE}"),
    ("ranks,bytes,time_s\n2,1e308,1\n", "bytes=1e308 (from some.csv, line 2) is invalid: expected a"),
    ("ranks,bytes,time_s\n1,8,1\n", "no row can be predicted; the first one: a single rank"),
    ("rows,cols,min_bytes,time_s\n1,1,1e308,1\n", "expected the bytes of 1 to 1e+12 tensors of rows x cols"),
    # columns that are meant as keys
    ("model.bach,time_s\n1,1\n", f"column=model.bach (from some.csv, line 1) {KEY}; {BATCH}"),
    ("\ntech,modle.batch,time_s\nn7,1,1\n", f"column=modle.batch (from some.csv, line 2) {KEY}; {BATCH}"),
    ("tech,Model.Batch,time_s\nn7,1,1\n", f"column=Model.Batch (from some.csv, line 1) {KEY}; {BATCH}"),
    ("tech,+model.batch,time_s\nn7,1,1\n", f"{KEY}; {BATCH}"),
    ("m,n,k,chip.utilisation,time_s\n1,2,3,1,1\n", f"{KEY}; did you mean chip.utilization?"),
    ("m,n,k,engine.jobs,time_s\n1,2,3,1,1\n", f"column=engine.jobs (from some.csv, line 1) {KEY}"),
    ("m,n,k,recurrent.gap,time_s\n1,2,3,1,1\n", f"column=recurrent.gap (from some.csv, line 1) {KEY}"),
    ("m,n,k,model.dtype,time_s\n1,2,3,fp32,1\n", "expected a column of GEMMs; model.dtype=VALUE on"),
    # cells of the command line
    ("model.batch,time_s\n8,1\n',1\n", "model.batch=' (from some.csv, line 3) is invalid: expected a value"),
    ("model.batch,time_s\n8=9,1\n", "model.batch=8=9 (from some.csv, line 2) is invalid: expected a value"),
    ("model.batch,time_s\n${oc.env:HOME},1\n", "(from some.csv) is invalid: expected a whole number"),
    ('model.batch,time_s\n"range(1,3)",1\n', "model.batch=range(1,3) (from some.csv, line 2) is invalid: "),
    ("tech,time_s\nglob(*),1\n", "tech=glob(*) (from some.csv, line 2) is invalid: expected one value"),
    ('model,time_s\ngemm,1\n"[1,2]",1\n', "model=[1,2] (from some.csv, line 3) is invalid: expected one of"),
    ("model,time_s\n{a: 1},1\n", "model={a: 1} (from some.csv, line 2) is invalid: expected one of"),
    ("model.batch,time_s\n{a:1},1\n", "model.batch.a=1 (from some.csv) is invalid: expected an input"),
    # what is no table
    ("m\0,n,k,time_s\n1,2,3,1\n", "its header has a control character"),
    (HEAD + "1,2\0,3,1\n", "line 2 has a control character"),
    (HEAD + "1,2,3,\x1b[31m1\n", "line 2 has a control character"),
    ((HEAD + "1,2,3,1\n").encode("utf-16"), "this one is not in UTF-8"),
    (",".join(f"c{i}" for i in range(20000)) + "\n1\n", "this one has 20,000 columns, and 1,000 are"),
    (HEAD + "1,2,3," + "9" * 200_000 + "\n", "this is not CSV (field larger than field limit"),
    (HEAD[:-1] + "," + "q" * 9000 + "," + "q" * 9000 + "\n1,2,3,1,1,1\n", f"the column {'q' * 60}... twice"),
    ('m,n,k,note,time_s\n1,2,3,"a\nb\nc",1\n1,2,x,z,1\n', f"k=x (from some.csv, line 5){WHOLE}"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "says"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_measurement_is_refused_in_one_line(file, content, says):
    of_system = str(content).startswith("ranks")
    with pytest.raises(fastflow.InputError) as caught:
        fastflow.validate(file(content), "system=dgx_a100" if of_system else "chip=v100_sxm")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [8, 9])
def test_a_refusal_names_the_first_eight_columns(file, count):
    for names, says in (
        ("abcdefghi"[:count], "; this one has {}"),
        (GROUPS[:count], " by its columns {}, with times in time_s; this one has no such column"),
    ):
        with pytest.raises(fastflow.InputError) as caught:
            fastflow.validate(file(f"{','.join(names)}\n{','.join('1' * count)}\n"), "chip=a100")
        listed = ", ".join(names[:8]) + (", ..." if count > 8 else "")
        assert str(caught.value).endswith(says.format(listed))


def test_a_file_that_is_too_large_is_refused_before_it_is_read(file, monkeypatch):
    monkeypatch.setattr(csv_file, "MAX_BYTES", 2**20)
    with pytest.raises(fastflow.InputError, match="larger than 1 MiB: split it into several files"):
        fastflow.validate(file(HEAD + "1,2,3,1\n" * 200_000), "chip=a100")
    with pytest.raises(fastflow.InputError, match="larger than 1 MiB"):
        fastflow.validate("measurements=/dev/zero", "chip=a100")


def test_what_is_unusual_is_read_as_it_stands(file):
    """A mark of the byte order, quotes, ends of lines of old, whole numbers with an exponent, empty lines."""
    text = '\ufeff\r\n"m",n , k,"time_s",cpu.name\r\n1e3,+2.0,3.,"1e-3","a\r\nb"\r\n\r\n'
    text += ",,,,\r\n1000,2,3,.001,c\r\n"
    rows = fastflow.validate(file(text), "chip=a100").rows
    assert rows["line"].tolist() == [3, 7]
    assert rows["m"].tolist() == [1000, 1000]
    assert rows["measured_s"].tolist() == [1e-3, 1e-3]
    assert rows["cpu.name"].tolist() == ["a\r\nb", "c"]
    assert len(set(rows["predicted_s"])) == 1


def test_columns_of_a_file_that_are_named_as_results_are_kept(file):
    text = "m,n,k,error,file.error,predicted_s,line,big,time_s\n1,2,3,4,5,6,7,1e400,1\n1,2,3,4,5,6,7,1,1\n"
    rows = fastflow.validate(file(text), "chip=a100").rows
    own = {"file.file.error": 4, "file.error": 5, "file.predicted_s": 6, "file.line": 7}
    assert {name: rows[name][0] for name in own} == own
    assert rows["line"].tolist() == [2, 3]
    assert rows["big"].tolist() == ["1e400", "1"]  # a number that is too large stays the text that it is
    whole = fastflow.validate(file("m,n,k,id,time_s\n1,2,3,18446744073709551615,1\n"), "chip=a100").rows
    assert whole["id"].tolist() == [2.0**64]


def test_a_single_rank_has_a_reason_instead_of_a_time(file):
    found = fastflow.validate(file("ranks,bytes,time_s\n1,8,1e-5\n2,8,1e-5\n"), "system=dgx_a100")
    assert np.isnan(found.rows["predicted_s"][0])
    assert found.rows["reason"].tolist() == ["a single rank exchanges nothing", ""]
    assert found.rows["reason_code"].tolist() == ["no_time", ""]
    assert found.errors["rows"][0] == 1


def test_one_file_under_two_names_is_not_fitted_twice(file, tmp_path):
    file(HEAD + "".join(f"64,64,{64 * k},1e-5\n" for k in range(1, 60)))
    (tmp_path / "copy.csv").write_bytes((tmp_path / "some.csv").read_bytes())
    with pytest.raises(fastflow.InputError, match=r"measurements=copy\.csv .* expected each file once"):
        fastflow.calibrate("measurements=some.csv,copy.csv", "chip=a100")


# --- a fuzz of hostile files


class _Sort(NamedTuple):
    """Files of a kind that are sound."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    overrides: tuple[str, ...]


SOUND = (
    _Sort(
        ("m", "n", "k", "batch", "dtype", "op", "trans_a", "trans_b", "timed", "time_s"),
        (
            ("64", "128", "256", "1", "fp16", "linear", "", "", "", "1e-5"),
            ("1", "2", "3", "4", "fp32", "bmm", "T", "N", "call", "2e-5"),
        ),
        ("chip=v100_sxm",),
    ),
    _Sort(
        ("cell", "hidden", "batch", "timesteps", "dtype", "fwd_s", "bwd_inputs_s", "bwd_weights_s"),
        (
            ("lstm", "64", "16", "5", "fp32", "1e-4", "2e-4", "1e-4"),
            ("gru", "32", "32", "9", "fp32", "1e-4", "", ""),
        ),
        ("chip=v100_sxm",),
    ),
    _Sort(
        ("rows", "cols", "op", "min_bytes", "dtype", "device", "time_s"),
        (
            ("64", "128", "softmax", "", "fp32", "a", "1e-5"),
            ("8", "8", "", "512", "fp32", "b", "1e-5"),
        ),
        ("chip=v100_sxm",),
    ),
    _Sort(
        ("ranks", "bytes", "collective", "time_s"),
        (("2", "1024", "all-gather", "1e-5"), ("8", "1e6", "", "1e-4")),
        ("system=dgx_a100",),
    ),
    _Sort(
        ("model", "model.batch", "parallel.strategy", "tech", "time_s"),
        (("gemm", "1", "d1", "n7", "1e-3"), ("operator", "", "", "n12", "1e-3")),
        ("chip=pathfinding",),
    ),
)
CELLS = (
    "", "0", "-0", "1", "-1", "1.5", "1e6", "1e12", "1e13", "1e400", "-1e400", "1e-400", "5e-324", "1e-10",
    "1e9", "nan", "inf", "-Infinity", "1_000", "0x10", "\u0661", "\u00bd", "1,5", " 7 ", "+3", "--3", "1e",
    ".", "9" * 400, "fp16", "FP32", "fp8", "bf16", "null", "None", "true", "[1,2]", "{a: 1}", "${model.m}",
    "${oc.env:HOME}", "$", "range(1,3)", "choice(1,2)", "glob(*)", "'", "\\", "a=b", "a:b", "~", "*",
    "\u202e1", "\U0001f600", "q" * 300, "call", "kernel", "N", "T", "all-reduce", "lstm", "layernorm", "d1",
    "d7", "auto", "p9999", "n7", "/etc/passwd",
)  # fmt: skip
NAMES = (
    "", "m", "n", "k", "M", "time_s", "fwd_s", "device", "timed", "op", "rows", "ranks", "model", "chip",
    "model.m", "model.bach", "chip.utilization", "chip.nosuch", "engine.jobs", "a.b", ".", "model.", ".m",
    "+model.m", "error", "file.error", "line", "reason", "predicted_s", "part", "source", "\u00e9",
    "q" * 300, "model.dtype", "hydra.run", "tech@here", "mem", "placement", "output", "recurrent.gap",
    "chip.memory.l2.size", "parallel.strategy",
)  # fmt: skip


def _quoted(cell, rng):
    needs = any(character in cell for character in ',"\n\r') or cell != cell.strip()
    return '"' + cell.replace('"', '""') + '"' if needs or rng.random() < 0.1 else cell


def _cell(rng):
    return str(10 ** rng.integers(14)) if rng.random() < 0.5 else CELLS[rng.integers(len(CELLS))]


def _hostile(rng):
    """Return the content of a file that begins sound, and the overrides to read it with."""
    sort = SOUND[rng.integers(len(SOUND))]
    header, rows = list(sort.header), [list(row) for row in sort.rows for _ in range(rng.integers(1, 7))]
    for _ in range(rng.integers(1, 3)):
        what, column = rng.integers(10), rng.integers(len(header))
        if what <= 4:
            rows[rng.integers(len(rows))][column] = _cell(rng)
        elif what == 5:
            header[column] = NAMES[rng.integers(len(NAMES))]
        elif what <= 7:
            header.insert(column, NAMES[rng.integers(len(NAMES))])
            for row in rows:
                row.insert(column, _cell(rng))
        elif what == 8 and len(header) > 1:
            for row in (header, *rows):
                del row[column]
        else:
            cell = _cell(rng)
            for row in rows:
                row[column] = cell
    end = ("\n", "\r\n", "\r")[rng.integers(3)]
    content = "".join(",".join(_quoted(cell, rng) for cell in row) + end for row in (header, *rows)).encode()
    if rng.random() < 0.15:
        at = int(rng.integers(len(content) + 1))
        more = (b"\0", b"\xff", b'"', b",", b"\n", b"\xef\xbb\xbf", b"\x1b[2J", b"\t", b";", b"\n\n\n")
        content = content[:at] + more[rng.integers(len(more))] + content[at:]
    if rng.random() < 0.05:
        content = content[: rng.integers(len(content))]
    timed = rng.random() < 0.1
    return content, (*sort.overrides, *(("timed=call",) if timed else ()))


def _check_figures(rows, errors):
    for name in rows.columns:
        if rows[name].dtype.kind == "f":
            assert not np.isinf(rows[name]).any(), name
    without = rows["predicted_s"].isna()
    assert (rows.loc[without, "reason"] != "").all()
    assert (rows.loc[~without, "predicted_s"] > 0.0).all()
    assert rows.loc[~without, ["measured_s", "ratio", "error"]].notna().all(axis=None)
    assert len(errors) > 0
    figures = errors.drop(columns=["by", "value", "log_correlation"])
    assert np.isfinite(figures.to_numpy(np.float64)).all()
    assert (errors.loc[errors["log_correlation"].isna(), "rows"] > 0).all()
    assert (errors["log_correlation"].dropna().abs() <= 1.0).all()


@pytest.mark.parametrize(("seed", "count"), [(0, 60), pytest.param(1, 1500, marks=pytest.mark.long)])
def test_a_hostile_file_is_predicted_or_refused_in_one_line(file, tmp_path, seed, count):
    """No traceback, no warning, and no figure that is infinite, or NaN without a reason."""
    rng = np.random.default_rng(seed)
    predicted = 0
    with hydra_rules():
        composer = Composer.of_library(config_name="validate")
        for number in range(count):
            content, overrides = _hostile(rng)
            named = file(content)
            try:
                planned = plan_file(composer, (named, *overrides))
                with naming_errors(composer, planned.run):
                    tables = predicted_tables(planned)
            except fastflow.InputError as error:
                line = str(error)
                assert line.isprintable(), (number, line)
                assert len(line) < 3000, (number, line)
                continue
            except Exception as error:
                raise AssertionError(f"file {number} of seed {seed}: {content!r}, {overrides}") from error
            _check_figures(to_frame([tables.rows]), to_frame([tables.errors]))
            predicted += 1
    assert 0.1 * count < predicted < 0.9 * count
