"""The placement that a point gets: the order with the least communication; what its links give (5.2, 6.4)."""

import numpy as np
import pytest

from fastflow import evaluate
from fastflow.core.errors import InputError
from fastflow.performance import results
from fastflow.physics.network.placement import read_order
from fastflow.physics.network.routes import routes_of
from fastflow.physics.parallelism.mesh import AXES, axes
from fastflow.physics.parallelism.plans import assignments
from fastflow.physics.parallelism.sharding.layout import resolve_layouts
from fastflow.physics.parallelism.sharding.tables import Groups
from fastflow.physics.parallelism.strategy import parse_column
from tests.conftest import columns_of
from tests.naive import network as naive
from tests.support.checks import near

SMALL = {
    "model.hidden": 1024, "model.batch": 256, "model.vocabulary": 8000, "model.sequence": 2,
    "parallel.microbatches": 2,
}  # fmt: skip
DEGREES = {
    "RC-2-2-d2-p2": (2, 2, 2, 2), "RC-2-4-d2": (2, 4, 2, 1), "CR-4-d2-p2": (4, 1, 2, 2),
    "d4-p4": (1, 1, 4, 4), "RC-8-2": (8, 2, 1, 1),
}  # fmt: skip


def of(kind, size, level=1, leaf=0, taper=1.0):
    return {"kind": kind, "size": size, "level": level, "leaf": leaf, "taper": taper}


# overrides, and the same system as the oracle takes it
SYSTEMS = {
    "torus": (["system=torus", "system.shape=4x4"], [of("ring", 4), of("ring", 4)]),
    "mesh": (["system=mesh", "system.shape=2x8"], [of("line", 2), of("line", 8)]),
    "packages": (["system=mcm"], [of("line", 2, 0), of("line", 2, 0), of("switch", 4)]),
    "packages on a ring": (
        ["system=mcm", "system.topology=ring", "system.package.topology=fully_connected"],
        [of("full", 4, 0), of("ring", 4)],
    ),
    "fat tree": (
        ["system=fat_tree", "system.leaf_radix=4", "system.oversubscription=3"], [of("tree", 16, leaf=4,
        taper=3.0)],
    ),
    "ring": (["system=ring"], [of("ring", 16)]),
    "wafer": (["system=waferscale"], [of("line", 4, 0), of("line", 4, 0)]),
    "cluster": ([], [of("switch", 16)]),
}  # fmt: skip
CHOICES = [
    ("torus", "RC-2-2-d2-p2"), ("mesh", "RC-2-4-d2"), ("mesh", "d4-p4"), ("packages", "CR-4-d2-p2"),
    ("packages", "RC-2-2-d2-p2"), ("packages on a ring", "RC-8-2"), ("fat tree", "RC-2-2-d2-p2"),
    ("ring", "RC-2-4-d2"), ("ring", "CR-4-d2-p2"), ("wafer", "RC-2-2-d2-p2"), ("cluster", "RC-2-2-d2-p2"),
]  # fmt: skip
ORDERS = naive.orders()


@pytest.fixture(scope="module")
def placed(compose, predict):
    """A function from a system, a strategy and changes to its points under auto and every fixed order.

    Returns their results, and what the stage of every point that communicates most does so in all [s], NaN
    without a time.
    """

    def point(system, strategy, **more):
        base = (
            compose(*SYSTEMS[system][0], "system.devices=16") | SMALL | {"parallel.strategy": strategy} | more
        )
        prediction = predict([base | {"placement": order} for order in ["auto", *ORDERS]])
        sums = []
        for i in range(1 + len(ORDERS)):
            kernels = results.explain(prediction, i)
            stages = np.unique(kernels["stage"])
            sums.append(
                max((kernels["comm_s"][kernels["stage"] == one].sum() for one in stages), default=np.nan)
            )
        return base, results.summary(prediction), np.array(sums)

    return point


@pytest.mark.parametrize(("system", "strategy"), CHOICES)
def test_the_order_with_the_least_communication_wins(placed, system, strategy):
    _, got, total = placed(system, strategy)
    assert near(total[0], total[1:].min(), 1e-12)
    chosen = 1 + ORDERS.index(got["placement"][0])
    assert got["placement_requested"].tolist() == ["auto", *ORDERS]
    for name, column in got.items():
        same = np.array_equal(column[0], column[chosen], equal_nan=column.dtype.kind == "f")
        assert same or name == "placement_requested", name
    assert got["placement"][1:].tolist() == ORDERS
    if system == "cluster":  # on one switch all are alike
        assert np.ptp(total) == 0.0
        assert got["placement"][0] == ORDERS[0]
    else:
        assert total.max() > total.min() * 1.001


@pytest.mark.parametrize(("system", "strategy"), CHOICES)
def test_bandwidth_and_hops_to_neighbours(placed, system, strategy):
    """Loads counted link by link, times what the chip's links reach."""
    base, got, _ = placed(system, strategy)
    degrees = dict(zip(("kp1", "kp2", "dp", "pp"), DEGREES[strategy], strict=True))
    links = SYSTEMS[system][1]
    for i, order in enumerate(ORDERS, 1):
        stride = 1
        for name in order.split("-"):
            degree = degrees[name]
            bandwidth, hops = got[f"{name}_Bps"][i], got[f"{name}_hops"][i]
            if degree == 1:
                assert np.isnan(bandwidth)
                assert hops == 0
                continue
            patterns = ("forward", "backward") if name == "pp" else ("neighbours",)
            edges = [naive.edges(16, [(degree, stride)], pattern) for pattern in patterns]
            loads = [max(pair) for pair in zip(*(naive.loads(links, each) for each in edges), strict=True)]
            reached = [
                got[f"{level}_Bps"][i] * base[f"net.{level}.utilization"] / load
                for level, load in zip(("intra", "inter"), loads[:2], strict=True)
                if load > 0.0
            ]
            assert near(bandwidth, min(reached), 1e-12)
            paths = [
                sum(count for _, count in naive.route(links, source, target))
                for each in edges
                for source, target, _ in each
            ]
            assert hops == max(paths)
            stride *= degree


