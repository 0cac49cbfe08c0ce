"""The strategy space, its ranking, and `parallel.strategy=auto` (3.3)."""

import numpy as np
import pytest

import fastflow
from fastflow.performance.auto import rank
from fastflow.performance.auto.resolve import resolve_any_strategy, resolve_strategy
from fastflow.physics.parallelism.strategy import every_strategy, parse
from tests.conftest import columns_of
from tests.naive import space as naive

SMALL = {
    "model.hidden": 512, "model.batch": 64, "model.vocabulary": 4000, "model.sequence": 4,
}  # fmt: skip
OVERRIDES = ["memory=tensors", *(f"{key}={value}" for key, value in SMALL.items())]


@pytest.mark.parametrize(
    ("devices", "layers"), [(1, 1), (1, 4), (2, 1), (7, 4), (8, 4), (12, 3), (16, 1), (36, 5), (64, 64)]
)
def test_the_strategy_space(devices, layers):
    found = every_strategy(devices, layers)
    assert sorted(map(str, found)) == sorted(naive.every_strategy(devices, layers))
    assert all(parse(str(strategy)) == strategy for strategy in found)
    assert len(found) == len(set(found))


def test_the_space_of_512_devices_and_4_layers():
    """Exponents of two that add up to 9, 8 or 7: of none, of CR's two, and of RC's three degrees."""
    assert len(every_strategy(512, 4)) == 3 + (9 + 8 + 7) + (55 + 45 + 36 - 3)


@pytest.fixture(scope="module")
def points(compose):
    """Points that differ in system, devices, memory, depth and micro-batches."""
    base = compose("memory=tensors", "parallel.strategy=auto") | SMALL
    torus = compose("memory=tensors", "parallel.strategy=auto", "system=torus") | SMALL
    return [
        base | {"system.devices": 16},
        torus | {"system.devices": 32, "model.layers": 3},
        base | {"system.devices": 16, "mem.device_capacity": 4e6},  # some lack memory
        base | {"system.devices": 8, "mem.device_capacity": 1e5},  # all do
        torus | {"system.devices": 16, "parallel.microbatches": 8, "parallel.schedule": "gpipe"},
        base | {"system.devices": 8, "parallel.softmax": "RC-1-4"},  # asks for 4 devices a stage at least
        base | {"system.devices": 1},
    ]  # fmt: skip


def ranked_alone(summary, point):
    """Rank a point's strategies, each of which is predicted on its own."""
    layers = point["model.layers"] + 2  # embedding and softmax
    candidates = []
    for strategy in every_strategy(point["system.devices"], layers):
        got = summary([point | {"parallel.strategy": str(strategy)}])
        time = got["time_s"][0]
        candidates.append((str(strategy), None if np.isnan(time) else time, bool(got["feasible"][0])))
    return naive.best_first(candidates), candidates


@pytest.fixture(scope="module")
def alone(summary, points):
    return [ranked_alone(summary, point) for point in points]


@pytest.mark.parametrize("at_once", [1, 100, 10_000])
def test_ranking(monkeypatch, points, alone, at_once):
    monkeypatch.setattr(rank, "AT_ONCE", at_once)
    together = [ranked.tolist() for ranked in rank.rank(columns_of(points))]
    assert together == [order for order, _ in alone]


def test_the_ranked_points_are_of_every_kind(alone):
    """So that the test above says something: without a time, without memory, with both."""
    kinds = [{(time is not None, fits) for _, time, fits in candidates} for _, candidates in alone]
    assert kinds[0] == {(True, True)}
    assert kinds[2] == {(True, True), (True, False)}
    assert kinds[3] == {(True, False)}
    assert (False, False) in kinds[4]
    assert (False, False) in kinds[5]


def test_what_fills_the_memory_to_the_byte_fits(points, predict, summary):
    fastest = next(rank.rank(columns_of([points[0]])))[0]
    footprint = predict([points[0] | {"parallel.strategy": fastest}]).footprint.total[0]
    full = points[0] | {"chip.pinned.dram_capacity_B": footprint}
    order, candidates = ranked_alone(summary, full)
    assert any(fits for name, _, fits in candidates if name != fastest)
    assert order[0] == fastest
    assert next(rank.rank(columns_of([full]))).tolist() == order


def test_what_is_auto_is_settled_and_nothing_else(points, alone):
    fixed = points[0] | {"parallel.strategy": "CR-4-d4"}
    inputs = columns_of([points[0], fixed, points[3], points[0], *points[4:]])
    before = inputs["parallel.strategy"].copy()
    found = resolve_strategy(inputs)
    best = [order[0] for order, _ in alone]
    expected = [best[0], "CR-4-d4", best[3], best[0], *best[4:]]
    assert found["parallel.strategy"].tolist() == expected
    assert (inputs["parallel.strategy"] == before).all()
    assert all(found[key] is inputs[key] for key in inputs if key != "parallel.strategy")
    given = columns_of([fixed, fixed])
    assert resolve_strategy(given) is given


def test_a_rehearsal_takes_a_strategy_that_cuts_in_every_way_there_is(points):
    fixed = points[0] | {"parallel.strategy": "CR-4-d4"}
    settled = resolve_any_strategy(columns_of([points[0], fixed, points[3], *points[5:]]))
    expected = ["RC-2-2-d2-p2", "CR-4-d4", "CR-2-d2-p2", "CR-2-d2-p2", "d1"]
    assert settled["parallel.strategy"].tolist() == expected
    given = columns_of([fixed, fixed])
    assert resolve_any_strategy(given) is given


def test_a_grid_of_points_that_choose_for_themselves():
    """Capacities in MB at which all, some and no strategies fit; systems; counts of devices."""
    chosen = [*OVERRIDES, "mem.device_capacity=1 GB,4 MB,0.1 MB", "system=cluster,ring"]
    got = fastflow.evaluate(*chosen, "system.devices=8,16", "parallel.strategy=auto")
    names = {devices: ",".join(map(str, every_strategy(devices, 4))) for devices in (8, 16)}
    for devices, texts in names.items():
        all_of_them = fastflow.evaluate(*chosen, f"system.devices={devices}", f"parallel.strategy={texts}")
        for where, group in all_of_them.groupby(["mem.device_capacity", "system"], sort=False):
            mine = got[
                (got["mem.device_capacity"] == where[0])
                & (got["system"] == where[1])
                & (got["system.devices"] == devices)
            ].iloc[0]
            best = group.sort_values(["feasible", "time_s"], ascending=[False, True], kind="stable").iloc[0]
            same = ["strategy", "placement", "time_s", "footprint_B", "feasible"]
            assert mine[same].tolist() == best[same].tolist()
            needs = f"needs at least {group['footprint_B'].min() / 1e9:.4g} GB of memory"
            assert mine["reason"].startswith("" if best["feasible"] else needs)
            assert (mine["reason"] == "") == best["feasible"]
            assert mine["feasible"] == group["feasible"].any()
    assert set(got["feasible"]) == {True, False}
    assert got["strategy"].nunique() > 2
