"""Sampling of servers: what top-p sampling adds to an iteration, and where it has no effect."""

import numpy as np
import pytest

import fastflow
from fastflow.physics.workload.ops.top_p import FILTERS, SEARCH, SORT
from tests.naive import top_p as naive

VOCABULARY, BANDWIDTH = 151936, 3.35e12 * 0.92  # of HBM, what a pass reaches
DECODE = (
    "serve=decode", "model=qwen3_32b", "chip=h100_sxm", "system=dgx_h100", "server=vllm",
    "serve.isl=512", "serve.osl=64",
)  # fmt: skip


def test_the_traffic_of_a_sort_is_that_of_its_kernels():
    assert FILTERS[SORT].moved == naive.sort_traffic()
    assert FILTERS[SEARCH].moved < 0.2 * FILTERS[SORT].moved


def added(batch, tensor, sampler):
    frame = fastflow.evaluate(
        *DECODE, f"system.devices={tensor}", f"parallel.strategy=TP-{tensor}", f"serve.batch={batch}",
        f"server.sampler={sampler}", "serve.sampling=greedy,top_p",
    )  # fmt: skip
    return float(np.diff(frame["tpot_s"])[0])


@pytest.mark.parametrize("sampler", [SORT, SEARCH])
@pytest.mark.parametrize("batch", [64, 256])
def test_each_device_filters_whole_rows(batch, sampler):
    """So that tensor parallelism does not divide the time, and logits are gathered."""
    filtering = FILTERS[sampler]
    expected = batch * VOCABULARY * filtering.moved / filtering.bandwidth / BANDWIDTH
    launches = filtering.launches * 10e-6  # at most
    assert 0.85 * expected <= added(batch, 1, sampler) <= 1.15 * expected + launches
    gathered = batch * VOCABULARY * 2 * 7 / 8  # logits of 16 bits [B]
    seconds = added(batch, 8, sampler) - added(batch, 1, sampler)
    assert gathered / 450e9 < seconds < gathered / 150e9 + 20e-6


def test_it_costs_memory_traffic_and_no_more_energy_than_that():
    rows = fastflow.evaluate(*DECODE, "system.devices=1", "parallel.strategy=TP-1", "serve.batch=256",
                             "serve.sampling=greedy,top_p").to_dict("records")  # fmt: skip
    greedy, top_p = rows
    assert top_p["energy_J"] > greedy["energy_J"]
    # a sort waits: it draws less than the kernels around it
    assert top_p["energy_J"] / top_p["tpot_s"] < greedy["energy_J"] / greedy["tpot_s"]


def test_how_a_server_filters_is_of_no_effect_where_nothing_is_filtered():
    row = fastflow.evaluate(
        *DECODE, "system.devices=1", "parallel.strategy=TP-1", "server.sampler=search"
    ).iloc[0]
    assert "server.sampler" in row["no_effect"]
