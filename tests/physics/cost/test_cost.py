"""Cost: dies of a wafer, yield, bills of devices and systems against the oracle; objectives; refusals."""

import itertools
import re
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.analysis.search.optimizers.serving_objective import measure_served
from fastflow.cli.commands.sweep import main
from fastflow.core.errors import InputError
from fastflow.performance.serving.predict import serve
from fastflow.physics.cost.columns import cost_columns, devices_of
from fastflow.physics.cost.dies import Wafer, dies_per_wafer, negative_binomial
from fastflow.physics.site.columns import power_of_site
from fastflow.reporting.terminal.tables import quantity
from fastflow.schema.cost import COSTS
from tests.conftest import columns_of
from tests.naive import cost as naive
from tests.naive.site import site
from tests.support.checks import cases, near
from tests.support.documents import ROOT

NAMES = [column.name for column in COSTS]
POINTS = {
    "designed": ("tech=n7", "mem=hbm3", "parallel.strategy=d512"),
    "of two dies": ("chip=b200_sxm", "model=gemm"),
    "on a board": ("chip=t4", "model=gemm", "model.dtype=fp16"),
    "of machines": ("system=superpod_h100", "model=llama3_8b", "parallel.strategy=TP-8-d32"),
    "in a fat tree": ("system=fat_tree", "parallel.strategy=d512"),
    "one of a machine": ("system=dgx_h100", "model=gemm", "parallel.strategy=d1"),
    "in a mesh": ("system=mesh", "parallel.strategy=d512"),
    "rented": ("cost=rent", "system=superpod_h100", "model=llama3_8b", "parallel.strategy=TP-8-d32"),
    "rented at a price of one's own": (
        "cost=rent",
        "cost.rent='2.50 USD'",
        "tech=n7",
        "parallel.strategy=d512",
    ),
    "at market prices": ("cost=market", "tech=n3", "parallel.strategy=d512"),
}


@pytest.fixture(scope="module")
def points(compose):
    return {name: compose(*overrides) for name, overrides in POINTS.items()}


def wafer(diameter=0.3, edge=0.003, scribe=0.0002):
    return Wafer(*(np.array([value]) for value in (diameter, edge, scribe)))


def count(area, *of_wafer):
    return float(dies_per_wafer(np.array([area]), wafer(*of_wafer))[0])


def share(area, density, cluster):
    return float(negative_binomial(*(np.array([value]) for value in (area, density, cluster)))[0])


def test_dies_and_yield_by_hand():
    """H100: 814 mm2, 0.1 defects a cm2. 28.73 mm by 28.73 mm of 294 mm: 82.24 exp(-0.2267) = 65.56 dies."""
    assert count(814e-6) == pytest.approx(65.56, abs=0.01)
    assert share(814e-6, 0.1e4, 10.0) == pytest.approx(1.0814**-10, rel=1e-12)
    assert share(814e-6, 0.1e4, 1e9) == pytest.approx(np.exp(-0.814), rel=1e-6)  # Poisson, without clusters
    assert share(814e-6, 0.0, 3.0) == 1.0


def test_as_many_interposers_as_are_published():
    """Some 29 of an H100 and 16 of a B200 fit on a wafer of CoWoS."""
    assert count(1.1 * 1540e-6) == pytest.approx(29, rel=0.05)
    assert count(1.1 * (1628e-6 + 8 * 121e-6)) == pytest.approx(16, rel=0.15)


@pytest.mark.parametrize("side", [5.0, 10.0, 15.0, 20.0, 28.0])
def test_the_formula_is_near_a_count(side):
    """Of whole dies on a disc, the best of some places of the grid: within 4%, or one die."""
    shifts = [(a / 4.0, b / 4.0) for a in range(3) for b in range(3)]
    exact = max(naive.whole_dies(side, side, 294.0, shift) for shift in shifts)
    got = count((side * 1e-3) ** 2, 0.3, 0.003, 0.0)
    assert abs(got - exact) <= max(0.04 * exact, 2.0)


@given(st.floats(1e-6, 3e-3), st.floats(0.0, 1e4), st.floats(0.5, 50.0), st.floats(0.0, 5e-4))
@cases(100)
def test_dies_as_the_oracle(area, density, cluster, scribe):
    point = {"cost.wafer.diameter": 0.3, "cost.wafer.edge": 0.003, "cost.wafer.scribe": scribe}
    assert near(count(area, 0.3, 0.003, scribe), naive.dies(area, point), 1e-12)
    assert near(share(area, density, cluster), naive.works(area, density, cluster), 1e-12)


