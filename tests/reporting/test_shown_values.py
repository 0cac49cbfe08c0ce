"""Every number that is shown of a point is that of its column, in its unit: on screen, page and notebook.

Of a row whose values are all unlike, each table's numbers are read back and compared with a declared list.
"""

import json

import numpy as np
import pytest

from fastflow.core import units
from fastflow.reporting.terminal import (
    percentiles,
    point,
    serving,
    training,
)
from fastflow.reporting.terminal.cost import cost_sheet
from fastflow.reporting.terminal.latencies import NO_LIMITS, Limits, group_sheets
from fastflow.reporting.terminal.tables import column_sheet, listing
from fastflow.schema import BANDED, RESULTS, SEARCH, SERVED, TRANSFORMER, find_result
from fastflow.schema.results import EXPOSED
from tests.support.shown import (
    TIME,
    check_sheet,
    check_text,
    figures,
    in_base,
    of,
    plain,
    rows_of,
    served,
    trained,
)


@pytest.fixture(params=range(3))
def row(request):
    return trained(request.param)


def share(row, name, of="time_s"):
    return row[name] / row[of], ""


def a_second(row, name):
    """A rate that is written without its unit."""
    return row[name], ""


def test_rates_of_training(row):
    rates, *_ = training.training_sheets(row, {})
    check_sheet(
        rates,
        [
            ("iteration", *of(row, "time_s"), (row["tokens_per_s"] * TIME, ""), *of(row, "microbatches")),
            ("tokens per", a_second(row, "tokens_per_s"), a_second(row, "tokens_per_s_per_device")),
            ("model operations", *of(row, "model_flops_per_device", "mfu")),
            ("with recomputation", *of(row, "hardware_flops_per_device")),
            ("to train", *of(row, "train_s", "train_energy_J")),
        ],
    )


def test_parts_of_a_training_iteration(row):
    row |= {"bubble_s": 900.0}
    _, time, _ = training.training_sheets(row, {})
    stage = (1.0, ""), (0.0, ""), (2.0, "")
    check_text(time.title, stage)

    def part(name):
        return [*of(row, name), share(row, name)]

    kernels = ("attention", "feed_forward", "experts", "lm_head", "other", "optimizer")
    check_sheet(
        time,
        [
            *((name.replace("_", " "), *part(f"{name}_s")) for name in kernels),
            ("", *of(row, "recompute_s")),
            *((f"exposed: {name}", *part(EXPOSED[name])) for name in EXPOSED),
            ("bubble", *part("bubble_s"), *of(row, "microbatches")),
            ("total", *of(row, "time_s")),
        ],
    )
    parts = dict(training.time_parts(row))
    assert parts == {
        **{name.replace("_", " "): row[f"{name}_s"] for name in kernels},
        **{f"exposed: {name}": row[EXPOSED[name]] for name in EXPOSED},
        "bubble": row["bubble_s"],
    }


def test_memory_of_training(row):
    *_, memory = training.training_sheets(row, {})
    check_text(memory.title, of(row, "peak_memory_stage"))
    parts = (
        "weight", "gradient", "optimizer", "activation", "buffer", "workspace", "fragment", "communicator",
        "context",
    )  # fmt: skip
    check_sheet(
        memory,
        [
            *((name, *of(row, f"{name}_B"), share(row, f"{name}_B", "dram_offered_B")) for name in parts),
            ("with the host", *of(row, "host_B")),
            (
                "total of", *of(row, "dram_offered_B", "footprint_B"),
                share(row, "footprint_B", "dram_offered_B"),
            ),
        ],
    )  # fmt: skip


def test_phases_of_an_iteration(row):
    def part(name):
        return [*of(row, name), share(row, name)]

    check_sheet(
        point.phase_sheet(row),
        [
            ("forward", *part("forward_s")),
            ("backward", *part("backward_s")),
            ("update", *part("update_s")),
            ("kernels", *part("compute_s"), (1.0, ""), (0.0, ""), (2.0, "")),
            ("communication", *part("exposed_comm_s"), *of(row, "comm_s")),
            ("bubble", *part("bubble_s"), *of(row, "microbatches")),
            ("total", *of(row, "time_s")),
        ],
    )


