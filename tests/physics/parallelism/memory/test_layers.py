"""What lies with the host, and weights that stay gathered: memory by hand, times by the link."""

import pytest

import fastflow

BASE = (
    "model=llama3_8b",
    "memory=tensors",
    "model.layers=4",
    "model.batch=8",
    "chip=h100_sxm",
    "system=dgx_h100",
)
ONE_DEVICE = (*BASE[:-1], "system.devices=1", "parallel.strategy=TP-1")


def run(*overrides):
    return fastflow.evaluate(*overrides).iloc[0]


def test_what_is_offloaded_lies_with_the_host():
    base = (*BASE, "system.devices=8", "parallel.strategy=TP-2-d4")
    none, optimizer, activations, every = (
        run(*base, f"parallel.offload={what}") for what in ("none", "optimizer", "activations", "all")
    )
    assert none["host_B"] == none["offload_exposed_s"] == optimizer["optimizer_B"] == 0
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
    moved = 2 * away["host_B"]  # of four layers two are on the device at a time
    assert away["time_s"] == pytest.approx(2 * 8 * moved / 1e8 + none["update_s"], rel=1e-6)
    assert away["offload_exposed_s"] == pytest.approx(away["time_s"] - none["time_s"])
    states = run(*ONE_DEVICE, "parallel.offload=optimizer", link)
    assert states["update_s"] == pytest.approx(states["host_B"] / 1e8)
    fast = run(*ONE_DEVICE, "parallel.offload=all", "parallel.host_bandwidth='1e6 GB/s'")
    assert fast["time_s"] == pytest.approx(none["time_s"])


def test_weights_that_stay_gathered_are_gathered_once():
    base = (
        *BASE,
        "system.devices=8",
        "parallel.strategy=d8",
        "parallel.zero_stage=3",
        "parallel.overlap.data=false",
    )
    given_up, kept = ((*base, f"parallel.reshard_after_forward={one}") for one in ("true", "false"))

    def gathered(point):
        kernels = fastflow.explain_sharding(*point)
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


@pytest.mark.parametrize("layers", [8, 32])
@pytest.mark.parametrize("recompute", ["none", "full", "3", "selective"])
@pytest.mark.parametrize("strategy", ["TP-2-d4", "TP-2-d2-p2"])
def test_checkpoints_are_offloaded_too(layers, recompute, strategy):
    """What hidden layers keep lies with the host but for two layers, also where it is what they read."""
    base = ("model=llama3_8b", "chip=h100_sxm", "system=dgx_h100", f"model.layers={layers}")
    base = (*base, "model.batch=32", f"parallel.strategy={strategy}", f"parallel.recompute={recompute}")
    none, away = (run(*base, f"parallel.offload={what}") for what in ("none", "activations"))
    assert away["host_B"] > 0.0
    assert "offload" not in away["no_effect"]
    if away["peak_memory_stage"] == none["peak_memory_stage"]:
        assert away["footprint_B"] == pytest.approx(none["footprint_B"] - away["host_B"])
    assert away["footprint_B"] < none["footprint_B"]


def test_what_moves_is_what_lies_with_the_host():
    """Of a layer more, what it keeps moves out and in again for each micro-batch, over a slow link."""
    link = (
        "parallel.host_bandwidth='10 MB/s'", "parallel.offload=activations", "parallel.recompute=full",
    )  # fmt: skip
    few, many = (run(*ONE_DEVICE, f"model.layers={layers}", *link) for layers in (6, 7))
    read = many["host_B"] - few["host_B"]
    assert read == pytest.approx(2 * 8192 * 4096)  # bf16, what a layer reads of a sequence
    added = many["time_s"] - few["time_s"] - (many["update_s"] - few["update_s"])
    assert added == pytest.approx(2 * 8 * read / 1e7, rel=1e-6)


ZERO3 = (*ONE_DEVICE, "parallel.zero_stage=3")


