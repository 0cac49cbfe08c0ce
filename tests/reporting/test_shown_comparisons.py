"""What the screens of a search, of a ranking of strategies and of a back-test show is that of its column.

As `test_shown_values` has it of points: of values all unlike, each number is read back in its unit.
"""

from itertools import count

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fastflow.analysis.backtest.study import Backtest
from fastflow.analysis.search.ranges import WithinTolerance
from fastflow.performance.auto.transformer import Search
from fastflow.reporting.terminal import backtest, ranges, ranking, search, strategy_ranking
from fastflow.reporting.terminal.equivalents import LAYOUT_ERROR
from tests.support.shown import check_sheet, check_text, of, plain, rows_of, trained

SEEDS = pytest.mark.parametrize("seed", range(3))


def heads(sheet):
    return [column.header for column in sheet.columns]


def numbers(*values):
    """The values, without units."""
    return [(float(value), "") for value in values]


# --- a search

SHARES = {
    "core": ("area", "power"), "l2": ("area", "power"), "dram": ("power", "perimeter"),
    "inter": ("area", "power", "perimeter"),
}  # fmt: skip
KEYS = [f"chip.{budget}.{part}" for part, budgets in SHARES.items() for budget in budgets]
LEVELS = {"l2": ("l2_B", "l2_Bps"), "dram": ("dram_capacity_B", "dram_Bps"), "core": ("compute_flops",)}


def design(seed, **more):
    random = np.random.default_rng(seed)
    shares = dict(zip(KEYS, random.uniform(0.011, 0.24, len(KEYS)).tolist(), strict=True))
    return trained(seed) | shares | more


def compared(own, best, name):
    """The value of both designs, and by how much the best is better."""
    return [*of(own, name), *of(best, name), *numbers(own[name] / best[name])]


def under_limits(own, best):
    """Return rows of powers that have limits."""
    names = {"power of a rack": "rack_W", "power of the system": "system_W"}
    return [(label, *of(own, name), *of(best, name)) for label, name in names.items()]


@SEEDS
def test_results_of_a_search(seed):
    own, best = (design(seed + 10 * i, time_s=3e4 - 7e3 * i, objective=31e-6 - 7e-6 * i) for i in range(2))
    own["second_objective"], best["second_objective"] = own["device_usd"], best["device_usd"]
    for row in (own, best):
        del row["tpot_s"]
    result, _ = search.best_parts(own, best, ("time_area", "device_usd"), KEYS)
    assert heads(result) == ["", "baseline", "best", ""]
    objectives = [(row["objective"], "s m^2") for row in (own, best)]
    check_sheet(
        result,
        [
            ("time_area", *objectives, *numbers(own["objective"] / best["objective"])),
            ("device_usd", *((row["device_usd"], "USD") for row in (own, best)),
             *numbers(own["device_usd"] / best["device_usd"])),
            ("time", *compared(own, best, "time_s")),
            ("energy", *compared(own, best, "energy_J")),
            ("cost of an iteration", *compared(own, best, "iteration_usd")),
            ("tokens per megawatt", *of(own, "tokens_per_s_per_MW"), *of(best, "tokens_per_s_per_MW")),
            ("mfu", *of(own, "mfu"), *of(best, "mfu")),
            ("bound by",),
            *under_limits(own, best),
        ],
    )  # fmt: skip


@SEEDS
def test_results_of_a_search_for_a_server(seed):
    own, best = design(seed), design(seed + 10)
    result, _ = search.best_parts(own, best, ("energy", None), KEYS)
    check_sheet(
        result,
        [
            ("time to first token", *compared(own, best, "ttft_s")),
            ("for serve.slo", *compared(own, best, "ttft_slo_s")),
            ("time per further token", *compared(own, best, "tpot_s")),
            ("for serve.slo", *compared(own, best, "tpot_slo_s")),
            ("tokens per device", *of(own, "tokens_per_s_per_device"), *of(best, "tokens_per_s_per_device")),
            ("tokens per megawatt", *of(own, "tokens_per_s_per_MW"), *of(best, "tokens_per_s_per_MW")),
            ("energy of a token", *compared(own, best, "joules_per_token")),
            ("cost of a device", *compared(own, best, "device_usd")),
            ("cost of tokens", *compared(own, best, "token_usd")),
            ("KV cache capacity", *of(own, "kv_cache_capacity_B"), *of(best, "kv_cache_capacity_B")),
            ("prefill bound by",),
            ("decode bound by",),
            *under_limits(own, best),
        ],
    )


