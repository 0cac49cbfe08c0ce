"""The whole model: what must hold of every point, and one GEMM from technology to time (3.1)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.performance import crossflow, results
from fastflow.schema import find_result, result_order
from fastflow.schema.results import TYPICAL
from tests.conftest import columns_of
from tests.naive import chip as naive_chip
from tests.naive import collectives, energy, sharding, tiling
from tests.support.checks import cases, near

STRATEGIES = ("d512", "RC-4-2-d64", "RC-1-8-d64", "RC-8-1-d64", "CR-8-d64", "d64", "RC-16-32", "CR-512")
# named by the engine, which knows the choices of the groups
LABELS = {"point", "tech", "mem", "net", "chip", "system", "model", "tiling", "assumptions"}


@pytest.fixture(scope="module")
def points(compose):
    """A mixed handful: every strategy, both workloads' phases, three data types, chips and memories."""
    language = [
        compose(f"tech={tech}", f"mem={mem}", f"parallel.strategy={strategy}", *more)
        for strategy in STRATEGIES
        for tech, mem, more in (
            ("n12", "hbm2", ()),
            ("n3", "hbm4", ("net=gdr_x8", "model.dtype=fp32", "model.optimizer=adam")),
            ("n7", "hbm3", ("model.training=false", "model.dtype=bf16", "model.layers=3")),
        )
    ]
    products = [
        compose(
            "model=gemm", f"model.training={training}", f"parallel.strategy={strategy}", "system.devices=8"
        )
        for training in ("true", "false")
        for strategy in ("d1", "d8", "CR-8", "RC-4-2", "RC-2-4")
    ]
    return {"lstm_lm": language, "gemm": products}


@pytest.mark.parametrize("model", ["lstm_lm", "gemm"])
def test_what_holds_of_every_point(points, predict, model):
    prediction = predict(points[model])
    got = results.summary(prediction)
    time = got["time_s"]
    assert np.isfinite(time).all()
    assert np.allclose(time, got["forward_s"] + got["backward_s"] + got["update_s"], rtol=1e-12)
    assert np.allclose(time, got["compute_s"] + got["exposed_comm_s"], rtol=1e-12)
    assert (got["exposed_comm_s"] <= got["comm_s"] * (1 + 1e-12)).all()
    shares = [name for name in got if name.endswith("_bound_frac")]
    assert np.allclose(sum(got[name] for name in shares), 1.0)
    parts = ("weight_B", "gradient_B", "optimizer_B", "activation_B", "buffer_B")
    assert np.allclose(got["allocated_B"] - got["workspace_B"], sum(got[name] for name in parts))
    beside = ("fragment_B", "context_B", "communicator_B")
    assert np.allclose(got["footprint_B"], got["allocated_B"] + sum(got[name] for name in beside))
    assert ((got["mfu"] > 0.0) & (got["mfu"] <= 1.0)).all()
    assert np.allclose(got["mfu"], got["flop"] / (time * got["devices"] * got["compute_flops"]))
    assert (got["energy_J"] > 0.0).all()
    assert (got["feasible"] == (got["footprint_B"] <= got["dram_offered_B"])).all()
    for i in range(time.size):
        kernels = results.explain(prediction, i)
        assert near(kernels["time_s"].sum(), got["compute_s"][i], 1e-9)
        assert near(kernels["comm_s"].sum(), got["comm_s"][i], 1e-9) or got["comm_s"][i] == 0.0
        longest = dict.fromkeys(kernels["bound_by"], 0.0)
        for name, seconds in zip(kernels["bound_by"], kernels["time_s"], strict=True):
            longest[name] += seconds
        assert all(
            near(longest[name], got[f"{name}_bound_frac"][i] * got["compute_s"][i], 1e-9) for name in longest
        )
        longest["network"] = got["exposed_comm_s"][i]
        assert near(longest[got["bound_by"][i]], max(longest.values()), 1e-9)


def test_memory_of_products_by_hand(compose, summary):
    """Every product of a batch has operands of its own: B is held, A is read again, C is handed on."""
    sides = ("model.m=64", "model.k=32", "model.n=16")
    got = summary([compose("model=gemm", *sides, f"model.batch={batch}") for batch in (1, 3)])
    assert got["weight_B"].tolist() == [batch * 32 * 16 * 2 for batch in (1, 3)]
    assert got["activation_B"].tolist() == [batch * 64 * (32 + 16) * 2 for batch in (1, 3)]


