"""Where operands lie and what is exchanged for them, as `fastflow.explain_sharding` and the screen say it."""

from math import prod

import pytest

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.core.errors import InputError
from fastflow.performance import results
from fastflow.performance.sharding_report import signature
from fastflow.physics.parallelism.strategy import parse
from fastflow.physics.workload.graph import FORWARD, NO_GRADIENT, PRODUCT, Dims, Form, KernelSignature
from fastflow.physics.workload.ops import gemm
from tests.support.networks import three_products

# 64 rows of fp16; products of 8 x 32, 32 x 16 and 16 x 48 columns
ROWS, SIZES = 64, (8, 32, 16, 48)


@pytest.fixture
def explained(tmp_path):
    """A function from overrides to the kernels of a small network by name."""
    file = tmp_path / "net.yaml"
    file.write_text(three_products(ROWS, SIZES))

    def explain(*overrides, devices=8):
        given = ("model=graph", f"model.file={file}", f"system.devices={devices}", "model.dtype=fp16")
        frame = fastflow.explain_sharding(*given, *overrides)
        return frame.set_index("kernel")

    return explain


def said(frame, kernel):
    return tuple(frame.loc[kernel, ["reads", "weights", "makes", "exchange"]])


def test_data_parallelism_sums_gradients_and_no_more(explained):
    frame = explained("parallel.strategy=d8")
    assert said(frame, "middle") == ("dp: S(rows)", "dp: B", "dp: S(rows)", "")
    assert said(frame, "middle input gradient") == ("dp: S(rows)", "dp: B", "dp: S(rows)", "")
    gradient = said(frame, "middle weight gradient")
    assert gradient == ("dp: S(rows)", "", "dp: P", "all-reduce along dp, 1.02 kB")
    row = frame.loc["middle weight gradient"]
    assert (row.gradient_B, row.gradient_ranks, row.gradient_group) == (2 * 32 * 16, 8, "dp")
    assert said(frame, "middle update") == ("dp: B", "dp: B", "dp: B", "")
    assert (frame["exchange"] != "").sum() == 3


def test_row_column_gathers_what_the_next_product_reads(explained):
    frame = explained("parallel.strategy=RC-1-4-d2")
    assert said(frame, "middle") == (
        "kp2: B, dp: S(rows)",
        "kp2: S(cols), dp: B",
        "kp2: S(cols), dp: S(rows)",
        "all-gather along kp2, 1.02 kB",  # 32 rows of 16 columns
    )
    assert said(frame, "middle input gradient") == (
        "kp2: S(cols), dp: S(rows)",
        "kp2: S(cols), dp: B",
        "kp2: P, dp: S(rows)",
        "reduce-scatter along kp2, 2.05 kB",  # 32 rows of 32 columns
    )
    assert said(frame, "middle weight gradient") == (
        "kp2: B | S(cols), dp: S(rows)",
        "",
        "kp2: S(cols), dp: P",
        "all-reduce along dp, 256 B",  # a quarter of the weights
    )
    assert said(frame, "loss") == (
        "kp2: S(cols), dp: S(rows)",
        "",
        "kp2: S(cols), dp: S(rows)",
        "all-reduce of statistics along kp2, 256 B",  # two numbers of 4 bytes a row
    )
    assert said(frame, "middle gradient norm")[2:] == (
        "kp2: P, dp: B",
        "all-reduce of statistics along kp2, 8 B",
    )
    row = frame.loc["middle"]
    assert (row.sync_B, row.sync_ranks, row.sync_group) == (1024.0, 4, "kp2")


def test_column_row_scatters_partial_sums(explained):
    frame = explained("parallel.strategy=CR-4-d2")
    assert said(frame, "middle") == (
        "kp1: S(inner), dp: S(rows)",
        "kp1: S(inner), dp: B",
        "kp1: P, dp: S(rows)",
        "reduce-scatter along kp1, 1.02 kB",
    )
    gathered = said(frame, "high input gradient")
    assert gathered[1:3] == ("kp1: S(inner), dp: B", "kp1: S(inner), dp: S(rows)")
    assert gathered[3] == "all-gather along kp1, 1.02 kB"  # what the middle layer's products read
    assert said(frame, "middle input gradient")[0] == "kp1: B, dp: S(rows)"
    assert said(frame, "middle weight gradient")[:3] == (
        "kp1: S(inner) | B, dp: S(rows)",
        "",
        "kp1: S(inner), dp: P",
    )


