"""The class of validation that each point is in: how far such answers were off (docs/validation.md)."""

import itertools
import runpy

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.cli.commands.report import main as report
from fastflow.cli.commands.sensitivity import main as sensitivity
from fastflow.cli.commands.sweep import main as sweep
from fastflow.config import catalog
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core.tables import broadcast_column, take
from fastflow.engine.dataset.reader import find
from fastflow.engine.grid.plan import plan
from fastflow.performance.accuracy import table
from fastflow.performance.accuracy.classes import (
    FIRST_TOKEN,
    SERVING,
    TRAINING,
    describe,
    typical_columns,
    typical_errors,
)
from fastflow.performance.accuracy.table import GENERATED, MEASURED, MIN_ROWS, RELATIVE, UNMEASURED, Key
from fastflow.reporting.html.kinds import page_of as page_of_any
from fastflow.reporting.html.kinds.grid import page_of
from fastflow.reporting.terminal.tables import validation_lines
from fastflow.schema import find_input
from fastflow.schema.results import TYPICAL, TYPICAL_TTFT
from tests.support.documents import ROOT
from tests.support.measured import SAMPLE, whole

CHIPS = catalog.choices("chip")
MADE = ("pathfinding", "pathfinding_today", "chiplets")
WORK = {  # overrides, and the kind of work that they are; None: no measurement is of it
    "products": ("model=gemm",),
    "operators": ("model=operator",),
    "attention": ("model=attention",),
    "latent attention": ("model=latent_attention",),
    "linear attention": ("model=linear_attention",),
    "sparse attention": ("model=sparse_attention",),
    "experts": ("model=experts",),
    "recurrent": ("model=rnn",),
    TRAINING: ("model=llama3_8b",),
    SERVING: ("model=llama3_8b", "server=vllm", "serve=continuous"),
}
UNKNOWN = {
    "this kind of work": [
        ("model=lstm_lm",), ("model=gemm", "system.devices=4"), ("model=attention", "model.training=true"),
        ("model=llama3_8b", "model.training=false"),
    ],
    "serve.mode=prefill": [("model=llama3_8b", "server=vllm", "serve=prefill")],
    "serve.mode=decode": [("model=llama3_8b", "server=vllm", "serve=decode")],
    "a server without host overheads": [("model=llama3_8b", "serve=continuous")],
}  # fmt: skip


def planned(*overrides):
    with hydra_rules():
        return plan(Composer.of_library(), overrides).grid


def said_of(*overrides, stock=None):
    """What is said of the first point of some overrides, without predicting it."""
    grid = planned(*overrides)
    (share,) = grid.shares(0, 1)
    flags = grid.is_stock(share) if stock is None else np.array([stock])
    return {name: column[0] for name, column in typical_columns(grid.inputs(share), flags).items()}


def error_of(*key):
    return table.table()[Key(*key)].mean_error


def test_the_table_is_sound():
    for key, errors in table.table().items():
        assert key.work, key
        assert key.standing in (MEASURED, RELATIVE, UNMEASURED, GENERATED), key
        assert (key.chip == "") == (key.standing == GENERATED), key
        assert errors.rows >= MIN_ROWS, key
        assert errors.median_error >= 0.0, key
        assert 0.0 < errors.mean_error < 3.0, key
        assert 0.0 < errors.bias < 5.0, key


def test_pooled_classes_hold_the_rows_of_what_they_are_pooled_of():
    """Chips of an architecture, and architectures of a maker: of all types no fewer rows than of one."""
    known = table.table()
    architecture = {}
    for chip in CHIPS:
        leaves = planned(f"chip={chip}", "model=gemm").first_inputs()
        if "chip.architecture" in leaves:
            architecture[str(leaves["chip.name"][0])] = str(leaves["chip.architecture"][0])
    for (work, kind, dtype, standing, chip), errors in known.items():
        if dtype:
            assert known[Key(work, kind, "", standing, chip)].rows >= errors.rows
        if standing == MEASURED:
            assert known[Key(work, kind, dtype, RELATIVE, architecture[chip])].rows >= errors.rows


def test_every_chip_that_exists_says_its_architecture_and_maker():
    for chip in CHIPS:
        inputs = planned(f"chip={chip}", "model=gemm").first_inputs()
        for key in ("chip.architecture", "chip.maker"):
            assert (key in inputs) == (chip not in MADE), (chip, key)
    assert find_input("chip.architecture").kind == "str"


