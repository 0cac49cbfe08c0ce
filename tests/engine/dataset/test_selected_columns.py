"""`columns=`: which columns tables show, of any kind of grid; nothing else follows from it."""

import pytest

import fastflow
from fastflow.cli.commands.search import main as search
from fastflow.cli.commands.sweep import main as sweep
from fastflow.config.list_keys import quote_columns
from fastflow.core.errors import InputError
from fastflow.engine.dataset.selected_columns import select_columns
from tests.support.commands import report

NAMES = ["point", "model", "time_s", "iteration_usd", "parameters", "train_s", "train_usd"]
GRID = ("-m", "system=dgx_h100", "model=llama3_8b", "parallel.strategy=TP-8", "parallel.zero_stage=0,1")


def heads(out):
    """Return the heads of the first table of a screen, blocks of it together."""
    lines = [line for line in out if line.startswith("point ")]
    return [name for line in lines for name in line.split()[1:]]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", []),
        ("train_s", ["train_s"]),
        ("train_*,*_usd", ["train_s", "train_usd", "iteration_usd"]),
        (" parameters , train_s,", ["parameters", "train_s"]),
        ("*_s,time_s", ["time_s", "train_s"]),
    ],
)
def test_names_and_patterns(written, expected):
    assert select_columns(written, NAMES) == expected


@pytest.mark.parametrize(
    ("wrong", "says"), [("train_uds", "did you mean train_usd?"), ("zzz*", "such as"), ("time_s,mfu", "mfu")]
)
def test_a_name_of_no_column_is_refused(wrong, says):
    with pytest.raises(InputError) as refused:
        select_columns(wrong, NAMES)
    assert refused.value.key == "columns"
    assert says in str(refused.value)


def test_a_comma_of_columns_is_no_axis():
    overrides = [
        "columns=a,*_b",
        "columns='a,b'",
        "columns=[a,b]",
        "tech=n7,n5",
        "columns=null",
        "model.columns=1,2",
        "-m",
    ]
    assert quote_columns(overrides) == ["columns='a,*_b'", *overrides[1:]]


def test_a_grid_shows_them_and_its_dataset_is_the_same(cli):
    """The second run, with other columns, finds all points there: the configuration is the same."""
    code, out, _ = cli(sweep, *GRID, "output=o", "columns=train_s,*_usd,parameters")
    assert code == 0
    assert heads(out) == [
        "parallel.zero_stage", "strategy", "train", "die_usd", "memory_usd", "package_usd", "device_usd",
        "system_usd", "iteration_usd", "token_usd", "train_usd", "parameters",
    ]  # fmt: skip
    assert "USD: Cost to build (cost=public)" in out
    for more in (("columns=mfu",), ()):
        code, out, _ = cli(sweep, *GRID, "output=o", *more)
        assert code == 0
        assert "2 points, all there already" in out
    assert heads(out)[2:] == ["time", "tokens_per_s_per_device", "mfu", "footprint_B", "feasible"]


def test_one_point_shows_them_with_what_they_are(cli):
    code, out, _ = cli(sweep, *GRID[1:-1], "output=o", "columns=train_usd,parameters")
    assert code == 0
    at = [line.strip() for line in out].index("Columns")
    assert [line.split()[0] for line in out[at + 3 : at + 5]] == ["train_usd", "parameters"]


@pytest.mark.parametrize("rest", [("-m", "model.m=64,128"), ()])
def test_another_name_is_one_line_before_anything_is_computed(cli, tmp_path, rest):
    code, _, err = cli(sweep, *rest, "model=gemm", "columns=tiem_s", "output=o")
    assert code == 2
    assert len(err) == 1
    assert err[0].startswith("columns=tiem_s")
    assert "did you mean time_s?" in err[0]
    assert not (tmp_path / "o").exists() or not list((tmp_path / "o").iterdir())


@pytest.mark.long
def test_a_report_shows_them_of_every_kind_of_grid(cli):
    fastflow.sweep("model=gemm", "model.m=64,128", output="g")
    fastflow.sweep(
        "serve=decode", "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-8", "serve.batch=1,8",
        output="s",
    )  # fmt: skip
    fastflow.sweep(
        "serve=prefill", "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-8", "serve.batch=1,8",
        output="p",
    )  # fmt: skip
    for argument, shown in (
        (("g", "columns=energy_J,*_usd"), {"energy_J", "iteration_usd"}),
        (("s", "columns=usd_per_million_tokens"), {"usd_per_million_tokens"}),
        (("p", "columns=usd_per_million_tokens"), {"usd_per_million_tokens"}),  # which has no front
    ):
        code, out, _ = cli(lambda argument=argument: report(argument))
        assert code == 0
        assert shown <= set(heads(out))
    for wrong, says in (
        (("g", "columns=tiem_s"), "did you mean time_s?"), (("g", "columns=time_s", "html=g.html"), "a page"),
        (("g", "columns=time_s", "columns=mfu"), "is given too"), (("g", "rows=3"), "columns=NAME,..."),
    ):  # fmt: skip
        code, _, err = cli(lambda wrong=wrong: report(wrong))
        assert code == 2
        assert len(err) == 1
        assert says in err[0]


def test_where_no_table_has_them_they_are_refused(cli):
    code, _, err = cli(search, "tech=n7", "mem=hbm3", "parallel.strategy=d512", "columns=time_s")
    assert code == 2
    assert err[0].startswith("columns=time_s")
    with pytest.raises(InputError, match="columns"):
        fastflow.evaluate("model=gemm", "columns=time_s,mfu")