def check(point, got, row):
    """Hold a row of result columns against the oracle."""
    expected = naive.device(point, got["dram_devices"][row], got["dram_capacity_B"][row])
    number = int(got["devices"][row])
    net = naive.network(point, number, got["intra_Bps"][row], got["inter_Bps"][row])
    power = got["energy_J"][row] / got["time_s"][row]
    _, power = site(point, number, power, got["inter_Bps"][row])
    expected |= naive.hours(point, expected["device_usd"], net, number, power)
    expected["iteration_usd"] = expected["usd_per_h"] / naive.HOUR * got["time_s"][row]
    for name, value in expected.items():
        assert near(got[name][row], value, 1e-9), name


@pytest.mark.parametrize("name", POINTS)
def test_bills_as_the_oracle(points, summary, name):
    got = summary([points[name]])
    assert got["time_s"][0] > 0.0
    check(points[name], got, 0)
    if "token_usd" in got:
        made = got["tokens_per_s"][0] * got["time_s"][0]
        assert near(got["token_usd"][0] * made, got["iteration_usd"][0], 1e-12)
        assert near(got["usd_per_million_tokens"][0], 1e6 * got["token_usd"][0], 1e-12)
        assert near(got["train_usd"][0], got["usd_per_h"][0] * got["train_s"][0] / naive.HOUR, 1e-12)


CHANGED = {
    "tech.wafer_price": st.floats(1e3, 1e5), "tech.defect_density": st.floats(0.0, 1e4),
    "tech.defect_cluster": st.floats(0.5, 20.0), "chip.salvage": st.floats(0.0, 1.0),
    "chip.dies": st.integers(1, 16), "mem.price": st.floats(0.0, 1e-7), "mem.on_interposer": st.booleans(),
    "cost.interposer.defect_density": st.floats(0.0, 1e3),
    "cost.interposer.assembly_yield": st.floats(0.1, 1.0),
    "cost.interposer.bond_yield": st.floats(0.5, 1.0),
    "cost.interposer.margin": st.floats(1.0, 3.0), "cost.markup": st.floats(0.5, 10.0),
    "power.pue": st.floats(1.0, 3.0), "cost.host.price": st.floats(0.0, 1e5),
    "cost.lifetime": st.floats(1e6, 1e9),
    "net.intra.cable_price": st.floats(0.0, 1e-7), "net.intra.switch_price": st.floats(0.0, 1e-7),
    "net.inter.adapter_price": st.floats(0.0, 1e-6), "system.package.devices": st.sampled_from([1, 2, 512]),
    "system.topology": st.sampled_from(["switch", "fat_tree", "ring", "torus"]),
    "system.oversubscription": st.floats(1.0, 4.0),
}  # fmt: skip


@given(st.lists(st.fixed_dictionaries({}, optional=CHANGED), min_size=3, max_size=3))
@cases(25)
def test_any_prices_as_the_oracle(points, summary, changes):
    changed = [points["in a fat tree"] | change for change in changes]
    got = summary(changed)
    for row, point in enumerate(changed):
        if not got["reason"][row] or "GB of memory" in got["reason"][row]:
            check(point, got, row)


def test_costs_rise_and_fall_as_they_must(points, summary):
    base = points["designed"]
    for key, more, name, rises in (
        ("chip.die_area", 1.2, "die_usd", True),
        ("tech.defect_density", 0.5, "die_usd", False),
        ("tech.defect_cluster", 0.1, "die_usd", False),  # clusters spare dies
        ("cost.interposer.assembly_yield", 0.9, "package_usd", True),
        ("chip.tdp", 1.5, "package_usd", True),
        ("cost.lifetime", 2.0, "iteration_usd", False),
        ("cost.electricity", 2.0, "iteration_usd", True),
        ("mem.price", 2.0, "device_usd", True),
    ):
        before, after = summary([base, base | {key: base[key] * more}])[name]
        assert (after > before) == rises, key
    whole, halves = summary([base, base | {"chip.dies": 2}])["die_usd"]
    assert halves < whole  # smaller dies work more often


def test_every_node_has_its_own_price(compose):
    nodes = [compose(f"tech={name}") for name in ("n12", "n7", "n5", "n3", "n2", "n1_4", "n1")]
    prices = [point["tech.wafer_price"] for point in nodes]
    assert prices == sorted(set(prices))
    assert compose("tech=n4p")["tech.wafer_price"] == compose("tech=n5")["tech.wafer_price"]


def test_no_cost_is_missing_without_a_reason():
    frame = fastflow.evaluate(
        "tech=n7,n3", "mem=hbm2,gddr6", "chip.area.core=0.0,0.3", "chip.die_area='1e-6 m2','850 mm2','1 m2'",
        "parallel.strategy=d512,d3",
    )  # fmt: skip
    known = frame[[*NAMES, "iteration_usd"]].notna().all(axis=1)
    assert known.any()
    assert (frame.loc[~known, "reason"] != "").all()
    assert (frame.loc[known, NAMES] > 0.0).all(axis=None)


