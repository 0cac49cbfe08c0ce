"""More budget is never worse: no level, no rate and no link of a chip gets worse where one budget grows."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastflow.engine.run.predict import results_of
from fastflow.physics.hardware.chip import generate
from fastflow.physics.timing.attention.decode import time_decoding
from fastflow.physics.timing.attention.decode_tiles import Decodes
from fastflow.physics.timing.attention.fused import time_attention, time_attention_backward
from fastflow.physics.timing.attention.tile_pairs import Attentions
from fastflow.physics.timing.device import device
from fastflow.physics.timing.moe.expert_load import Routings
from fastflow.physics.timing.moe.grouped_gemm import GroupedProducts, time_grouped
from tests.conftest import columns_of
from tests.support.checks import BUDGETS, cases

WHOLE = 0.005
"""What rounding to whole units may take."""
NODES = ("n12", "n7", "n5", "n3", "n2", "n1_4", "n1")
MEMORIES = ("hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4", "gddr6")
CHIPS = ("v100_sxm", "t4", "a100_sxm_80", "mi210", "h100_sxm", "l4", "b200_sxm", "mi300x")
BUDGET_KEYS = (*BUDGETS, "chip.tdp", "chip.node_area", "whole die")


@pytest.fixture(scope="module")
def generated(compose):
    """Every node under both scalings, every memory."""
    return [
        compose(f"tech={node}", f"mem={mem}", f"scaling={scaling}", "net=gdr_x8")
        for node in NODES
        for mem in MEMORIES
        for scaling in ("paper", "foundry")
    ]


@pytest.fixture(scope="module")
def bases(compose, generated):
    """These, and real chips from their budgets."""
    return generated + [
        unpinned(compose(f"chip={chip}", f"scaling={scaling}"))
        for chip in CHIPS
        for scaling in ("paper", "foundry")
    ]


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


def check_rising(time, what):
    """No step of a ladder takes longer than any before it."""
    assert not np.isnan(time).any(), what
    least = np.minimum.accumulate(time)
    assert not (time > least * (1.0 + WHOLE)).any(), (what, (1e6 * time).round(3).tolist())


def check_times(base, steps):
    """No more of a budget makes an iteration, or a pass of a server, take longer.

    steps: pairs of a budget and its amounts, in those of `base`.
    """
    points = [base | {key: base[key] * step} for key, amounts in steps for step in amounts]
    time, start = results_of(columns_of(points))["time_s"], 0
    for key, amounts in steps:
        check_rising(time[start : start + len(amounts)], key)
        start += len(amounts)


@st.composite
def ladders(draw, budgets=BUDGETS):
    """Which chip of a list, at what power, with what share of its budgets, and 20 amounts of one of them."""
    return (
        draw(st.integers(0, 10**6)), draw(st.sampled_from([150.0, 300.0, 700.0])),
        draw(st.sampled_from([0.4, 1.0])), draw(st.sampled_from(budgets)), draw(st.sampled_from([0.2, 1.0])),
        draw(st.sampled_from([1.01, 1.05, 1.1])),
    )  # fmt: skip


def devices_of(generated, ladder):
    """Return the device of every point of a ladder, and what the ladder is."""
    which, tdp, share, key, start, factor = ladder
    base = generated[which % len(generated)]
    base = base | {"chip.tdp": tdp} | {name: share * base[name] for name in BUDGETS}
    inputs = columns_of([base | {key: base[key] * start * factor**step} for step in range(20)])
    made = generate(inputs)
    return device(inputs, made, lasts=False), (base["tech.name"], base["mem.name"], *ladder[1:])


def on_each(values):
    """Lay a kernel out on every point of a ladder."""
    return {name: np.full(20, value) for name, value in values.items()}


lengths = st.floats(0.0, 14.0).map(lambda power: int(2.0**power))
heads = st.sampled_from([(64, 64), (128, 128), (256, 256), (576, 512)])


@st.composite
def attentions(draw):
    """Columns that kernels of few and of many queries have."""
    (d, dv), keys = draw(heads), draw(st.sampled_from([1, 2, 8, 32]))
    return {
        "sequences": draw(lengths.filter(lambda n: n <= 512)), "kv_len": draw(lengths),
        "heads": keys * draw(st.sampled_from([1, 4, 8, 16])), "kv_heads": keys,
        "head_dim": d, "value_dim": dv,
        "window": draw(st.sampled_from([0, 0, 0, 1024])), "size": 2.0,
        "cache": draw(st.sampled_from([1.0, 2.0, 2.0])), "output": 2.0, "hits": 0.0,
    }  # fmt: skip


CORES = (
    "chip.area.core", "chip.area.core", "chip.power.core", "chip.area.l0", "chip.area.l1", "chip.area.l2",
    "chip.tdp",
)  # fmt: skip


@pytest.mark.long
@given(ladders(CORES), attentions(), st.sampled_from([1, 1, 4]), st.booleans())
@cases(250)
def test_no_budget_more_makes_a_decode_slower(generated, ladder, task, queries, shared):
    """Attention of few queries, alone."""
    chips, what = devices_of(generated, ladder)
    task = task | {"q_len": min(queries, task["kv_len"]), "shared": shared}
    got = time_decoding(chips, Decodes(np.arange(20), **on_each(task)))
    check_rising(got.time, (what, task))


@pytest.mark.long
@given(ladders(CORES), attentions(), lengths, st.booleans(), st.sampled_from([0, 0, 0, 1, 2]))
@cases(250)
@example(
    (73, 700.0, 0.4, "chip.area.core", 0.2, 1.05),
    {
        "sequences": 5, "kv_len": 174, "heads": 128, "kv_heads": 32, "head_dim": 128, "value_dim": 128,
        "window": 0, "size": 2.0, "cache": 2.0, "output": 2.0, "hits": 0.0,
    },
    51, False, 0,
)  # fmt: skip
def test_no_budget_more_makes_attention_slower(generated, ladder, task, queries, causal, flash):
    """Of many queries, both ways; once more blocks at once no longer had all keys in L2."""
    chips, what = devices_of(generated, ladder)
    task = task | {"q_len": min(queries, task["kv_len"]), "causal": causal, "flash": flash}
    for time in (time_attention, time_attention_backward):
        check_rising(time(chips, Attentions(np.arange(20), **on_each(task))).time, (what, task))


@pytest.mark.long
@given(
    ladders(CORES), st.integers(1, 10000), st.sampled_from([1, 2, 8]), st.sampled_from([8, 64, 256]),
    st.sampled_from([1, 2, 8]), st.sampled_from([0.0, 0.6, 1.2]), st.tuples(*[st.integers(64, 9000)] * 2),
    st.booleans(),
)  # fmt: skip
@cases(150)
@example((36, 300.0, 0.4, "chip.area.l1", 0.2, 1.1), 269, 2, 8, 2, 1.2, (2048, 4096), False)
def test_no_budget_more_makes_experts_slower(
    generated, ladder, tokens, topk, experts, ways, exponent, sides, of_weights
):
    """Uneven loads; once larger tiles were taken for their mean."""
    chips, what = devices_of(generated, ladder)
    routing = {
        "tokens": tokens, "topk": topk, "experts": experts, "local": experts // ways, "exponent": exponent,
        "least": 0, "random": False, "scattered": False, "grouped": False,
        "most": 0,
    }  # fmt: skip
    product = {
        "inner": sides[0], "cols": sides[1], "stored": sides[1], "of_weights": of_weights, "size": 2.0,
        "weight": 2.0, "conversion": 0.0, "output": 2.0, "block_rows": 0.0,
        "stage": 0, "library": 0, "reread": 0.0,
    }  # fmt: skip
    grouped = GroupedProducts(np.arange(20), Routings(**on_each(routing)), **on_each(product))
    check_rising(time_grouped(chips, grouped).time, (what, routing, product))


@pytest.mark.parametrize("mem", ["hbm2", "hbm3", "hbm4"])
@pytest.mark.parametrize("tech", NODES)
def test_no_share_more_makes_an_iteration_slower(compose, tech, mem):
    """The study's own workload, over a ladder of every area and power of another chip's room."""
    for strategy in ("d512", "RC-1-16-d32"):
        base = compose(f"tech={tech}", f"mem={mem}", "net=gdr_x8", f"parallel.strategy={strategy}")
        base |= {"chip.tdp": 400.0, **{key: 0.75 * base[key] for key in BUDGETS}}
        check_times(base, [(key, 1.2 ** np.arange(-4, 3)) for key in BUDGETS])


@given(
    st.sampled_from(NODES), st.sampled_from(["paper", "foundry"]), st.sampled_from(BUDGETS),
    st.tuples(*[st.integers(1, 20000)] * 3), st.sampled_from([150.0, 300.0, 700.0]),
)  # fmt: skip
@cases(60)
def test_no_share_more_makes_a_product_slower(compose, tech, scaling, key, sides, tdp):
    """Products of any shape, which leave bundles idle: a ladder of 25 amounts of a budget.

    All tiles are tried: a few random ones of a larger memory are others.
    """
    base = compose(
        "model=gemm", "system.devices=1", f"tech={tech}", "mem=hbm3", f"scaling={scaling}", "tiling=divisors"
    )
    base |= dict(zip(("model.m", "model.k", "model.n"), sides, strict=True)) | {"chip.tdp": tdp}
    base |= {name: 0.4 * base[name] for name in BUDGETS}
    check_times(base, [(key, 1.05 ** np.arange(25))])


@pytest.mark.long
@pytest.mark.parametrize(
    "model",
    [
        ("model=llama3_8b", "system.devices=8", "parallel.strategy=TP-8"),
        ("model=llama3_8b", "system.devices=8", "parallel.strategy=TP-8-d1", "serve=decode"),
        ("model=llama3_8b", "parallel.strategy=d1", "serve=decode", "serve.batch=1", "serve.context=32768"),
        ("model=mixtral_8x7b", "system.devices=8", "parallel.strategy=TP-8-d1", "serve=decode"),
        ("model=llama3_8b", "system.devices=8", "parallel.strategy=TP-8-d1", "serve=prefill"),
    ],
    ids=["trained", "decoded", "alone", "experts", "prompts"],
)
@pytest.mark.parametrize("tech", ["n12", "n5", "n1"])
def test_no_share_more_makes_a_transformer_slower(compose, tech, model):
    """Its attention is a library's kernel, and takes what idle bundles leave as well."""
    base = compose(*model, f"tech={tech}", "mem=hbm3", "tiling=divisors") | {"chip.tdp": 400.0}
    base |= {key: 0.6 * base[key] for key in BUDGETS}
    cores = ("chip.area.core", 0.2 * 1.2 ** np.arange(12))
    check_times(base, [cores, *((key, 1.1 ** np.arange(8)) for key in BUDGETS)])


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