@pytest.mark.parametrize("model", ["lstm_lm", "gemm"])
def test_a_point_does_not_depend_on_its_batch(points, summary, model):
    """Bit for bit: alone, together, in another order, and beside points that fail."""
    rows = points[model]
    together = summary(rows)
    broken = rows[0] | {"chip.area.core": 0.0}
    shuffled = summary([broken, *reversed(rows), broken])
    for i, point in enumerate(rows):
        alone = summary([point])
        for name, column in together.items():
            assert np.array_equal(column[i], alone[name][0], equal_nan=column.dtype.kind == "f"), name
            assert str(column[i]) == str(shuffled[name][len(rows) - i]), name


def test_points_of_different_depth_keep_their_places(points, predict):
    rows = points["lstm_lm"]
    prediction = predict(rows)
    for i, point in enumerate(rows):
        kernels = results.explain(prediction, i)
        assert (kernels["kernel"] == "lstm cell").sum() == point["model.layers"]
        assert kernels["repeat"][1] == point["model.sequence"]


def test_every_result_is_registered(points, summary):
    for rows in points.values():
        got = summary(rows)
        assert all(find_result(name) is not None for name in got)
        assert set(result_order(3)) - LABELS - {column.name for column in TYPICAL} == set(got)
        assert [name for name in result_order(3) if name in got] == list(got)
        kinds = {"float": "f", "int": "iu", "bool": "b", "str": "U"}
        for name, column in got.items():
            assert column.shape == (len(rows),)
            if name not in ("mcus", "bundles", "devices"):  # no time makes no difference to these
                assert column.dtype.kind in kinds[find_result(name).kind], name


def touched(collective, ranks):
    """Return what a rank of a ring reads and writes of its memory [share of the tensor]."""
    return {
        "": 0.0,
        "reduce-scatter": 2.0,  # its first piece, both operands of n - 1 sums, the last sum
        "all-gather": (ranks - 1) / ranks,  # all but one piece, to be sent
        "all-reduce": float(collectives.ring_memory(ranks)) if ranks > 1 else 0.0,
    }[collective]


def naive_gemm(point):
    """One GEMM on a system: chip, product, exchange, each by its oracle."""
    made = naive_chip.generate(point)
    levels = [
        int(key.split(".")[2][1:])
        for key in point
        if key.startswith("chip.memory.") and key.endswith("scope")
    ]
    element = {"fp16": 2, "bf16": 2, "fp32": 4}[point["model.dtype"]]
    capacities = [made[f"l{level}_B"] / made[f"_l{level}_instances"] for level in levels]
    bandwidths = [made[f"l{level}_Bps"] * point[f"chip.memory.l{level}.utilization"] for level in levels]
    bandwidths.append(made["dram_Bps"] * point["chip.dram_utilization"])
    unit = tuple(point[f"chip.mcu.{axis}"] for axis in "mkn")
    kernel, kp1, kp2, dp = point["cut"]
    dims = (point["model.m"], point["model.k"], point["model.n"])
    parts = sharding.cut(*dims, element, kernel, kp1, kp2, dp)
    launch = point["chip.launch_overhead"] + point["mem.latency"]
    launch += sum(
        point[f"tech.memory.{point[f'chip.memory.l{level}.component']}.latency"] for level in levels
    )
    dealt = max(level for level in levels if point[f"chip.memory.l{level}.scope"] != "global")
    tried = tiling.candidates(point["tiling.samples"], point["tiling.seed"], capacities, element, dealt)
    machine = tiling.Machine(
        element, unit, point["chip.mcu.dataflow"], made["compute_flops"] * point["chip.utilization"],
        bandwidths, dealt, made[f"_l{dealt}_instances"],
        [made[f"_l{level}_banks_Bps"] * point[f"chip.memory.l{level}.utilization"] for level in levels],
        (made["core_V"], point["tech.core.threshold_voltage"], point["tech.core.maximum_voltage"]),
    )  # fmt: skip
    times = []
    for gemm, (collective, bytes_, ranks) in parts[: 3 if point["model.training"] else 1]:
        time = tiling.search(gemm, 1, machine, tried).time
        bandwidth = made["inter_Bps"] * point["net.inter.utilization"]
        memory = made["dram_Bps"] * point["chip.dram_utilization"]
        sent = collectives.time(collective, ranks, bytes_, bandwidth, point["net.inter.latency"])
        sent += bytes_ * touched(collective, ranks) / memory
        times.append((time + launch, sent))
    # each exchange is waited for; the last, of the weights' gradient, has nothing to hide behind
    return sum(time + sent for time, sent in times)


