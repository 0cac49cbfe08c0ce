"""Figures 10 and 11 judged on rankings written by hand, the figure of a search, and the command line."""

import itertools

import pandas as pd
import pyarrow as pa
import pytest

import fastflow
from fastflow.cli.commands.report import main as report
from fastflow.cli.commands.search import main as search
from fastflow.cli.commands.sweep import main as sweep
from fastflow.core import units as units_of
from fastflow.engine.dataset.schema import field_of
from fastflow.reporting.charts.search import columns_of, draw, draw_front
from fastflow.reporting.charts.style import render
from fastflow.reporting.studies import fig10, fig11, report_of
from fastflow.reporting.studies.fig09 import NODES
from fastflow.reporting.terminal.ranking import front_sheet, ranking_sheet
from fastflow.reporting.terminal.tables import console

WIDE = {**fig10.PAPER_MODEL, "model.hidden": 17408, "model.layers": 1}


def ranking10(strategy=2.0, architecture=(1.5, 1.4, 1.25, 1.25, 1.25, 1.25, 1.25), model=1.7, fall=0.75):
    """A ranking of what the paper claims, by default: each node's naive time falls by a factor."""
    rows = []
    for place, node in enumerate(NODES):
        naive = 8.0 * fall**place
        best = naive / strategy
        where = {"tech": node, "mem": "hbm2", "net": "ndr_x8"}
        rows.append(
            {**where, **fig10.PAPER_MODEL, "strategy": "d512", "baseline_objective": naive,
             "baseline_feasible": False,
             "time_s": naive / 2, "feasible": False}
        )  # fmt: skip
        rows.append(
            {**where, **fig10.PAPER_MODEL, "strategy": "RC-1-16-d32",
             "baseline_objective": best, "baseline_feasible": True,
             "time_s": best / architecture[place], "feasible": True}
        )  # fmt: skip
        rows.append(
            {**where, **WIDE, "strategy": "RC-1-16-d32", "baseline_objective": best / 9,
             "baseline_feasible": True,
             "time_s": best / architecture[place] / model, "feasible": True}
        )  # fmt: skip
    return pd.DataFrame(rows)


def verdicts(claims):
    return [claim.holds for claim in claims]


def test_what_the_paper_says_of_co_optimisation_is_judged_as_it_says_it():
    claims = fig10.claims(ranking10())
    assert verdicts(claims) == [True] * 4
    assert claims[0].line.startswith("with HBM2 and NDR-x8, the strategy alone is worth about 2x: N12 2.00x")
    assert claims[1].figure == "N12 50%, N7 40%"
    assert claims[3].figure.startswith("N12 2.5 nodes (70%)")
    assert all(claim.line.endswith("; yes") for claim in claims)


@pytest.mark.parametrize(
    ("change", "which"),
    [
        ({"strategy": 1.5}, 0),
        ({"strategy": 2.6}, 0),
        ({"architecture": (1.5, 1.2, 1.25, 1.25, 1.25, 1.25, 1.25)}, 1),
        ({"architecture": (1.5, 1.4, 1.25, 1.5, 1.25, 1.25, 1.25)}, 2),
        ({"architecture": (1.5, 1.4, 1.25, 1.25, 1.25, 1.25, 1.05)}, 2),
        ({"model": 1.2}, 3),
    ],
)
def test_a_claim_on_co_optimisation_that_does_not_hold(change, which):
    assert verdicts(fig10.claims(ranking10(**change))) == [place != which for place in range(4)]


def test_a_level_without_a_feasible_design_takes_what_there_is():
    frame = ranking10()
    frame["feasible"] = frame["baseline_feasible"] = False
    (curve,) = fig10.curves(frame).values()
    assert curve["naive strategy"][0] == 8.0
    assert curve["best strategy"][0] == 4.0


