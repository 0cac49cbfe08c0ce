"""Experts' tokens that are sent once to each machine, beside a walk of every choice; and the key for it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.core.tables import columns_of
from fastflow.performance.crossflow import predict
from fastflow.physics.network import communication
from fastflow.physics.network.moe_dispatch import ALGORITHM, Routing, expected_parts
from fastflow.physics.workload.graph import ALL_TO_ALL
from tests.naive.dispatch import copies
from tests.support.checks import cases

SMALL = (
    "model=mixtral_8x7b", "chip=h100_sxm", "system=superpod_h100", "system.package.devices=4",
    "system.devices=16", "model.layers=2", "model.experts=8", "model.topk=3", "model.batch=64",
    "parallel.strategy=TP-1-e8-d16",
)  # fmt: skip


@given(st.data())
@cases(60)
def test_copies_are_those_of_a_walk_of_every_choice(data):
    groups = data.draw(st.sampled_from([1, 2, 3, 4]))
    experts = groups * data.draw(st.integers(1, 8 // groups))
    topk_groups = data.draw(st.integers(1, groups))
    topk = data.draw(st.integers(1, min(4, topk_groups * experts // groups)))
    machines, inside = data.draw(st.sampled_from([(1, 2), (2, 1), (2, 2), (3, 1), (2, 3), (4, 2)]))
    within, between = copies(experts, topk, groups, topk_groups, machines, inside)
    routing = Routing(experts, topk, groups, topk_groups)
    assert expected_parts(routing, machines) * (1.0 - 1.0 / machines) == pytest.approx(between)
    assert expected_parts(routing, machines * inside) * (1.0 - 1.0 / inside) == pytest.approx(within)


def test_deepseek_reaches_fewer_machines_than_without_its_groups():
    limited, free = (expected_parts(Routing(256, 8, *groups), 8) for groups in ((8, 4), (1, 1)))
    assert 3.6 < limited < 3.7  # of at most 4
    assert free == pytest.approx(8.0 * (1.0 - np.prod([(224.0 - i) / (256.0 - i) for i in range(8)])))


@pytest.mark.parametrize("groups", [(), ("model.expert_groups=4", "model.topk_groups=2")])
def test_an_exchange_takes_what_the_busier_level_does(compose, groups):
    given = columns_of(compose(*SMALL, *groups, "parallel.token_dispatcher=flex").items())
    found = predict(given)
    exchanges, shards = found.communication.exchanges, found.shards
    rows = np.flatnonzero(exchanges.sync_by == ALGORITHM)
    assert rows.size
    assert (shards.waited[rows] == ALL_TO_ALL).all()
    within, between = copies(8, 3, *((4, 2) if groups else (1, 1)), machines=2, inside=4)
    token = shards.sync.bytes[rows[0]] / 3.0  # bytes of a copy of all tokens
    intra = found.chip.intra.bandwidth[0] * given["net.intra.utilization"][0]
    inter = found.chip.inter.bandwidth[0] * given["net.inter.utilization"][0]
    least = max(within * token / intra, between * token / inter)
    assert exchanges.sync_s[rows] == pytest.approx(least, rel=0.1)
    assert (exchanges.sync_s[rows] > least).all()  # a launch and two steps


def test_the_dispatcher_decides_and_groups_choose_it():
    deepseek = (
        "model=deepseek_v3", "system=superpod_h100", "system.devices=64", "model.layers=4", "model.batch=64",
        "model.pattern='dense, 3*experts'", "parallel.strategy=TP-1-e32-d64",
    )  # fmt: skip
    every = [
        fastflow.evaluate(*deepseek, f"parallel.token_dispatcher={one}")
        for one in ("auto", "flex", "alltoall")
    ]
    auto, flex, alltoall = (frame["ep_comm_exposed_s"][0] for frame in every)
    assert auto == flex < 0.7 * alltoall
    free = fastflow.evaluate(*deepseek, "model.expert_groups=0", "model.topk_groups=0")
    assert free["ep_comm_exposed_s"][0] == pytest.approx(alltoall)
    in_a_framework = fastflow.evaluate(*deepseek, "framework=megatron_core")
    assert in_a_framework["ep_comm_exposed_s"][0] > 1.3 * flex


@pytest.mark.parametrize(
    ("asked", "sorts"),
    [
        (("model.experts=8",), False), (("model.experts=16",), True),
        (("model.experts=16", "model.training=false"), False),
        (("model.experts=16", "parallel.token_dispatcher=allgather"), False),
    ],
)  # fmt: skip
def test_a_rank_with_several_experts_sorts_rows(compose, monkeypatch, asked, sorts):
    """All rows are read and written once beside each exchange; one expert's are in order as they come."""
    given = columns_of(compose(*SMALL, *asked).items())
    found = predict(given)
    monkeypatch.setattr(communication, "sorted_of", lambda *given: None)
    without = predict(given)
    rows = np.flatnonzero(found.shards.sync.collective == ALL_TO_ALL)
    reached = found.chip.dram.bandwidth[0] * given["chip.dram_utilization"][0]
    slower = found.communication.exchanges.sync_s[rows] - without.communication.exchanges.sync_s[rows]
    assert rows.size
    expected = 2.0 * found.shards.sync.bytes[rows] / reached * sorts
    assert slower == pytest.approx(expected, rel=1e-6, abs=1e-15)


def test_all_tokens_go_to_all_ranks(compose):
    """An all-gather and a reduce-scatter of 8 ranks' tokens: bytes of 8 choices, whatever tokens choose."""

    def sent(dispatcher, topk):
        asked = (*SMALL, f"model.topk={topk}", f"parallel.token_dispatcher={dispatcher}")
        return sum(predict(columns_of(compose(*asked).items())).communication.sent)[0]

    one, two = sent("alltoall", 1), sent("alltoall", 2)
    expected = one + 7 * (two - one)  # what else is sent does not follow from topk
    assert [sent("allgather", topk) for topk in (1, 2, 4, 8)] == pytest.approx([expected] * 4, rel=1e-6)


@pytest.mark.parametrize("topk", [1, 4])
def test_an_all_gather_is_no_faster_than_its_links(compose, topk):
    asked = (*SMALL, f"model.topk={topk}", "parallel.token_dispatcher=allgather")
    given = columns_of(compose(*asked).items())
    found = predict(given)
    rows = np.flatnonzero(found.shards.waited == ALL_TO_ALL)
    tokens = found.shards.sync.bytes[rows] / topk  # of a rank
    inter = found.chip.inter.bandwidth[0] * given["net.inter.utilization"][0]
    assert rows.size
    # the other machine's four ranks' tokens go to a machine over its four links
    assert (found.communication.exchanges.sync_s[rows] > tokens / inter).all()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            ("model.expert_groups=3",),
            "model.expert_groups=3 is invalid: expected a divisor of model.experts, 256",
        ),
        (
            ("model.topk_groups=9",),
            "model.topk_groups=9 is invalid: expected from 1 to model.expert_groups, 8",
        ),
        (("model.expert_groups=256",), "model.topk_groups=4 is invalid: expected so many that their experts"),
    ],
)
def test_groups_that_do_not_go_together_are_refused(changed, said):
    asked = ("model=deepseek_v3", "system=superpod_h100", "system.devices=64", "parallel.strategy=TP-8-e8-d8")
    assert said in fastflow.evaluate(*asked, *changed)["reason"][0]