@st.composite
def systems(draw):
    cut = draw(
        st.sampled_from([("", 1, 1, 1), ("", 1, 1, 4), ("RC", 2, 4, 1), ("RC", 4, 2, 3), ("CR", 8, 1, 2)])
    )
    sides = st.sampled_from([1, 100, 128, 1000, 4096, 16384])
    return cut, (draw(sides), draw(sides), draw(sides)), draw(st.booleans()), draw(st.floats(0.2, 1.0))


@given(
    systems(),
    st.sampled_from(["n12", "n7", "n1"]),
    st.sampled_from(["fp16", "fp32"]),
    st.sampled_from(["best", "weight"]),
)
@cases(60)
def test_a_gemm_from_technology_to_time(compose, summary, system, tech, dtype, flow):
    (kernel, kp1, kp2, dp), (m, k, n), training, share = system
    name = {"": "", "RC": f"RC-{kp1}-{kp2}-", "CR": f"CR-{kp1}-"}[kernel] + f"d{dp}"
    point = compose(f"tech={tech}", "model=gemm", "tiling=random") | {
        "model.m": m, "model.k": k, "model.n": n, "model.dtype": dtype, "model.training": training,
        "parallel.strategy": name, "system.devices": kp1 * kp2 * dp, "tiling.samples": 3,
        "chip.mcu.dataflow": flow, "chip.utilization": share, "chip.dram_utilization": share,
        "chip.memory.l1.utilization": 0.7, "system.collective": "ring",
    }  # fmt: skip
    assert near(summary([point])["time_s"][0], naive_gemm(point | {"cut": (kernel, kp1, kp2, dp)}), 1e-9)


@pytest.mark.parametrize("model", ["lstm_lm", "gemm"])
def test_energy(points, predict, model):
    prediction = predict(points[model])
    got = results.summary(prediction)
    graph, sent = prediction.graph, prediction.communication.sent
    assert not sent[0].any()  # a device a package
    for i, point in enumerate(points[model]):
        made = naive_chip.generate(point)
        rows = range(graph.offset[i], graph.offset[i + 1])
        kernels = [
            (
                int(graph.launches.repeat[row]),
                prediction.timing.flop[row],
                energy.lift(made, point, prediction.timing.busy[row], prediction.timing.times[row])
                * made["_flop_J" if prediction.shards.kernels.m[row] else "_pass_flop_J"],
                prediction.timing.bytes[row],
                prediction.timing.time[row],
                prediction.timing.busy[row],
            )
            for row in rows
        ]
        names = ("l0", "l1", "l2", "dram")
        expected = energy.iteration(
            kernels,
            [made[f"_{name}_bit_J"] for name in names],
            made["_standing_W"],
            made["_running_W"],
            got["time_s"][i],
        )
        assert near(got["energy_J"][i], expected * got["devices"][i], 1e-9)


@pytest.mark.parametrize("strategy", ["CR-8", "RC-1-8", "CR-512"])
def test_without_replicas_all_communication_is_waited_for(compose, summary, strategy):
    """Kernel parallelism alone has no gradients to sum, and the next kernel needs what it exchanges."""
    devices = int(strategy.rpartition("-")[2])
    got = summary([compose(f"parallel.strategy={strategy}", f"system.devices={devices}")])
    assert got["comm_s"][0] > 0.0
    if strategy.startswith("CR"):  # but the norms' statistics, a few bytes beside the next norm
        assert 0.99 * got["comm_s"][0] < got["exposed_comm_s"][0] < got["comm_s"][0]
    else:  # the softmax's weight gradient does not wait for the sum of its input's
        assert 0.0 < got["exposed_comm_s"][0] < got["comm_s"][0]


@pytest.mark.parametrize("strategy", ["d512", "RC-4-2-d64", "RC-8-1-d64", "CR-8-d64"])
def test_only_gradients_hide_behind_kernels(compose, predict, summary, strategy):
    point = compose(f"parallel.strategy={strategy}")
    prediction = predict([point])
    exchanges, graph = prediction.communication.exchanges, prediction.graph
    waited = (graph.launches.repeat * exchanges.sync_s)[graph.comm.wait == 1].sum()
    gradients = (
        exchanges.gradient_s.sum() + (graph.launches.repeat * exchanges.sync_s)[graph.comm.wait > 1].sum()
    )
    assert gradients > 0.0
    got = summary([point])
    assert waited * (1 - 1e-9) <= got["exposed_comm_s"][0] <= (waited + gradients) * (1 + 1e-9)


def test_predict_leaves_its_inputs_alone(points):
    inputs = columns_of(points["gemm"])
    before = {key: column.copy() for key, column in inputs.items()}
    crossflow.predict(inputs)
    assert inputs.keys() == before.keys()
    assert all((inputs[key] == before[key]).all() for key in inputs)
