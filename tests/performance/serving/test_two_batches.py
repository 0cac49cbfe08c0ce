"""Two-batch overlap: half of an iteration is computed while the other half is exchanged."""

import numpy as np
import pytest

import fastflow
from fastflow.performance.serving import scenario as scenarios
from fastflow.performance.serving.two_batches import with_two_batches
from fastflow.physics.workload.models.transformer.serving_pass import TOKENS_PART

WIDE = (
    "serve=decode", "server=sglang", "model=deepseek_v3", "model.dtype=fp8_block", "chip=h200_sxm",
    "system=dgx_h200", "system.devices=32", "parallel.strategy=TP-1-e32-d32", "serve.batch=4096",
)  # fmt: skip
ON, OFF = "server.two_batch_overlap=true", "server.two_batch_overlap=false"


@pytest.fixture(scope="module")
def tables():
    """Return the passes of a server without overlap, and those with it."""
    taken, kept = [], scenarios.with_two_batches

    def seen(inputs, ranks, passes, server):
        result = kept(inputs, ranks, passes, server)
        taken.append((passes, *result, server))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios, "with_two_batches", seen)
        rows = fastflow.evaluate(*WIDE, f"{ON},false")
    assert rows["reason"].tolist() == ["", ""]
    return taken[0]


def test_an_iteration_takes_twice_the_longer_of_both_halves(tables):
    plain, both, rows, server = tables
    tokens, before = plain.axes.tokens.tolist(), plain.parts[TOKENS_PART]
    after = both.parts[TOKENS_PART]
    on, off = rows[:2].tolist()  # trials of other inputs follow
    for name in before._fields:
        assert np.array_equal(getattr(after, name)[off], getattr(before, name)[server[1]]), name
    for i, n in enumerate(tokens):
        if n % 2 or n // 2 not in tokens:
            continue
        half, at = tokens.index(n // 2), (server[0],)
        exchange = float(before.exchange[at][half])
        compute = float(before.time[at][half]) - exchange
        assert after.time[on, i] == pytest.approx(2.0 * max(compute, exchange), rel=1e-12)
        assert after.exchange[on, i] == pytest.approx(2.0 * max(exchange - compute, 0.0), abs=1e-12)
        assert after.energy[on, i] == pytest.approx(2.0 * before.energy[at][half], rel=1e-12)
    for name in ("time", "of_model", "by"):
        total = getattr(after, name)[on].reshape(len(tokens), -1).sum(axis=1)
        assert total == pytest.approx(after.time[on], rel=1e-9), name
    assert both.times.shared is after.time
    assert (after.launches[on] == 2.0 * before.launches[server[0]]).all()


def test_long_exchanges_are_hidden():
    overlapped, plain = fastflow.evaluate(*WIDE, f"{ON},false")["tpot_s"]
    assert overlapped < 0.95 * plain
    overlapped, plain = fastflow.evaluate(*WIDE, f"{ON},false")["exchange_s"]
    assert overlapped < 0.5 * plain


def test_few_tokens_read_all_weights_twice():
    few = fastflow.evaluate(*WIDE, "serve.batch=64", f"{ON},false")["tpot_s"]
    assert few[0] > few[1]


@pytest.mark.parametrize(
    "layout",
    [("parallel.strategy=TP-8", "system.devices=8"), ("model=llama3_8b", "parallel.strategy=TP-8-d4")],
)
def test_servers_without_ranks_that_share_experts_have_nothing_to_overlap(layout):
    rows = fastflow.evaluate(*WIDE, "model.dtype=bf16", "serve.batch=8", *layout, f"{ON},false")
    assert rows["tpot_s"].nunique() == 1


def test_without_the_key_tables_stay_as_they_are(tables):
    plain, _, _, server = tables
    inputs = {"server.two_batch_overlap": np.zeros(2, dtype=np.bool_)}
    assert with_two_batches(inputs, np.array([32, 32]), plain, server)[0] is plain