def test_servers_cost_what_they_draw_and_what_they_make():
    options = (
        "serve=continuous", "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-2-d4",
        "serve.isl=512", "serve.osl=128", "serve.concurrency=32",
    )  # fmt: skip
    (row,) = fastflow.evaluate(*options).to_dict("records")
    assert "iteration_usd" not in row
    drawn = 8 * (row["power_W"] + 0.21 * 700.0) / 0.9 / 0.978 * 1.10 * 0.0806 / 1000.0
    assert row["power_usd_per_h"] == pytest.approx(drawn, rel=1e-9)
    assert row["usd_per_h"] == pytest.approx(row["system_usd"] / (5 * 8766) + drawn, rel=1e-9)
    assert row["token_usd"] == pytest.approx(row["usd_per_h"] / 3600.0 / row["tokens_per_s"], rel=1e-9)
    assert row["usd_per_million_tokens"] == pytest.approx(1e6 * row["token_usd"], rel=1e-12)
    apart = (
        "serve=disaggregated",
        "serve.prefill.devices=4",
        "system.devices=8",
        "parallel.strategy=TP-2-d2",
    )
    one, other = (
        fastflow.evaluate(*options[1:3], *options[4:], *apart, *more).iloc[0]
        for more in ((), ("serve.prefill.chip=l40s",))
    )
    assert one["reason"] == other["reason"] == ""
    assert one["device_usd"] == other["device_usd"] == row["device_usd"]
    assert one["system_usd"] == pytest.approx(row["system_usd"], rel=1e-9)
    assert other["system_usd"] < one["system_usd"]  # four cheaper devices


def test_two_kinds_alike_are_one(points, predict):
    """Two halves of a system have its networks, and cost as much."""
    found = predict([points["of machines"] | {"system.package.devices": 256}])
    power, both = np.array([1e5]), np.array([512])
    whole, half = (devices_of(found.inputs, found.chip, number) for number in (both, both // 2))
    one, two, alone = (
        cost_columns(kinds, power_of_site(kinds, power).site) for kinds in ([whole], [half, half], [half])
    )
    assert one["system_usd"] > 2.0 * alone["system_usd"]
    for name in NAMES:
        assert near(one[name][0], two[name][0], 1e-12), name


@pytest.mark.parametrize(("mode", "rate"), [("decode", "tokens_per_s"), ("prefill", "prefill_tokens_per_s")])
def test_a_token_of_a_pass_has_its_cost(compose, mode, rate):
    point = compose(f"serve={mode}", "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-8")
    inputs = columns_of([point])
    served = serve(inputs)
    cost = {
        name: served.columns[name][0] for name in ("usd_per_h", "token_usd", "system_usd", "time_s", rate)
    }
    assert near(cost["token_usd"] * cost[rate] * naive.HOUR, cost["usd_per_h"], 1e-12)
    assert measure_served(inputs, served, "token_usd")[0] == cost["token_usd"]
    assert near(measure_served(inputs, served, "time_cost")[0], cost["time_s"] * cost["system_usd"])


SEARCHED = (
    "tech=n7", "mem=hbm3", "model.hidden=4096", "model.vocabulary=100000", "model.batch=2048",
    "model.devices=16",
    "parallel.strategy=RC-1-4-d4", "steps=3", "starts=2",
)  # fmt: skip


@pytest.mark.parametrize("objective", ["iteration_usd", "time_cost"])
def test_a_search_minimises_cost(objective):
    found = fastflow.search(*SEARCHED, f"objective={objective}")
    history = found.history[found.history["feasible"]]
    value = history["time_s"] * history["system_usd"] if objective == "time_cost" else history[objective]
    np.testing.assert_allclose(history["objective"], value, rtol=1e-12)
    assert found.best["objective"] == value.min()


def test_a_front_of_time_against_cost():
    found = fastflow.search(*SEARCHED[:-1], "starts=3", "objective=time", "pareto=device_usd")
    assert (found.front["objective"].diff().dropna() > 0.0).all()
    assert (found.front["second_objective"].diff().dropna() < 0.0).all()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("objective=token_usd", "of a model without tokens"),
        ("tech.wafer_price=100", "USD"),
        ("tech.wafer_price='9 J'", "USD"),
        ("tech.defect_density='-1 1/cm2'", "at least 0"),
        ("chip.dies=0", "at least 1"),
        ("chip.salvage=2", "at most 1"),
        ("cost.interposer.assembly_yield=0", "at least 1e-12"),
        ("cost.electricity='1 USD'", "USD/J"),
        ("cost.wafers=1", "cost"),
        ("cost=nothing", "public"),
    ],
)
def test_what_is_refused(given, says):
    with pytest.raises(InputError) as refused:
        fastflow.search(*SEARCHED, given)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


MACHINE = ("system=dgx_h100", "model=llama3_8b", "parallel.strategy=TP-8", "output=o")


