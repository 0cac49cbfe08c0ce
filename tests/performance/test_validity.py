"""Inputs that are missing, and those that make no chip or no time: refused, or rows with a reason."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import fastflow
from fastflow.core.errors import InputError
from fastflow.performance import crossflow, results, validity
from fastflow.physics.hardware.bounds import MAX_UNITS, MIN_AREA
from fastflow.schema import find_input
from tests.conftest import columns_of
from tests.properties.test_fuzz import BASES, FILE, wrong

COMPONENTS = ("registers", "scratchpad", "cache")
ATTRIBUTES = (
    "latency", "dynamic_energy", "static_power", "cell_area", "overhead", "bank_capacity", "bank_width",
    "bank_frequency", "controller_power", "controller_area", "link_area",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_every_attribute_of_a_memory_is_needed(component, attribute):
    key = f"tech.memory.{component}.{attribute}"
    with pytest.raises(InputError, match=f"{key}=nothing.*it is missing"):
        fastflow.evaluate("model=gemm", f"~{key}")


@pytest.mark.parametrize(
    "key",
    [
        "chip.memory.l2.scope",
        "chip.perimeter.intra",
        "chip.matrix.fp16",
        "tiling.soft_max_order",
        "tiling.max_split_k",
    ],
)
def test_what_is_missing_is_named(key):
    with pytest.raises(InputError, match=f"{key}=nothing.*it is missing"):
        fastflow.evaluate("model=gemm", "tiling=blocks", f"~{key}")


@pytest.mark.parametrize("key", ["tiling.samples", "tiling.seed"])
def test_random_tiles_need_their_number_and_seed(key):
    with pytest.raises(InputError, match=f"{key}=nothing.*it is missing"):
        fastflow.evaluate("model=gemm", "tiling=random", f"~{key}")


def outcome(point):
    """Return the results of a point as plain values, or the key that it is refused for, or its reason."""
    try:
        columns = results.summary(crossflow.predict(columns_of([point])))
    except InputError as error:
        return f"refused: {error}"
    except KeyError as error:
        known = find_input(error.args[0]) is not None and error.args[0] not in point
        return f"refused: {error}" if known else f"KeyError: {error}"
    assert wrong(columns) == ""
    return f"reason: {columns['reason'][0]}" if not columns["feasible"][0] else str(columns)


def two_of_three_are_long(numbers):
    return [pytest.param(number, marks=pytest.mark.long) if number % 3 else number for number in numbers]


@pytest.mark.long
@pytest.mark.parametrize(
    "number", two_of_three_are_long(range(len(BASES))), ids=[" ".join(base) for base in BASES]
)
def test_no_key_is_missed_in_silence(compose, tmp_path, number):
    """Taking an input away is refused, or has a reason, or changes nothing, or is what the registry says."""
    path = tmp_path / "net.yaml"
    path.write_text(FILE, encoding="utf-8")
    point = compose(*(text.replace("FILE", str(path)) for text in BASES[number]))
    whole = outcome(point)
    for key in point:
        got = outcome({name: value for name, value in point.items() if name != key})
        optional = bool(find_input(key).absent)
        assert optional or got == whole or got.startswith(("refused", "reason")), key
        assert not (optional and got.startswith("refused")) or key == "chip.rate.fp32", key


EXTREME = [
    ({"tech.generation": 200}, "less than an atom"),
    ({"tech.generation": 10**12}, "less than an atom"),
    ({"tech.generation": 1, "tech.scaling.area": 1e300}, "less than an atom"),
    ({"tech.generation": 2, "tech.scaling.power": 1e300}, "tech.scaling.power=1e.300 over 2 generations"),
    ({"tech.core.nominal_area": 1e-22}, "less than an atom"),
    (
        {
            "tech.core.nominal_area": 1e-18,
            "tech.core.nominal_power": 1e-18,
            "chip.memory.l0.capacity": 1e-9,
            "chip.memory.l1.capacity": 1e-9,
        },
        "the number of MCUs would be",
    ),
    ({"mem.device_capacity": 1e300}, "the capacity of main memory"),
    ({"mem.nominal_frequency": 1e-300}, "the bandwidth of main memory|what kernels reach of main memory"),
    ({"tech.memory.registers.bank_frequency": 1e-300}, "what kernels reach of l0"),
    ({"tech.core.nominal_frequency": 1e300}, "the cores' clock"),
    ({"tech.core.flop_per_cycle.fp16": 1e300}, "what kernels reach in fp16"),
    ({"tech.core.nominal_voltage": 1e-300, "tech.core.threshold_voltage": 1e-301}, "would be"),
    ({"mem.latency": 1e300}, "no number up to"),
    ({"chip.launch_overhead": 1e300}, "no number up to"),
    ({"chip.dram_utilization": 1e-300}, "what kernels reach of main memory"),
]


@pytest.mark.parametrize(("changed", "reason"), EXTREME, ids=lambda case: str(case))
def test_what_no_chip_can_be_has_a_reason(compose, changed, reason):
    columns = results.summary(crossflow.predict(columns_of([compose("model=gemm") | changed])))
    assert re.search(reason, columns["reason"][0])
    assert wrong(columns) == ""
    assert not columns["feasible"][0]
    assert np.isnan(columns["time_s"][0])


def test_a_rate_beyond_all_chips_is_said(compose):
    point = compose("model=gemm") | {"tech.core.flop_per_cycle.fp16": 1e25, "chip.vector_utilization": 0.25}
    prediction = crossflow.predict(columns_of([point]))
    cores = prediction.chip.cores
    reached = 0.25 * cores.mcus[0] * 1e25 * point["chip.rate.fp16"] * cores.frequency[0]
    assert point["chip.utilization"] > 0.25
    assert f"what kernels reach in fp16 [flop/s] would be {reached:.3g}, " in str(prediction.reason.at(0))


def test_a_node_too_far_ahead_has_no_counts():
    row = fastflow.evaluate("model=gemm", "tech.generation=200").iloc[0]
    assert "less than an atom" in row["reason"]
    assert not row["feasible"]
    assert np.isnan(row["time_s"])
    counts = [row[name] for name in ("mcus", "bundles", "dram_devices", "l0_banks", "l1_banks", "l2_banks")]
    assert all(count is None or not count < 0 for count in counts)
    assert 1e-19 < MIN_AREA < 1e-18
    assert MAX_UNITS == 1e12


@pytest.mark.parametrize("rate", ["1e-3", "1e-6", "1e-15"])
@pytest.mark.parametrize("model", ["operator", "gemm", "rnn", "lstm_lm"])
def test_no_utilisation_above_one(model, rate):
    """Passes compute on vector lanes, whose rate is not the data type's."""
    given = [f"model={model}", "chip=a100", "model.dtype=fp16", f"chip.rate.fp16={rate}"]
    if model == "lstm_lm":
        given += ["model.hidden=256", "model.vocabulary=1000"]
    row = fastflow.evaluate(*given).iloc[0]
    shares = [name for name in row.index if name.endswith("_frac")] + ["mfu", "gemm_utilization"]
    assert (row[shares].to_numpy(dtype=float) <= 1.0).all()