CUT_APART = [
    ("torus", "RC-2-2-d2-p2", "RC-1-8"),
    ("packages", "RC-2-2-d2-p2", "CR-4-d2"),
    ("ring", "RC-2-2-d4", "RC-1-16"),
]


@pytest.mark.parametrize(("system", "strategy", "softmax"), CUT_APART)
def test_the_best_order_where_kinds_of_layer_are_cut_differently(placed, system, strategy, softmax):
    _, _, total = placed(system, strategy, **{"parallel.softmax": softmax})
    assert near(total[0], np.nanmin(total[1:]), 1e-12)


@pytest.mark.parametrize(
    ("system", "strategy", "softmax"), [("ring", "d8-p2", "CR-2-d4"), ("ring", "RC-4-1-d2-p2", "CR-8")]
)
def test_the_best_order_with_stages_innermost(placed, system, strategy, softmax):
    _, _, total = placed(system, strategy, **{"parallel.softmax": softmax})
    assert near(total[0], np.nanmin(total[1:]), 1e-12)


@pytest.mark.parametrize(
    ("system", "strategy", "tried"),
    [
        ("torus", "RC-2-2-d2-p2", 24), ("torus", "RC-2-4-d2", 6), ("ring", "RC-1-4-d4", 2),
        ("mesh", "d16", 1), ("packages", "d4-p4", 2), ("cluster", "RC-2-2-d2-p2", 1),
        ("full mesh", "RC-2-2-d2-p2", 1),
    ],
)  # fmt: skip
def test_orders_are_tried_of_dimensions_above_one_where_devices_are_not_all_as_near(
    compose, system, strategy, tried
):
    full_mesh = ["system=mesh", "system.topology=fully_connected"]
    overrides = SYSTEMS[system][0] if system in SYSTEMS else full_mesh
    inputs = columns_of([compose(*overrides, "system.devices=16", f"parallel.strategy={strategy}")])
    strategies, _ = parse_column(inputs["parallel.strategy"])
    along_each = tuple(axes(axis) for axis in AXES)
    groups = Groups(along_each, (along_each,) * len(assignments()))
    (route,), _ = routes_of(inputs, strategies, resolve_layouts(inputs, strategies)[0], groups)
    assert len(route.orders) == len(set(route.orders)) == tried
    assert route.orders[0] == ORDERS[0]


@pytest.mark.parametrize(
    ("strategy", "tried"), [("RC-2-8-d4", 4), ("TP-8-c2-d4", 1), ("TP-1-c2-d16-p2", 1), ("d16-p4", 2)]
)
def test_orders_that_cost_the_same_are_tried_once(compose, strategy, tried):
    """In machines of switches it matters how much of every dimension lies inside of them.

    With tensor, context or expert parallelism devices are numbered as the frameworks number ranks.
    """
    model = "llama3_8b" if "TP" in strategy else "lstm_lm"
    given = [f"model={model}", "system=dgx_h100", "system.devices=64", f"parallel.strategy={strategy}"]
    inputs = columns_of([compose(*given)])
    strategies, _ = parse_column(inputs["parallel.strategy"])
    layouts, _ = resolve_layouts(inputs, strategies)
    along_each = tuple(axes(axis) for axis in AXES)
    (route,), _ = routes_of(
        inputs, strategies, layouts, Groups(along_each, (along_each,) * len(assignments()))
    )
    assert len(route.orders) == len({tuple(row) for row in route.slots.tolist()}) == tried
    if "TP" in strategy:
        assert route.orders[0].startswith("tp")


def test_stages_have_the_same_devices_however_layers_are_cut(placed):
    _, got, _ = placed("torus", "RC-2-2-d2-p2", **{"parallel.softmax": "RC-1-8"})
    for reason, order in zip(got["reason"][1:], ORDERS, strict=True):
        if order.startswith("pp") or order.endswith("pp"):
            assert reason == ""
        else:
            assert reason.startswith(f"placement={order} is invalid: ")
            assert "pp" in reason.partition(": ")[2]
    assert got["reason"][0] == ""


def test_without_stages_any_order_is_one(placed):
    _, got, _ = placed("torus", "d16", **{"parallel.softmax": "RC-1-16"})
    assert (got["reason"] == "").all()


@pytest.mark.parametrize(
    "text", ["kp1-kp2-dp", "kp1-kp2-dp-dp", "dp", "kp1_kp2_dp_lp", "KP1-KP2-DP-LP", "best"]
)
def test_what_is_no_order_is_refused(text):
    with pytest.raises(InputError) as error:
        evaluate(f"placement={text}")
    said = str(error.value)
    assert said.startswith(f"placement={text}")
    assert "kp1-kp2-dp-pp" in said
    assert "\n" not in said


def test_the_old_name_of_the_pipelines_axis_is_read(capsys):
    assert read_order("kp1-lp-kp2-dp") == read_order("kp1-pp-kp2-dp")
    assert "placement=kp1-lp-kp2-dp: the axis lp is now pp: kp1-pp-kp2-dp" in capsys.readouterr().err


def test_a_grid_of_orders():
    small = ["system.devices=16", *(f"{key}={value}" for key, value in SMALL.items())]
    got = evaluate(
        *small, "system=torus,ring", "parallel.strategy=RC-2-2-d2-p2", f"placement=auto,{','.join(ORDERS)}"
    )
    assert len(got) == 2 * 25
    assert got.groupby("system")["comm_s"].nunique().min() > 1
