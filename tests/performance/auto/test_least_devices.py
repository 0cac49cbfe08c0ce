"""system.devices=auto: the least number of devices, against a scan of all of them; and what is known."""

import re

import numpy as np
import pytest

import fastflow
from fastflow.cli.commands.sweep import main
from fastflow.core.errors import InputError
from fastflow.performance.auto.least_devices import fewest_for_state, least_devices
from fastflow.performance.auto.no_fit import device_counts
from tests.conftest import columns_of
from tests.naive import least_devices as naive

AUTO = "system.devices=auto"
SMALL = (
    "model=llama3_8b",
    "model.layers=6",
    "model.batch=12",
    "model.sequence=1024",
    "parallel.strategy=auto",
)
SERVED = ("serve=continuous", "server=vllm", "model.dtype=bf16", "parallel.strategy=auto")
MOST = 96  # devices that a scan tries
CASES = {
    "one a package": (*SMALL, "system=cluster", "chip=l4"),
    "eight a package": (*SMALL, "system=dgx_h100"),
    "a rack": (*SMALL, "system=gb200_nvl72"),
    "a batch that few numbers divide": (*SMALL, "system=dgx_h100", "model.batch=9", "parallel.zero_stage=1"),
    "without a pipeline": (*SMALL, "system=dgx_a100", "parallel.search_bounds='pp=1,tp<=2'"),
    "experts": ("model=mixtral_8x7b", "model.layers=4", *SMALL[2:], "system=dgx_h100"),
    "offloaded": (*SMALL, "system=dgx_h100", "parallel.offload=optimizer"),
    "LSTMs": ("model=lstm_lm", "parallel.strategy=auto", "system=cluster"),
    "served on cards": ("model=llama3_8b", *SERVED, "system=pcie", "chip=l4"),
    "served on a machine": ("model=llama3_70b", *SERVED, "system=dgx_h100"),
    "a mixture served": ("model=mixtral_8x7b", *SERVED, "system=dgx_a100"),
    "one pass": ("model=llama3_8b", "serve=decode", *SERVED[1:], "system=pcie", "chip=l4"),
}
CAPACITIES = (6, 11, 24, 70)
"""Of a device [GB]."""


LONG = ("served on a machine", "a mixture served", "one pass")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.long] if case in LONG else []) for case in CASES]
)
def test_as_few_as_a_scan_of_all_numbers_finds(case, compose):
    scanned = set()
    for capacity in CAPACITIES:
        inputs = columns_of([compose(*CASES[case], "system.devices=8")])
        inputs["chip.pinned.dram_capacity_B"] = np.array([capacity * 1e9])
        least = naive.least(inputs, MOST)
        answer = least_devices(inputs)
        if least:
            assert (answer.devices, answer.fits) == (least, True)
        else:
            assert not answer.fits or answer.devices > MOST
        assert fewest_for_state(inputs) <= (least or np.inf)
        scanned.add(least)
    assert len(scanned) > 1


@pytest.mark.parametrize("resident", [1, 40, 300])
def test_servers_hold_the_requests_of_the_load(resident, compose):
    stated = ("model=llama3_8b", *SERVED, "system=pcie", "chip=l4", "serve.isl=4096")
    inputs = columns_of([compose(*stated, f"serve.resident_requests={resident}")])
    row = fastflow.evaluate(*stated, AUTO, f"serve.concurrency={resident}").iloc[0]
    assert least_devices(inputs).devices == naive.least(inputs, MOST, resident) == row["devices"]
    assert row["max_concurrent_requests"] >= resident


def test_numbers_are_tried_from_few_to_many():
    for package in (1, 2, 8, 72):
        counts = [*device_counts(0, package)]
        assert counts == sorted({*counts})
        assert counts[0] == 1
        assert {*naive.counts(package, counts[-1])} == {*counts}


