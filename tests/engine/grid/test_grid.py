"""Grids: what is composed, what is a column, and that both give what composing each point would."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.config.messages import COMMAND_LINE
from fastflow.core.errors import InputError
from fastflow.core.tables import is_broadcast
from fastflow.engine.grid.grid import Axis, Block, Share
from fastflow.engine.grid.plan import plan


@pytest.fixture(autouse=True)
def _rules():
    with hydra_rules():
        yield


@pytest.fixture
def composer():
    return Composer.of_library()


def points_of(grid):
    """All points of a grid as dictionaries, through the batches."""
    found = {}
    for share in grid.shares(0, grid.points):
        inputs = grid.inputs(share)
        for i, point in enumerate(share.points):
            found[int(point)] = {key: values[i].item() for key, values in inputs.items()}
    return [found[point] for point in range(grid.points)]


def check_against_composing_each(axes, fixed=()):
    """Compare a grid with a composition for each point, in the order of itertools.product."""
    overrides = [*fixed, *(f"{key}={','.join(values)}" for key, values in axes)]
    got = points_of(plan(Composer.of_library(), overrides).grid)
    choices = itertools.product(*(values for _, values in axes))
    names = [key for key, _ in axes]
    one = Composer.of_library()
    want = [
        points_of(plan(one, [*fixed, *(f"{k}={v}" for k, v in zip(names, chosen, strict=True))]).grid)[0]
        for chosen in choices
    ]
    assert got == want


def test_a_grid_is_what_composing_each_point_gives():
    check_against_composing_each(
        [("tech", ["n12", "n7"]), ("model.batch", ["8", "16"]), ("mem", ["hbm2", "hbm3"])]
    )


def test_an_interpolated_key_is_never_wrong():
    # parallel.strategy and system.devices follow the model, unless they are set
    check_against_composing_each([("model.devices", ["64", "128"]), ("model.strategy", ["d64", "d32"])])
    check_against_composing_each([("parallel.strategy", ["d64", "d32"]), ("model.strategy", ["d1", "d2"])])


def test_different_keys_make_batches_and_keep_the_order():
    check_against_composing_each([("model", ["gemm", "lstm_lm"]), ("chip.tdp", ["200 W", "300 W"])])
    check_against_composing_each([("chip.tdp", ["200 W", "300 W"]), ("model", ["gemm", "lstm_lm"])])


def test_a_section_and_a_leaf_of_it_count_in_written_order(composer):
    def areas(*overrides):
        return [point["chip.area.core"] for point in points_of(plan(composer, overrides).grid)]

    assert areas("chip.area.core=0.1,0.2", "chip.area={core:0.3}") == [0.3, 0.3]
    assert areas("chip.area={core:0.3}", "chip.area.core=0.1,0.2") == [0.1, 0.2]
    (point,) = points_of(plan(composer, ["chip.area={core:0.2}", "chip.area={l2:0.1}"]).grid)
    assert (point["chip.area.core"], point["chip.area.l2"]) == (0.2, 0.1)


@pytest.mark.long
def test_many_compositions_are_said(composer):
    status = []
    plan(composer, ["model=gemm", "model.devices=range(1,1101)"], None, status.append)
    assert status == ["composing 1,100 configurations, one for each combination of choices"]


def test_pins_come_and_go():
    check_against_composing_each([("+chip.pinned", ["{mcus:640}", "null"]), ("model.batch", ["8", "16"])])


def test_which_axes_are_composed(composer):
    grid = plan(
        composer,
        ["tech=n12,n7", "model.batch=1,2,3", "model.devices=64,128", "chip.mcu.dataflow=best,weight"],
    ).grid
    assert grid.blocks[0].axes == (
        Axis(("tech",), 2, True),
        Axis(("model.batch",), 3, False),
        Axis(("model.devices",), 2, True),
        Axis(("chip.mcu.dataflow",), 2, False),
    )
    assert grid.points == 24


def test_compositions_are_one_for_each_combination_of_groups(composer):
    assert plan(composer, ["tech=n12,n7,n3", "model.batch=range(1,1001)"], {}).grid.compositions == 3


def test_many_points_cost_no_loop(composer):
    grid = plan(composer, ["model=gemm", "model.m=range(1,1001)", "model.k=range(1,1001)"]).grid
    assert grid.points == 1_000_000
    points = np.array([0, 999, 1000, 999_999])
    inputs = grid.inputs(Share(grid.blocks[0], 0, points))
    assert inputs["model.m"].tolist() == [1, 1, 2, 1000]
    assert inputs["model.k"].tolist() == [1, 1000, 1, 1000]
    assert all(values.shape == (4,) for values in inputs.values())
    assert inputs["model.m"].flags.c_contiguous
    assert is_broadcast(inputs["model.n"])


def test_choices_are_the_final_ones(composer):
    def labels(*overrides):
        return {name: values.tolist() for name, values in plan(composer, list(overrides)).grid.labels.items()}

    assert labels("chip=pathfinding,v100,a100")["tech"] == ["n12", "n12", "n7"]
    assert labels("chip=a100", "tech=n3,n2")["tech"] == ["n3", "n2"]
    assert labels("chip=a100")["chip"] == ["a100"]


def test_glob_range_and_choice(composer):
    grid = plan(composer, ["mem=glob(hbm2*)", "model.batch=range(8,33,8)", "model.layers=choice(1,3)"]).grid
    assert grid.labels["mem"].tolist() == ["hbm2", "hbm2e"]
    assert grid.blocks[0].columns["model.batch"].tolist() == [8, 16, 24, 32]
    assert grid.blocks[0].columns["model.layers"].tolist() == [1, 3]


SET_TWICE = r"expected one value, or a list; it is set to \S+ as well"


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.batch=8", "tech=n7,n5", "model.batch=4,5"],
        ["model.batch=4,5", "model.batch=8"],
        ["tech=n7", "tech=n5"],
        ["tech=n7", "tech=n7"],
        ["model.batch=8", "++model.batch=9"],
    ],
)
def test_a_key_is_set_once_on_the_command_line(overrides):
    with pytest.raises(InputError, match=SET_TWICE):
        plan(Composer.of_library(origin=COMMAND_LINE), overrides)


def test_the_last_override_of_a_key_counts_in_a_program(composer):
    grid = plan(composer, ["model.batch=8", "tech=n7,n5", "model.batch=4,5"]).grid
    assert grid.keys == ["model.batch", "tech"]
    assert plan(composer, ["model.batch=4,5", "model.batch=8"]).grid.points == 1
    assert plan(composer, ["tech=n7", "tech=n5"]).grid.labels["tech"].tolist() == ["n5"]


def test_what_comes_after_a_study_sets_its_keys_anew(composer):
    spans = {"params": {"model.batch": "4,5", "tech": "n7,n5"}}
    assert plan(composer, ["model.batch=8"], spans).grid.keys == ["tech"]
    grid = plan(composer, ["model.batch=4,5,6"], spans).grid
    assert (grid.keys, grid.points) == (["model.batch", "tech"], 6)


def test_a_study_and_what_comes_after_it(composer):
    grid = plan(composer, ["+sweeps=fig09"]).grid
    assert grid.points == 84
    assert grid.keys == ["tech", "mem", "net"]
    assert grid.report == "fig09"
    assert plan(composer, ["+sweeps=fig09", "mem=hbm3"]).grid.points == 21


def test_fingerprint_follows_what_results_follow_from(composer):
    def fingerprint(*overrides):
        return plan(composer, list(overrides)).grid.provenance.fingerprint

    plain = fingerprint("tech=n7")
    assert plain == fingerprint("tech=n7")
    assert plain == fingerprint("tech=n7", "engine.jobs=1", "engine.chunk=7", "output=/somewhere")
    assert plain == fingerprint("tech=n7", "chip.tdp=0.3 kW")
    others = {
        fingerprint("tech=n5"),
        fingerprint("tech=n7", "chip.tdp=301 W"),
        fingerprint("tech=n7,n5"),
        fingerprint("tech=n5,n7"),
        fingerprint("tech=n7", "model.batch=1,2"),
        fingerprint("tech=n7", "model.batch=2,1"),
    }
    assert len(others | {plain}) == 7


def test_fingerprint_follows_the_names_of_choices(composer):
    # the same inputs by two names: the datasets differ in the column `chip`
    grids = [plan(composer, [f"chip={name}"]).grid for name in ("a100", "a100_sxm_80")]
    assert points_of(grids[0]) == points_of(grids[1])
    assert grids[0].provenance.fingerprint != grids[1].provenance.fingerprint


def test_one_composition_leaves_no_trace_in_the_next(composer):
    fresh = composer.leaves([])
    composer.compose(["output=elsewhere", "model.batch=3", "tech=n7", "tech.core.nominal_power=9 W"])
    assert composer.leaves([]) == fresh


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("tech=n12,n13", "tech=n13 (from the overrides) is invalid: expected one of n1, n12"),
        ("tech=glob(x*)", "expected one of n1"),
        ("tecch=n12,n7", "did you mean tech?"),
        ("model.bach=1,2", "did you mean model.batch?"),
        ("model.batch=1,none", "model.batch=none (from the overrides) is invalid: expected a whole number"),
        ("model.batch=interval(1,2)", "a list, range(), choice() or glob()"),
        ("engine.jobs=1,2", "this key is not an input of the model"),
        ("output=a,b", "this key is not an input of the model"),
        ("chip.pinned.mcus=1", "+chip.pinned.mcus=1"),
        ("+foo.bar=1", "begin with one of tech"),
        ("model.batch=[1", "cannot be read"),
        ("tech=3", "tech=3 (from the overrides) is invalid: expected one of n1"),
        ("output=out/${model.batch} model.batch=1,2", "a folder that does not depend on model.batch"),
        ("model.batch=${nothing.here}", "Interpolation key 'nothing.here' not found"),
    ],
)
def test_refusals_are_one_line(composer, override, says):
    with pytest.raises(InputError) as refused:
        plan(composer, override.split(" "))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_where_a_value_came_from(tmp_path):
    (tmp_path / "tech").mkdir()
    (tmp_path / "tech" / "mine.yaml").write_text("defaults: [n7, _self_]\ncore: {nominal_power: 3}\n")
    (tmp_path / "tech" / "torn.yaml").write_text("core: {nominal_power: 3\n")
    (tmp_path / "tech" / "bare.yaml").write_text("core: {nominal_aera: 3 mm2}\n")
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip" / "odd.yaml").write_text(
        "defaults: [pathfinding, _self_, {override /tech@_global_.tech: n77}]\n"
    )
    composer = Composer.of_library(tmp_path)
    file = tmp_path / "tech" / "mine.yaml"
    with pytest.raises(
        InputError, match=rf"core\.nominal_power=3 \(from {file}\) is invalid: .*no unit given"
    ):
        plan(composer, ["tech=n7,mine"])
    with pytest.raises(InputError, match=r"torn\.yaml, line \d+: not valid YAML"):
        plan(composer, ["tech=torn"])
    with pytest.raises(InputError, match=r"bare\.yaml.*did you mean tech\.core\.nominal_area"):
        plan(composer, ["tech=bare"])
    with pytest.raises(InputError, match=r"tech=n77 \(from .*odd\.yaml\)"):
        plan(composer, ["chip=odd"])


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=5))
@settings(deadline=None)
def test_mixed_radix_is_itertools_product(axes):
    block = Block(
        axes=tuple(Axis((f"model.a{i}",), size, composed) for i, (size, composed) in enumerate(axes)),
        columns={f"model.a{i}": np.arange(size) for i, (size, composed) in enumerate(axes) if not composed},
        first_point=17,
        first_combination=5,
    )
    digits = list(itertools.product(*(range(size) for size, _ in axes)))
    assert block.points == len(digits)
    points = 17 + np.arange(block.points)
    assert [tuple(row) for row in np.array(block.digits(points)).T.reshape(len(digits), len(axes))] == digits
    composed = list(itertools.product(*(range(size) for size, is_composed in axes if is_composed)))
    got = [composed[c - 5] for c in block.combinations(points)]
    assert got == [tuple(d for d, (_, c) in zip(digit, axes, strict=True) if c) for digit in digits]


def test_inputs_that_do_not_vary_are_known_as_such(composer):
    """The same values as those of each point alone; where neighbours agree, nobody has to look."""
    overrides = ["tech=n12,n7", "mem=hbm2,hbm3", "model.batch=1024,2048", "net=ndr_x8,xdr_x8"]
    grid = plan(composer, overrides).grid
    for share in (*grid.shares(0, 4), *grid.shares(3, 7), *grid.shares(0, 16)):
        inputs = grid.inputs(share)
        alone = [grid.inputs(share._replace(points=np.array([point]))) for point in share.points]
        for key, column in inputs.items():
            expected = np.concatenate([one[key] for one in alone])
            assert column.dtype == expected.dtype, key
            assert column.tolist() == expected.tolist(), key
            assert is_broadcast(column) or (expected != expected[0]).any(), key
    grid = plan(composer, overrides).grid
    assert [grid.label("net", 0, 2).tolist(), grid.label("tech", 7, 9).tolist()] == [
        ["ndr_x8", "xdr_x8"], ["n12", "n7"],
    ]  # fmt: skip
    assert is_broadcast(grid.label("tech", 0, 8))


@pytest.mark.parametrize("config", [None, {"num_hidden_layers": 12, "vocab_size": 50257}])
def test_dimensions_that_a_config_json_may_give_are_columns(composer, tmp_path, config):
    """One composition however many there are; a file sets the other dimensions."""
    fixed = ["model=transformer", "chip=h100_sxm"]
    if config is not None:
        path = tmp_path / "config.json"
        sizes = {"hidden_size": 1024, "num_attention_heads": 8, "intermediate_size": 4096}
        path.write_text(json.dumps({"model_type": "llama", **sizes, **config}))
        fixed.append(f"model.config={path}")
    swept = ["model.hidden=1024,2048", "model.layers=4,12"]
    grid = plan(composer, [*fixed, *swept], {}).grid
    assert grid.compositions == 1
    got = grid.inputs(Share(grid.blocks[0], 0, np.arange(grid.points)))
    for point in range(4):
        values = [f"model.hidden={1024 * (1 + point // 2)}", f"model.layers={(4, 12)[point % 2]}"]
        alone = plan(composer, [*fixed, *values], {}).grid
        expected = alone.inputs(Share(alone.blocks[0], 0, np.zeros(1, dtype=np.int64)))
        assert {key: column[point] for key, column in got.items()} == {k: v[0] for k, v in expected.items()}
