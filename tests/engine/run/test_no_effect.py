"""Every key that is set and changes nothing says so, and no other one does: all keys, all kinds of work."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastflow
from fastflow import InputError
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.config.model_inputs import is_of_model, model_inputs
from fastflow.engine.grid.unset import NEVER, SAMPLE, _inputs_without
from fastflow.engine.run import no_effect
from fastflow.schema import INPUTS, find_input, results

COLUMN = "no_effect"
TYPICAL = [column.name for column in (*results.TYPICAL, results.TYPICAL_TTFT)]
"""Columns that say what chip an answer is of, and that its figures are not the library's."""
TRAINED = (
    "model=llama3_8b", "system=dgx_h100", "model.batch=64", "parallel.strategy=TP-2-d4", "model.layers=8",
)  # fmt: skip
WORK = {
    "language model": ("tech=n7", "parallel.strategy=RC-4-2-d64"),
    "transformer": TRAINED,
    "mixture": (
        "model=mixtral_8x7b", "system=dgx_h100", "model.batch=8", "parallel.strategy=TP-2-e4-d4",
        "model.layers=4", "parallel.recompute=full", "framework=megatron_core",
    ),
    "encoder and decoder": (
        "model=t5_base", "system=dgx_h100", "parallel.strategy=TP-2-d4", "model.batch=16",
    ),
    "images": (
        "model=qwen3_vl_8b", "system=dgx_h100", "serve=prefill", "serve.images=1",
        "parallel.strategy=TP-2-d4",
    ),
    "one device": ("model=gemm", "chip=a100"),
    "served, fast form": (
        "model=llama3_8b", "system=dgx_h100", "serve=continuous", "server=vllm",
        "parallel.strategy=TP-2-d4", "serve.concurrency=8",
    ),
    "served, simulated": (
        "model=llama3_8b", "system=dgx_h100", "serve=continuous", "parallel.strategy=TP-8",
        "serve.concurrency=4", "serve.simulate=true",
    ),
    "prefill": ("model=llama3_8b", "chip=h100_sxm", "serve=prefill", "parallel.strategy=TP-1"),
    "served, limits": (
        "model=llama3_8b", "system=dgx_h100", "serve=continuous", "server=vllm", "parallel.strategy=TP-8",
        "serve.concurrency=4", "serve.slo.ttft=1 s", "serve.slo.tpot=1 s",
    ),
}  # fmt: skip
NEVER_TRIED = (*NEVER, *no_effect._OF_PREFILL, "model.name", "model.config", "model.size")
"""Keys that are not asked for: columns name what they come to, or other keys follow from them."""
NAMES_FILES = ("model.file", "parallel.layout", "serve.lengths", "serve.prefill.chip", "parallel.layers")


@cache
def _inputs(work: str) -> dict[str, Any]:
    with hydra_rules():
        composer = Composer.of_library()
        return model_inputs(composer.resolved(composer.compose(WORK[work]), is_of_model))


def _other_values(key: str, value: Any) -> Iterator[str]:
    """Yield values that a key may be set to in place of its own."""
    column = find_input(key)
    assert column is not None
    if column.choices:
        yield from (choice for choice in column.choices if choice != value)
    elif column.kind == "bool":
        yield str(not value).lower()
    elif column.kind == "str":
        yield from {"parallel.recompute": ("full", "3"), "parallel.search_bounds": ("tp<=4",)}.get(key, ())
    else:
        for other in (value * 2, value + 1, value / 2):
            if column.low <= other <= column.high and (other > column.low or not column.above_low):
                number = int(other) if column.kind == "int" else other
                yield f"'{number!r} {column.unit}'" if column.unit else repr(number)


CASES = [
    (work, f"{key}={value}")
    for work in WORK
    for key, fixed in sorted(_inputs(work).items())
    if not any(text.startswith(f"{key}=") for text in WORK[work])
    if key not in NEVER_TRIED and not key.endswith(".name") and key not in NAMES_FILES
    for value in _other_values(key, fixed)
]


@cache
def _without(work: str) -> pd.DataFrame:
    return fastflow.evaluate(*WORK[work])


def _same(left: pd.DataFrame, right: pd.DataFrame) -> bool:
    """Say whether two points have the same results, inputs that are repeated aside."""
    names = [name for name in left if name not in (*no_effect._ECHOES, *TYPICAL)]
    return list(left) == list(right) and left[names].equals(right[names])


def _differ(left: pd.DataFrame, right: pd.DataFrame) -> list[str]:
    return [name for name in left if name not in right or not left[name].equals(right[name])]


