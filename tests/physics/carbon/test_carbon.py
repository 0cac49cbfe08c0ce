"""Carbon of making devices and systems, and of running them, against the oracle; objectives and screens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.analysis.search.optimizers.serving_objective import measure_served
from fastflow.analysis.sensitivity.parameters import parameters_of
from fastflow.cli.commands.sweep import main
from fastflow.core.errors import InputError
from fastflow.performance.serving.predict import serve
from fastflow.physics.carbon.columns import carbon_columns
from fastflow.physics.cost.columns import devices_of
from fastflow.physics.site.columns import power_of_site
from fastflow.reporting.terminal.tables import quantity
from fastflow.schema.carbon import CARBON, EMISSIONS, is_carbon, is_emission
from tests.conftest import columns_of
from tests.naive import carbon as naive
from tests.naive.site import site
from tests.support.checks import cases, near
from tests.support.documents import ROOT

NAMES = [column.name for column in EMISSIONS]
G_PER_KWH = 1.0 / 1e3 / 3.6e6
POINTS = {
    "designed": ("tech=n7", "mem=hbm3", "parallel.strategy=d512"),
    "of chiplets": ("chip=chiplets", "tech=n3", "mem=hbm3", "parallel.strategy=RC-1-16-d32"),
    "of two dies": ("chip=b200_sxm", "model=gemm"),
    "on a board": ("chip=t4", "model=gemm", "model.dtype=fp16"),
    "of machines": ("system=superpod_h100", "model=llama3_8b", "parallel.strategy=TP-8-d32"),
    "in a fat tree": ("system=fat_tree", "parallel.strategy=d512", "carbon=france"),
    "one of a machine": ("system=dgx_h100", "model=gemm", "parallel.strategy=d1"),
    "in a mesh": ("system=mesh", "parallel.strategy=d512", "carbon=india"),
    "rented": ("cost=rent", "system=superpod_h100", "model=llama3_8b", "parallel.strategy=TP-8-d32"),
}


@pytest.fixture(scope="module")
def points(compose):
    return {name: compose(*overrides) for name, overrides in POINTS.items()}


def check(point, got, row):
    """Hold a row of result columns against the oracle."""
    expected = naive.device(point, got["dram_devices"][row], got["dram_capacity_B"][row])
    number = int(got["devices"][row])
    expected["system_carbon_kg"] = naive.system(point, expected["device_carbon_kg"], number)
    joules, seconds = got["energy_J"][row], got["time_s"][row]
    _, watts = site(point, number, joules / seconds, got["inter_Bps"][row])
    expected |= naive.work(point, expected["system_carbon_kg"], watts * seconds, seconds)
    assert expected.keys() == {*NAMES}
    for name, value in expected.items():
        assert near(got[name][row], value, 1e-9), name


@pytest.mark.parametrize("name", POINTS)
def test_emissions_as_the_oracle(points, summary, name):
    got = summary([points[name]])
    assert got["time_s"][0] > 0.0
    check(points[name], got, 0)
    if "carbon_g_per_token" in got:
        tokens = got["tokens_per_s"][0] * got["time_s"][0]
        assert near(got["carbon_g_per_token"][0] * tokens, got["carbon_g"][0], 1e-12)
        iterations = got["train_s"][0] / got["time_s"][0]
        assert near(1e3 * got["train_carbon_kg"][0], iterations * got["carbon_g"][0], 1e-12)


CHANGED = {
    "tech.fab_energy": st.floats(0.0, 1e12), "tech.fab_gas": st.floats(0.0, 1e5),
    "tech.defect_density": st.floats(0.0, 1e4), "chip.dies": st.integers(1, 16),
    "mem.carbon": st.floats(0.0, 1e-8), "mem.on_interposer": st.booleans(),
    "carbon.intensity": st.floats(0.0, 1e-6), "carbon.fab.intensity": st.floats(0.0, 1e-6),
    "carbon.fab.materials": st.floats(1.0, 1e5), "carbon.interposer": st.floats(0.0, 1e5),
    "carbon.packaging": st.floats(0.0, 10.0), "carbon.auxiliary": st.floats(0.0, 1.0),
    "carbon.dram": st.floats(0.0, 1e-8), "carbon.nand": st.floats(0.0, 1e-9),
    "carbon.host.dram": st.floats(0.0, 1e13), "carbon.host.nand": st.floats(0.0, 1e14),
    "carbon.host.other": st.floats(0.0, 1e4), "carbon.adapter": st.floats(0.0, 1e3),
    "carbon.lifetime": st.floats(1e6, 1e9), "carbon.utilization": st.floats(0.01, 1.0),
    "power.pue": st.floats(1.0, 3.0), "cost.interposer.assembly_yield": st.floats(0.1, 1.0),
    "cost.interposer.bond_yield": st.floats(0.5, 1.0),
    "system.package.devices": st.sampled_from([1, 2, 512]),
    "system.topology": st.sampled_from(["switch", "fat_tree", "ring", "torus"]),
    "system.oversubscription": st.floats(1.0, 4.0),
}  # fmt: skip


@given(st.lists(st.fixed_dictionaries({}, optional=CHANGED), min_size=3, max_size=3))
@cases(25)
def test_any_figures_as_the_oracle(points, summary, changes):
    changed = [points["in a fat tree"] | change for change in changes]
    got = summary(changed)
    for row, point in enumerate(changed):
        if not got["reason"][row] or "GB of memory" in got["reason"][row]:
            check(point, got, row)


def test_a_die_by_hand(compose):
    """H100: 65.56 dies of a wafer of 706.9 cm2 (test_cost), of which 46% to 60% work; 2.29 kg a cm2."""
    point = compose("chip=h100_sxm", "model=gemm")
    of_area = (point["tech.fab_energy"] * point["carbon.fab.intensity"] + 4300.0 + 5000.0) * 1e-4
    assert of_area == pytest.approx(2.75 * 0.494 + 0.43 + 0.5, rel=1e-12)
    (row,) = fastflow.evaluate("chip=h100_sxm", "model=gemm").to_dict("records")
    assert row["die_carbon_kg"] == pytest.approx(706.86 * of_area / 65.56 / row["die_yield"], rel=1e-3)
    assert row["memory_carbon_kg"] == pytest.approx(0.86 * row["dram_capacity_B"] / 1e9, rel=1e-12)


def test_devices_are_near_what_their_maker_publishes():
    """NVIDIA's product carbon footprints: HGX H100 1312 kg, HGX B200 2274 kg, for eight devices each."""
    frame = fastflow.evaluate("chip=h100_sxm,b200_sxm", "model=gemm").set_index("chip")
    assert frame["device_carbon_kg"]["h100_sxm"] == pytest.approx(1312 / 8, rel=0.2)
    assert frame["device_carbon_kg"]["b200_sxm"] == pytest.approx(2274 / 8, rel=0.2)
    assert frame["memory_carbon_kg"]["h100_sxm"] == pytest.approx(0.42 * 1312 / 8, rel=0.1)
    assert frame["die_carbon_kg"]["h100_sxm"] == pytest.approx(0.25 * 1312 / 8, rel=0.1)


