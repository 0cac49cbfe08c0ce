"""The library of machines and clusters of them (conf/system): what their datasheets say."""

from pathlib import Path

import pytest
import yaml

import fastflow
from fastflow.physics.network.routing.topology import HOST_SHARES

SYSTEMS = Path(fastflow.__file__).parent.parent / "conf" / "system"

# datasheets: GPU, GPUs, those of a machine, GB/s a direction within it and between machines, if a switch sums
SHEETS = {
    "dgx_v100": ("v100_sxm", 8, 8, 150, 6.25, False),
    "dgx_a100": ("a100_sxm_80", 8, 8, 300, 25, False),
    "dgx_h100": ("h100_sxm", 8, 8, 450, 50, True),
    "dgx_h200": ("h200_sxm", 8, 8, 450, 50, True),
    "dgx_b200": ("b200_sxm", 8, 8, 900, 50, True),
    "gb200_nvl72": ("gb200", 72, 72, 900, 50, True),
    "gb300_nvl72": ("gb300", 72, 72, 900, 100, True),
    "mi300x_node": ("mi300x", 8, 8, 448, 50, False),
    "mi350x_node": ("mi355x", 8, 8, 535.5, 50, False),
    "hgx_a800": ("a800_sxm", 8, 8, 200, 25, False),
    "hgx_h800": ("h800_sxm", 8, 8, 200, 50, True),
    "superpod_v100": ("v100_sxm", 72, 8, 150, 6.25, False),
    "superpod_a100": ("a100_sxm_80", 160, 8, 300, 25, False),
    "superpod_h100": ("h100_sxm", 256, 8, 450, 50, True),
    "superpod_b200": ("b200_sxm", 256, 8, 900, 50, True),
    "superpod_b300": ("b300_sxm", 256, 8, 900, 100, True),
}
CARDS = {"pcie", "pcie_nvlink_pairs", "pcie_nvlink_pairs_a30", "pcie_nvlink_pairs_ga102", "mi250x_node"}
GIVEN = {"cluster", "ring", "mesh", "torus", "torus3d", "fat_tree", "mcm", "waferscale", *CARDS}
LONG = 2.0**33


def bus_bandwidth(system, ranks, devices):
    """Return what each rank of a long all-reduce moves over its links in a second [B/s]."""
    machines = (f"system={system}", f"system.devices={devices}")
    return 2 * (ranks - 1) / ranks * LONG / fastflow.predict_collective("all-reduce", LONG, ranks, *machines)


def test_every_machine_is_listed():
    assert {path.stem for path in SYSTEMS.glob("*.yaml")} == {*SHEETS, *GIVEN}


@pytest.mark.parametrize("system", SHEETS)
def test_a_system_is_its_datasheets(compose, system):
    chip, devices, package, intra, inter, _ = SHEETS[system]
    point = compose(f"system={system}")
    assert point["chip.name"] == compose(f"chip={chip}")["chip.name"]
    assert (point["system.devices"], point["system.package.devices"]) == (devices, package)
    assert point["chip.pinned.intra_Bps"] == intra * 1e9
    assert point["chip.pinned.inter_Bps"] == inter * 1e9
    assert (point["net.library.reduce"] > 0.0) == SHEETS[system][-1]
    source = yaml.safe_load((SYSTEMS / f"{system}.yaml").read_text())["source"]
    assert source["devices"]


@pytest.mark.parametrize("system", SHEETS)
def test_long_all_reduces_take_all_links(compose, system):
    """Within a machine by its own links, fewer bytes where a switch sums; across machines by all cards."""
    _, _, package, intra, inter, sums = SHEETS[system]
    reached = compose(f"system={system}")["net.intra.utilization"] * intra * 1e9
    inside = bus_bandwidth(system, package, package)
    assert 0.85 * reached < inside < (1.75 if sums else 1) * reached
    cards = package * inter * 1e9
    across = bus_bandwidth(system, 3 * package, 3 * package)
    most = 1.02 * inside * (1 - 1 / (3 * package)) / (1 - 1 / package)  # takes as long as within a machine
    assert 0.8 * min(cards, inside) < across < min(1.75 * cards, most)


@pytest.mark.parametrize(
    ("chosen", "bridge", "lanes"),
    [
        (("system=pcie_nvlink_pairs",), 300e9, 63e9),
        (("system=pcie_nvlink_pairs", "chip=a100_pcie_80"), 300e9, 31.5e9),
        (("system=pcie_nvlink_pairs", "chip.pinned.intra_Bps='56.25 GB/s'"), 56.25e9, 63e9),
        (("system=pcie_nvlink_pairs_a30",), 100e9, 31.5e9),
        (("system=pcie_nvlink_pairs_ga102",), 56.25e9, 31.5e9),
        (("system=pcie_nvlink_pairs_ga102", "chip=rtx_3090"), 56.25e9, 31.5e9),
        (("system=pcie",), 31.5e9, 31.5e9),
        (("system=pcie", "chip=h100_pcie"), 63e9, 63e9),
    ],
)
def test_cards_reach_their_pair_by_a_bridge_and_others_by_their_lanes(compose, chosen, bridge, lanes):
    point = compose(*chosen)
    pairs = point["system.package.devices"] == 2
    bounds = [bridge * point[f"net.{'intra' if pairs else 'inter'}.utilization"]]
    card = lanes * point["net.inter.utilization"]
    _, on_socket, across = HOST_SHARES  # a ring leaves a switch by both of its cards, a socket by two or four
    bounds += [2 * card * on_socket, 2 * (1 + pairs) * card * across]
    for ranks, bound in zip((2, 4, 8), bounds, strict=True):
        took = fastflow.predict_collective("all-reduce", LONG, ranks, *chosen)
        assert 0.8 * bound < 2 * (ranks - 1) / ranks * LONG / took <= 1.001 * bound, ranks


def test_dies_of_a_card_reach_each_other_by_four_links_and_others_by_three(compose):
    point = compose("system=mi250x_node")
    assert (point["system.devices"], point["system.package.devices"]) == (8, 2)
    share = point["net.intra.utilization"]
    assert share == point["net.inter.utilization"]
    for ranks, bound in ((2, 200e9), (8, 300e9)):  # a ring of cards leaves each card by both of its dies
        reached = bus_bandwidth("mi250x_node", ranks, 8) / share
        assert 0.8 * min(bound, 200e9) < reached <= 1.001 * bound, ranks


@pytest.mark.parametrize("system", [name for name in SHEETS if name.startswith("superpod")])
def test_any_number_of_machines(system):
    chosen = f"system={system}"
    took = [
        fastflow.predict_collective("all-reduce", 1e9, devices, chosen, f"system.devices={devices}")
        for devices in (8, 16, 24, 56, 1024)
    ]
    assert took[0] < took[1] < took[2] < took[3] < took[4] < 1.6 * took[1]
    with pytest.raises(fastflow.InputError, match=r"system\.devices=24 \(3 x 8\)"):
        fastflow.predict_collective("all-reduce", 1e9, 8, chosen, "system.devices=22")


def test_a_cluster_of_each_trains():
    small = ("model.batch=4608", "model.hidden=1024", "model.vocabulary=4096", "model.sequence=4")
    for system, (_, devices, *_) in SHEETS.items():
        row = fastflow.evaluate(f"system={system}", f"parallel.strategy=d{devices}", *small).iloc[0]
        assert row["reason"] == "", system
        assert row["time_s"] > 0.0