@SEEDS
def test_shares_of_a_search(seed):
    own, best = design(seed), design(seed + 10)
    _, shares, infeasible = search.best_parts(own, best | {"feasible": False}, ("time", None), KEYS)
    assert heads(shares) == ["component", "area", "power", "die edge", "capacity", "rate"]
    expected = []
    for part, budgets in SHARES.items():
        cells = numbers(*(row[f"chip.{budget}.{part}"] for budget in budgets for row in (own, best)))
        names = LEVELS.get(part, (f"{part}_Bps",))
        expected.append((part, *cells, *(figure for name in names for row in (own, best)
                                         for figure in of(row, name))))  # fmt: skip
    budgets = ("area", "power", "perimeter")
    unused = (
        1.0 - sum(row[key] for key in KEYS if key.startswith(f"chip.{budget}."))
        for budget in budgets for row in (own, best)
    )  # fmt: skip
    check_sheet(shares, [*expected, ("unused", *numbers(*unused))])
    # shares stand in the column of their budget
    for part, cells in zip(SHARES, rows_of(shares), strict=False):
        assert [budget for budget, cell in zip(budgets, cells[1:4], strict=True) if cell] == [*SHARES[part]]
    assert infeasible == "not feasible: <reason>"


def test_title_of_a_search():
    row = trained(0) | {"strategy": "auto"}
    check_text(plain(search.title(row, 12345, "gradient")), [*of(row, "devices"), (12345, "")])


@SEEDS
def test_ranges_of_shares(seed):
    row = design(seed, candidate=3, objective=2.0)
    random = np.random.default_rng(seed)
    of_row = {key: tuple(sorted(random.uniform(0.01, 0.9, 2).tolist())) for key in KEYS}
    others = dict.fromkeys(KEYS, (0.111, 0.222))
    within = WithinTolerance(0.013, {1: others, 3: of_row}, {1: 1.0, 3: 1.3})
    sheet, note = ranges.range_parts(row, within)
    check_text(sheet.title, [(0.013, "")])
    assert heads(sheet) == ["component", "area", "power", "die edge"]
    check_sheet(
        sheet,
        [
            (part, *numbers(*(value for budget in budgets for key in [f"chip.{budget}.{part}"]
                              for value in (row[key], *of_row[key]))))
            for part, budgets in SHARES.items()
        ],
    )  # fmt: skip
    check_text(note, [(0.35, "")])


SCHEMA = pa.schema([
    pa.field("objective", pa.float64(), metadata={"meaning": "energy [J]", "unit": "J"}),
    pa.field("second_objective", pa.float64(), metadata={"meaning": "area [m^2]", "unit": "s m^2"}),
])  # fmt: skip
PLAIN = ("prob_first_better", "prob_on_front", "gain", "gap", "designs")
HEADS = ["", "mem", "energy [J]", "area [m^2]", *PLAIN, "bound_by", "feasible"]


def scored(size):
    """Designs of a search, of which two columns name them."""
    rows = []
    for rank in range(size):
        row = {name: value for name, value in trained(rank).items() if name in (*PLAIN, "bound_by")}
        row |= {"rank": rank + 1, "mem": f"hbm{rank}", "tech": "n7", "feasible": True, "reason": ""}
        row |= {name: (0.11 + rank + i) / (size + 9.0) for i, name in enumerate(PLAIN[:4])}
        rows.append(row | {"objective": 2e6 * (1.31 + rank), "second_objective": 1e-6 * (7.7 + 3.1 * rank)})
    return pd.DataFrame(rows)


def check_designs(sheet, frame):
    assert heads(sheet) == HEADS
    check_sheet(
        sheet,
        [
            (str(number), (number, ""), (row.objective, "J"), (row.second_objective, "s m^2"),
             *numbers(*(getattr(row, name) for name in PLAIN)))
            for number, row in zip(count(1), frame.itertuples())
        ],
    )  # fmt: skip


def test_candidates_of_a_ranking():
    frame = scored(12)
    sheet = ranking.ranking_sheet(frame, SCHEMA)
    check_text(sheet.title, [(12, "")])
    check_designs(sheet, frame.head(10))


def test_designs_of_a_front():
    frame = scored(31)
    sheet = ranking.front_sheet(frame, SCHEMA)
    check_text(sheet.title, [(31, ""), (16, "")])
    check_designs(sheet, frame.iloc[::2])


# --- a ranking of strategies

LAYOUTS = {
    "time": "time_s", "mfu": "mfu", "bubble": "bubble_s", "footprint_B": "footprint_B",
    "prob_first_better": "prob_first_better",
}  # fmt: skip
SERVERS = {
    "ttft": "ttft_s", "ttft_slo": "ttft_slo_s", "tpot": "tpot_s", "tpot_slo": "tpot_slo_s",
    "tokens_per_s_per_device": "tokens_per_s_per_device", "tokens_per_s_per_user": "tokens_per_s_per_user",
    "kv_cache": "kv_cache_capacity_B", "prob_first_better": "prob_first_better",
}  # fmt: skip
COUNTS = ("microbatch", "zero")