@pytest.mark.parametrize("work", WORK)
def test_every_chip_and_kind_of_work_has_a_class_or_is_not_validated(work):
    for chip in CHIPS:
        found = said_of(f"chip={chip}", *WORK[work])
        rows, said = found["validated_rows"], found["validation_class"]
        if rows:
            assert said.startswith(work), chip
            assert rows >= MIN_ROWS
            assert found["typical_error"] > 0.0
            assert found["typical_bias"] > 0.0
            assert f"({GENERATED})" in said if chip in MADE else f"({GENERATED})" not in said, chip
        else:
            assert said.startswith(f"not validated ({work}"), (chip, said)
            assert np.isnan(found["typical_error"])
            assert np.isnan(found["typical_bias"])
        assert (TYPICAL_TTFT.name in found) == (work == SERVING)


@pytest.mark.parametrize(
    ("what", "overrides"), [(what, one) for what, all_ in UNKNOWN.items() for one in all_]
)
def test_work_that_nothing_measured_is_not_validated(what, overrides):
    found = said_of("chip=h100_sxm", *overrides)
    assert found["validation_class"] == f"not validated (no measurements of {what})"
    assert np.isnan(found["typical_error"])
    assert found["validated_rows"] == 0


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("model=gemm", "chip=a100"), ("products", "", "fp16", MEASURED, "A100-SXM4-80GB")),
        (("model=gemm", "chip=a100_sxm_80"), ("products", "", "fp16", MEASURED, "A100-SXM4-80GB")),
        (("model=gemm", "chip=h100_sxm"), ("products", "", "", MEASURED, "H100-SXM5-80GB")),  # no fp16 there
        (("model=gemm", "chip=h200_sxm"), ("products", "", "", RELATIVE, "hopper")),
        (("model=experts", "chip=t4", "model.dtype=fp16"), ("experts", "", "", UNMEASURED, "NVIDIA")),
        (("model=gemm", "chip=mi325x", "model.dtype=fp8_block"),
         ("products", "", "fp8_block", RELATIVE, "cdna3")),
        (("model=gemm", "chip=a100", "calibration=none"), ("products", "", "fp16", GENERATED, "")),
        (("model=gemm", "tech=n3"), ("products", "", "fp16", GENERATED, "")),
        (("model=gemm", "chip=a100", "chip.tdp=300 W"), ("products", "", "fp16", RELATIVE, "ampere")),
        (("model=gemm", "chip=a100", "mem.latency=1 us"), ("products", "", "fp16", RELATIVE, "ampere")),
        (("model=gemm", "chip=a100", "cost.name=mine"), ("products", "", "fp16", MEASURED, "A100-SXM4-80GB")),
        (("model=llama3_8b", "system=dgx_h100"), (TRAINING, "dense", "", MEASURED, "H100-SXM5-80GB")),
        (("model=mixtral_8x7b", "system=dgx_h100"), (TRAINING, "mixture", "", MEASURED, "H100-SXM5-80GB")),
        (("model=deepseek_v3", "chip=b300_sxm"), (TRAINING, "latent mixture", "", RELATIVE, "blackwell")),
        (("model=attention", "chip=h100_sxm", "model.phase=decode"),
         ("attention", "decode", "", MEASURED, "H100-SXM5-80GB")),
    ],
)  # fmt: skip
def test_the_finest_class_is_taken(overrides, key):
    found = said_of(*overrides)
    assert found["typical_error"] == error_of(*key)
    assert f"({key[3]})" in found["validation_class"]


def test_mixtures_are_not_taken_for_dense_models():
    """No mixture was trained on an A100 in the measurements: the answer is not that of dense ones."""
    dense, mixture = (said_of(f"model={model}", "system=dgx_a100") for model in ("llama3_8b", "mixtral_8x7b"))
    assert "training, dense, on A100-SXM4-80GB (measured)" in dense["validation_class"]
    assert "training, mixture, on other chips of NVIDIA (unmeasured)" in mixture["validation_class"]
    assert mixture["typical_error"] > dense["typical_error"]


