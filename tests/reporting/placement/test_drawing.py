"""The picture of a placement: what it counts, where it draws it, and the files it writes (5.2, Figure 5)."""

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from fastflow.core.errors import InputError
from fastflow.physics.network.routing.topology import topology
from fastflow.physics.parallelism.mesh import AXES
from fastflow.reporting.placement.drawing import draw_placement
from fastflow.reporting.placement.floorplan import MAX_DRAWN, floorplan
from fastflow.reporting.placement.ranks import draw_ranks
from fastflow.reporting.placement.scene import describe, scene, shared_edges
from fastflow.reporting.placement.wiring import CUT, PLANE, WRAP, strokes
from tests.support.checks import cases, near

TILE = 0.9  # side of a device where none of its links is drawn
NETWORKS = {
    "line": (6, 1, "mesh", "1d", "mesh", "1d", 1, 1.0),
    "mesh": (12, 1, "mesh", "1d", "mesh", "4x3", 1, 1.0),
    "ring": (7, 1, "mesh", "1d", "ring", "1d", 1, 1.0),
    "big ring": (50, 1, "mesh", "1d", "ring", "1d", 1, 1.0),
    "torus": (16, 1, "mesh", "1d", "torus", "2d", 1, 1.0),
    "torus of planes": (60, 1, "mesh", "1d", "torus", "3x4x5", 1, 1.0),
    "full mesh": (8, 1, "mesh", "1d", "fully_connected", "1d", 1, 1.0),
    "big full mesh": (50, 1, "mesh", "1d", "fully_connected", "1d", 1, 1.0),
    "switch": (40, 1, "mesh", "1d", "switch", "1d", 1, 1.0),
    "tree": (64, 1, "mesh", "1d", "fat_tree", "1d", 8, 2.0),
    "tree of long leaves": (256, 1, "mesh", "1d", "fat_tree", "1d", 64, 2.0),
    "wafer": (64, 64, "mesh", "2d", "switch", "1d", 1, 1.0),
    "switch in packages": (32, 8, "switch", "1d", "torus", "2d", 1, 1.0),
    "packages on a tree": (64, 4, "mesh", "2d", "fat_tree", "1d", 4, 1.0),
}
POINTS = {
    "figure 5": "48 system=torus system.shape=4x12 parallel.strategy=RC-4-2-d3-p2 placement=kp1-kp2-pp-dp",
    "line": "6 system=mesh system.shape=1d parallel.strategy=CR-3-d2 placement=kp1-kp2-dp-pp",
    "idle": "16 system=torus parallel.strategy=d8",
    "ring": "12 system=ring parallel.strategy=CR-3-d4",
    "switch": "16 system=cluster parallel.strategy=d16",
    "full mesh": "8 system=cluster system.topology=fully_connected parallel.strategy=RC-2-2-d2",
    "tree": "64 system=fat_tree system.leaf_radix=8 parallel.strategy=CR-8-d8",
    "packages": "64 system=mcm parallel.strategy=CR-4-d16",
    "wafer": "64 system=waferscale parallel.strategy=CR-4-d16",
    "planes": "64 system=torus3d parallel.strategy=RC-2-2-d8-p2",
    "one": "1 system=cluster parallel.strategy=d1",
    "many": "4096 system=torus parallel.strategy=RC-4-4-d256",
    "own cut": "4 system=cluster parallel.strategy=d4 parallel.softmax=CR-4",
    "no time": "6 system=cluster parallel.strategy=d4",
}


@pytest.fixture(scope="module")
def prediction(compose, predict):
    """One prediction of all POINTS, in their order."""
    return predict(
        [compose("model.batch=4096", *f"system.devices={text}".split()) for text in POINTS.values()]
    )


def number(name):
    return list(POINTS).index(name)


def text_of(path):
    """Every text of an SVG, one a line."""
    return "\n".join(re.findall(r">([^<>\n]+)</(?:text|tspan)>", path.read_text(encoding="utf-8")))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in POINTS if name != "no time"])