def test_a_chip_without_the_passes_data_type():
    """A product needs no vector lanes, a pass does."""
    got = fastflow.evaluate("model=gemm,operator", "chip=a100", "model.dtype=fp16", "chip.rate.fp32=0")
    assert got["feasible"].tolist() == [True, False]
    assert "rate of 0" in got["reason"][1]
    assert np.isnan(got["time_s"][1])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("model.hidden=2,4",), "a divisor of model.hidden"),
        (("model.pattern='dense, experts'", "model.batch=8,16"), "at least 1, since model.pattern"),
        (("model.hidden=4,8", "parallel.layers='dense: RC-1-8'"), "a divisor of model.hidden"),
        (("model.sequence=1000000000000",), "at most 1e+09 tokens"),
    ],
)
def test_models_that_do_not_suit_are_rows_with_their_reason(given, reason):
    """Their layers are asked for, and their kernels are counted, before they are refused; and at once."""
    got = fastflow.evaluate("model=transformer", "system.devices=8", "parallel.strategy=d8", *given)
    assert np.isnan(got["time_s"]).all()
    assert all(reason in one for one in got["reason"])


@pytest.mark.parametrize("model", ["attention", "transformer"])
def test_a_chip_without_the_data_type_of_attention(model):
    """Beside products of 8 bits attention computes in 16 bits of the chip: bf16, or fp16 on older ones."""
    point = (
        f"model={model}", "chip=v100,t4,p4,a100", "model.training=false", "model.dtype=int8",
        "system.devices=1", "parallel.strategy=d1",
    )  # fmt: skip
    of_the_chip, fp16, bf16 = (
        fastflow.evaluate(*point, *more)
        for more in ((), ("precision.attention=fp16",), ("precision.attention=bf16",))
    )
    older = fp16["time_s"].notna().to_numpy() & (np.arange(4) < 3)
    assert (of_the_chip["time_s"][older] == fp16["time_s"][older]).all()
    assert of_the_chip["time_s"][3] == bf16["time_s"][3]
    assert np.isnan(bf16["time_s"]).tolist() == [True, True, True, False]
    for reason, chip in zip(bf16["reason"], ("V100-SXM2-16GB", "T4", "P4"), strict=False):
        assert reason == (
            f"a kernel (attention) computes in bf16 where products are int8, and chip {chip} has no bf16"
        )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("model=operator", "model.tensors=1000000000000", "model.cols=1000000000000"), "model.tensors x"),
        (("model=rnn", "model.batch=1000000000000", "model.sequence=1000000000000"), "model.batch x"),
        (("model=lstm_lm", "model.batch=1000000000000", "model.sequence=1000000000000"), "model.batch x"),
        (("model=lstm_lm", "parallel.strategy=d512", "parallel.microbatches=1000000",
          "model.batch=1000000000", "model.hidden=1"), "kernels over all micro-batches"),
    ],
)  # fmt: skip
def test_products_of_sizes_that_integers_do_not_count(given, reason):
    row = fastflow.evaluate(*given).iloc[0]
    assert reason in row["reason"]
    assert not row["feasible"]