def layouts(drop):
    """Five layouts: the second is as good as the first, and the last repeats the first."""
    rows = [
        {name: value for name, value in trained(seed).items() if name not in drop}
        | {"point": 70 + seed, "strategy": f"d{seed}", "recompute": "none", "placement": "<place>"}
        | {"time_s": 1e4 * (1.003, 1.007, 1.9, 2.7)[seed], "microbatch": 3, "zero": 2}
        | {"tokens_per_s_per_device": (907.0, 902.0, 711.0, 503.0)[seed]}
        for seed in range(4)
    ]
    return rows, pa.Table.from_pylist([*rows, rows[0] | {"point": 99}])


def chances(points):
    return [(point - 9) / 100.0 for point in points]


def with_chances(rows):
    """The rows with the chance of the first, a dash in its own row."""
    values = [np.nan, *chances([row["point"] for row in rows[1:]])]
    return [row | {"prob_first_better": value} for row, value in zip(rows, values, strict=True)]


def shown_of(rows, names, counts=()):
    """The numbers of rows: of their point, of how they are cut, and of their results."""
    first, *others = (
        ["", *of(row, "point"), *numbers(*(row[name] for name in counts)), *of(row, *names)] for row in rows
    )
    first.pop()  # a dash
    return [first, *others]


def test_layouts_of_a_transformer():
    rows, table = layouts(("tpot_s",))
    result = Search({}, layouts=777, num_invalid=55, num_without_memory=44, predicted=333)
    sheet, note, meaning = strategy_ranking._iteration_parts(table, result, chances)
    assert "equal" in meaning
    check_text(sheet.title, [(777, "")])
    assert heads(sheet) == ["point", "strategy", "microbatch", "recompute", "zero", *LAYOUTS, "feasible"]
    check_sheet(sheet, shown_of(with_chances(rows), LAYOUTS.values(), COUNTS))
    check_text(note, [*numbers(2, 4, LAYOUT_ERROR)])
    about = strategy_ranking._search_note(result, table.num_rows)
    check_text(about, numbers(333, 777, 44, 55, 777 - 333 - 44 - 55, 5))
    assert [text.split()[1] for text in about.split("; ")[1:]] == ["lack", "have", "compute"]


def test_strategies_of_other_models():
    rows, table = layouts(("tpot_s",))
    sheet, note = strategy_ranking._iteration_parts(table, None, None)
    check_text(sheet.title, [(5, "")])
    assert heads(sheet) == ["point", "strategy", "placement", "time", "footprint_B", "bound_by", "feasible"]
    check_sheet(sheet, [("", *of(row, "point", "time_s", "footprint_B")) for row in rows])
    check_text(note, numbers(2, 4, 0.01))


def test_layouts_of_a_server():
    rows, table = layouts(())
    sheet, note = strategy_ranking._server_parts(table, chances)
    check_text(sheet.title, [(5, "")])
    columns = [head for head in SERVERS if head not in ("ttft", "tpot")]  # limits stand for the means
    assert heads(sheet) == ["point", "strategy", *columns, "feasible"]
    shown = with_chances([*rows, rows[0] | {"point": 99}])
    check_sheet(sheet, shown_of(shown, [SERVERS[head] for head in columns]))
    check_text(note, numbers(2, 4, 0.01))


# --- a back-test

QUANTITIES = {
    "tensor rate": ("rate.fp16", "flop/s"), "MCUs": ("mcus", ""), "clock": ("core_Hz", "Hz"),
    "L2": ("l2_B", "B"), "L2 rate": ("l2_Bps", "B/s"), "L1": ("l1_B", "B"), "L1 rate": ("l1_Bps", "B/s"),
    "registers": ("l0_B", "B"), "reg. rate": ("l0_Bps", "B/s"), "memory": ("dram_capacity_B", "B"),
    "memory rate": ("dram_Bps", "B/s"), "links": ("link_Bps", "B/s"),
    "at rest": ("idle_W", "W"), "full load": ("full_W", "W"),
}  # fmt: skip
CHIPS, VARIANTS = ["alpha", "beta"], ["real", "foundry", "paper", "foresight"]