def test_every_network_makes_a_picture(prediction, tmp_path, name):
    path = tmp_path / "placement.svg"
    draw_placement(path, prediction, number(name))
    text = text_of(path)
    shown = scene(prediction, number(name))
    assert "Who sits where" in text
    for one in shown.traffic:
        assert f"{one.name}: {one.degree:,} ranks, {one.stride:,} apart" in text
    assert ("Drawn: the first 1,024 of 4,096 devices." in text) == (name == "many")
    assert ("(8 idle)" in text) == (name == "idle")
    assert ("cut of their own" in text) == (name == "own cut")


@pytest.mark.parametrize("axis", AXES)
def test_every_parallel_dimension_has_ranks_that_are_drawn(prediction, axis):
    shown = scene(prediction, number("line"))
    named = shown._replace(traffic=[shown.traffic[0]._replace(name=axis)])
    panel = Figure().add_axes((0, 0, 1, 1))
    patches = draw_ranks(panel, named, floorplan(shown.network), 60.0)
    assert [patch.get_label() for patch in patches] == [f"{axis} {i}" for i in range(named.traffic[0].degree)]
    assert any({"pp": "p"}.get(axis, axis[0]) in text.get_text() for text in panel.texts)


@pytest.mark.long
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_a_picture_is_the_same_to_the_byte(prediction, tmp_path, suffix):
    for name in "ab":
        draw_placement(tmp_path / f"{name}.{suffix}", prediction, number("line"))
    written = (tmp_path / f"a.{suffix}").read_bytes()
    assert written == (tmp_path / f"b.{suffix}").read_bytes()
    assert written.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix])


def test_what_cannot_be_drawn(prediction, tmp_path):
    with pytest.raises(InputError, match=r"picture=\S*a.txt is invalid: expected .*\.svg or \.png or \.pdf"):
        draw_placement(tmp_path / "a.txt", prediction, 0)
    with pytest.raises(OSError, match="No such file"):
        draw_placement(tmp_path / "none" / "a.svg", prediction, 0)
    with pytest.raises(ValueError, match=r"no placement: .*\(4 here\) that divides"):
        draw_placement(tmp_path / "a.svg", prediction, number("no time"))


def test_the_edges_of_a_line_by_hand():
    """0-1-2-3-4-5, cut by kernel within 0-1-2 and 3-4-5, replicas 3 apart."""
    network = topology(*NETWORKS["line"])
    up = [0, 1, 2, 3, 4]
    # a ring of three: 0 to 1 and 1 to 2, and the edge between 0 and 2 over both links
    # two replicas: both edges of a ring of two go the same way, and those of 0, 1 and 2 meet
    for degree, stride, expected in ((3, 1, [2, 2, 0, 2, 2]), (2, 3, [2, 4, 6, 4, 2])):
        links, edges = shared_edges(network, 6, degree, stride, is_pipeline=False)
        found = dict(zip(zip(links.source.tolist(), links.target.tolist(), strict=True), edges, strict=True))
        assert [found[at, at + 1] for at in up] == expected
        assert [found[at + 1, at] for at in up] == expected
    # two stages, 3 apart: each activation goes forward, each gradient back, one at a time
    links, edges = shared_edges(network, 6, 2, 3, is_pipeline=True)
    found = dict(zip(zip(links.source.tolist(), links.target.tolist(), strict=True), edges, strict=True))
    assert [found[at, at + 1] for at in up] == [found[at + 1, at] for at in up] == [1, 2, 3, 2, 1]


def test_the_edges_of_a_cable_of_a_tree():
    """All 64 devices send into their leaf switch's 8 up-links, of which a taper of 2 leaves 4."""
    network = topology(*NETWORKS["tree"])
    links, edges = shared_edges(network, 64, 8, 8, is_pipeline=False)
    goes_up = (links.source < 0) & (links.target < links.source)
    assert goes_up.sum() == 8
    assert (edges[goes_up] == 8 * 2 / 4).all()


