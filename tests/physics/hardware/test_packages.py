"""Parts of packages: a job smaller than a machine, or uneven over racks, has the links that are there."""

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.core.errors import InputError
from fastflow.performance.crossflow import predict
from fastflow.physics.hardware.packages import devices_per_package
from fastflow.physics.network.routing.topology import FULL, LINE, RING, SWITCH, topology
from tests.properties.test_systems import GIVEN, SHEETS
from tests.support.checks import cases

MANY = {"mesh": LINE, "torus": RING}


def network(devices, package, kind="switch", shape="2d", **across):
    """Return a network whose packages are joined by a switch, unless `across` says how."""
    joined = {"inter_topology": "switch", "inter_shape": "2d", "leaf": 32, "taper": 1.0} | across
    return topology(devices, package, kind, shape, **joined)


def joined_devices(kind, sides):
    """Return the neighbours of every device of a mesh or torus, by coordinates."""
    found = {}
    for device in product(*map(range, sides)):
        found[device] = set()
        for axis, side in enumerate(sides):
            for step in (1, -1):
                other = list(device)
                other[axis] += step
                if kind == "torus":
                    other[axis] %= side
                if 0 <= other[axis] < side and tuple(other) != device:
                    found[device].add(tuple(other))
    return found


def embeds(near, of, so_far=()):
    """Say whether devices that are joined as `near` says can be chosen among those joined as `of`."""
    if len(so_far) == len(near):
        return True
    own, before = list(near)[len(so_far)], list(near)[: len(so_far)]
    joined = [so_far[at] for at, other in enumerate(before) if other in near[own]]
    free = (device for device in of if device not in so_far)
    return any(
        embeds(near, of, (*so_far, device)) for device in free if all(device in of[other] for other in joined)
    )


@given(st.sampled_from(["mesh", "torus"]), st.lists(st.integers(2, 4), min_size=1, max_size=3), st.data())
@cases(60)
def test_a_part_of_a_mesh_or_torus_has_links_of_it(kind, sides, data):
    whole = int(np.prod(sides))
    devices = data.draw(st.integers(1, min(whole, 12)))
    shape = "x".join(map(str, sides))
    part, full = network(devices, whole, kind, shape), network(whole, whole, kind, shape)
    assert int(np.prod(part.size)) == devices
    assert set(part.share.tolist()) <= set(full.share.tolist())  # a link has what it has in the whole
    near = {}
    for device in product(*map(range, part.size.tolist())):
        near[device] = set()
        for axis, (form, side) in enumerate(zip(part.kind.tolist(), part.size.tolist(), strict=True)):
            for step in (1, -1):
                other = list(device)
                other[axis] += step
                if form == RING:
                    other[axis] %= side
                if 0 <= other[axis] < side and tuple(other) != device:
                    near[device].add(tuple(other))
    assert embeds(near, joined_devices(kind, sides))


@pytest.mark.parametrize(
    ("kind", "size", "part", "expected", "share"),
    [("fully_connected", 8, 4, FULL, 7), ("switch", 8, 4, SWITCH, 1), ("ring", 8, 4, LINE, 2)],
)
def test_ports_to_devices_outside_the_part_are_idle(kind, size, part, expected, share):
    found = network(part, size, kind)
    assert (found.kind.tolist(), found.size.tolist(), found.share.tolist()) == ([expected], [part], [share])


@given(st.integers(1, 3000), st.integers(1, 100))
@cases(200)
def test_as_many_of_each_as_divide(devices, package):
    divisors = [n for n in range(1, package + 1) if devices % n == 0]
    suits = [n for n in divisors if 2 * n >= package and (n > 1 or package == 1)]
    assert devices_per_package(devices, package) == (devices if devices <= package else max(suits, default=0))


@given(st.integers(1, 600), st.sampled_from(["switch", "mesh", "torus"]), st.sampled_from([2, 8, 12, 72]),
       st.sampled_from(["2d", "whole"]), st.sampled_from(["switch", "fat_tree"]))  # fmt: skip
@cases(150)
def test_advice_works_when_followed(devices, kind, package, shape, inter):
    """What a refusal of a count says to set instead is a network."""
    shape = f"{package // 2}x2" if shape == "whole" else shape
    across = {"inter_topology": inter, "leaf": 2}
    if devices_per_package(devices, package):
        return
    with pytest.raises(InputError) as refused:
        network(devices, package, kind, shape, **across)
    text = str(refused.value)
    counts = [int(count) for count in re.findall(r"system\.devices=(\d+) \(", text)]
    assert counts
    for count in counts:
        network(count, package, kind, shape, **across)
    for part, other in re.findall(r"system\.package\.devices=(\d+)( system\.package\.shape=2d)?", text):
        network(devices, int(part), kind, other.partition("=")[2] or shape, **across)


@pytest.mark.parametrize("system", [*SHEETS, *sorted(GIVEN)])
def test_every_part_of_every_package_trains(compose, system):
    """On every count of devices up to a package's: with a time, and never slower than links allow."""
    point = compose(f"system={system}", "model=gemm", "model.m=512", "model.k=512", "model.n=512")
    package = int(point["system.package.devices"])
    counts = np.arange(1, min(package, 72) + 1)
    inputs = {key: np.full(counts.size, value) for key, value in point.items()}
    inputs |= {
        "system.devices": counts,
        "parallel.strategy": np.array([f"RC-1-1-d{count}" for count in counts]),
        "model.m": 512 * counts,
    }
    if system == "waferscale":
        inputs["system.package.devices"] = counts
    found = predict(inputs)
    assert not found.reason.exists.any()
    assert np.isfinite(found.timeline.total).all()


def test_uneven_jobs_use_as_many_of_each_rack_as_divide():
    said = ("system=gb200_nvl72", "model=llama3_8b", "model.batch=256", "parallel.strategy=TP-2-d128")
    row = fastflow.evaluate(*said, "system.devices=256").iloc[0]
    same = fastflow.evaluate(*said, "system.devices=256", "system.package.devices=64").iloc[0]
    assert (row["devices_per_package"], same["devices_per_package"]) == (64, 64)
    assert row["time_s"] == same["time_s"]
    with pytest.raises(InputError, match=r"system\.devices=72 \(1 x 72\), or system\.devices=74 \(2 x 37\)"):
        fastflow.predict_collective("all-reduce", 1e9, 8, said[0], "system.devices=73")


@pytest.mark.parametrize("system", SHEETS)
def test_a_job_of_a_part_has_the_links_that_ranks_of_the_whole_have(system):
    """An all-reduce among some takes as long in a job of their own as in one of the whole machine."""
    for ranks in (2, 4):
        took = [
            fastflow.predict_collective(
                "all-reduce", 1e8, ranks, f"system={system}", f"system.devices={count}"
            )
            for count in (ranks, SHEETS[system][2])
        ]
        assert took[0] == took[1]


def test_a_server_of_a_part_of_a_cube_mesh():
    """Four V100 of eight serve, and a stage that uses machines unevenly is a row with its reason."""
    said = ("system=dgx_v100", "model=llama3_8b", "model.dtype=fp16", "serve=decode", "server=vllm")
    assert fastflow.evaluate(*said, "system.devices=4", "parallel.strategy=TP-4").iloc[0]["reason"] == ""
    rows = fastflow.evaluate(*said, "system.devices=44", "parallel.strategy=TP-22,TP-4")
    assert "stages with as many of each package of 8 devices" in rows["reason"][0]
    assert rows["reason"][1] == ""