def backtested():
    random, rows = np.random.default_rng(5), []
    for chip in CHIPS:
        for scaling in ("paper", "foundry"):
            for quantity in [*dict(QUANTITIES.values()), "rate.bf16"]:
                real = float(10 ** random.uniform(3.0, 14.0))
                difference = float(random.uniform(-0.9, 1.9))
                rows.append((chip, scaling, quantity, real, real * (1.0 + difference), difference))
    chips = pd.DataFrame(rows, columns=["chip", "scaling", "quantity", "real", "generated", "difference"])

    def rows_with(kind, names, **texts):
        values = {f"{name}_{kind}": random.uniform(1.1, 4.9, 3) for name in names}
        return pd.DataFrame({"rows": random.integers(11, 9999, 3)} | texts | values)

    compared = {"workload": ["<a>", "<b>", "<c>"], "before": "alpha", "after": "beta"}
    return Backtest(
        chips,
        rows_with("gain", VARIANTS, **compared),
        rows_with("error", VARIANTS[:3], file="<file>", chip="alpha"),
        rows_with("gain", ["measured", *VARIANTS[:3]], **compared),
    )


def test_differences_of_generated_chips():
    result = backtested()
    foundry, paper, *_ = backtest.parts(result, CHIPS, ["alpha"])
    for scaling, sheet in (("foundry", foundry), ("paper", paper)):
        assert sheet.title.endswith(f"(scaling={scaling})")
        assert heads(sheet) == ["chip", *QUANTITIES]
        rows = result.chips[result.chips["scaling"] == scaling].set_index(["chip", "quantity"])["difference"]
        check_sheet(
            sheet,
            [(chip, *numbers(*(rows[chip, name] for name, _ in QUANTITIES.values()))) for chip in CHIPS],
        )


def with_unit(cell):
    """A pair of quantities, each with its unit: a common one stands once."""
    real, generated = cell.split(" → ")
    unit = generated.partition(" ")[2]
    return f"{real if ' ' in real else f'{real} {unit}'} → {generated}"


def test_quantities_of_generated_chips():
    result = backtested()
    *_, values, rates, _, _, _ = backtest.parts(result, CHIPS, ["alpha"])
    rows = result.chips[result.chips["scaling"] == "foundry"].set_index(["chip", "quantity"])
    types = {name: (f"rate.{name}", "flop/s") for name in ("fp16", "bf16")}
    of_chips = {label: value for label, value in QUANTITIES.items() if label != "tensor rate"}
    for sheet, names in ((values, of_chips), (rates, types)):
        assert heads(sheet) == ["", *CHIPS]
        for (label, (name, unit)), cells in zip(names.items(), rows_of(sheet), strict=True):
            assert cells[0] == label
            for chip, cell in zip(CHIPS, cells[1:], strict=True):
                row = rows.loc[(chip, name)]
                check_text(with_unit(cell), [(row["real"], unit), (row["generated"], unit)])


def test_gains_and_errors_of_a_backtest():
    result = backtested()
    *_, gains, errors, measured = backtest.parts(result, CHIPS, ["alpha"])

    def over(row, names, base):
        pairs = ((row[f"{name}_gain"], row[f"{name}_gain"] / row[f"{base}_gain"] - 1.0) for name in names)
        return numbers(*(value for pair in pairs for value in pair))

    assert heads(gains) == ["workload", "from", "to", *VARIANTS]
    check_sheet(
        gains,
        [
            (row["workload"], *numbers(row["real_gain"]), *over(row, VARIANTS[1:], "real"))
            for _, row in result.gains.iterrows()
        ],
    )
    assert heads(errors) == ["file", "chip", "rows", *VARIANTS[:3]]
    check_sheet(
        errors,
        [
            (row["file"], *numbers(row["rows"], *(row[f"{name}_error"] for name in VARIANTS[:3])))
            for _, row in result.files.iterrows()
        ],
    )
    assert heads(measured) == ["rows alike", "from", "to", "rows", "measured", *VARIANTS[:3]]
    check_sheet(
        measured,
        [
            (
                row["workload"], *numbers(row["rows"], row["measured_gain"]),
                *over(row, VARIANTS[:3], "measured"),
            )
            for _, row in result.measured.iterrows()
        ],
    )  # fmt: skip


def test_summary_of_a_backtest():
    result = backtested()
    names = ("rate.fp16", "dram_capacity_B", "dram_Bps", "l2_B", "l2_Bps")
    chips = result.chips[result.chips["quantity"].isin(names)]
    lines = backtest.summary_lines(result, CHIPS)
    for scaling, line in zip(("foundry", "paper"), lines, strict=True):
        rows = chips[chips["scaling"] == scaling]
        far = rows.loc[rows["difference"].abs() > 0.2, "difference"]
        assert line.startswith(f"scaling={scaling}:")
        check_text(line, numbers(len(rows) - len(far), len(rows), 0.2, *far))
