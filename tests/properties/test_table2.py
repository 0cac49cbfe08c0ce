"""Every parameter of Table 2 matters: moved by a tenth, some result moves (4.1)."""

import numpy as np
import pytest

# What moves nothing yet, and why. A key that begins to matter has to leave this list.
INERT = {
    "net.inter.collective_overhead": "0 in the networks of the case study, so a tenth more is nothing",
}

# Changes to the default point, each with another thing scarce.
SCENARIOS = {
    "default": {},
    "a hot die": {"chip.temperature": 90},
    "a later node": {"tech.generation": 1},
    "a gemm on one device": {},
    "fp32": {"model.dtype": "fp32"},
    "bf16": {"model.dtype": "bf16"},
    **{
        f"a gemm in {dtype}": {
            "model.dtype": dtype, f"chip.rate.{dtype}": 1.0, f"chip.matrix.{dtype}": True,
        }
        for dtype in ("tf32", "fp8", "fp8_block", "int8", "nvfp4", "mxfp4")
    },
    "starved of power, at minimum voltage": {
        "chip.power.core": 0.03, "chip.power.dram": 0.04, "chip.power.inter": 0.005,
        "chip.power.intra": 0.001,
    },
    "few cores with much power, at maximum voltage": {"chip.area.core": 0.1},
    "small memories with much power, limited by width and clock": {
        "chip.area.core": 0.1, "chip.area.l0": 0.01, "chip.area.l1": 0.01, "chip.area.l2": 0.03,
        "chip.power.core": 0.1, "chip.power.l0": 0.3, "chip.power.l1": 0.2,
    },
    "one register file and one scratchpad for the die, a thrifty cache": {
        "chip.memory.l0.scope": "global", "chip.memory.l1.scope": "global",
        "chip.memory.l0.capacity": 1e12, "chip.memory.l1.capacity": 1e12,
        "tech.memory.registers.link_area": 1e-11, "tech.memory.registers.controller_power": 1e-3,
        "tech.memory.scratchpad.controller_power": 1e-3,
        "tech.memory.registers.controller_area": 1e-9, "tech.memory.scratchpad.controller_area": 1e-9,
        "tech.memory.cache.link_area": 1e-12, "tech.memory.cache.controller_power": 1e-3,
    },
    "a small package": {"chip.node_area": 850e-6 + 4.05 * 92e-6},
    "a short edge": {
        "chip.perimeter.dram": 0.211, "chip.perimeter.intra": 0.01, "chip.perimeter.inter": 0.016,
    },
    "a small die for links": {"chip.area.inter": 3.1 * 0.66 / 850, "chip.area.intra": 0.002},
    "bundles of many MCUs, with little memory": {
        "chip.mcus_per_bundle": 32, "chip.memory.l0.capacity": 1024.0, "chip.memory.l1.capacity": 1024.0,
    },
    "short of registers": {"chip.area.l0": 0.015},
    "short of L1": {"chip.area.l1": 0.015},
    "links in a package that cost": {
        "system.package.devices": 2, "net.intra.adapter_price": 1e-9, "net.intra.switch_price": 1e-9,
        "net.intra.cable_price": 1e-9, "system.package.topology": "switch",
    },
    "a narrow port": {"net.intra.maximum_links": 100, "net.inter.maximum_links": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def bases(compose):
    return {
        name: compose("model=gemm" if "gemm" in name else "model=lstm_lm") | change
        for name, change in SCENARIOS.items()
    }


def numeric_keys(point):
    return [
        key for key, value in point.items()
        if key.partition(".")[0] in ("tech", "mem", "net")
        and isinstance(value, int | float) and not isinstance(value, bool)
    ]  # fmt: skip


def moves(value):
    """A tenth up and down; whole numbers by one at least."""
    if isinstance(value, int):
        return [
            max(value + 1, round(1.1 * value)),
            *([min(value - 1, round(0.9 * value))] if value > 1 else []),
        ]
    return [1.1 * value, 0.9 * value]


@pytest.fixture(scope="module")
def moved(bases, summary):
    """For every key, the scenarios in which it moves a result, and a result that it moves."""
    found = {}
    for name, base in bases.items():
        keys = numeric_keys(base)
        tried = [(key, value) for key in keys for value in moves(base[key])]
        got = summary([base, *(base | {key: value} for key, value in tried)])
        assert got["reason"][0] == "" or "GB of memory" in got["reason"][0], (name, got["reason"][0])
        numbers = {column: values for column, values in got.items() if values.dtype.kind in "if"}
        for row, (key, _) in enumerate(tried, 1):
            for column, values in numbers.items():
                if values[row] != values[0] and np.isfinite(values[row]):
                    found.setdefault(key, {}).setdefault(name, column)
    return found


def test_every_parameter_of_table_2_moves_some_result(bases, moved):
    keys = numeric_keys(bases["default"])
    assert len(keys) > 70
    still = [key for key in keys if key not in moved and key not in INERT]
    assert not still, "moved by a tenth, these move no result: " + ", ".join(still)


def test_what_is_said_to_be_inert_is(moved):
    assert not INERT.keys() & moved.keys()


@pytest.mark.parametrize(
    ("key", "scenario"),
    [
        ("tech.core.nominal_area", "default"),
        ("tech.core.nominal_power", "default"),
        ("tech.core.minimum_voltage", "starved of power, at minimum voltage"),
        ("tech.core.maximum_voltage", "few cores with much power, at maximum voltage"),
        ("tech.scaling.area", "a later node"),
        ("tech.scaling.power", "a later node"),
        ("tech.memory.cache.bank_width", "small memories with much power, limited by width and clock"),
        ("tech.memory.cache.bank_frequency", "small memories with much power, limited by width and clock"),
        ("tech.memory.cache.link_area", "default"),
        ("tech.memory.cache.controller_power", "default"),
        ("mem.device_area", "a small package"),
        ("mem.controller_area", "default"),
        ("mem.links_per_length", "a short edge"),
        ("mem.minimum_voltage", "starved of power, at minimum voltage"),
        ("net.inter.minimum_voltage", "starved of power, at minimum voltage"),
        ("net.inter.nominal_area", "a small die for links"),
        ("net.inter.links_per_length", "a short edge"),
        ("net.intra.maximum_links", "a narrow port"),
    ],
)
def test_a_parameter_matters_where_its_resource_is_scarce(moved, key, scenario):
    assert scenario in moved[key]


# Table 2 of the paper, written out: its attributes, and the keys that hold them.
TABLE_2 = {
    "tech.core": {
        "technology node": "tech.name", "nominal area": "nominal_area", "nominal voltage": "nominal_voltage",
        "threshold voltage": "threshold_voltage", "nominal frequency": "nominal_frequency",
        "minimum voltage": "minimum_voltage", "nominal op rate": "flop_per_cycle.fp16",
        "maximum voltage": "maximum_voltage",
    },
    **{
        f"tech.memory.{component}": {
            "technology": "technology", "latency": "latency", "dynamic energy per bit": "dynamic_energy",
            "static energy per bit": "static_power", "area per bit": "cell_area",
            "total area overhead": "overhead", "bank capacity": "bank_capacity",
            "controller area overhead per bank": "controller_area",
            "controller power overhead per bank": "controller_power",
        }
        for component in ("cache", "scratchpad", "registers")
    },
    "mem": {
        "technology": "name", "number of links per device": "links_per_device",
        "dynamic energy per bit": "dynamic_energy", "nominal voltage": "nominal_voltage",
        "static power per bit": "static_power", "nominal frequency": "nominal_frequency",
        "device capacity": "device_capacity", "minimum voltage": "minimum_voltage",
        "device area": "device_area", "maximum voltage": "maximum_voltage",
        "memory controller and I/O area": "controller_area", "access latency": "latency",
    },
    **{
        f"net.{network}": {
            "nominal voltage": "nominal_voltage", "number of links per mm": "links_per_length",
            "nominal frequency": "nominal_frequency", "threshold voltage": "threshold_voltage",
            "nominal energy per link": "nominal_energy", "minimum voltage": "minimum_voltage",
            "nominal area per link": "nominal_area", "link latency": "latency",
        }
        for network in ("intra", "inter")
    },
}  # fmt: skip


@pytest.mark.parametrize("component", TABLE_2)
def test_the_library_has_every_attribute_of_table_2(bases, component):
    for attribute, key in TABLE_2[component].items():
        whole = key if key.startswith("tech.") else f"{component}.{key}"
        assert whole in bases["default"], attribute