def test_offloaded_weights_move_for_each_pass():
    """One device, a slow link: weights in twice for each of eight micro-batches, gradients out meanwhile."""
    link = "parallel.host_bandwidth='10 MB/s'"
    away = run(*ZERO3, "parallel.offload=weights", link)
    none = run(*ZERO3, link)
    weights = none["gradient_B"]  # bf16 as they are
    assert away["weight_B"] == away["gradient_B"] == away["optimizer_B"] == 0
    assert away["host_B"] == pytest.approx(8 * weights)  # 2 and 2, a master of 4, two moments of 4
    largest = 2 * 4096 * 128256
    assert away["buffer_B"] == pytest.approx(none["buffer_B"] + 2 * largest)
    passes = away["time_s"] - away["update_s"]
    assert passes == pytest.approx(2 * 8 * weights / 1e7, rel=1e-6)
    assert away["update_s"] == pytest.approx(6 * weights / 1e7)


def test_all_is_weights_too_where_zero_shards_them():
    every, weights = (run(*ZERO3, f"parallel.offload={what}") for what in ("all", "weights"))
    assert every["weight_B"] == 0
    assert every["footprint_B"] < weights["footprint_B"]
    kept = run(*ZERO3, "parallel.offload=all", "parallel.reshard_after_forward=false")
    assert kept["weight_B"] == kept["gradient_B"] > 0


def test_drives_are_slower_than_the_link():
    slow = ("parallel.offload_device=nvme", "parallel.nvme_bandwidth='10 MB/s'")
    drives = run(*ZERO3, "parallel.offload=all", *slow)
    host = run(*ZERO3, "parallel.offload=all", "parallel.host_bandwidth='10 MB/s'")
    assert drives["update_s"] == pytest.approx(host["update_s"])
    assert drives["time_s"] < host["time_s"]  # activations stay in the host's memory
    assert drives["host_B"] == host["host_B"]


@pytest.mark.parametrize("offload", ["optimizer", "weights"])
def test_the_host_updates_at_the_rate_of_its_memory(offload):
    """Of a weight it reads a gradient, a master and two moments, and writes these and the weight: 28 B."""
    update = ("parallel.offload_update=host", f"parallel.offload={offload}")
    row = run(*ZERO3, *update, "parallel.host_memory_bandwidth='1 GB/s'")
    weights = run(*ZERO3)["gradient_B"] / 2
    assert row["update_s"] == pytest.approx(weights * (2 + 2 * 12 + 2) / 1e9)
    slow_link = run(*ZERO3, *update, "parallel.host_bandwidth='1 MB/s'")
    moved = 0 if offload == "weights" else 2 * weights / 1e6
    assert slow_link["update_s"] == pytest.approx(max(moved, weights * 28 / 35e9))
    drives = run(*ZERO3, *update, "parallel.offload_device=nvme", "parallel.nvme_bandwidth='1 MB/s'")
    assert drives["update_s"] == pytest.approx(weights * 12 / 1e6)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("zero_stage=2", "offload=weights"), "parallel.offload=weights is invalid: expected none,"),
        (
            ("zero_stage=3", "offload=weights", "reshard_after_forward=false"),
            "parallel.reshard_after_forward=false is invalid: expected true where parallel.offload=weights",
        ),
        (
            ("zero_stage=3", "offload=weights", "offload_update=host"),
            "parallel.offload_update=host is invalid: expected device where model.optimizer=muon",
        ),
    ],
)
def test_what_cannot_be_offloaded_is_one_line(given, expected):
    row = run(*ONE_DEVICE, *(f"parallel.{one}" for one in given), "model.optimizer=muon")
    assert row["reason"].startswith(expected)


def test_deepspeed_has_buffers_of_its_own():
    """A billion gathered weights and half a billion gradients, or as many as there are."""
    base = ("model=llama2_7b", "system=dgx_a100", "system.devices=4", "parallel.strategy=d4", "model.batch=8")
    base = (*base, "parallel.zero_stage=3", "parallel.grad_reduce=microbatch")
    plain = run(*base)
    assert plain["buffer_B"] < 0.6e9
    row = run(*base, "parallel.max_live_parameters=1e9", "parallel.reduce_bucket_size=5e8")
    assert row["buffer_B"] == 2 * 1e9 + 2 * 5e8
    assert run(*base, "framework=deepspeed")["buffer_B"] == row["buffer_B"]
    few = run(*base, "parallel.max_live_parameters=1e12")
    assert few["buffer_B"] - plain["buffer_B"] < 2 * plain["parameters"]
