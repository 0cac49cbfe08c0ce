"""Power of machines and of the site against the oracle, and what it must be whatever is around devices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.physics.site.power import host_power, site_power, switch_power
from fastflow.schema.power import SITE
from tests.naive.site import site
from tests.support.checks import near

AROUND = {
    "power.host_fraction": st.floats(0.0, 2.0), "power.fan_fraction": st.floats(0.0, 0.9),
    "power.conversion_efficiency": st.floats(0.5, 1.0), "power.switch": st.floats(0.0, 1e-8),
    "power.pue": st.floats(1.0, 3.0), "chip.tdp": st.floats(1.0, 2000.0),
    "system.topology": st.sampled_from(["ring", "switch", "fat_tree"]),
    "system.oversubscription": st.floats(1.0, 8.0), "system.package.devices": st.integers(1, 72),
}  # fmt: skip
WORK = {
    "training": ("model=llama3_8b", "system=superpod_h100", "system.devices=64", "parallel.strategy=TP-8-d8"),
    "product": ("model=gemm", "chip=a100"),
    "servers": (
        "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-2-d4", "serve=continuous",
        "serve.isl=512", "serve.osl=64", "serve.concurrency=16", "serve.simulate=false",
    ),
    "pools": (
        "model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-2-d2", "serve=disaggregated",
        "serve.isl=512", "serve.osl=64", "serve.concurrency=16", "serve.simulate=false",
        "serve.prefill.devices=4", "serve.prefill.strategy=TP-2-d2", "serve.prefill.chip=l40s",
    ),
}  # fmt: skip


@given(st.fixed_dictionaries(AROUND), st.integers(1, 512), st.floats(0.0, 1e6), st.floats(0.0, 1e12))
def test_machines_and_site_are_the_oracles(point, devices, power, rate):
    inputs = {key: np.array([value]) for key, value in point.items()}
    hosts = devices * host_power(inputs)
    switches = devices * switch_power(inputs, np.array([rate]), np.array([devices]))
    got = site_power(inputs, np.array([power]), hosts, switches)
    machines, whole = site(point, devices, power, rate)
    assert near(got.machines[0], machines, 1e-9)
    assert near(got.site[0], whole, 1e-9)
    assert power <= got.machines[0] <= got.site[0] * (1 + 1e-12)


@pytest.mark.parametrize("work", WORK)
def test_every_point_with_a_time_has_all_columns(work):
    rows = fastflow.evaluate(*WORK[work])
    assert rows["reason"].tolist() == [""]
    (row,) = rows.to_dict("records")
    assert all(row[column.name] > 0.0 for column in SITE if column.name in row)
    assert row["gpu_J"] == row["energy_J"]
    assert row["gpu_J"] < row["machine_J"] < row["site_J"]
    assert near(row["machine_J"] / row["gpu_J"], row["machine_W"] / row["gpu_W"], 1e-12)
    assert near(row["site_J"] / row["gpu_J"], row["site_W"] / row["gpu_W"], 1e-12)
    assert near(row["rack_W"], 32 * row["machine_W"], 1e-12)
    assert near(row["system_W"], row["devices"] * row["site_W"], 1e-12)


@pytest.mark.parametrize("work", WORK)
def test_with_devices_alone_the_three_are_one(work):
    (row,) = fastflow.evaluate(*WORK[work], "power=devices").to_dict("records")
    assert near(row["machine_J"], row["gpu_J"], 1e-12)
    assert near(row["site_J"], row["gpu_J"], 1e-12)


def test_more_around_devices_draws_more_and_changes_no_time():
    around = ["devices", "liquid", "air", "colocation"]
    rows = fastflow.evaluate(*WORK["training"], power=around)
    assert (np.diff(rows["site_W"]) > 0.0).all()
    assert rows["time_s"].nunique() == rows["gpu_J"].nunique() == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("power.pue=0.9", "power.pue=0.9"),
        ("power.fan_fraction=1", "power.fan_fraction=1"),
        ("power.conversion_efficiency=0", "power.conversion_efficiency=0"),
        ("power.rack_devices=0", "power.rack_devices=0"),
        ("power=water", "power=water"),
        ("power.host=1", "power.host"),
    ],
)
def test_mistakes_are_one_line(cli, tmp_path, monkeypatch, wrong, says):
    monkeypatch.chdir(tmp_path)
    code, _, err = cli(main, "model=gemm", wrong, "output=here")
    assert (code, len(err)) == (2, 1)
    assert says in err[0]
    assert not (tmp_path / "here").exists()