def test_the_panels_say_what_was_counted(prediction, tmp_path):
    path = tmp_path / "placement.svg"
    draw_placement(path, prediction, number("line"))
    text = text_of(path)
    # a device's bandwidth is shared by two ports; half of a message an edge
    links = prediction.chip.inter.bandwidth[number("line")] * prediction.inputs["net.inter.utilization"][0]
    row = int(np.flatnonzero(prediction.timed == number("line"))[0])
    assert near(prediction.communication.bandwidth[row, AXES.index("dp")], links / 6)
    for said in (
        "CR-3-d2 on 6 devices: line",
        "busiest link 2 edges",
        "busiest link 6 edges",
        "2 hops;",
        "3 hops;",
    ):
        assert said in text
    for device in range(6):
        assert f"k{device % 3}" in text
    assert f"{links / 6 / 1e9:.3g} GB/s" in text


def test_figure_5(prediction, tmp_path):
    """Replicas are four rows of the torus apart, so each of its links carries four of their edges."""
    path = tmp_path / "placement.svg"
    draw_placement(path, prediction, number("figure 5"))
    text = text_of(path)
    assert "RC-4-2-d3-p2 on 48 devices: 4x12 torus" in text
    assert "placement kp1-kp2-pp-dp, innermost first" in text
    assert re.findall(r"^k\d,\d$", text, re.M) == [f"k{at % 4},{at // 4 % 2}" for at in range(48)]
    assert re.findall(r"^d\d p\d$", text, re.M) == [f"d{at // 16} p{at // 8 % 2}" for at in range(48)]
    panels = {one.name: one for one in scene(prediction, number("figure 5")).traffic}
    assert [panels[name].stride for name in ("kp1", "kp2", "dp", "pp")] == [1, 4, 16, 8]
    assert [panels[name].hops for name in ("kp1", "kp2", "dp", "pp")] == [1, 1, 4, 2]
    assert [panels[name].edges.max() for name in ("kp1", "kp2", "dp", "pp")] == [1, 2, 4, 2]
    along = panels["dp"].edges[panels["dp"].links.dimension == 1]
    assert (along == 4).all()


def lines_of(parts):
    return [np.round(line, 6).tolist() for part in parts for line in part.line]


@pytest.mark.parametrize("name", NETWORKS)
def test_every_link_has_a_place_of_its_own(name):
    network = topology(*NETWORKS[name])
    plan = floorplan(network)
    links, edges = shared_edges(network, plan.devices, plan.devices, 1, is_pipeline=False)
    rails = plan.package if (network.level == 1).any() else 1
    between = network.level[links.dimension] == 1
    expected = (~between).sum() + between.sum() // rails
    parts = strokes(plan, network, links, np.arange(edges.size) + 1.0, 0.1)
    lines = lines_of(parts)
    stubs = sum(part.value.size for part in parts if part.sort in (WRAP, PLANE)) // 2
    assert len(lines) - stubs == expected
    assert len({str(line) for line in lines}) == len(lines)
    assert not any(part.sort == CUT for part in parts)
    corners = np.concatenate([part.line.reshape(-1, 2) for part in parts])
    assert (corners >= plan.outer.low - 0.5).all()
    assert (corners <= plan.outer.high + 0.5).all()
    if rails == 1:  # every value is drawn, and once
        values = np.concatenate([part.value for part in parts])
        assert set(values.tolist()) == set((np.arange(edges.size) + 1.0).tolist())


@pytest.mark.parametrize("name", NETWORKS)
def test_one_line_for_both_directions(name):
    network = topology(*NETWORKS[name])
    plan = floorplan(network)
    links, edges = shared_edges(network, plan.devices, plan.devices, 1, is_pipeline=False)
    both = lines_of(strokes(plan, network, links, edges, 0.1))
    parts = strokes(plan, network, links, edges, 0.0)
    assert 2 * len(lines_of(parts)) == len(both)
    assert max(part.value.max() for part in parts) == edges.max()