def test_what_is_missing_is_not_judged():
    frame = ranking10()
    claims = fig10.claims(frame[frame["tech"] != "n3"])
    assert verdicts(claims) == [False] * 4
    assert "not judged, no time for N3" in claims[0].figure
    claims = fig11.claims(ranking11()[:-2])
    assert verdicts(claims) == [False] * 2
    assert "in packages of 32" in claims[0].figure
    assert verdicts(fig11.claims(ranking11()[:0])) == [False] * 2


def test_worth_in_nodes():
    curve = {level: [8.0, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0] for level in fig10.LEVELS}
    assert fig10.equivalent_nodes({**curve, "and model": [4.0] * 7}, 0) == pytest.approx(1.0)
    assert fig10.equivalent_nodes({**curve, "and model": [8.0 / 2**1.5] * 7}, 0) == pytest.approx(1.5)
    assert fig10.equivalent_nodes({**curve, "and model": [0.5] * 7}, 2) == 4.0  # as far as nodes go


def ranking11(two=1.1, four=1.2, thirty_two=1.25):
    speeds = dict(zip(fig11.SIZES, (1.0, two, four, four, four, thirty_two), strict=True))
    rows = [
        {"tech": tech, "mem": "hbm3", "net": "ndr_x8", "system.package.devices": size, "strategy": name,
         "time_s": time / speed, "feasible": fits}
        for tech, (size, speed) in itertools.product(("n7", "n3"), speeds.items())
        for name, time, fits in (("d512", 0.1, False), ("RC-1-16-d32", 1.0, True))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_what_the_paper_says_of_packages():
    claims = fig11.claims(ranking11())
    assert verdicts(claims) == [True, True]
    assert claims[0].figure == "N7 HBM3 NDR-x8 25%, N3 HBM3 NDR-x8 25%"
    assert verdicts(fig11.claims(ranking11(thirty_two=1.45))) == [False, False]
    assert verdicts(fig11.claims(ranking11(thirty_two=1.35))) == [True, False]


@pytest.mark.parametrize(("name", "frame"), [("fig10", ranking10()), ("fig11", ranking11())])
def test_figures(name, frame):
    how = report_of(name)
    assert set(how.columns) <= set(frame.columns)
    assert render(lambda: how.draw(frame)).startswith(b"<?xml")
    assert render(lambda: how.draw(frame), "png")[1:4] == b"PNG"


SMALL = (
    "tech=n7", "mem=hbm3", "model.hidden=4096", "model.vocabulary=100000", "model.batch=2048",
    "model.devices=16", "parallel.strategy=RC-1-4-d4",
)  # fmt: skip


@pytest.mark.long
def test_a_search_from_the_command_line(cli, tmp_path):
    code, out, err = cli(search, *SMALL, "steps=4", "output=out/mine")
    assert code == 0, err
    assert err[0] == "1 candidate, up to 4 steps of mirror"
    assert out[-1] == "Dataset: out/mine"
    assert "Chip: out/mine-best.yaml" in out
    assert "Figure: out/mine-search.svg" in out
    assert any(line.startswith("time ") for line in out)
    again = next(line for line in out if line.startswith("python -m fastflow.sweep "))
    assert cli(sweep, *again.split()[3:], "output=out/again")[0] == 0
    frames = [pd.read_parquet(tmp_path / "out" / name) for name in ("again", "mine-ranking")]
    assert frames[0]["time_s"][0] == frames[1]["time_s"][0]
    code, out, err = cli(search, *SMALL, "steps=4", "output=out/mine")
    assert code == 0
    assert any(line.endswith("designs were scored before") for line in out)
    for name in ("out/mine", "out/mine-ranking"):
        code, out, _ = cli(report, name)
        assert code == 0
        assert any("RC-1-4-d4" in line for line in out)
    assert (tmp_path / "out" / "mine-search.svg").read_text().count("<path") > 10


@pytest.mark.long
def test_a_chip_of_another_node_is_found_again(cli, tmp_path):
    real = ("chip=v100", "chip.pinned=null", "model=gemm", "model.m=512", "steps=2", "output=out/mine")
    code, out, err = cli(search, *real)
    assert code == 0, err
    again = next(line for line in out if line.startswith("python -m fastflow.sweep "))
    assert cli(sweep, *again.split()[3:], "tech=n5", "output=out/other")[0] == 0
    assert cli(sweep, *again.split()[3:], "output=out/again")[0] == 0
    found, other, ranked = (
        pd.read_parquet(tmp_path / "out" / name)["time_s"][0] for name in ("again", "other", "mine-ranking")
    )
    assert found == ranked != other


@pytest.mark.long
def test_a_grid_of_searches_from_the_command_line(cli, tmp_path):
    code, out, err = cli(
        search, "-m", *SMALL[1:], "tech=n7,n5", "steps=2", "pareto=energy", "starts=2", "output=out"
    )
    assert code == 0, err
    assert "Chips: out-best, 2 files" in out
    assert sorted(path.name for path in (tmp_path / "out-best").iterdir()) == ["n5.yaml", "n7.yaml"]
    assert "Front: out-front" in out
    front = pd.read_parquet(tmp_path / "out-front")
    assert set(front["tech"]) == {"n7", "n5"}


@pytest.mark.long
def test_a_small_study_is_judged(cli, tmp_path):
    few = ("tech=n7", "net=ndr_x8", "system.package.devices=1,4", "model.devices=16", "model.batch=2048")
    code, out, err = cli(
        search, "-m", "+sweeps=fig11", *few, "model.hidden=4096", "steps=2", "starts=1", "output=o"
    )
    assert code == 0, err
    assert sum(line.endswith("; no") for line in out) == 2  # sizes are missing
    assert "Figure: o-fig11.svg" in out
    code, again, _ = cli(report, "o-ranking")
    assert [line for line in again if line.endswith("; no")] == [
        line for line in out if line.endswith("; no")
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("main", "arguments", "line"),
    [
        (
            search,
            ("method=newton",),
            "method=newton (from the command line) is invalid: expected one of mirror, cma",
        ),
        (search, ("-m", "seed=1,2"), "seed=1,2 (from the command line) is invalid: expected a single value"),
        (search, ("-m", "+sweeps=fig09"), "report=fig09"),
        (sweep, ("-m", "+sweeps=fig10"), "report=fig10"),
        (
            search,
            ("chip=mine.yaml",),
            "chip=mine.yaml (from the command line) is invalid: expected a file that exists",
        ),
        (search, ("steps=1.5",), "steps=1.5 (from the command line) is invalid: expected a whole number"),
        (search, ("engine=dask", "engine.address=tcp://127.0.0.1:9"), "engine.address=tcp://127.0.0.1:9"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(cli, tmp_path, main, arguments, line):
    code, out, err = cli(main, *arguments, "output=out")
    assert (code, out) == (2, [])
    assert len([text for text in err if "compositions" not in text]) == 1
    assert err[-1].startswith(line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_the_figure_of_a_search_needs_its_columns_alone():
    found = fastflow.search(*SMALL, "steps=3", "starts=2", "pareto=energy")
    frame = found.history[["tech", "strategy", *columns_of(list(found.history))]]
    drawn = render(lambda: draw(frame, ["tech", "strategy"], "time [s]", "energy [J]"))
    assert drawn == render(lambda: draw(found.history, ["tech", "strategy"], "time [s]", "energy [J]"))
    front = found.front[columns_of(list(found.front))]
    front["strategy"] = found.front["strategy"]
    assert render(lambda: draw_front(front, ["strategy"], "time [s]", "energy [J]")).startswith(b"<?xml")


@pytest.mark.parametrize("lost", [("objective",), ("feasible",)])
def test_the_figure_of_a_search_that_found_nothing(lost):
    found = fastflow.search(*SMALL, "steps=2")
    frame = found.history.assign(feasible=False)
    if "objective" in lost:
        frame["objective"] = float("nan")
    assert b"none is feasible" in render(lambda: draw(frame, ["strategy"], "time [s]"))
    frame["second_objective"] = frame["objective"]
    assert b"none is feasible" in render(lambda: draw(frame, ["strategy"], "time [s]", "energy [J]"))


def test_fronts_are_drawn_apart():
    one = [(1.0, 9.0), (2.0, 5.0), (3.0, 1.0)]
    rows = [(tech, *pair) for tech in ("n7", "n5") for pair in one]
    frame = pd.DataFrame(rows, columns=["tech", "objective", "second_objective"])
    frame["strategy"], frame["chip.area.core"], frame["chip.power.core"] = "d16", 0.5, 0.25
    figure = draw_front(frame, ["tech", "strategy"], "time [s]", "energy [J]")
    assert [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes[::3]] == [
        "Front: N7",
        "Front: N5",
    ]
    assert [len(axes.containers[0]) for axes in figure.axes[1::3]] == [3, 3]


@pytest.mark.long
def test_an_own_chip_that_makes_nothing_has_no_ratio(cli):
    code, out, err = cli(
        search, *SMALL, "chip.perimeter.dram=0", "objective=edp", "steps=2", "starts=1", "output=out"
    )
    assert code == 0, err
    assert next(line for line in out if line.startswith("edp ")).split()[1] == "-"


@pytest.mark.long
def test_a_search_where_no_design_makes_a_chip(cli):
    code, out, err = cli(
        search, *SMALL, "chip.die_area='3 mm2'", "pareto=energy", "steps=1", "starts=2", "output=out"
    )
    assert code == 0, err
    assert "no front: no design has a time" in out
    code, out, _ = cli(report, "out", "out-front")
    assert code == 0
    assert "no design has a time" in out
    assert out[-1] == "Figure: out-front.svg"


def test_what_was_not_searched_is_no_best_candidate(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    rows = [
        (1, "n7", 1, 1.0, ""),
        (2, "n7", 2, 2.0, ""),
        (3, "n5", 1, 1.0, "gives the same results as RC-1-4-d4"),
    ]
    frame = pd.DataFrame(
        rows, columns=["rank", "tech", "system.package.devices", "objective", "reason"]
    ).assign(**{"model.devices": [8, 8, 16], "strategy": "d16"})
    field = field_of("objective", "float").with_metadata({"unit": "s", "meaning": "time"})
    console().print(ranking_sheet(frame, pa.schema([field])))
    out = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert out[1] == ["tech", "package.devices", "model.devices", "time"]
    assert out[3:] == [["1", "n7", "1", "8", "1", "s"], ["2", "n7", "2", "8", "2", "s"]]


def test_tables_show_what_tells_candidates_apart(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    found = fastflow.search(
        *SMALL,
        "model.batch=1024,2048",
        "parallel.strategy=RC-1-4-d4,d16",
        "steps=3",
        "starts=2",
        "pareto=energy",
    )
    fields = [field_of(name, "float") for name in ("objective", "second_objective")]
    units = [{"unit": "s", "meaning": "time"}, {"unit": "J", "meaning": "energy"}]
    schema = pa.schema([one.with_metadata(about) for one, about in zip(fields, units, strict=True)])
    console().print(ranking_sheet(found.ranking, schema))
    console().print(front_sheet(found.front, schema))
    out = capsys.readouterr().out.splitlines()
    heads = next(line for line in out if "batch" in line).split()
    assert heads == [
        "batch", "strategy", "time", "energy", "gain", "gap", "designs", "bound_by", "feasible",
    ]  # fmt: skip
    assert any(line.split()[:3] == ["1", "1,024", found.best["strategy"]] for line in out)
    assert any(line.startswith("Front of ") for line in out)
    best = units_of.show(found.best["objective"], "s")
    assert sum(best in line for line in out) >= 2