def test_without_carbon_of_electricity_only_making_is_left(points, summary):
    base = points["designed"]
    with_it, without = summary([base, base | {"carbon.intensity": 0.0}])["carbon_g"]
    got = summary([base | {"carbon.intensity": 0.0}])
    assert got["operational_g"][0] == 0.0
    assert got["carbon_g"][0] == got["embodied_g"][0] == without > 0.0
    assert with_it > without


def test_emissions_rise_and_fall_as_they_must(points, summary):
    base = points["designed"]
    for key, more, name, rises in (
        ("chip.die_area", 1.2, "die_carbon_kg", True),
        ("tech.defect_density", 0.5, "die_carbon_kg", False),
        ("tech.fab_energy", 2.0, "die_carbon_kg", True),
        ("tech.fab_gas", 2.0, "die_carbon_kg", True),
        ("carbon.fab.intensity", 0.5, "die_carbon_kg", False),
        ("mem.carbon", 2.0, "device_carbon_kg", True),
        ("cost.interposer.assembly_yield", 0.9, "device_carbon_kg", True),
        ("carbon.host.nand", 2.0, "system_carbon_kg", True),
        ("carbon.lifetime", 2.0, "embodied_g", False),
        ("carbon.utilization", 0.5, "embodied_g", True),
        ("carbon.intensity", 2.0, "operational_g", True),
        ("power.pue", 1.2, "carbon_g", True),
    ):
        before, after = summary([base, base | {key: base[key] * more}])[name]
        assert (after > before) == rises, key
    whole, halves = summary([base, base | {"chip.dies": 2}])["die_carbon_kg"]
    assert halves < whole  # smaller dies work more often


