"""Experts with a capacity: tokens beyond it are dropped, or every expert is padded to it."""

import pytest

import fastflow

MIXTURE = (
    "model=mixtral_8x7b", "model.layers=4", "system=superpod_h100", "system.devices=16", "model.batch=32",
    "model.sequence=4096", "parallel.strategy=TP-1-e8-d16",
)  # fmt: skip


def experts_s(*overrides):
    return fastflow.evaluate(*MIXTURE, *overrides)["experts_s"].item()


def test_a_capacity_limits_uneven_loads():
    uneven = "model.power_law=1.2"
    even, free = experts_s("model.random_routing=false"), experts_s(uneven)
    limited = [experts_s(uneven, f"model.capacity_factor={factor}") for factor in (1, 1.25, 2, 8)]
    assert limited == sorted(limited)
    assert limited[0] == pytest.approx(even, rel=0.03)  # no expert has more than the mean
    assert limited[1] < 0.4 * free
    assert limited[3] == pytest.approx(free, rel=1e-3)  # of 8 experts: all of the tokens


def test_even_loads_know_no_capacity():
    even = "model.random_routing=false"
    assert experts_s(even, "model.capacity_factor=1") == experts_s(even)


@pytest.mark.parametrize("factor", [1.25, 2.0])
def test_padded_experts_compute_and_exchange_as_much_more(factor):
    even = fastflow.evaluate(*MIXTURE, "model.random_routing=false").iloc[0]
    padded = fastflow.evaluate(
        *MIXTURE, f"model.capacity_factor={factor}", "model.pad_to_capacity=true", "model.power_law=1.2"
    ).iloc[0]
    assert padded["experts_s"] == pytest.approx(factor * even["experts_s"], rel=0.05)
    assert padded["ep_comm_exposed_s"] == pytest.approx(factor * even["ep_comm_exposed_s"], rel=0.1)
    assert padded["activation_B"] > even["activation_B"]


def test_padding_without_a_capacity_says_that_it_does_nothing():
    row = fastflow.evaluate(*MIXTURE, "model.pad_to_capacity=true").iloc[0]
    assert "model.pad_to_capacity" in row["no_effect"]