def test_tables_and_passes():
    frame = fastflow.explain_sharding("parallel.strategy=RC-2-8-d32").drop_duplicates("kernel")
    frame = frame.set_index("kernel")
    types = {"embedding": "lookup", "lstm cell": "product", "lstm gates": "elementwise", "loss": "rowwise"}
    assert {name: frame.loc[name, "type"] for name in types} == types
    assert frame.loc["softmax update", "type"] == "update"
    assert said(frame, "embedding")[:3] == (  # what is looked up has no columns
        "kp1: S(batch), kp2: B, dp: S(batch)",
        "kp1: B, kp2: S(hidden), dp: B",
        "kp1: S(batch), kp2: S(hidden), dp: S(batch)",
    )
    rows = said(frame, "embedding gradient")
    assert rows[2:] == ("kp1: P, kp2: S(hidden), dp: P", "all-gather along kp1 x dp, 1.34 GB")
    assert frame.loc["lstm gates", "repeat"] == 20
    assert fastflow.explain_sharding("parallel.strategy=CR-4-d128").attrs["units"]["sync_B"] == "B"


def test_megatron_cuts_the_table_by_its_words():
    """So that what is looked up is a partial sum, which goes where the hidden columns lie, then to all."""
    frame = fastflow.explain_sharding("parallel.strategy=TP-8-d64").set_index("kernel")
    assert said(frame, "embedding")[:3] == (
        "tp: S(vocabulary), dp: S(batch)",
        "tp: S(vocabulary), dp: B",
        "tp: P, dp: S(batch)",
    )
    assert said(frame, "softmax")[:3] == (
        "tp: B, dp: S(batch)",
        "tp: S(vocabulary), dp: B",
        "tp: S(vocabulary), dp: S(batch)",
    )
    assert said(frame, "softmax input gradient")[2] == "tp: P, dp: S(batch)"
    assert frame.loc["softmax input gradient", "sync_group"] == "tp"
    first = frame[frame["layer"] == 1].loc["lstm cell input gradient"]  # of h, and of what the table made
    assert (first.sync_group, first.sync2_group, first.sync2_ranks) == ("tp", "tp", 8)
    assert [text.split()[0] for text in first.exchange.split("; ")] == ["reduce-scatter", "all-reduce"]


def test_a_pipeline_sends_where_it_is_cut(explained):
    frame = explained("parallel.strategy=d2-p3", "parallel.microbatches=4", devices=6)
    sends = frame[frame["send_B"] > 0]
    assert sends.index.tolist() == ["low", "middle", "high input gradient", "middle input gradient"]
    assert sends["stage"].tolist() == [0, 1, 2, 1]
    # of 8 rows a micro-batch
    assert sends["send_B"].tolist() == [2.0 * 8 * 32, 2.0 * 8 * 16, 2.0 * 8 * 16, 2.0 * 8 * 32]
    assert sends.loc["low", "exchange"] == "point-to-point along pp, 512 B"
    assert frame.loc["middle", "repeat"] == 4
    two = explained("parallel.strategy=d4-p2")
    crossing = two[two["send_B"] > 0]
    assert crossing["phase"].tolist() == ["forward", "backward"]
    assert crossing["stage"].tolist() == [0, 1]


def test_a_relayout_names_where_it_goes(explained):
    frame = explained("parallel.strategy=d8", "parallel.softmax=RC-1-8")
    assert said(frame, "middle")[2:] == (
        "dp: S(rows)",
        "all-gather to the layout of softmax along kp2, 2.05 kB",  # 64 rows of 16 columns
    )
    assert said(frame, "high")[:3] == ("kp2: B", "kp2: S(cols)", "kp2: S(cols)")
    assert frame.loc["middle", "relayout_ranks"] == 8


def test_kernels_of_a_point_name_their_relayout(compose, predict):
    own = ("model.layers=1", "parallel.strategy=d512", "parallel.softmax=RC-1-512")
    kernels = results.explain(predict([compose(*own)]), 0)
    assert kernels["comm"][kernels["kernel"] == "embedding"] == ""
    place = kernels["kernel"] == "lstm gates"
    assert kernels["comm"][place] == "all-gather"
    assert kernels["comm_s"][place] > 0.0