def test_every_node_emits_more_and_every_region_as_its_grid_does(compose):
    nodes = fastflow.evaluate("tech=n12,n7,n5,n3,n2,n1_4,n1", "mem=hbm3", "parallel.strategy=d512")
    assert nodes["die_carbon_kg"].is_monotonic_increasing
    half_nodes = fastflow.evaluate("tech=n7,n6,n5,n4p", "mem=hbm3", "parallel.strategy=d512")
    assert half_nodes["die_carbon_kg"].is_monotonic_increasing
    names = sorted(file.stem for file in (ROOT / "conf" / "carbon").glob("*.yaml"))
    assert {"world", "us", "eu", "france", "germany", "china", "india"} <= {*names}
    frame = fastflow.evaluate(f"carbon={','.join(names)}", "tech=n7", "mem=hbm3", "parallel.strategy=d512")
    intensity = np.array([compose(f"carbon={name}")["carbon.intensity"] for name in names])
    operational = frame["operational_g"] / intensity
    np.testing.assert_allclose(operational, operational[0], rtol=1e-12)
    assert frame["embodied_g"].nunique() == frame["time_s"].nunique() == 1
    assert [compose(f"carbon={name}")["carbon.name"] for name in names] == names


def test_chiplets_of_an_older_node_emit_less():
    frame = fastflow.evaluate(
        "chip=pathfinding,chiplets", "tech=n5,n3,n2", "mem=hbm3", "parallel.strategy=RC-1-16-d32"
    )
    whole, apart = (
        frame[frame["chip"] == chip]["die_carbon_kg"].to_numpy() for chip in ("pathfinding", "chiplets")
    )
    assert (apart < whole).all()
    chosen = fastflow.evaluate(
        "chip=chiplets", "tech=n3", "mem=hbm3", "parallel.strategy=RC-1-16-d32",
        "chip.chiplets.base.tech=n12,n7,n5",
    )  # fmt: skip
    assert chosen["die_carbon_kg"].is_monotonic_increasing


def test_no_emission_is_missing_without_a_reason():
    frame = fastflow.evaluate(
        "tech=n7,n3", "mem=hbm2,gddr6", "chip.area.core=0.0,0.3", "chip.die_area='1e-6 m2','850 mm2','1 m2'",
        "parallel.strategy=d512,d3",
    )  # fmt: skip
    known = frame[NAMES].notna().all(axis=1)
    assert known.any()
    assert (frame.loc[~known, "reason"] != "").all()
    assert (frame.loc[known, NAMES] > 0.0).all(axis=None)


SERVED = (
    "serve=continuous", "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-2-d4",
    "serve.isl=512", "serve.osl=128", "serve.concurrency=32",
)  # fmt: skip


def test_a_request_emits_what_it_draws_and_its_share_of_the_servers():
    (row,) = fastflow.evaluate(*SERVED).to_dict("records")
    watts = 8 * (row["power_W"] + 0.21 * 700.0) / 0.9 / 0.978 * 1.10
    rate = row["requests_per_s"]
    assert row["operational_g"] == pytest.approx(watts / rate * 481 / 3.6e6, rel=1e-9)
    life = 5 * 31557600.0 * 0.6
    assert row["embodied_g"] == pytest.approx(1e3 * row["system_carbon_kg"] / life / rate, rel=1e-9)
    assert row["carbon_g_per_token"] == pytest.approx(row["carbon_g"] / 128, rel=1e-9)
    apart = ("serve=disaggregated", "serve.prefill.devices=4", "system.devices=8")
    one, other = (
        fastflow.evaluate(*SERVED[1:3], *SERVED[4:], "parallel.strategy=TP-2-d2", *apart, *more).iloc[0]
        for more in ((), ("serve.prefill.chip=l40s",))
    )
    assert one["device_carbon_kg"] == other["device_carbon_kg"] == row["device_carbon_kg"]
    assert one["system_carbon_kg"] == pytest.approx(row["system_carbon_kg"], rel=1e-9)
    assert other["system_carbon_kg"] < one["system_carbon_kg"]  # four smaller devices


