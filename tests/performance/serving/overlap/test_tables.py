"""Tables of servers with overlap inside a device, and iterations that hide time."""

import numpy as np
import pytest

import fastflow
from fastflow.performance.serving import scenario as scenarios
from fastflow.performance.serving.overlap.hidden import hidden_line, hidden_of, without_hidden
from fastflow.performance.serving.overlap.schedule import layer_time
from fastflow.performance.serving.overlap.shares import speeds_of_sets
from fastflow.performance.serving.overlap.tables import DECODE_RATIOS, PREFILL_RATIOS, with_overlap
from fastflow.performance.serving.passes.table import NO_OVERLAP
from fastflow.physics.workload.models.transformer.serving_pass import TOKENS_PART

POINT = (
    "serve=decode", "server=ideal", "model=llama3_8b", "model.dtype=bf16", "chip=h100_sxm", "system=dgx_h100",
    "system.devices=4", "parallel.strategy=TP-4", "serve.batch=256", "serve.context=4096",
)  # fmt: skip
SPLIT, FUSED = "server.nano_batches=2", "server.all_reduce_norm_fusion=true"


@pytest.fixture(scope="module")
def tables():
    """Return passes of servers without overlap, with nano-batches, with fused norms, and with both."""
    taken, kept = [], scenarios.with_overlap

    def seen(inputs, layouts, passes, server):
        result = kept(inputs, layouts, passes, server)
        taken.append((passes, *result))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios, "with_overlap", seen)
        rows = fastflow.evaluate(
            *POINT, "server.nano_batches=1,2", "server.all_reduce_norm_fusion=false,true"
        )
    assert rows["reason"].tolist() == [""] * 4
    plain, passes, server = taken[0]
    return plain, passes, server[[0, 2, 1, 3]]


def test_servers_without_overlap_keep_their_times(tables):
    plain, passes, (off, *_) = tables
    for name, column in zip(plain.parts[TOKENS_PART]._fields, plain.parts[TOKENS_PART], strict=True):
        assert np.array_equal(getattr(passes.parts[TOKENS_PART], name)[off], column[0]), name
    assert not passes.times.overlap.hidden[off].any()
    assert passes.times.overlap.overlaps.tolist().count(True) == 2


def test_fused_norms_take_the_share_of_a_device(tables):
    plain, passes, (_, _, fused, _) = tables
    before, after = plain.parts[TOKENS_PART], passes.parts[TOKENS_PART]
    saved = 0.75 * before.sums[0]
    assert (saved > 0.0).all()
    assert after.time[fused] == pytest.approx(before.time[0] - saved)
    assert after.by[fused].sum(axis=-1) == pytest.approx(after.time[fused])
    assert after.of_model[fused].sum(axis=-1) == pytest.approx(after.time[fused])
    assert (passes.times.shared == after.time).all()


def test_hidden_time_is_that_of_the_schedule(tables):
    plain, passes, (_, split, _, _) = tables
    layers, tokens, hidden = plain.parts[TOKENS_PART], plain.axes.tokens.tolist(), passes.times.overlap.hidden
    speeds = speeds_of_sets(np.array([0.4]), np.array([22.0]), np.array([132.0]), np.array([False]))[0]
    for size in (256, 2048):
        i, half = tokens.index(size), tokens.index(size // 2)
        time, exchange, own = (
            float(column[0, half]) for column in (layers.time, layers.exchange, layers.attention)
        )
        alone = float(layers.time[0, i])
        for j, k in ((0, 0), (3, 0), (6, 2), (11, 7)):
            decode, prefill = DECODE_RATIOS[j] * alone, PREFILL_RATIOS[k] * alone
            works = np.array([
                0.5 * own + 0.5 * prefill, 0.5 * decode, 0.5 * own, 0.5 * exchange, time - own - exchange,
                0.5 * exchange,
            ])  # fmt: skip
            expected = max(0.0, alone + decode + prefill - layer_time(works, 2, speeds))
            assert hidden[split, i, j, k] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_hidden_time_is_interpolated_along_each_axis(tables):
    _, passes, (_, split, _, _) = tables
    times, server = passes.times, np.array([split])
    i, alone = 20, float(passes.times.shared[split, 20])
    size = np.array([float(times.tokens[i])])

    def of(decode, prefill, tokens=size):
        return float(
            hidden_of(times, server, tokens, np.array([decode * alone]), np.array([prefill * alone]))[0]
        )

    assert of(0.25, 0.5) == pytest.approx(times.overlap.hidden[split, i, 2, 3])
    assert of(0.3125, 0.5) == pytest.approx(0.5 * (of(0.25, 0.5) + of(0.375, 0.5)))
    assert of(0.25, 0.75) == pytest.approx(0.5 * (of(0.25, 0.5) + of(0.25, 1.0)))
    assert of(100.0, 0.0) == of(8.0, 0.0)  # what there is to hide is hidden
    line = hidden_line(times, split, float(size[0]), 0.3 * alone, 0.0)
    assert 0.3 * alone < line.end <= 0.375 * alone  # the next entry of either number of tokens
    further = 0.99 * (line.end / alone - 0.3)
    assert line.seconds + line.slope * further * alone == pytest.approx(of(0.3 + further, 0.0))
    assert hidden_of(times._replace(overlap=NO_OVERLAP), server, size, size, size).tolist() == [0.0]


def test_columns_without_hidden_time():
    time, exchange, by = np.array([10.0]), np.array([2.0]), np.array([[6.0, 2.0, 2.0]])
    for hidden, left in ((1.0, 1.0), (3.0, 0.0)):
        of = without_hidden(np.array([hidden]), time, exchange, by, np.array([4.0]))
        assert (of[0], of[1]) == (10.0 - hidden, left)
        assert of[2].sum() == pytest.approx(10.0 - hidden)
        assert of[3] == pytest.approx(4.0 * (1.0 - max(hidden - 2.0, 0.0) / 8.0))


def test_off_by_default_and_the_same_tables():
    inputs = {
        "server.two_batch_overlap": np.zeros(1, dtype=np.bool_), "server.nano_batches": np.array([1]),
        "server.all_reduce_norm_fusion": np.zeros(1, dtype=np.bool_), "server.comm_sms": np.array([22]),
        "server.nano_batch_attention_share": np.array([0.4]),
    }  # fmt: skip
    layouts = type("Layouts", (), {"ranks": np.ones(1), "tensor": np.ones(1, dtype=np.int64)})
    passes = object()
    assert with_overlap(inputs, layouts, passes, np.zeros(1, dtype=np.int64))[0] is passes


def test_a_simulation_and_the_analytic_estimate_hide_the_same():
    load = ("serve=continuous", "serve.concurrency=256", "serve.isl=256", "serve.osl=64", *POINT[1:8])
    load += ("serve.length_range_ratio=0", "server.max_num_batched_tokens=1024")
    off, on = (
        fastflow.evaluate(*load, "serve.simulate=false,true", *keys)["tpot_s"]
        for keys in ((), (SPLIT, FUSED))
    )
    assert (on < off).all()
    assert on[0] / off[0] == pytest.approx(on[1] / off[1], rel=0.05)


def test_few_tokens_run_one_after_the_other():
    few = fastflow.evaluate(*POINT, "serve.batch=1", "server.nano_batches=1,2")["tpot_s"]
    assert few[0] == few[1]