def test_chip_and_placement(row):
    def level(number):
        # the label is a number too
        names = (f"l{number}_B", f"l{number}_Bps", f"l{number}_banks")
        return f"l{number}", *of(row, *names)

    check_sheet(
        point.chip_sheet(row, 3),
        [
            ("core", *of(row, "compute_flops", "mcus", "bundles", "core_V", "core_Hz")),
            *map(level, range(3)),
            ("dram", *of(row, "dram_capacity_B", "dram_Bps", "dram_devices")),
            ("network", *of(row, "inter_Bps")),
            ("", *of(row, "intra_Bps")),
        ],
    )
    axes = {"kp1": "kernel", "kp2": "kernel", "tp": "tensor", "dp": "data", "pp": "pipeline"}
    check_sheet(
        point.placement_sheet(row),
        [(f"{name} ({what})", *of(row, f"{name}_hops", f"{name}_Bps")) for name, what in axes.items()],
    )


def kernels_of(seed, count=3):
    """Kernels whose numbers are all unlike, the longest last."""
    random = np.random.default_rng(seed)
    levels = [*(f"l{level}" for level in range(3)), "dram"]
    kernels = {name: random.uniform(1.0, 50.0, count) for name in ("comm_s", "compute_s")}
    kernels |= {f"{level}_s": random.uniform(1.0, 50.0, count) for level in levels}
    kernels |= {f"{level}_B": random.uniform(1e3, 9e11, count) for level in levels}
    kernels["time_s"] = 1e2 + np.sort(random.uniform(1.0, 19.0, count))
    whole = ("m", "k", "n", "repeat", "waves", "parts")
    kernels |= {name: random.integers(2, 9000, count) for name in whole}
    kernels |= {f"l{level}_tile": np.array([f"{level}x{i}x8" for i in range(count)]) for level in range(3)}
    kernels |= {f"l{level}_stationary": np.array(["C"] * count) for level in range(3)}
    texts = {"kernel": "kernel", "bound_by": "dram", "comm": "gather", "algorithm": "ring"}
    kernels |= {
        name: np.array([f"{text} {chr(97 + i)}" for i in range(count)]) for name, text in texts.items()
    }
    return kernels | {"busy_frac": random.uniform(0.1, 0.9, count), "phase": np.array(["forward"] * count)}


@pytest.mark.parametrize("seed", range(3))
def test_kernels(seed):
    kernels = kernels_of(seed)
    merged = point.merge_identical(kernels)
    total, order = kernels["time_s"].sum(), np.argsort(-(kernels["time_s"] + kernels["comm_s"]))
    longest = [*range(3)][::-1]

    def tied(i, names, unit):
        return [(float(kernels[name][i]), unit) for name in names]

    check_sheet(
        point._kernels(merged, "", wide=True),
        [
            ("forward",),
            *(
                (
                    f"kernel {chr(97 + i)}", (float(kernels["repeat"][i]), ""), *tied(i, ["time_s"], "s"),
                    (kernels["time_s"][i] / total, ""), *tied(i, "mkn", ""), *tied(i, ["comm_s"], "s"),
                )
                for i in order
            ),
        ],
    )  # fmt: skip
    levels = ("l0", "l1", "l2", "dram")
    names = [f"kernel {chr(97 + i)}" for i in longest]
    launches, moved = point._launches(merged, 3), point._bytes(merged, 3)
    assert [column.header for column in launches.columns[1:]] == ["compute", *levels]
    assert [column.header for column in moved.columns[1:]] == [*levels]
    for sheet, heads, quantity_of, unit in (
        (launches, ("compute", *levels), "s", "s"), (moved, levels, "B", "B"),
    ):  # fmt: skip
        columns = [f"{head}_{quantity_of}" for head in heads]
        check_sheet(sheet, [(name, *tied(i, columns, unit)) for name, i in zip(names, longest, strict=True)])
    tiles = point._tiles(merged, 3)
    assert [column.header for column in tiles.columns[1:]] == ["l2", "l1", "l0", "waves", "busy", "parts"]
    for i, cells in zip(longest, rows_of(tiles), strict=True):
        assert cells[:4] == [f"kernel {chr(97 + i)}", *(f"{level}x{i}x8 C" for level in (2, 1, 0))]
        check_text(" | ".join(cells[4:]), tied(i, ("waves", "busy_frac", "parts"), ""))