def check(work: str, text: str) -> None:
    """Ask for a point with and without a key: it says so if both are the same, and only then."""
    key = text.partition("=")[0]
    try:
        frame = fastflow.evaluate(*WORK[work], text)
    except InputError:
        return
    expected_text = [part for part in frame[COLUMN][0].split("; ") if part == f"{key}: as without it"]
    if pd.isna(frame["time_s"][0]):
        assert not expected_text, text
        return
    same = _same(frame, _without(work))
    if expected_text:
        assert same, (work, text, _differ(frame, _without(work)))
    elif same:  # it is what is done without it, by a default that stands for something
        default, column = _inputs(work)[key], find_input(key)
        assert column is not None
        stands = default in no_effect._PLACEHOLDERS or default == column.auto or default == 0
        stands |= key == "system.devices"  # as many as the strategy takes
        assert stands, (work, text)


@pytest.mark.parametrize("place", range(0, len(CASES), max(1, len(CASES) // 15)))
def test_some_keys(place: int) -> None:
    check(*CASES[place])


@pytest.mark.long
@pytest.mark.parametrize("work", WORK)
def test_every_key(work: str) -> None:
    wrong = []
    for case in CASES:
        if case[0] == work:
            try:
                check(*case)
            except AssertionError as error:
                wrong.append(str(error).splitlines()[0])
    assert not wrong


def test_cases_cover_the_registry() -> None:
    covered = {find_input(text.partition("=")[0]) for _, text in CASES}
    others = [column.name for column in INPUTS if column not in covered]
    assert len(others) < 0.35 * len(INPUTS), others


@pytest.mark.parametrize(
    ("texts", "expected_text"),
    [
        (("parallel.offload=activations", "parallel.recompute=full"), ""),
        (("parallel.overlap.context=false",), "parallel.overlap.context: as without it"),
        (("parallel.recompute=99",), "parallel.recompute: as with 98"),
        (("parallel.recompute=selective",), "parallel.recompute: as without it"),
        (("parallel.search_bounds='tp<=4'",), "parallel.search_bounds: as without it"),
        (("server=vllm",), "server: as without it"),
        (("parallel.recompute=none", "parallel.zero_stage=1", "parallel.microbatch=1"), ""),
        (("parallel.sequence_parallel=true",), ""),
        (("parallel.strategy=auto", "parallel.search_bounds='tp<=4'", "parallel.recompute=full"), ""),
    ],
)
def test_of_training(texts: tuple[str, ...], expected_text: str) -> None:
    keys = {text.partition("=")[0] for text in texts}
    fixed = [text for text in TRAINED if text.partition("=")[0] not in keys]
    assert fastflow.evaluate(*fixed, *texts)[COLUMN].tolist() == [expected_text]


@pytest.mark.parametrize(
    ("devices", "expected_text"), [(16, ""), (32, "system.devices: as without it"), (8, None)]
)
def test_devices_that_the_strategy_takes(devices: int, expected_text: str | None) -> None:
    """A system of as many devices as the strategy takes is what is done; of more, some are idle."""
    texts = ("model=llama3_8b", "system=superpod_h100", "model.batch=64", "parallel.strategy=TP-2-d8")
    frame = fastflow.evaluate(*texts, f"system.devices={devices}")
    if expected_text is None:
        assert "system.devices=8" in frame["reason"][0]
    else:
        assert frame[COLUMN].tolist() == [expected_text]


SERVED = ("model=llama3_8b", "system=dgx_h100", "serve=continuous")


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["auto", "TP-8"])
@pytest.mark.parametrize(
    "text",
    [
        "parallel.recompute=full", "parallel.recompute=5", "parallel.microbatch=4", "parallel.microbatches=2",
        "parallel.zero_stage=3", "parallel.pipeline_partition=balanced", "parallel.search_bounds='tp<=4'",
        "+serve.prefill.devices=4",
    ],
)  # fmt: skip
def test_what_only_training_chooses(strategy: str, text: str) -> None:
    key = text.lstrip("+").partition("=")[0]
    frame = fastflow.evaluate(*SERVED, f"parallel.strategy={strategy}", text)
    assert frame[COLUMN].tolist() == [f"{key}: as without it"]
    assert _same(frame, fastflow.evaluate(*SERVED, f"parallel.strategy={strategy}"))


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("continuous", "+serve.prefill.devices=4"), ("continuous", "+serve.prefill.strategy=TP-2"),
        ("disaggregated", "serve.prefill.devices=6"), ("disaggregated", "serve.prefill.strategy=TP-2"),
    ],
)  # fmt: skip
def test_keys_of_prefill_count_where_it_has_devices_of_its_own(mode: str, text: str) -> None:
    """Even where they say what is done without them: columns name its devices and its strategy."""
    fixed = ("serve.prefill.devices=4",) if mode == "disaggregated" and "devices" not in text else ()
    frame = fastflow.evaluate(*SERVED[:2], f"serve={mode}", "parallel.strategy=TP-2", *fixed, text)
    key = text.lstrip("+").partition("=")[0]
    assert frame["feasible"].all()
    assert frame[COLUMN].tolist() == ["" if mode == "disaggregated" else f"{key}: as without it"]


