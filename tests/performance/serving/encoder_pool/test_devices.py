"""Which servers may have devices of encoders, what requests see of them, and what they cost."""

from functools import cache

import numpy as np
import pytest

import fastflow
from tests.performance.serving.test_images import QUICK, SMALL, TOWER, tokens_of

POINT = (*SMALL, *TOWER, "chip=h100_sxm", "system=dgx_h100", "server=vllm", "parallel.strategy=TP-1", QUICK)
IMAGES = "serve.images=2", "serve.image_size=448"
SINGLE = (
    "serve=continuous", "serve.isl=500", "serve.osl=50", "serve.concurrency=1", "serve.num_requests=20",
    "serve.length_range_ratio=0", "serve.simulate=true",
)  # fmt: skip


@cache
def row(*changed):
    return fastflow.evaluate(*POINT, *changed).iloc[0]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("serve=continuous system.devices=1", "fewer than the 1 devices"),
        ("serve=continuous system.devices=3", "a multiple of 2, the servers of parallel.strategy=TP-1"),
        ("serve=continuous system.devices=2 serve.images=0", "0 where serve.images is 0"),
        ("serve=prefill system.devices=2", "a single pass has no queue"),
        ("serve=decode system.devices=2", "a single pass has no queue"),
        ("serve=continuous system.devices=3 parallel.strategy=TP-1-p2", "without pipeline stages"),
        ("serve=disaggregated system.devices=2 serve.prefill.devices=1", "at least 2 for prefill and decode"),
        ("serve=disaggregated system.devices=4 serve.prefill.devices=3", "1 to 2 of the 3 devices"),
        ("serve=continuous system.devices=2 serve.encoder.bandwidth=1e-300B/s", "in at most 1e+100 s"),
    ],
)
def test_what_does_not_go_with_devices_of_encoders(overrides, expected):
    try:
        reason = row("serve.encoder.devices=1", *IMAGES, *overrides.split())["reason"]
    except fastflow.InputError as error:
        reason = str(error)
    assert expected in reason


@pytest.mark.parametrize("mode", ["continuous", "disaggregated"])
def test_a_request_alone_sees_the_encoder_the_link_and_the_server(mode):
    """With encoders it is that of a text of as many tokens, and what comes before."""
    split = ("system.devices=4", "serve=disaggregated", "serve.prefill.devices=1")
    devices = split if mode == "disaggregated" else ("system.devices=2",)
    load = (*SINGLE, *devices)
    text = row(*load, f"serve.isl={500 + 2 * tokens_of(448, 448)}")
    whole, apart = row(*load, *IMAGES), row(*load, *IMAGES, "serve.encoder.devices=1")
    assert apart["encode_s"] == pytest.approx(whole["encode_s"], rel=1e-12)
    before_s = apart["encode_s"] + apart["embedding_transfer_s"]
    assert apart["encode_wait_s"] == pytest.approx(0.0, abs=1e-12)
    assert apart["ttft_s"] == pytest.approx(text["ttft_s"] + before_s, rel=1e-9)
    assert apart["e2e_s"] == pytest.approx(text["e2e_s"] + before_s, rel=1e-9)
    assert apart["tpot_s"] == pytest.approx(text["tpot_s"], rel=1e-9)
    assert apart["devices"] == whole["devices"]
    assert apart["encoder_devices"] == 1
    utilization = apart["requests_per_s"] * apart["encode_s"]
    assert apart["encoder_utilization"] == pytest.approx(utilization, rel=1e-12)


def test_servers_have_no_tower():
    load = (*SINGLE, "system.devices=2")
    whole, apart = row(*load, *IMAGES), row(*load, *IMAGES, "serve.encoder.devices=1")
    assert apart["weight_B"] == row(*load)["weight_B"] < whole["weight_B"]
    assert apart["encoder_weight_B"] == pytest.approx(whole["weight_B"] - apart["weight_B"], rel=1e-12)
    assert np.isnan(whole.get("encoder_weight_B", np.nan)) or whole["encoder_weight_B"] == 0.0


@pytest.mark.parametrize("further", [0, 3])
def test_embeddings_take_their_bytes_and_a_latency(further):
    """Further projectors (DeepStack) have outputs of their own."""
    load = (
        *SINGLE,
        *IMAGES,
        "system.devices=2",
        "serve.encoder.devices=1",
        f"model.vision.mergers={further}",
    )
    slow, fast = (row(*load, f"serve.encoder.bandwidth={rate} GB/s") for rate in (0.01, 0.02))
    sent = 2 * tokens_of(448, 448) * 1024 * (1 + further) * 2.0  # of two images, numbers of each, bytes
    assert slow["embedding_transfer_s"] - fast["embedding_transfer_s"] == pytest.approx(sent / 2e7, rel=1e-9)