def test_two_kinds_alike_are_one(points, predict):
    found = predict([points["of machines"] | {"system.package.devices": 256}])
    power, seconds, both = np.array([1e5]), np.array([2.0]), np.array([512])
    whole, half = (devices_of(found.inputs, found.chip, number) for number in (both, both // 2))
    one, two = (
        carbon_columns(kinds, power_of_site(kinds, power).site, seconds) for kinds in ([whole], [half, half])
    )
    for name in NAMES:
        assert near(one[name][0], two[name][0], 1e-12), name


@pytest.mark.parametrize(("mode", "rate"), [("decode", "tokens_per_s"), ("prefill", "prefill_tokens_per_s")])
def test_a_token_of_a_pass_has_its_emissions(compose, mode, rate):
    inputs = columns_of(
        [compose(f"serve={mode}", "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-8")]
    )
    served = serve(inputs)
    got = {name: column[0] for name, column in served.columns.items() if column.dtype.kind == "f"}
    # the unit of work is that of its energy
    seconds = got["energy_J"] / (8 * got["power_W"])
    drawn = 8e3 * (got["power_W"] + 0.21 * 700.0) / 0.9 / 0.978 * 1.1
    assert near(got["operational_g"] / seconds, drawn * 481 * G_PER_KWH, 1e-9)
    assert near(got["carbon_g_per_token"] * got[rate] * seconds, got["carbon_g"], 1e-9)
    for objective in ("carbon_g", "carbon_g_per_token", "device_carbon_kg"):
        assert measure_served(inputs, served, objective)[0] == got[objective]


SEARCHED = (
    "tech=n7", "mem=hbm3", "model.hidden=4096", "model.vocabulary=100000", "model.batch=2048",
    "model.devices=16",
    "parallel.strategy=RC-1-4-d4", "steps=3", "starts=2",
)  # fmt: skip


@pytest.mark.parametrize("objective", ["carbon_g", "device_carbon_kg"])
def test_a_search_minimises_carbon(objective):
    found = fastflow.search(*SEARCHED, f"objective={objective}")
    history = found.history[found.history["feasible"]]
    np.testing.assert_allclose(history["objective"], history[objective], rtol=1e-12)
    assert found.best["objective"] == history[objective].min()


def test_a_search_of_tokens_minimises_their_carbon():
    found = fastflow.search(
        "tech=n5", "mem=hbm3", "model=llama3_8b", "system.devices=8", "parallel.strategy=d8",
        "parallel.zero_stage=3", "parallel.recompute=full", "steps=2", "starts=1",
        "objective=carbon_g_per_token",
    )  # fmt: skip
    history = found.history[found.history["feasible"]]
    assert len(history)
    np.testing.assert_allclose(history["objective"], history["carbon_g_per_token"], rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("objective=carbon_g_per_token", "carbon_g, or another objective, of a model without tokens"),
        ("carbon.intensity=481", "kg/J"),
        ("carbon.intensity='481 g'", "kg/J"),
        ("carbon.intensity='-1 g/kWh'", "at least 0"),
        ("carbon.utilization=0", "at least 1e-12"),
        ("carbon.utilization=2", "at most 1"),
        ("carbon.lifetime='5 USD'", "s"),
        ("tech.fab_energy='2 kWh'", "J/m^2"),
        ("mem.carbon='3 USD/GB'", "kg/B"),
        ("carbon.intensities=1", "carbon"),
        ("carbon=atlantis", "france"),
    ],
)
def test_what_is_refused(given, says):
    with pytest.raises(InputError) as refused:
        fastflow.search(*SEARCHED, given)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_uncertain_emissions_have_ranges():
    (row,) = fastflow.evaluate(
        "chip=h100_sxm", "model=gemm", "uncertainty=on", "uncertainty.samples=64"
    ).to_dict("records")
    for name in ("device_carbon_kg", "carbon_g"):
        low, median, high = (row[f"{name}_p{nth}"] for nth in (10, 50, 90))
        assert 0.5 * row[name] < low < median < high < 2.0 * row[name], name


def test_only_masses_of_carbon_have_emissions_as_parameters(compose):
    point = columns_of([compose("chip=chiplets", "tech=n3")])
    time, carbon = ({one.key for one in parameters_of(point, name)} for name in ("time_s", "carbon_g_p90"))
    assert time < carbon
    assert not any(is_emission(key) for key in time)
    figures = {column.name for column in CARBON if column.kind == "float"}
    assert carbon - time == (figures & point.keys()) | {
        f"chip.chiplets.base.{name}" for name in ("fab_energy", "fab_gas")
    }
    assert all(map(is_carbon, NAMES))
    assert not any(map(is_carbon, ("time_s", "energy_J", "device_usd")))


def test_a_screen_has_a_line_of_carbon(cli):
    machine = ("system=dgx_h100", "model=llama3_8b", "parallel.strategy=TP-8")
    screens = (
        ((), "g per iteration, "),
        (("serve=decode", "carbon=france"), "(carbon=france)"),
        (("serve=prefill",), "g/M tokens, "),
    )
    for number, (more, says) in enumerate(screens):
        code, out, _ = cli(main, *machine, *more, f"output=o{number}")
        (line,) = [line for line in out if line.startswith("Carbon ")]
        assert code == 0
        assert says in line
        assert "; a device: 192 kg" in line
    assert quantity("carbon_g_per_token", 2.5e-5) == "25 g/M tokens"
    assert quantity("device_carbon_kg", 191.6) == "192 kg"