def test_costs(row):
    built, rented = {"cost.name": "public", "cost.markup": 1.0}, {"cost.name": "market", "cost.rent": 2.0}
    hour = row["usd_per_h"] / row["devices"], ""

    def usd(*names):
        return [(row[name], "") for name in names]

    more = [
        ("an iteration", *usd("iteration_usd")),
        ("a million tokens", *usd("usd_per_million_tokens")),
        ("to train", *usd("train_usd")),
    ]
    check_sheet(
        cost_sheet(row, built),
        [
            ("device", *usd("device_usd", "die_usd", "die_yield", "memory_usd", "package_usd")),
            ("system", *usd("system_usd"), *of(row, "devices")),
            ("an hour of a device", hour),
            ("an hour of the system", *usd("usd_per_h", "power_usd_per_h")),
            *more,
        ],
    )
    check_sheet(
        cost_sheet(row, rented),
        [
            ("an hour of a device", hour),
            ("an hour of the system", *usd("usd_per_h"), *of(row, "devices")),
            *more,
        ],
    )


def test_conclusion_of_training(row):
    bound, used, carbon, memory, parts, power, *_ = map(plain, point.conclusion(row))
    fractions = ("compute", "l0", "l1", "l2", "dram", "launch")
    ordered = sorted(((row[f"{name}_bound_frac"], name) for name in fractions), reverse=True)
    said = bound.partition("time: ")[2].rstrip(")").split(", ")
    assert [text.split()[0] for text in said] == [name for _, name in ordered]
    for text, (value, name) in zip(said, ordered, strict=True):
        check_text(text.removeprefix(name), [(value, "")])
    check_text(used, of(row, "mfu", "flop", "energy_J", "site_J"))
    of_work, of_device = of(row, "carbon_g_per_token"), of(row, "device_carbon_kg")
    check_text(carbon, [*of_work, share(row, "operational_g", "carbon_g"), *of_device])
    check_text(memory, of(row, "footprint_B", "dram_offered_B", "peak_memory_stage"))
    check_text(power, of(row, "power_limit_W", "throttled_frac"))
    check_text(parts, of(row, "weight_B", "gradient_B", "optimizer_B", "activation_B"))
    assert [text.split()[-3] for text in parts.split(",")] == [
        "weight", "gradient", "optimizer", "activation",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_times_and_rates_of_a_server(seed):
    row = served(seed, ttft_slo_s=31.0, tpot_slo_s=47.0)
    latencies, rates, _, _ = serving.served_sheets(row, Limits({"ttft": 13.0, "tpot": 91.0}, 95.0), 7.5)
    headers = ["mean", "median", "90%", "99%", "95%", "allowed"]
    assert [column.header for column in latencies.columns[1:7]] == headers
    names = ("{}_s", "{}_p50_s", "{}_p90_s", "{}_p99_s", "{}_slo_s")
    check_sheet(
        latencies,
        [
            ("to the first token", *of(row, *(name.format("ttft") for name in names)), (13.0, "s")),
            ("per further token", *of(row, *(name.format("tpot") for name in names)), (91.0, "s")),
            ("to the last token", *of(row, *(name.format("e2e") for name in names[:-1]))),
        ],
    )
    assert [cells[-1] for cells in rows_of(latencies)] == ["missed", "met", ""]
    goodput = row["goodput_per_s"] / row["requests_per_s"]
    check_sheet(
        rates,
        [
            ("output tokens", *of(row, "tokens_per_s")),
            ("per device", *of(row, "tokens_per_s_per_device")),
            ("per user", *of(row, "tokens_per_s_per_user")),
            ("prompt tokens", *of(row, "prefill_tokens_per_s")),
            ("requests", *of(row, "requests_per_s"), (7.5, "1/s")),
            ("within serve.slo", *of(row, "goodput_per_s"), (goodput, "")),
            ("requests in flight", (row["running_requests"], ""), (row["max_concurrent_requests"], "")),
            ("", *of(row, "replicas")),
            ("requests waiting", (row["waiting_requests"], "")),
            ("prompts in the cache", *of(row, "prefix_hit_rate", "tier_hit_rate")),
            ("preemptions", (row["preemptions"], "")),
        ],
    )


@pytest.mark.parametrize("seed", range(3))
def test_groups_and_sessions_of_requests(seed):
    names = [f"{time}_p{share}_s" for time in ("ttft", "tpot", "e2e") for share in (50, 99)]
    random = np.random.default_rng(seed)
    groups = {
        kind: {
            name: {"requests": int(random.integers(2, 900)), "prefix_hit_rate": random.uniform(0.1, 0.9)}
            | {time: random.uniform(1.0, 900.0) for time in names}
            for name in ("one", "two")
        }
        for kind in ("classes", "turns")
    }
    del groups["turns"]["two"]["tpot_p50_s"], groups["turns"]["two"]["tpot_p99_s"]
    row = served(seed, sessions=701.0, **{kind: json.dumps(group) for kind, group in groups.items()})
    classes, sessions, turns = group_sheets(row)
    for sheet, group in ((classes, groups["classes"]), (turns, groups["turns"])):
        expected = []
        for name, result in group.items():
            times = [(result[time], "s") for time in (*names[:4], names[5]) if time in result]
            expected.append((name, (result["requests"], ""), *times, (result["prefix_hit_rate"], "")))
        check_sheet(sheet, expected)
    own = [[f"{name}_p{share}_s" for share in (50, 99)] for name in ("session", "session_wait")]
    labels = (
        ("from first request to last token", *of(row, *own[0]), (701, "")),
        ("waiting", *of(row, *own[1])),
    )
    check_sheet(sessions, labels)
    assert list(group_sheets(served(seed, sessions=None))) == []


@pytest.mark.parametrize("seed", range(3))
def test_images_and_their_encoders(seed):
    inputs = {"serve.images": 2, "serve.image_size": "448"}
    row = served(seed, encoder_devices=3)
    images, encoders = map(plain, serving.image_lines(row, inputs))
    check_text(images, [(2, ""), (448, ""), (row["image_tokens"], ""), *of(row, "encode_s")])
    names = "encoder_devices", "encoder_utilization", "encode_wait_s", "embedding_transfer_s"
    check_text(encoders, of(row, *names))
    assert len(list(serving.image_lines(served(seed, encoder_devices=0), inputs))) == 1


@pytest.mark.parametrize("seed", range(3))
def test_time_memory_and_energy_of_a_server(seed):
    row = served(seed)
    _, _, time, memory = serving.served_sheets(row, NO_LIMITS)
    parts = {"communication": "exchange_s", "host": "serve_host_s", "pipeline stall": "pipeline_stall_s"}
    kernels = TIME - sum(row[name] for name in (*parts.values(), "weight_read_s"))
    check_sheet(
        time,
        [
            ("kernels", (kernels, "s"), (kernels / TIME, "")),
            *((label, *of(row, name), share(row, name)) for label, name in parts.items()),
            (
                "weight read",
                *of(row, "weight_read_s"),
                share(row, "weight_read_s"),
                *of(row, "weight_read_B"),
            ),
            ("total", *of(row, "time_s")),
            ("", *of(row, "prefill_share")),
        ],
    )
    whole = "dram_offered_B"
    rest = {
        "workspace": "workspace_B", "libraries": "library_B", "graphs": "graph_B",
        "communicators": "communicator_B", "context": "context_B",
    }  # fmt: skip
    check_sheet(
        memory,
        [
            ("weights", *of(row, "weight_B"), share(row, "weight_B", whole), *of(row, "offloaded_B")),
            (
                "KV cache in use", *of(row, "kv_B"), share(row, "kv_B", whole),
                *of(row, "kv_token_B", "kv_window_token_B", "kv_state_B", "kv_cache_capacity_B"),
            ),
            *((label, *of(row, name), share(row, name, whole)) for label, name in rest.items()),
            ("total of", *of(row, whole, "footprint_B"), share(row, "footprint_B", whole)),
            ("another device", *of(row, "other_devices_footprint_B", "other_devices_weight_B")),
        ],
    )  # fmt: skip
    lines = {text.split()[0]: text for text in map(plain, serving.conclusion(row, {}))}
    limits = "power_limit_W", "prefill_power_limit_W"
    check_text(lines["Energy"], of(row, "joules_per_token", "power_W", *limits, "system_W"))
    check_text(lines["Power"], of(row, "throttled_frac"))
    of_work, of_device = of(row, "carbon_g_per_token"), of(row, "device_carbon_kg")
    check_text(lines["Carbon"], [*of_work, share(row, "operational_g", "carbon_g"), *of_device])


def test_bands_are_those_of_their_columns(row):
    row |= {"model_error_share": 0.37, "samples_failed": 5}
    names = {name: percentiles.band_of(name) for name in percentiles._NAMES}
    for number, ends in enumerate(names.values()):
        row |= {end: (1.7 + number) * 10.0**nth for nth, end in enumerate(ends)}
    sheet = percentiles.band_sheet(row)
    assert [column.header for column in sheet.columns[1:4]] == ["10%", "50%", "90%"]
    assert percentiles._NAMES.keys() <= set(BANDED)
    in_order = [name for name in BANDED if name in names]
    for name, (label, *cells) in zip(in_order, rows_of(sheet), strict=False):
        assert label == percentiles._NAMES[name]
        for cell, end in zip(cells[:3], names[name], strict=True):
            check_text(cell, [(row[end], find_result(name).unit)])
    (failed,) = (cells for cells in rows_of(sheet) if cells[0] == "not feasible")
    check_text(" ".join(failed), [(5, "")])


COLUMNS = [
    column.name for column in (*RESULTS, *TRANSFORMER, *SERVED, *SEARCH)
    if column.kind in ("int", "float") and "*" not in column.name
]  # fmt: skip


def test_tables_of_columns_show_each_in_its_unit(row):
    """Of grids, fronts and rankings, and of `columns=`: a column has its name above it, or its unit."""
    expected = of(row, *COLUMNS)
    (cells,) = rows_of(listing("All", COLUMNS, [row]))
    for cell, figure in zip(cells[1:], expected, strict=True):
        check_text(cell, [figure])
    for cells, name, figure in zip(rows_of(column_sheet(COLUMNS, row)), COLUMNS, expected, strict=True):
        assert cells[0] == name
        assert cells[2] == find_result(name).meaning
        check_text(cells[1], [figure])


@pytest.mark.parametrize("unit", sorted({find_result(name).unit for name in COLUMNS} | set(units._SCALES)))
def test_every_unit_is_read_back_as_it_was_shown(unit):
    """Among them those that pages take: a scale off by a thousand says another number."""
    for exponent in np.arange(-12.0, 16.0, 0.83):
        value = 10.0**exponent
        ((got, base, half),) = figures(units.show(value, unit))
        if got == 0.0:  # cents of a price
            assert unit.startswith("USD")
            continue
        expected, expected_unit = in_base(value, unit)
        assert base == expected_unit
        assert abs(got - expected) <= 1.001 * half
        for scale in units.scales(unit) if unit else ():
            ((size, base, _),) = figures(f"1{'' if scale.name.startswith('/') else ' '}{scale.name}")
            assert (size, base) == in_base(scale.size, unit)