def test_a_chip_of_a_users_own_is_a_relative_at_best(tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text("defaults: [h100_sxm, _self_]\n")
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip" / "h100_sxm.yaml").write_text("defaults: [a100_sxm_80, _self_]\n")
    assert "on chips of hopper (relative)" in said_of("model=gemm", f"chip={own}")["validation_class"]
    with hydra_rules():
        grid = plan(Composer.of_library(tmp_path), ("model=gemm", "chip=h100_sxm")).grid
    assert not grid.stock.any()


def test_what_serves_has_an_error_of_each_time():
    row = fastflow.evaluate("chip=h100_sxm", "system.devices=1", *WORK[SERVING], "parallel.strategy=TP-1-d1")
    (row,) = row.to_dict("records")
    assert row["typical_error"] == error_of(SERVING, "dense", "", MEASURED, "H100-SXM5-80GB")
    assert row["ttft_typical_error"] == error_of(FIRST_TOKEN, "dense", "", MEASURED, "H100-SXM5-80GB")
    first = f"{row['ttft_typical_error']:.0%} to the first"
    assert first in row["validation_class"]


def test_a_grid_has_the_class_of_every_point():
    """A choice, a composed axis and a column: each of the three classes where it belongs."""
    frame = fastflow.evaluate("model=gemm", "chip=a100,h200_sxm", "chip.pinned.dram_Bps=2 TB/s,3 TB/s")
    assert [said.rpartition("(")[2][:8] for said in frame["validation_class"]] == ["relative"] * 4
    frame = fastflow.evaluate("model=gemm", "chip=a100,h200_sxm,pathfinding", "model.m=1024,2048")
    standing = [said.split("): ")[0].rpartition("(")[2] for said in frame["validation_class"]]
    assert standing == [MEASURED] * 2 + [RELATIVE] * 2 + [GENERATED] * 2
    names = [column.name for column in TYPICAL]
    at = list(frame).index("time_s") + 1
    assert list(frame)[at : at + len(names)] == names


TEXTS = {"model.name": ("transformer", "gemm", "lstm_lm"), "chip.name": ("H100-SXM5-80GB", "T4")}
NUMBERS = {"model.experts": (0, 8), "model.latent": (0, 512), "system.devices": (1, 8)}
POINTS = st.lists(
    st.tuples(*(st.sampled_from(values) for values in (*TEXTS.values(), *NUMBERS.values())), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(POINTS, st.sampled_from(sorted(NUMBERS)))
def test_points_together_have_what_each_has_alone(points, alike):
    """Of one call of the model: also where a column has one value and is known to."""
    *columns, stock = map(np.array, zip(*points, strict=True))
    inputs = dict(zip((*TEXTS, *NUMBERS), columns, strict=True))
    rows = stock.size
    inputs["model.training"] = np.ones(rows, np.bool_)
    inputs["chip.architecture"] = broadcast_column(np.array(["hopper"]), rows)
    inputs["chip.pinned.mcus"] = broadcast_column(np.array([1]), rows)
    inputs[alike] = broadcast_column(inputs[alike][:1], rows)
    together = typical_columns(inputs, stock)
    short = inputs | {alike: inputs[alike][:1]}
    assert np.array_equal(typical_errors(short, stock), together["typical_error"], equal_nan=True)
    for row in range(rows):
        (one,) = describe(take(inputs, np.array([row])), stock[row : row + 1])[0]
        found, place = describe(inputs, stock)
        assert found[place[row]] == one
        alone = typical_columns(take(inputs, np.array([row])), stock[row : row + 1])
        for name, column in together.items():
            assert column[row] == alone[name][0] or (column[row] != column[row]), name


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "chip", "work", "by"),
    [
        ("ops_v100_a100_fp32", "v100_pcie", ("operators", "", ""), {"device": "V100-PCIe-32GB"}),
        ("gemm_h100_llm", "h100_sxm", ("products", "", "fp8"), {"dtype": "fp8"}),
        ("mla_b200", "b200_sxm", ("latent attention", "decode", ""), {"phase": "decode"}),
    ],
)
def test_the_table_is_what_a_validation_gives(name, chip, work, by):
    options = [f"device={by['device']}"] if "device" in by else []
    rows = fastflow.validate(f"measurements={whole(name)}", f"chip={chip}", *options).rows
    for column, value in by.items():
        rows = rows[rows[column] == value]
    of_chip = str(planned(f"chip={chip}", "model=gemm").first_inputs()["chip.name"][0])
    errors = table.table()[Key(*work, MEASURED, of_chip)]
    ratio = rows["ratio"].dropna()
    assert errors.rows == len(ratio)
    assert errors.mean_error == pytest.approx((ratio - 1.0).abs().mean(), abs=1e-4)
    assert errors.median_error == pytest.approx((ratio - 1.0).abs().median(), abs=1e-4)
    assert errors.bias == pytest.approx(ratio.median(), abs=1e-4)


def test_the_screen_says_the_class_of_a_point_and_the_classes_of_a_grid(cli):
    code, lines, _ = cli(sweep, "model=gemm", "chip=a100", "output=one")
    (said,) = (line for line in lines if line.startswith("Validation"))
    assert code == 0
    assert said.startswith("Validation   products, fp16, on A100-SXM4-80GB (measured): mean error ")
    chips = "a100,h200_sxm,pathfinding,t4,mi210"
    _, lines, _ = cli(sweep, "-m", "model=gemm", f"chip={chips}", "output=grid")
    assert sum(line.startswith("Validation   products") for line in lines) == 3
    assert any("and 1 other class (column validation_class)" in line for line in lines)


def test_the_screen_does_not_call_rows_unmeasured():
    said = "training, on other chips of NVIDIA (unmeasured): mean error 49% of 5 rows"
    (line,) = validation_lines([{"validation_class": said}])
    assert line.endswith("of NVIDIA (no measurements on this chip): mean error 49% of 5 rows")


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    [
        ("tech=n3", "mem=hbm4", "serve=decode", "model=llama3_8b", "parallel.strategy=TP-1"),
        ("model=gemm", "chip=a100", "chip.area.core=0.3"),  # not the library's
    ],
)
def test_a_sensitivity_says_of_its_point_what_a_sweep_does(cli, point):
    """And so do its report and its page."""
    runs = ((sweep, (*point, "output=one")), (sensitivity, (*point, "output=figures")),
            (report, ("figures", "--figures", ".")))  # fmt: skip
    said = []
    for run, words in runs:
        lines = cli(run, *words)[1]
        start = next(i for i, line in enumerate(lines) if line.startswith(("Assumed", "Validation")))
        said.append(list(itertools.takewhile(lambda line: line and "Dataset:" not in line, lines[start:])))
    assert said[0] == said[1] == said[2]
    asked = dict(page_of_any(find("figures")).provenance)
    assert asked["validation"] == pd.read_parquet("one")["validation_class"][0]
    assert asked.get("assumed", "") == pd.read_parquet("one")["assumptions"][0]


