"""Codes and forms of reasons."""

import pickle
import re

import pytest

from fastflow.core.errors import CompositionError, InputError
from fastflow.core.reasons import forms
from fastflow.core.reasons.codes import (
    CODES_OF_FORMS,
    FORMS,
    Code,
    invalid_degree,
    refused,
    rejected,
    stated,
)

EXAMPLES = [
    (forms.short_of_memory(needed=164.23e9, capacity=85.9e9),
     "needs 164.2 GB of memory a device, has 85.9 GB"),
    (forms.no_layout_fits(needed=2e13, capacity=1e9, layout="TP-8", parts={"weights": 2e13, "cache": 0.0}),
     "needs at least 20,000 GB of memory a device, has 1 GB: no layout fits, and the least is TP-8"
     " (weights 20,000 GB)"),
    (forms.no_breakdown_fits(needed=2e9, largest=1.5e9),
     "needs 2 GB of memory a device; no breakdown has more than 1.5 GB"),
    (forms.short_of_cache(needed=1e9, left=2e9, weights=3e9, work=4e9, budget=8192, slots=2, which="device"),
     "caches need 1 GB of a device; weights of 3 GB and activations of 4 GB"
     " (server.max_num_batched_tokens=8192 tokens) leave them 2 GB, which 2 batches in flight share, one for"
     " each stage"),
    (forms.short_of_cache(
        needed=3e9, left=2e9, weights=3e9, work=1e9, budget=8192, slots=1, which="device", adapter=1e9
     ),
     "caches and an adapter of 1 GB need 3 GB of a device; weights of 3 GB leave them 2 GB"),
    (forms.short_of_other_devices(needed=9e9, capacity=8e9, weights=7e9),
     "a device that does all but attention needs 9 GB of memory, of which weights 7 GB, has 8 GB"),
    (forms.short_of_encoder(needed=9e9, capacity=8e9, weights=7e9),
     "a device of encoders needs 9 GB of memory, of which weights 7 GB, has 8 GB"),
    (forms.no_room(component="l2", budgets="chip.area.l2=0"),
     "l2 has no room: its budgets are chip.area.l2=0"),
    (forms.no_power(component="dram", budgets="chip.power.dram=0"),
     "dram has no power left for its work: its budgets are chip.power.dram=0"),
    (forms.supplies_not_rising(section="mem", volts={"nominal_voltage": 0.8, "threshold_voltage": 2.0}),
     "mem: supplies must rise from threshold to minimum to maximum; these are nominal_voltage 0.8 V,"
     " threshold_voltage 2 V"),
    (forms.no_area_for_cores(keys="chip.chiplets.base.die_area", left="5 mm2", needed="354 mm2"),
     "chip.chiplets.base.die_area of chip.die_area leaves 5 mm2 for a die of the cores, which needs 354 mm2"),
    (forms.below_atom(key="tech.core.nominal_area", area=6.55e-20, generation=50, least=1.5e-19),
     "tech.core.nominal_area is 6.55e-20 m2 at tech.generation=50, less than an atom (1.5e-19 m2)"),
    (forms.scaled_out_of_range(scaling="scaling.*.area", generations=9, most=1e30),
     "scaling.*.area over 9 generations is more than 1e+30"),
    (forms.out_of_range(quantity="the cores' clock [Hz]", value=1e40, most=1e30),
     "the cores' clock [Hz] would be 1e+40, outside 0 to 1e+30"),
    (forms.rate_out_of_range(quantity="what intra links reach [B/s]", value=1e-40, least=1e-30, most=1e30),
     "what intra links reach [B/s] would be 1e-40, neither 0 nor 1e-30 to 1e+30"),
    (forms.too_large(quantity="launches of one kernel", amount=5e18, limit=4.61e18),
     "asks for 5e+18 launches of one kernel, more than 4.61e+18"),
    (forms.idle_units(),
     "a kernel has no time: the chip has a rate of 0 (chip.rate) in the data type that it computes in"),
    (forms.lacks_kernel_type(kernel="norm", dtype="bf16", products="fp8", chip="P4"),
     "a kernel (norm) computes in bf16 where products are fp8, and chip P4 has no bf16"),
    (forms.kernel_out_of_range(most=1e100),
     "a kernel's time or bytes are no number up to 1e+100: inputs are too far apart"),
    (forms.exchange_out_of_range(most=1e100),
     "an exchange's time is no number up to 1e+100 s: inputs are too far apart"),
    (forms.takes_no_time(),
     "an iteration takes no time: there is nothing to compute, to move or to launch"),
    (forms.overloaded(served=8.5, sent=100.0, carried=7.65),
     "serves 8.5 of 100 requests a second that are sent (overload): serve.request_rate='7.7 1/s' is carried,"
     " or more devices"),
    (forms.stalled(policy="mine"),
     "server.policy=mine leaves requests waiting though none runs and none will arrive"),
    (forms.above_limit(statistic="mean ttft", latency=0.21532, key="serve.slo.ttft", limit=0.05),
     "mean ttft is 0.2153 s, above serve.slo.ttft=0.05 s"),
    (forms.stopped(ended=6240, requests=100_000, missed="ttft_p99_s is above 1 s"),
     "stopped after 6,240 of 100,000 requests: ttft_p99_s is above 1 s"),
    (forms.rack_above_limit(drawn=41260.0, limit=4e4, devices=24, of_device=523.0),
     "a rack draws 41.3 kW, above power.rack_limit=40 kW: power.rack_devices=24 keeps to it, or"
     " chip.power_limit='523 W'"),
    (forms.system_above_limit(drawn=10.00004e6, limit=1e7, devices=7992, of_device=1020.0),
     "the system draws 10.00004 MW at the site, above power.site_limit=10 MW: chip.power_limit='1020 W'"
     " keeps to it, or a system of 7,992 devices at the same power"),
    (forms.duplicate(strategy="d512"), "gives the same results as d512"),
    (forms.is_zero(), "is 0"),
    (forms.single_rank(), "a single rank exchanges nothing"),
    (forms.wrong_time(time=float("inf")), "the model gives inf s"),
    (rejected(Code.BATCH, "parallel.microbatch", 7, "a divisor of the 8  sequences"),
     "parallel.microbatch=7 is invalid: expected a divisor of the 8 sequences"),
    (invalid_degree(Code.STRATEGY, "ep", 8, "a divisor of model.experts=4"),
     "degree of ep=8 is invalid: expected a divisor of model.experts=4"),
    (stated(Code.MEASUREMENT, "tp x pp x cp does not divide gpus"), "tp x pp x cp does not divide gpus"),
]  # fmt: skip