@pytest.mark.parametrize(
    ("prices", "title"),
    [
        ((), "Cost to build (cost=public)"),
        (("cost=market",), "Cost at what buyers pay (cost=market)"),
        (("cost=rent",), "Rent (cost=rent; CoreWeave, 2026-09-20)"),
        (("cost=rent", "cost.rent='2 USD'"), "Rent (cost.rent, as given)"),
        (("cost.rent='2 USD'",), "Rent (cost.rent, as given)"),
        (("serve=decode", "cost=rent"), "Rent (cost=rent; CoreWeave, 2026-09-20)"),
    ],
)
def test_a_screen_says_what_a_cost_is(cli, prices, title):
    """A device's hour and the system's, tokens in millions; to build is no rent."""
    code, out, _ = cli(main, *MACHINE, *prices)
    assert code == 0
    at = [line.strip() for line in out].index(title)
    lines = itertools.takewhile(str.strip, out[at + 3 :])
    said = {line[:21].strip(): line[21:].split()[0] for line in lines}
    rent = {True: 6.155, False: 2.0}["cost.rent='2 USD'" not in prices]
    if title.startswith("Rent"):
        assert "device" not in said
        assert float(said["an hour of a device"]) == pytest.approx(rent, abs=0.005)
        assert float(said["an hour of the system"]) == pytest.approx(8 * rent, abs=0.005)
    else:
        ratio = float(said["an hour of the system"]) / float(said["an hour of a device"])
        assert ratio == pytest.approx(8.0, rel=5e-3)
    assert "a million tokens" in said
    assert ("to train" in said) == ("serve=decode" not in prices)


def test_every_rent_is_of_a_chip_of_the_library_with_its_provider_and_date(compose):
    point = compose("cost=rent", "chip=h100_sxm")
    rents = {key.split(".")[2] for key in point if key.startswith("cost.rents.")}
    names = [file.stem for file in (ROOT / "conf" / "chip").glob("*.yaml")]
    assert rents <= {naive.listed(compose(f"chip={name}")["chip.name"]) for name in names}
    for name in rents:
        assert point[f"cost.rents.{name}.provider"]
        assert date.fromisoformat(point[f"cost.rents.{name}.date"]) > date(2026, 1, 1)


def test_what_cannot_be_rented_is_refused_and_the_advice_works(cli):
    """A design, a real chip's budgets alone, a chip on no list; in a grid it is a row with its reason."""
    for number, chip in enumerate((("tech=n7",), ("chip=h100_sxm", "calibration=none"), ("chip=h20",))):
        code, _, err = cli(main, "model=gemm", "cost=rent", *chip, "output=o")
        assert code == 2
        assert len(err) == 1
        assert err[0].startswith("chip.name=")
        advice = re.search(r"cost.rent='[^']*'", err[0])[0]
        code, _, err = cli(main, "model=gemm", "cost=rent", *chip, advice, f"output=o{number}")
        assert (code, err) == (0, [])
    frame = fastflow.evaluate("model=gemm", "cost=public,rent", "chip=h100_sxm,h20")
    assert frame["reason"].ne("").tolist() == [False, False, False, True]
    assert frame["usd_per_h"].notna().tolist() == [True, True, True, False]


def test_rents_are_inputs_as_others_are():
    """A price is swept by the row, and two kinds of devices pay each its own."""
    frame = fastflow.evaluate(
        "chip=h100_sxm", "model=gemm", "cost=rent", "cost.rents.H100_SXM5_80GB.price='2 USD','3 USD'"
    )
    assert frame["usd_per_h"].tolist() == [2.0, 3.0]
    apart = (
        "serve=disaggregated", "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-2-d2",
        "serve.isl=512", "serve.osl=128", "serve.concurrency=32", "serve.prefill.devices=4",
        "system.devices=8", "cost=rent",
    )  # fmt: skip
    both = fastflow.evaluate(*apart, "serve.prefill.chip=l40s")
    assert both["usd_per_h"][0] == pytest.approx(4 * 6.155 + 4 * 2.25, rel=1e-12)
    (reason,) = fastflow.evaluate(*apart, "serve.prefill.chip=l4")["reason"]
    assert reason.startswith("chip.name=L4-24GB")


def test_a_mistake_is_one_line(cli):
    code, _, err = cli(main, "tech.wafer_price=100")
    assert code == 2
    assert len(err) == 1
    assert "tech.wafer_price" in err[0]
    assert "USD" in err[0]


def test_dollars_have_no_prefix():
    assert quantity("device_usd", 12345.6) == "12,346 USD"
    assert quantity("device_usd", 12.345) == "12.35 USD"
    assert quantity("token_usd", 1.234e-7) == "0.123 USD/M tokens"
    assert quantity("usd_per_million_tokens", 0.1234) == "0.123 USD"
