"""Which servers may have devices of attention, in every mode, and what they cost."""

import pytest

import fastflow

POINT = ("server=vllm", "chip=h100_sxm", "system=dgx_h100", "model=llama3_8b", "model.dtype=bf16")
APART = "serve.attention.devices=2", "serve.attention.strategy=TP-1"


def evaluate(*overrides):
    return fastflow.evaluate(*POINT, *overrides)


def reason_of(*overrides):
    (reason,) = evaluate("serve=decode", *overrides)["reason"]
    return reason


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("system.devices=2 parallel.strategy=TP-1", "fewer than the 2 devices"),
        ("system.devices=6 parallel.strategy=TP-2-p2", "without pipeline stages"),
        ("system.devices=5 parallel.strategy=TP-1-d3", "a multiple of 3: 3 servers"),
        ("system.devices=3 parallel.strategy=TP-1 server.nano_batches=2", "server.nano_batches=2"),
        ("system.devices=3 parallel.strategy=TP-1 server.cpu_offload=auto", "server.cpu_offload"),
        (
            "system.devices=3 parallel.strategy=TP-1 serve.attention.strategy=TP-1-p2",
            "tensor parallelism alone",
        ),
        ("system.devices=5 parallel.strategy=TP-2", "divides system.devices - serve.attention.devices=3"),
    ],
)
def test_what_does_not_go_with_devices_of_attention(overrides, expected):
    assert expected in reason_of(*APART, *overrides.split())


def test_latent_attention_is_apart_with_its_projections_alone():
    rows = fastflow.evaluate(
        "serve=decode", "server=vllm", "system=dgx_h100", "model=deepseek_v3", "system.devices=34", *APART,
        "parallel.strategy=TP-1-e32-d32", "serve.attention.part=attention,operator",
    )  # fmt: skip
    assert rows["feasible"].tolist() == [True, False]
    assert "queries, keys and values" in rows["reason"].iloc[1]


def test_other_devices_must_have_room_for_their_weights():
    reason = fastflow.evaluate(
        "serve=decode", "server=vllm", "chip=l40s", "model=llama3_70b", "model.dtype=bf16",
        "system.devices=6", "parallel.strategy=TP-2", "serve.attention.devices=4", "serve.attention.chip=h20",
    )["reason"].iloc[0]  # fmt: skip
    assert reason.startswith("a device that does all but attention needs")


@pytest.mark.parametrize("mode", ["continuous", "disaggregated"])
def test_servers_of_requests_are_as_fast_as_their_passes(mode):
    devices = {
        "continuous": ("system.devices=3",),
        "disaggregated": ("system.devices=4", "serve.prefill.devices=1"),
    }
    row = evaluate(
        f"serve={mode}", *devices[mode], "parallel.strategy=TP-1", *APART, "serve.concurrency=32",
        "serve.num_requests=320", "serve.length_range_ratio=0",
    ).iloc[0]  # fmt: skip
    assert row["feasible"]
    assert row["attention_devices"] == 2
    one = evaluate(
        "serve=decode", "system.devices=3", "parallel.strategy=TP-1", *APART,
        f"serve.batch={round(row['running_requests'])}", "serve.context=1536",
    ).iloc[0]  # fmt: skip
    assert row["time_s"] == pytest.approx(one["time_s"], rel=0.05)
    assert one["time_s"] <= row["tpot_s"] < 1.5 * one["time_s"]


def test_servers_of_a_trace(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_time,isl,osl\n" + "".join(f"{0.05 * i},1024,128\n" for i in range(200)))
    row = evaluate(
        "serve=continuous", "system.devices=6", "parallel.strategy=TP-1-d2", "serve.attention.devices=4",
        f"serve.trace={trace}",
    ).iloc[0]  # fmt: skip
    assert row["feasible"]
    assert row["replicas"] == 2
    assert 0.0 < row["tpot_p50_s"] < row["tpot_p99_s"] < 0.05


def test_points_with_nano_batches_are_in_the_same_grid():
    whole = "serve=decode", "system.devices=3", "parallel.strategy=TP-1", "serve.batch=256", "serve.isl=512"
    split = "server.nano_batches=1,2"
    rows = evaluate(*whole, split, "serve.attention.devices=0,2")
    alone = evaluate(*whole, split)
    at = {(row["server.nano_batches"], row["serve.attention.devices"]): row for _, row in rows.iterrows()}
    assert [bool(at[key]["feasible"]) for key in ((1, 0), (2, 0), (1, 2), (2, 2))] == [
        True,
        True,
        True,
        False,
    ]
    assert [at[1, 0]["time_s"], at[2, 0]["time_s"]] == pytest.approx(alone["time_s"].tolist(), rel=1e-9)


def test_auto_keeps_the_devices_of_attention():
    row = evaluate("serve=decode", "system.devices=4", *APART).iloc[0]
    assert row["feasible"]
    assert row["attention_devices"] == 2
    assert row["strategy"] in ("TP-2", "TP-1-d2")


def test_rents_are_of_devices_of_both_kinds():
    row = evaluate(
        "serve=decode", "system.devices=3", "parallel.strategy=TP-1", *APART, "cost=rent",
        "serve.attention.chip=a100_sxm_80",
    ).iloc[0]  # fmt: skip
    assert row["usd_per_h"] == pytest.approx(6.155 + 2 * 2.70)  # conf/cost/rent.yaml
    refused = evaluate(
        "serve=decode", "system.devices=3", "parallel.strategy=TP-1", *APART, "cost=rent",
        "serve.attention.chip=h20",
    ).iloc[0]  # fmt: skip
    assert "has a price" in refused["reason"]


def test_keys_of_devices_of_attention_say_that_they_do_nothing_without_any():
    keys = ("strategy=TP-2", "part=operator", "microbatches=4", "chip=h20")
    row = evaluate("serve=decode", "system.devices=1", "parallel.strategy=TP-1",
                   *(f"serve.attention.{key}" for key in keys)).iloc[0]  # fmt: skip
    for key in keys:
        assert f"serve.attention.{key.partition('=')[0]}: as without it" in row["no_effect"]
    apart = evaluate(
        "serve=decode", "system.devices=3", "parallel.strategy=TP-1", *APART, "serve.attention.chip=h20"
    )
    assert apart["no_effect"].tolist() == [""]