def test_energy_and_costs_are_of_all_devices():
    load = (*SINGLE, *IMAGES, "system.devices=2")
    apart = row(*load, "serve.encoder.devices=1")
    small = row(*load, "serve.encoder.devices=1", "serve.encoder.chip=l40s")
    assert small["encode_s"] > apart["encode_s"]
    assert small["usd_per_h"] < apart["usd_per_h"]
    alone = row(*SINGLE, f"serve.isl={500 + 2 * tokens_of(448, 448)}", "system.devices=1")
    assert apart["energy_J"] > alone["energy_J"]
    assert apart["tokens_per_s_per_device"] == pytest.approx(apart["tokens_per_s"] / 2, rel=1e-12)


def test_an_encoder_must_have_room_for_its_weights():
    reason = row(
        *SINGLE, *IMAGES, "system.devices=2", "serve.encoder.devices=1", "serve.encoder.chip=l4",
        "model.vision.layers=400", "model.vision.ffn=60000",
    )["reason"]  # fmt: skip
    assert reason.startswith("a device of encoders needs")


def test_more_images_than_encoders_carry_are_an_overload():
    slow = ("system.devices=2", "serve.encoder.devices=1", "serve.image_size=448")
    alone = row(*SINGLE, *IMAGES, *slow)
    open_loop = ("serve=continuous", "serve.isl=50", "serve.osl=2", "serve.concurrency=0")
    rates = [f"serve.request_rate={share / alone['encode_s']} 1/s" for share in (0.5, 1.2)]
    within, beyond = (row(*open_loop, *IMAGES, *slow, rate) for rate in rates)
    assert within["feasible"]
    assert within["encoder_utilization"] == pytest.approx(0.5, rel=0.06)
    assert not beyond["feasible"]
    assert "overload" in beyond["reason_code"]


def test_a_trace_waits_for_encoders_as_the_same_arrivals_do(tmp_path):
    """A fleet of one server, whose texts share nothing, is a server."""
    random = np.random.default_rng(0)
    sent = np.cumsum(random.exponential(0.002, 200))
    sizes = random.integers((600, 5), (900, 20), (200, 2)).tolist()
    lines = [f"{when:.6f},{isl},{osl}" for when, (isl, osl) in zip(sent.tolist(), sizes, strict=True)]
    file = tmp_path / "requests.csv"
    file.write_text("\n".join(["arrival_time,isl,osl", *lines]) + "\n")
    shared = (
        "serve=continuous", *IMAGES, "system.devices=3", "serve.encoder.devices=2", "serve.concurrency=0",
        "server.request_overhead=0 s",
    )  # fmt: skip
    of_lengths = row(*shared, f"serve.lengths={file}")
    of_trace = row(*shared, f"serve.trace={file}")
    assert of_lengths["encode_wait_s"] > 0.0
    for name in ("ttft_s", "ttft_p99_s", "e2e_s", "encode_wait_s", "tpot_s"):
        assert of_trace[name] == pytest.approx(of_lengths[name], rel=1e-6), name


def test_the_best_layout_leaves_encoders_their_devices():
    made = row(*SINGLE, *IMAGES, "system.devices=3", "serve.encoder.devices=1", "parallel.strategy=auto")
    assert made["feasible"]
    assert made["strategy"] in ("TP-2", "TP-1-d2", "TP-1-p2")


def test_points_with_and_without_encoders_are_as_alone():
    """Also on a chip whose power has no limit."""
    words = (
        "chip=pathfinding", "tech=n7", "mem=hbm2e", "system=mesh", "parallel.strategy=TP-1",
        "serve=continuous", "serve.concurrency=4", "serve.num_requests=40", *IMAGES, "system.devices=4",
    )  # fmt: skip
    both = fastflow.evaluate(*SMALL, *TOWER, *words, "serve.encoder.devices=0,2")
    assert both["reason"].tolist() == ["", ""]
    for count, made in both.iterrows():
        alone = fastflow.evaluate(*SMALL, *TOWER, *words, f"serve.encoder.devices={2 * count}").iloc[0]
        for name in ("ttft_s", "energy_J", "weight_B", "tokens_per_s_per_device"):
            assert made[name] == alone[name], name