@pytest.mark.parametrize(
    "texts",
    [
        ("model=mixtral_8x22b", "system=dgx_h100", "serve=continuous", "system.devices=16",
         "system.package.devices=2"),
        ("model=llama2_70b", "system=dgx_h200", "system.devices=20", "parallel.strategy=auto",
         "framework=fsdp", "parallel.cp_comm_type=a2a"),
        ("model=nemotron4_340b", "system=superpod_h100", "system.devices=1", "parallel.strategy=auto",
         "framework=jax"),
        ("model=llama2_70b", "system=dgx_h200", "system.devices=20", "parallel.strategy=auto",
         "framework=fsdp", "server=vllm"),
    ],
)  # fmt: skip
def test_the_choice_of_a_strategy_counts(texts: tuple[str, ...]) -> None:
    """A key has an effect where another strategy is the best without it."""
    frame, last = fastflow.evaluate(*texts), texts[-1].partition("=")[0]
    without = fastflow.evaluate(*texts[:-1])
    expected_text = f"{last}: as without it" in frame[COLUMN][0].split("; ")
    assert expected_text == (
        _same(frame, without)
        and frame["zero" if "zero" in frame else "strategy"].equals(
            without["zero" if "zero" in frame else "strategy"]
        )
    )


@pytest.mark.parametrize("chip", ["a100", "h100_sxm", "v100", "pathfinding"])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_values_that_a_chip_lacks_are_no_fault_of_a_point(chip: str, dtype: str) -> None:
    """A key is tried with other values, of which a chip may not know some."""
    work = ("model=attention", f"chip={chip}", f"model.dtype={dtype}", f"precision.attention={dtype}")
    frame = fastflow.evaluate(*work)
    assert frame["time_s"][0] == fastflow.evaluate(*work[:-1])["time_s"][0]


def test_rows_of_a_grid() -> None:
    fixed = [text for text in TRAINED if not text.startswith("parallel.strategy")]
    frame = fastflow.evaluate(
        *fixed, "parallel.strategy=TP-2-d4,TP-2-c2-d2", "parallel.overlap.context=true,false"
    )
    assert frame[COLUMN].tolist() == ["", "parallel.overlap.context: as without it", "", ""]


def test_many_points() -> None:
    texts = ("parallel.strategy=d512", "parallel.search_bounds='tp<=4'", "model.batch=range(1024,11264,32)")
    frame = fastflow.evaluate(*texts, "parallel.overlap.data=true,false")
    assert len(frame) > SAMPLE
    assert set(frame[COLUMN]) == {"parallel.search_bounds: as without it"}


def test_without_a_time() -> None:
    frame = fastflow.evaluate(*TRAINED, "model.dtype=int8", "parallel.offload=activations")
    assert frame["time_s"].isna().all()
    assert frame[COLUMN].tolist() == [""]


def test_the_same_results_next_to_trials() -> None:
    plain, limited = (
        fastflow.evaluate(*TRAINED[:-1], *more) for more in ((), ("parallel.search_bounds='tp<=4'",))
    )
    assert limited[COLUMN].tolist() == ["parallel.search_bounds: as without it"]
    assert _same(plain, limited)


@given(st.lists(st.sampled_from([None, 1.0, 2.0, np.nan]), min_size=1, max_size=4), st.data())
@settings(max_examples=50)
def test_equal_values(left: list[float | None], data: st.DataObject) -> None:
    others = st.lists(st.sampled_from([None, 1.0, 2.0, np.nan]), min_size=len(left), max_size=len(left))
    right = data.draw(others)

    def column(values: list[float | None]) -> np.ma.MaskedArray[Any, Any]:
        missing = [value is None for value in values]
        return np.ma.MaskedArray([0.0 if value is None else value for value in values], mask=missing)

    def plain(value: float | None) -> float | None:
        return None if value is None or value != value else value

    expected = [plain(one) == plain(other) for one, other in zip(left, right, strict=True)]
    assert no_effect._equal(column(left), column(right)).tolist() == expected


def test_what_is_left_is_kept_for_further_calls_unless_it_follows_from_elsewhere(monkeypatch):
    overrides = ("model=llama3_8b", "chip=h100_sxm", "parallel.offload=activations")
    with hydra_rules():
        composer = Composer.of_library()
        first = _inputs_without(composer, ("parallel.offload",), overrides)
        assert first is _inputs_without(composer, ("parallel.offload",), overrides)
        frame = []
        for dtype in ("bf16", "fp16"):
            monkeypatch.setenv("DTYPE_OF_A_TEST", dtype)
            texts = (*overrides, "model.dtype=${oc.env:DTYPE_OF_A_TEST}")
            frame.append(_inputs_without(composer, ("parallel.offload",), texts)["model.dtype"])
    assert frame == ["bf16", "fp16"]