def test_codes_are_words_of_tables():
    assert [int(code) for code in Code] == list(range(len(Code)))
    assert Code.NONE.label == ""
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code.label) for code in Code if code)
    assert all(code.meaning and "|" not in code.meaning for code in Code)


def test_every_form_has_an_example():
    assert {reason.form for reason, _ in EXAMPLES} == set(FORMS)


@pytest.mark.parametrize(("reason", "text"), EXAMPLES, ids=lambda case: getattr(case, "form", ""))
def test_the_text_of_a_reason(reason, text):
    assert str(reason) == text
    assert reason.code == CODES_OF_FORMS.get(reason.form, reason.code)
    assert pickle.loads(pickle.dumps(reason)) == reason
    assert reason.short == text.split(":")[0].split(" (")[0].removesuffix(" is invalid")


def test_what_else_a_form_says():
    nothing = forms.no_layout_fits(needed=2e9, capacity=1e9, layout="TP-8", parts={"weights": 2e9})
    assert str(nothing.with_fields(devices=24)) == f"{nothing}; system.devices=24 has one that fits"
    tried = str(nothing.with_fields(devices=0))
    way = nothing.with_fields(devices=0, way=("parallel.zero_stage=3", 16))
    fits = "but with parallel.zero_stage=3 system.devices=16 has: python -m fastflow.fits lists more"
    assert str(way) == f"{nothing}; no number of devices that was tried has one that fits, {fits}"
    advice = "python -m fastflow.fits with the same keys lists what may"
    assert tried == f"{nothing}; no number of devices that was tried has one that fits: {advice}"
    assert str(forms.wrong_time(time=float("nan"))) == "the model gives no time"
    nan = float("nan")
    rack = forms.rack_above_limit(drawn=2e3, limit=1e3, devices=0, of_device=nan)
    assert str(rack).endswith(": a device and its share of the machine alone draw more")
    one = forms.system_above_limit(drawn=2e3, limit=1e3, devices=1, of_device=nan)
    assert str(one).endswith(": a system of 1 device at the same power keeps to it")
    by_file = forms.overloaded(served=1.0, sent=2.0, carried=0.9, from_file=True)
    assert str(by_file).endswith("(overload): requests that come more slowly, or more devices")
    shortage = forms.short_of_cache(
        needed=3e9, left=2e9, weights=4e9, work=3e9, budget=1, slots=2, which="device"
    )
    assert str(shortage) == "caches need 3 GB of a device; weights of 4 GB leave them 2 GB"


def test_a_point_with_one_reason_is_an_error_of_its_key():
    error = rejected(Code.STRATEGY, "parallel.strategy", "d7", "d8").error()
    assert (error.key, error.value, error.allowed) == ("parallel.strategy", "d7", "d8")
    degree = invalid_degree(Code.STRATEGY, "tp", 3, "a divisor of 8")
    for reason in (forms.is_zero(), degree):
        assert str(reason.error()) == f"no time can be predicted: {reason}"  # no key of a user
        assert reason.error().wrong_degree == (reason is degree)
    assert degree.short == "degree of tp=3"


def test_conflicts_of_a_value_stay_with_its_reason_and_its_error():
    reason = rejected(Code.STRATEGY, "parallel.strategy", "d7", "d8", conflicts=[("system.devices", 8)])
    error = reason.error()
    assert error.conflicts == pickle.loads(pickle.dumps(error)).conflicts == (("system.devices", "8"),)
    assert refused(Code.STRATEGY, error).error().conflicts == error.conflicts
    assert pickle.loads(pickle.dumps(CompositionError("no", wrong_degree=True))).wrong_degree


def test_errors_become_reasons():
    error = InputError("system.shape", "9x9", "a shape", "grid.yaml")
    assert str(refused(Code.NETWORK, error)) == str(error)
    assert str(refused(Code.NETWORK, CompositionError("no network"))) == "no network"