def test_others_are_predicted_beside_a_point_without_a_time():
    """Bit for bit as alone, whichever check finds the other."""
    alone = fastflow.evaluate("model=gemm").iloc[0]
    both = fastflow.evaluate("model=gemm", "mem.latency=158 ns,1e300 s")
    assert both["feasible"].tolist() == [True, False]
    for name, value in alone.items():
        assert both[name][0] == value or both[name][0] != both[name][0], name


def schedulable(*point, **changed):
    """Return the text of `schedulable_reason`."""
    return str(schedulable_reason(*point, **changed) or "")


def schedulable_reason(repeat, stages, microbatches, slots=1, layer=(0,), name="lstm_lm", chunks=1):
    """Return the reason of one point with a kernel for each count of launches; layers are numbered from 0."""
    layer = [*layer, *[0] * (len(repeat) - len(layer))]
    graph = SimpleNamespace(
        offset=np.array([0, len(repeat)]),
        launches=SimpleNamespace(repeat=np.array(repeat)),
        layer=SimpleNamespace(number=np.array(layer)),
    )
    strategies = SimpleNamespace(pp=np.array([stages]), chunks=np.array([chunks]))
    inputs = {"model.name": np.array([name]), "parallel.concurrent_kernels": np.array([slots])}
    return validity.too_large_to_schedule(inputs, graph, strategies, np.array([microbatches])).at(0)


def test_the_most_that_is_scheduled():
    """Each limit itself is allowed, and a little more is not."""
    assert schedulable([1, 2**61], 1, 2) == ""
    assert schedulable([1, 2**61 + 2**9], 1, 2).startswith("asks for 4.61e+18 launches of one kernel, more")
    assert schedulable([1] * 4, 1, 1_000_000) == ""
    assert "kernels over all micro-batches" in schedulable([1] * 4, 1, 1_000_001)
    assert schedulable([1], 1_000_000, 1, layer=[9]) == ""
    assert "layers times pipeline stages" in schedulable([1], 1_000_001, 1, layer=[9])


def test_a_device_that_goes_through_its_kernels_once_is_not_simulated(monkeypatch):
    monkeypatch.setattr(validity, "MAX_TASKS", 2)
    assert schedulable([1] * 3, 1, 1) == ""
    for simulated in ((2, 1, 1), (1, 2, 1), (1, 1, 2)):
        assert "kernels over all micro-batches" in schedulable([1] * 3, *simulated)


def test_layers_that_stand_for_several_are_scheduled_in_blocks():
    """However many kernels a block has."""
    given = {"repeat": [1] * 1000, "stages": 5, "name": "transformer", "chunks": 2}
    assert schedulable(microbatches=5_000_000, **given) == ""
    assert schedulable(microbatches=5_000_001, **given).startswith("asks for 1e+08 blocks of a micro-batch")


def test_the_most_that_an_exchange_takes():
    beyond = [float(np.nextafter(validity.MAX_VALUE, np.inf)), np.inf, np.nan, -1e-9]
    sync = np.array([0.0, validity.MAX_VALUE, *beyond])
    graph = SimpleNamespace(offset=np.arange(7))
    took = SimpleNamespace(sync_s=sync, gradient_s=np.zeros(6), send_s=np.zeros(6))
    reason = validity.invalid_comm_times(graph, took).texts()
    assert reason[:2].tolist() == ["", ""]
    assert set(reason[2:]) == {"an exchange's time is no number up to 1e+100 s: inputs are too far apart"}
