"""Where nothing fits: the least memory of any layout, and how many devices would do; followed."""

import re

import numpy as np
import pytest

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.config.catalog import keys
from fastflow.core.errors import InputError
from fastflow.core.reasons.forms import no_layout_fits
from fastflow.core.tables import take
from fastflow.performance.auto.no_fit import with_devices
from fastflow.performance.auto.transformer import best_layouts
from fastflow.performance.partial_predictions import lower_bounds
from fastflow.physics.parallelism.candidates import every_layout
from fastflow.schema import INPUTS
from tests.conftest import columns_of

AUTO = "parallel.strategy=auto"
SERVED = ("serve=continuous", "server=vllm", "serve.concurrency=4", "serve.isl=512", "serve.osl=128")
NEEDS = re.compile(r"needs at least ([\d.e+]+) GB of memory a device, has ([\d.e+]+) GB: no layout fits")
CASES = {
    "a model for a cluster": ("model=llama3_405b", "system=dgx_h100", "model.batch=64"),
    "one device": ("model=llama3_8b", "system=dgx_a100", "system.devices=1", "model.batch=16"),
    "on Volta": ("model=gpt3_175b", "system=dgx_v100", "model.dtype=fp16", "model.batch=64"),
    "ZeRO that is set": ("model=llama3_70b", "system=dgx_h100", "model.batch=32", "parallel.zero_stage=0"),
    "a language model of LSTMs": ("model=lstm_lm", "system.devices=2", "chip=v100_sxm"),
    "a mixture served": ("model=deepseek_v3", "system=dgx_a100", "model.dtype=fp16", *SERVED),
    "one device that serves": ("model=deepseek_v3", "system=dgx_h100", "system.devices=1", *SERVED),
    "cards that serve": (
        "model=llama3_70b",
        "system=pcie",
        "chip=l4",
        "system.devices=1",
        *SERVED,
        "server.max_num_seqs=256",
    ),
    "a pass": ("model=llama3_70b", "system=dgx_h100", "system.devices=1", "serve=decode", "server=vllm"),
}


QUICK = ("one device", "on Volta", "a pass")
EVERY = [pytest.param(case, marks=() if case in QUICK else pytest.mark.long) for case in CASES]


@pytest.mark.parametrize("case", EVERY)
def test_as_many_devices_as_it_says_have_a_layout_that_fits(case, cli):
    _, out, err = cli(main, *CASES[case], AUTO, "output=here")
    text = " ".join(" ".join([*out, *err]).split())
    assert NEEDS.search(text), text
    devices = int(re.search(r"system\.devices=(\d+) has one that fits", text)[1])
    given = [one for one in CASES[case] if not one.startswith("system.devices")]
    row = fastflow.evaluate(*given, AUTO, f"system.devices={devices}").iloc[0]
    assert row["reason"] == ""
    assert row["feasible"]


@pytest.mark.parametrize("case", EVERY)
def test_a_device_of_the_least_memory_has_a_layout_that_fits(case):
    """And one of a little less has none: no layout needs less."""
    said = (*CASES[case], AUTO)
    row = fastflow.evaluate(*said).iloc[0]
    least, there = map(float, NEEDS.search(row["reason"]).groups())
    assert least > there
    share_offered = there * 1e9 / row["dram_capacity_B"]
    for share, fits in ((1.001, True), (0.999, False)):
        memory = f"chip.pinned.dram_capacity_B='{share * least / share_offered} GB'"
        assert fastflow.evaluate(*said, memory).iloc[0]["feasible"] == fits


def test_rows_of_a_grid_say_it_without_looking_for_devices():
    said = ("model=llama3_70b", "system=dgx_h100", "model.batch=32", AUTO)
    rows = fastflow.evaluate(*said, "system.devices=1,2,32", "model.layers=80")
    least = [NEEDS.search(reason) for reason in rows["reason"]]
    assert [found is not None for found in least] == [True, True, False]
    assert not rows["reason"].str.contains("has one that fits").any()
    assert float(least[0][1]) > float(least[1][1])


def test_the_least_of_all_layouts(compose):
    inputs = columns_of([compose("model=llama3_405b", "system=dgx_h100", "model.batch=64", AUTO)])
    layouts = every_layout(inputs)
    count = layouts["parallel.strategy"].size
    found = lower_bounds(take(dict(inputs), np.zeros(count, np.int64)) | layouts)
    text = str(best_layouts(inputs).least)
    assert float(NEEDS.search(text)[1]) == pytest.approx(
        found.memory[~found.reason.exists].min() / 1e9, rel=1e-3
    )
    parts = re.findall(r"(\w+) ([\d.e+]+) GB[,)]", text)
    assert sum(float(size) for _, size in parts) == pytest.approx(float(NEEDS.search(text)[1]), rel=1e-3)


def test_devices_are_tried_from_few_to_many(compose):
    """Parts of a machine first, then whole ones; and where none does, that is said."""
    inputs, tried = columns_of([compose("system=dgx_h100", "system.devices=1")]), []

    def fits(point):
        tried.append(int(point["system.devices"][0]))
        return tried[-1] >= 24

    why = no_layout_fits(needed=2e9, capacity=1e9, layout="TP-1", parts={"weights": 2e9})
    assert str(with_devices(inputs, why, fits)) == f"{why}; system.devices=24 has one that fits"
    assert tried == [2, 4, 8, 16, 24]
    assert str(with_devices(inputs, why, lambda _: False)).startswith(f"{why}; no number of devices")


@pytest.mark.parametrize(
    ("texts", "advice"),
    [
        (("model=deepseek_v3", "parallel.strategy=TP-8-e2-d2-p2"), ("parallel.pipeline_partition=balanced",)),
        (("model=kimi_k2", "parallel.strategy=TP-4-d2-p4"), ("parallel.pipeline_partition=balanced",)),
        (("model=qwen3_32b", "parallel.strategy=TP-8-d3"), ("parallel.strategy=auto",)),
        (("model=mixtral_8x7b", "parallel.strategy=TP-8-d16-p4"), ("parallel.strategy=auto",)),
    ],
)
def test_the_way_out_of_a_strategy_works(texts: tuple[str, ...], advice: tuple[str, ...]) -> None:
    work = ("system=dgx_h200", "system.devices=32", "model.batch=64", *texts)
    reason = fastflow.evaluate(*work)["reason"][0]
    assert reason.startswith("parallel.strategy=")
    assert reason.endswith(f"or {advice[0].removeprefix('parallel.strategy=')}")
    keys = [text.partition("=")[0] for text in advice]
    kept = [text for text in work if text.partition("=")[0] not in keys]
    assert fastflow.evaluate(*kept, *advice)["time_s"][0] > 0.0


SERVED = [
    column.name for column in INPUTS if column.name.startswith("serve.") and column.name != "serve.mode"
]


@pytest.mark.long
@pytest.mark.parametrize("choice", ["none", "decode", "continuous", "disaggregated"])
@pytest.mark.parametrize("key", SERVED)
def test_a_key_of_another_choice_of_serve_names_that_choice(key: str, choice: str) -> None:
    """What the line says works: the key is one of that choice."""
    work = ("model=llama3_8b", "system=dgx_h100", "parallel.strategy=TP-2-d2")
    if key in keys("serve", choice):
        return
    with pytest.raises(InputError, match=r"; serve=.* (has|have) it$") as refused:
        fastflow.evaluate(*work, f"serve={choice}", f"{key}=1")
    having = re.search(r"; serve=(.*) (?:has|have) it$", str(refused.value))
    assert having is not None
    for other in having.group(1).split(", "):
        assert key in keys("serve", other)