def degrees_of(text, devices, stages):
    """Return the devices along every axis, of a cut that takes so many."""
    own = parse(text)
    cut = own.kp1 * own.kp2
    return {"kp1": own.kp1, "kp2": own.kp2, "dp": devices // stages // cut, "pp": stages}


@pytest.mark.parametrize(
    "strategy", ["d8", "RC-2-4", "RC-2-2-d2", "CR-2-d4", "CR-8", "RC-2-2-p2", "CR-2-d2-p2"]
)
@pytest.mark.parametrize("softmax", ["same", "RC-2-2", "CR-4", "RC-1-4"])
def test_along_the_axes_named_are_as_many_devices_as_exchange(explained, strategy, softmax):
    frame = explained(f"parallel.strategy={strategy}", f"parallel.softmax={softmax}")
    usual = degrees_of(strategy, 8, parse(strategy).pp)
    last = usual if softmax == "same" else degrees_of(softmax, 8, usual["pp"])
    for row in frame.itertuples():
        own = last if row.layer == 2 else usual
        for role in ("sync", "relayout", "gradient", "send"):
            size, ranks, group = (getattr(row, f"{role}_{name}") for name in ("B", "ranks", "group"))
            assert (size > 0) == (ranks > 1) == (group != "")
            there = (usual, last) if role == "relayout" else (own,)
            if size > 0:
                assert ranks in [prod(degrees[axis] for axis in group.split(" x ")) for degrees in there]
                assert all(max(degrees[axis] for degrees in there) > 1 for axis in group.split(" x "))
        for column in ("reads", "weights", "makes"):
            axes = [part.split(":")[0] for part in getattr(row, column).split(", ") if part]
            assert axes in ([], [axis for axis in ("kp1", "kp2", "dp") if own[axis] > 1])


def test_the_best_strategy_is_explained():
    frame = fastflow.explain_sharding("tech=n7", "mem=hbm3", "parallel.strategy=auto")
    best = fastflow.evaluate("tech=n7", "mem=hbm3", "parallel.strategy=auto")["strategy"][0]
    assert frame.equals(fastflow.explain_sharding("tech=n7", "mem=hbm3", f"parallel.strategy={best}"))


def test_one_device_lays_nothing_out(explained, capsys):
    frame = explained("parallel.strategy=d1")
    assert not frame[["reads", "weights", "makes", "exchange"]].to_numpy().any()


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["tech=n7,n5"], r"^tech=several values .*expected one: this is of one point"),
        (["parallel.strategy=RC-3-1"], r"^parallel\.strategy=RC-3-1"),
        (["parallel.strategy=d500"], r"^parallel\.strategy=d500 .*divides system\.devices=512"),
        (["chip.area.core=0"], r"^no time can be predicted: core has no room"),
        (["+sweeps=fig09"], r"^report=fig09|several values"),
        (["trace=x.json"], r"^trace=x\.json"),
    ],
)
def test_what_is_no_point_is_refused(overrides, says):
    with pytest.raises(InputError, match=says) as error:
        fastflow.explain_sharding(*overrides)
    assert "\n" not in str(error.value)


def test_named_dimensions_are_written():
    """As a network's names and an assignment by them give."""
    form = Form(gemm.TYPE, Dims(("batch", "sequence"), ("hidden",), ("heads",)))
    facts = KernelSignature(FORWARD, PRODUCT, form, (form,), (), (), False, NO_GRADIENT)
    assignment = (("tp", ("heads",)), ("cp", ("sequence",)), ("dp", ("rows",)), ("kp", ("vocabulary",)))
    assert [(one.axis, one.reads, one.weights, one.makes) for one in signature(facts, assignment)] == [
        ("tp", "B", "S(heads)", "S(heads)"),
        ("cp", "S(sequence)", "B", "S(sequence)"),
        ("dp", "S(batch)", "B", "S(batch)"),
        ("kp", "B", "B", "B"),
    ]


def on_screen(cli, *overrides):
    """Return the lines of the table of layouts and what follows, with single spaces between words."""
    code, out, _ = cli(main, *overrides)
    assert code == 0
    starts = [i for i, line in enumerate(out) if line.startswith("Layouts")]
    return [" ".join(line.split()) for line in out[starts[0] + 3 :]] if starts else []


def test_the_screen_shows_what_is_exchanged_once(cli):
    lines = on_screen(cli, "parallel.strategy=RC-2-8-d32")
    assert "lstm gates x 40 kp2 S(gates) S(gates) all-gather 8.39 MB" in lines
    assert "lstm cell x 40 kp2 B S(gates) S(gates)" in lines
    assert "lstm cell weight gradient x 2 kp1 x dp S(batch) P all-reduce 537 MB" in lines
    end = lines.index("All kernels: fastflow.explain_sharding(...) in Python")
    assert end == 10
    assert not any("norm" in line or "update" in line for line in lines[:end])


def test_the_screen_shows_sends_and_nothing_without_exchange(cli):
    sends = on_screen(cli, "parallel.strategy=d256-p2")
    assert any("pp point-to-point" in line for line in sends)
    # of eight micro-batches and two layers
    assert "lstm cell weight gradient x 2 dp S(batch) P all-reduce 4.29 GB" in sends
    assert on_screen(cli, "parallel.strategy=d1", "system.devices=1") == []
    assert on_screen(cli, "model=gemm", "chip=a100") == []


def test_a_narrow_screen_leaves_out_what_is_read(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = on_screen(cli, "parallel.strategy=CR-8-d64")
    assert "lstm cell x 40 kp1 S(hidden) P reduce-scatter 33.6 MB" in lines


def test_a_long_table_ends(cli, tmp_path):
    layers = "".join(
        f"- {{name: l{i}, kernels: [{{name: g{i}, type: gemm, inner: 64, cols: 64}}]}}\n" for i in range(25)
    )
    (tmp_path / "long.yaml").write_text(f"name: long\nrows: 64\nlayers:\n{layers}")
    lines = on_screen(
        cli, "model=graph", "model.file=long.yaml", "parallel.strategy=RC-1-8", "system.devices=8"
    )
    assert lines[20] == "29 more lines; all kernels: fastflow.explain_sharding(...) in Python"