@pytest.mark.parametrize("name", NETWORKS)
def test_switches_lie_between_the_rows_and_spines_above_leaf_switches(name):
    plan, tiers = floorplan(topology(*NETWORKS[name])), []
    for level in (plan.inner, plan.outer):
        heights = [height for height in (level.bar, level.spine) if not np.isnan(height).all()]
        tiers.append(len(heights))
        if heights:
            middle = level.centre[:, 1]
            above = np.where(middle > middle[:, None], middle - level.half[1], np.inf).min(axis=1)
            layers = np.stack([middle + level.half[1], *heights, above])
            assert (np.diff(layers, axis=0) > 0.1).all()  # and every node has a number
    switched = {"switch": [0, 1], "tree": [0, 2], "tree of long leaves": [0, 2]}
    switched |= {"switch in packages": [1, 0], "packages on a tree": [0, 2]}
    assert tiers == switched.get(name, [0, 0])


def test_a_line_goes_from_its_source_to_its_target_on_the_right():
    network = topology(*NETWORKS["line"])
    plan = floorplan(network)
    links, _ = shared_edges(network, 6, 6, 1, is_pipeline=False)
    value = np.where((links.source == 0) & (links.target == 1), 7.0, 1.0)
    (part,) = strokes(plan, network, links, value, 0.1)
    ((begin, end),) = part.line[part.value == 7.0].tolist()
    left, right = plan.position[0], plan.position[1]
    assert left[0] < begin[0] < end[0] < right[0]
    assert near(begin[1], left[1] - 0.1)
    assert near(end[1], left[1] - 0.1)


@st.composite
def networks(draw):
    package = draw(st.sampled_from([1, 1, 2, 4, 6, 9]))
    packages = draw(st.integers(1, 40))
    inner = draw(st.sampled_from(["mesh", "torus", "ring", "fully_connected", "switch"]))
    outer = draw(st.sampled_from(["mesh", "torus", "ring", "fully_connected", "switch", "fat_tree"]))
    leaf = draw(st.sampled_from([n for n in range(1, packages + 1) if packages % n == 0]))
    shapes = st.sampled_from(["1d", "2d", "3d"])
    return topology(package * packages, package, inner, draw(shapes), outer, draw(shapes), leaf, 1.0)


@given(networks())
@cases(60)
def test_devices_never_overlap(network):
    plan = floorplan(network)
    assert plan.position.shape == (plan.devices, 2)
    for one, other in combinations(range(min(plan.devices, 120)), 2):
        assert np.abs(plan.position[one] - plan.position[other]).max() >= TILE - 1e-9
    assert (plan.position >= plan.outer.low - 1e-9).all()
    assert (plan.position <= plan.outer.high + 1e-9).all()
    frames = plan.outer.centre.repeat(plan.package, axis=0)
    assert (np.abs(plan.position - frames) <= plan.outer.half).all()


@pytest.mark.parametrize(
    ("network", "drawn"),
    [
        ((4096, 1, "mesh", "1d", "torus", "2d", 1, 1.0), 1024),
        ((5000, 1, "mesh", "1d", "ring", "1d", 1, 1.0), MAX_DRAWN),
        ((4096, 4096, "mesh", "2d", "switch", "1d", 1, 1.0), 1024),
        ((8000, 1, "mesh", "1d", "torus", "3d", 1, 1.0), 800),
        ((3000, 1, "mesh", "1d", "fat_tree", "1d", 30, 1.0), 1020),
        ((9000, 9, "mesh", "2d", "switch", "1d", 1, 1.0), 1017),
    ],
)
def test_of_many_devices_whole_rows_planes_packages_and_leaf_switches(network, drawn):
    made = topology(*network)
    plan = floorplan(made)
    assert plan.drawn == len(plan.position) == drawn
    links, edges = shared_edges(made, plan.devices, 4, 1, is_pipeline=False)
    for aside in (0.0, 0.1):
        lines = lines_of(strokes(plan, made, links, edges, aside))
        assert len({str(line) for line in lines}) == len(lines) > 0


def test_the_words_for_a_network():
    said = {name: describe(topology(*network)) for name, network in NETWORKS.items()}
    assert said["torus of planes"] == "3x4x5 torus"
    assert said["tree"] == "fat tree with leaf switches of 8"
    assert said["wafer"] == "one package (8x8 mesh)"
    assert said["switch in packages"] == "4 packages (switch), 2x2 torus between them"
    assert describe(topology(1, 1, "mesh", "1d", "mesh", "1d", 1, 1.0)) == "one device"
