"""More budget is never worse: no level, no rate and no link of a chip gets worse where one budget grows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.hardware.chip import generate
from tests.checks import BUDGETS, cases
from tests.conftest import columns_of

WHOLE = 0.005
"""What rounding to whole units may take."""
NODES = ("n12", "n7", "n5", "n3", "n2", "n1_4", "n1")
MEMORIES = ("hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4", "gddr6")
CHIPS = ("v100_sxm", "t4", "a100_sxm_80", "mi210", "h100_sxm", "l4", "b200_sxm", "mi300x")
BUDGET_KEYS = (*BUDGETS, "chip.tdp", "chip.node_area", "whole die")


@pytest.fixture(scope="module")
def bases(compose):
    """Every node under both scalings, every memory, and real chips from their budgets."""
    points = [
        compose(f"tech={node}", f"mem={mem}", f"scaling={scaling}", "net=gdr_x8")
        for node in NODES
        for mem in MEMORIES
        for scaling in ("paper", "foundry")
    ]
    points += [
        unpinned(compose(f"chip={chip}", f"scaling={scaling}"))
        for chip in CHIPS
        for scaling in ("paper", "foundry")
    ]
    return points


def unpinned(point):
    return {key: value for key, value in point.items() if not key.startswith("chip.pinned")}


def grown(point, key, factor):
    """A point with more of one budget; a larger die is in a package larger by as much."""
    if key != "whole die":
        return point | {key: point[key] * factor}
    more = point["chip.die_area"] * (factor - 1.0)
    return point | {
        "chip.die_area": point["chip.die_area"] + more,
        "chip.node_area": point["chip.node_area"] + more,
    }


def quantities(points):
    made = generate(columns_of(points))
    found = {
        "tensor rate": made.cores.mcus * made.cores.frequency,
        "memory": made.dram.capacity,
        "memory rate": made.dram.bandwidth,
        "intra": made.intra.bandwidth,
        "inter": made.inter.bandwidth,
    }
    for number, level in enumerate(made.levels):
        found |= {f"l{number}": level.design.capacity, f"l{number} rate": level.design.bandwidth}
    return found


def check(points, names):
    """No quantity of a point is worse than that of the point before it; names: of the steps between."""
    for what, values in quantities(points).items():
        worse = values[1:] < values[:-1] * (1.0 - WHOLE)
        assert not worse.any(), (
            what,
            names[int(worse.argmax())],
            values[:-1][worse][0],
            values[1:][worse][0],
        )


@given(
    st.integers(0, 10**6), st.sampled_from(BUDGET_KEYS), st.floats(0.05, 2.0), st.floats(0.0001, 2.0),
    st.floats(0.1, 1.5),
)  # fmt: skip
@cases(300)
def test_one_budget_more_is_never_worse(bases, which, key, from_, more, tdp):
    """From any amount of a budget, by any factor, at any power of the whole."""
    base = bases[which % len(bases)]
    base = base | {"chip.tdp": base["chip.tdp"] * tdp}
    less = grown(base, key, from_) if key not in ("chip.node_area", "whole die") else base
    check([less, grown(less, key, 1.0 + more)], [(key, base["chip.name"], base["tech.name"])])


def test_every_budget_of_every_design_grows_without_harm(bases):
    """A ladder of 60 amounts of each budget, each 6% more than the last."""
    for base in bases[:: len(bases) // 12]:
        for key in BUDGET_KEYS:
            start = 1.0 if key in ("chip.node_area", "whole die") else 0.2
            ladder = [grown(base, key, start * 1.06**step) for step in range(60)]
            check(ladder, [(key, base["chip.name"], base["tech.name"], step) for step in range(59)])


@pytest.mark.parametrize("scaling", ["paper", "foundry"])
@pytest.mark.parametrize("chip", CHIPS)
def test_a_node_more_is_never_worse(compose, chip, scaling):
    some = [unpinned(compose(f"chip={chip}", f"scaling={scaling}", f"tech={node}")) for node in NODES]
    check(some, NODES[1:])


def check_times(summary, ladder, what):
    """No step of a ladder takes longer than the one before it."""
    time = summary(ladder)["time_s"]
    assert not np.isnan(time).any(), what
    assert not (time[1:] > time[:-1] * (1.0 + WHOLE)).any(), (what, np.round(time, 6).tolist())


@pytest.mark.parametrize("mem", ["hbm2", "hbm3", "hbm4"])
@pytest.mark.parametrize("tech", NODES)
def test_no_share_more_makes_an_iteration_slower(compose, summary, tech, mem):
    """The study's own workload, over a ladder of every area and power of another chip's room."""
    for strategy in ("d512", "RC-1-16-d32"):
        base = compose(f"tech={tech}", f"mem={mem}", "net=gdr_x8", f"parallel.strategy={strategy}")
        base |= {"chip.tdp": 400.0, **{key: 0.75 * base[key] for key in BUDGETS}}
        for key in BUDGETS:
            check_times(summary, [base | {key: base[key] * 1.2**step} for step in range(-4, 3)], key)


@given(
    st.sampled_from(NODES), st.sampled_from(["paper", "foundry"]), st.sampled_from(BUDGETS),
    st.tuples(*[st.integers(1, 20000)] * 3), st.sampled_from([150.0, 300.0, 700.0]),
)  # fmt: skip
@cases(60)
def test_no_share_more_makes_a_product_slower(compose, summary, tech, scaling, key, sides, tdp):
    """Products of any shape, which leave bundles idle: a ladder of 25 amounts of a budget.

    All tiles are tried: a few random ones of a larger memory are others.
    """
    base = compose(
        "model=gemm", "system.devices=1", f"tech={tech}", "mem=hbm3", f"scaling={scaling}", "tiling=divisors"
    )
    base |= dict(zip(("model.m", "model.k", "model.n"), sides, strict=True)) | {"chip.tdp": tdp}
    base |= {name: 0.4 * base[name] for name in BUDGETS}
    check_times(summary, [base | {key: base[key] * 1.05**step} for step in range(25)], key)


@pytest.mark.parametrize("tech", ["n12", "n5", "n2"])
def test_no_share_more_makes_a_transformer_slower(compose, summary, tech):
    """Its attention is a library's kernel, and takes the power of idle bundles as well."""
    base = compose(
        "model=llama3_8b", "system.devices=8", "parallel.strategy=TP-8", f"tech={tech}", "mem=hbm3"
    ) | {"chip.tdp": 400.0}
    base |= {key: 0.6 * base[key] for key in BUDGETS}
    for key in BUDGETS:
        check_times(summary, [base | {key: base[key] * 1.1**step} for step in range(8)], key)


def test_a_chip_that_does_not_boost_leaves_the_power_of_idle_bundles_unused(compose, summary):
    """A product that leaves bundles idle is slower on it; a chip whose clock is known is as it is."""
    base = compose("model=gemm", "system.devices=1", "tech=n5", "mem=hbm3")
    small = base | {"model.m": 640, "model.k": 4096, "model.n": 640}
    with_boost, without = (summary([small | {"chip.boost": boost}]) for boost in (True, False))
    assert with_boost["time_s"][0] < without["time_s"][0]
    assert with_boost["energy_J"][0] != without["energy_J"][0]
    pinned = compose("model=gemm", "system.devices=1", "chip=a100")
    first, second = (summary([pinned | {"chip.boost": boost}]) for boost in (True, False))
    assert all(first[name][0] == second[name][0] for name in ("time_s", "energy_J"))