def test_a_page_says_the_class_of_each_point(tmp_path):
    for name, overrides in (("one", ("model=gemm",)), ("two", (*WORK[SERVING], "parallel.strategy=TP-1-d1"))):
        folder = fastflow.sweep(
            "chip=h100_sxm,h200_sxm", "system.devices=1", *overrides, output=tmp_path / name
        )
        page = page_of(find(str(folder)), "", None)
        (said,) = (one for one in page.view.said if one.column == "validation_class")
        columns = {name: texts.tolist() for name, _, _, texts, _ in page.points}
        one, other = columns[said.column]
        assert "(measured)" in one
        assert one != other


def test_classes_are_told_apart_by_all_that_they_follow_from():
    """Work, model, chip: no two kinds of transformers on the chips of one maker share a line."""
    models, chips = ("llama3_8b", "mixtral_8x7b", "deepseek_v3"), ("h100_sxm", "gb200")
    said = {
        said_of(f"model={model}", f"chip={chip}")["validation_class"]
        for model, chip in itertools.product(models, chips)
    }
    assert len(said) == len(models) * len(chips)


@pytest.mark.long
def test_the_script_writes_a_table_that_is_read_as_it_was_written(tmp_path):
    """Of samples of a file of kernels and of training runs, on chips as they are and from their budgets."""
    script = runpy.run_path(str(ROOT / "bench" / "validation_table.py"))
    for name in ("gemm_v100_deepbench", "training"):
        (tmp_path / f"{name}.csv").write_bytes((SAMPLE / f"{name}.csv").read_bytes())
    rows = script["every_row"](tmp_path)
    found = table.read_table(script["written"](rows))
    products = rows[(rows["work"] == "products") & (rows["dtype"] == "fp16")]
    real = products[~products["generated"]]
    assert set(products["generated"]) == {True, False}
    errors = found[Key("products", "", "fp16", MEASURED, "V100-SXM2-16GB")]
    assert errors.rows == len(real)
    assert errors.mean_error == pytest.approx((real["ratio"] - 1.0).abs().mean(), abs=1e-4)
    assert found[Key("products", "", "fp16", RELATIVE, "volta")] == errors
    assert found[Key(TRAINING, "dense", "", GENERATED, "")].rows > MIN_ROWS
    assert {key.standing for key in found} == {MEASURED, RELATIVE, GENERATED}  # all of these were fitted


def test_the_docs_show_the_table():
    script = runpy.run_path(str(ROOT / "bench" / "validation_table.py"))
    page = script["DOCS"].read_text(encoding="utf-8")
    assert script["in_docs"](page, table.PATH.read_text(encoding="utf-8")) == page