KNOWN = {
    # a card of 24 GB serves 8 billion parameters in 16 bits, if its requests are short
    "8B on a card": (("model=llama3_8b", "chip=rtx_4090", *SERVED, "serve.isl=512", "serve.osl=256"), 1),
    "70B on 80 GB": (("model=llama3_70b", "chip=h100_sxm", *SERVED), 2),
    "70B on 48 GB": (("model=llama3_70b", "chip=a6000", *SERVED), 4),
    "405B in fp8": (("model=llama3_405b", "chip=h100_sxm", *SERVED, "model.dtype=fp8"), 8),
    "DeepSeek-V3, 80 GB": (("model=deepseek_v3", "chip=h100_sxm", *SERVED[:2]), 16),
    "DeepSeek-V3, 141 GB": (("model=deepseek_v3", "chip=h200_sxm", *SERVED[:2]), 8),
    # 16 bytes a parameter are 128 GB; with activations that is two cards of 80 GB and eight of 24 GB
    "8B trained on 80 GB": (("model=llama3_8b", "chip=h100_sxm", "model.batch=16", "model.sequence=2048"), 2),
    "8B trained on 48 GB": (("model=llama3_8b", "chip=a6000", "model.batch=16", "model.sequence=2048"), 4),
    "70B with QLoRA, 48 GB": (
        (
            "model=llama3_70b", "chip=l40s", "model.batch=16", "model.sequence=512", "model.lora.rank=16",
            "model.lora.base_dtype=nf4",
        ),
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", KNOWN)
def test_the_answers_that_maintainers_give(case):
    stated, devices = KNOWN[case]
    stated = list({text.partition("=")[0]: text for text in stated}.values())
    row = fastflow.evaluate(*stated, AUTO).iloc[0]
    assert row["devices"] == devices
    assert row["feasible"] or row["reason_code"] != "memory"


@pytest.mark.parametrize("case", ["8B trained on 80 GB", "70B on 80 GB"])
def test_a_point_is_that_of_its_number(case):
    stated, devices = KNOWN[case]
    stated = (*[text for text in stated if text != "parallel.strategy=auto"], "parallel.strategy=auto")
    rows = [fastflow.evaluate(*stated, f"system.devices={count}").iloc[0] for count in ("auto", devices)]
    same = ["strategy", "time_s", "footprint_B", "devices", "reason"]
    assert rows[0][same].tolist() == rows[1][same].tolist()


def test_a_grid_has_the_number_of_each_point():
    stated = ("model=llama3_8b", "model.batch=16", "parallel.strategy=auto")
    rows = fastflow.evaluate(*stated, "chip=h100_sxm,a6000", "system.devices=auto,16")
    assert rows["devices"].tolist() == [2, 16, 4, 16]
    assert rows["feasible"].all()


NONE_FITS = (
    "model=llama3_70b", "chip=h100_sxm", "model.batch=16", "parallel.zero_stage=0",
    "parallel.search_bounds='tp=1,pp=1'",
)  # fmt: skip


def test_where_no_number_fits_a_line_says_what_may_and_it_does():
    row = fastflow.evaluate(*NONE_FITS, AUTO).iloc[0]
    assert not row["feasible"]
    said = "no number of devices that was tried has one that fits: python -m fastflow.fits"
    assert said in row["reason"]
    ways = fastflow.fits(*NONE_FITS).set_index("way")
    assert not ways["fits"]["as given"]
    assert ways["fits"]["ZeRO 3"]
    again = [text for text in NONE_FITS if "zero_stage" not in text]
    then = fastflow.evaluate(*again, *ways["overrides"]["ZeRO 3"].split(), AUTO).iloc[0]
    assert then["feasible"]
    assert then["devices"] == ways["devices"]["ZeRO 3"]


@pytest.mark.parametrize("number", [(AUTO,), ("system.devices=16", "parallel.strategy=auto")])
def test_a_single_point_says_which_way_fits_and_it_does(number, cli):
    _, out, err = cli(main, *NONE_FITS, *number, "output=here")
    text = " ".join(" ".join([*out, *err]).split())
    way, devices = re.search(
        r"but with (\S+) system\.devices=(\d+) has: python -m fastflow\.fits", text
    ).groups()
    kept = [text for text in NONE_FITS if text.partition("=")[0] != way.partition("=")[0]]
    stated = (*kept, way, f"system.devices={devices}", "parallel.strategy=auto")
    assert fastflow.evaluate(*stated).iloc[0]["feasible"]


@pytest.mark.parametrize(
    ("stated", "line"),
    [
        (("parallel.strategy=TP-2",), "parallel.strategy=TP-2 .* expected auto where system.devices=auto"),
        (("parallel.search_bounds='tp>=2,tp<=1'",), "parallel.search_bounds"),
    ],
)
def test_a_mistake_is_one_line(stated, line):
    with pytest.raises(InputError, match=line):
        fastflow.evaluate("model=llama3_8b", "chip=h100_sxm", AUTO, *stated)


def test_what_needs_a_number_refuses_auto():
    with pytest.raises(InputError, match=r"system\.devices=auto .*a number, which a search of designs needs"):
        fastflow.search(AUTO, "tech=n7")
    with pytest.raises(InputError, match=r"a number, which a collective needs"):
        fastflow.predict_collective("all-reduce", 1e6, 2, "system=dgx_a100", AUTO)


@pytest.mark.parametrize("stated", [KNOWN["8B trained on 80 GB"][0], KNOWN["70B on 80 GB"][0]])
def test_a_point_on_the_screen(stated, cli):
    _, out, err = cli(main, *stated, AUTO, "output=here")
    text = " ".join(out)
    assert not err or "Traceback" not in " ".join(err)
    assert "Best of" in text
    assert "system=dgx_h100, the machine of chip=h100_sxm" in text
