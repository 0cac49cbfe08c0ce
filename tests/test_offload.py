"""What lies with the host, and weights that stay gathered: memory by hand, times by the link."""

import pytest

import fastflow

BASE = ("model=llama3_8b", "model.layers=4", "model.batch=8", "chip=h100_sxm", "system=dgx_h100")
ONE_DEVICE = (*BASE, "system=cluster", "chip=h100_sxm", "system.devices=1", "parallel.strategy=TP-1")


def run(*overrides):
    return fastflow.evaluate(*overrides).iloc[0]


def test_what_is_offloaded_lies_with_the_host():
    base = (*BASE, "system.devices=8", "parallel.strategy=TP-2-d4")
    none, optimizer, activations, every = (
        run(*base, f"parallel.offload={what}") for what in ("none", "optimizer", "activations", "all")
    )
    assert none["host_B"] == none["offload_wait_s"] == optimizer["optimizer_B"] == 0
    masters = none["weight_B"] - optimizer["weight_B"]
    assert masters == pytest.approx(none["optimizer_B"] / 2)  # four bytes beside Adam's eight
    assert optimizer["host_B"] == pytest.approx(none["optimizer_B"] + masters)
    assert activations["host_B"] + activations["activation_B"] == pytest.approx(none["activation_B"])
    assert every["host_B"] == pytest.approx(optimizer["host_B"] + activations["host_B"])
    assert every["footprint_B"] == pytest.approx(none["footprint_B"] - every["host_B"])


def test_the_link_to_the_host_takes_its_time():
    """One device, a micro-batch after the other: out and in again beside a block, states at once."""
    link = "parallel.host_bandwidth='100 MB/s'"
    none = run(*ONE_DEVICE, link)
    away = run(*ONE_DEVICE, "parallel.offload=activations", link)
    assert away["time_s"] == pytest.approx(2 * 8 * none["activation_B"] / 1e8 + none["update_s"], rel=1e-6)
    assert away["offload_wait_s"] == pytest.approx(away["time_s"] - none["time_s"])
    states = run(*ONE_DEVICE, "parallel.offload=optimizer", link)
    assert states["update_s"] == pytest.approx(states["host_B"] / 1e8)
    fast = run(*ONE_DEVICE, "parallel.offload=all", "parallel.host_bandwidth='1e6 GB/s'")
    assert fast["time_s"] == pytest.approx(none["time_s"])


def test_weights_that_stay_gathered_are_gathered_once():
    base = (
        *BASE,
        "system.devices=8",
        "parallel.strategy=d8",
        "parallel.zero=3",
        "parallel.overlap.data=false",
    )
    given_up, kept = ((*base, f"parallel.reshard={one}") for one in ("true", "false"))

    def gathered(point):
        kernels = fastflow.explain_layout(*point)
        return (kernels["fetch_B"] * kernels["repeat"])[kernels["kernel"] != "embedding"].sum()

    assert gathered(kept) == gathered(given_up) / 2
    (kept,), (given_up,) = (fastflow.evaluate(*point).to_dict("records") for point in (kept, given_up))
    assert kept["comm_s"] < given_up["comm_s"]
    whole = 2 * kept["parameters"]  # but for norms
    assert kept["weight_B"] - given_up["weight_B"] == pytest.approx(7 / 8 * whole, rel=1e-3)


@pytest.mark.parametrize("key", ["recompute=full", "offload=optimizer", "schedule=zero-bubble"])
def test_other_models_do_not_know_it(key):
    row = run("tech=n7", f"parallel.{key}")
    assert row["reason"].startswith(f"parallel.{key}".partition("=")[0])
