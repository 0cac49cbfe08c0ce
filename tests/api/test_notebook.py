"""What a notebook shows: HTML, figures, progress and completion; and the notebooks of docs/."""

import html
import json
import os
import pickle
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import fastflow
from fastflow.analysis.search.candidates import COMPARE
from fastflow.analysis.search.optimizers.halving import Rules
from fastflow.analysis.search.optimizers.methods import METHODS
from fastflow.analysis.search.optimizers.objective import OBJECTIVES
from fastflow.analysis.search.options import SearchOptions
from fastflow.analysis.search.ranges import KEY, read_ranges
from fastflow.api.notebook import calls, markup
from fastflow.api.notebook.extension import continuations, load, unload
from fastflow.api.notebook.frames import Points
from fastflow.api.notebook.result_cards import options_of
from fastflow.api.notebook.results import Validation
from fastflow.core import units
from fastflow.reporting import studies
from fastflow.reporting.terminal import progress as progress_module
from fastflow.reporting.terminal.progress import InNotebook
from fastflow.reporting.terminal.tables import new_sheet
from tests.support.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
ENTRIES = ("backtest", "calibrate", "evaluate", "probability_better", "rank_strategies", "search",
           "sensitivity", "sweep", "validate")  # fmt: skip
SERVED = ("serve=continuous", "server=vllm", "model=llama3_8b", "chip=h100_sxm", "system=dgx_h100")
GEMMS = "m,n,k,dtype,time_s\n" + "".join(
    f"{m},{n},4096,bf16,{2.2 * m * n * 4096 / 250e12 + 8e-6:.4g}\n"
    for m in (64, 256, 1024, 4096)
    for n in (1024, 2048, 4096, 8192, 16384)
)
VOID = {"progress", "br", "img"}


def said(shown):
    """What HTML says, a line for each row or block, without tags; refuses scripts, links and open tags."""
    open_tags = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            assert tag not in ("script", "link", "iframe", "img", "object", "a")
            assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
            if tag not in VOID:
                open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Reader().feed(shown)
    assert not open_tags
    lines = re.sub(r"</(tr|div|summary)>", "\n", shown)
    cells = re.sub(r"<[^>]+>", "", re.sub(r"</t[dh]>", " | ", lines))
    return [html.unescape(line).strip(" |") for line in cells.splitlines() if line.strip(" |")]


@pytest.fixture(scope="module")
def one():
    return fastflow.evaluate(tech="n7", mem="hbm3")


@pytest.fixture(scope="module")
def grid():
    return fastflow.evaluate(
        tech=["n12", "n7", "n3"], mem=["hbm2", "hbm3"], model__batch=[512, 1024, 2048, 4096]
    )


@pytest.fixture(scope="module")
def served():
    return fastflow.evaluate(*SERVED, "serve.concurrency=4,64", "serve.slo.tpot=5 ms")


@pytest.fixture(scope="module")
def found():
    return fastflow.search("tech=n7", "mem=hbm2,hbm3", "compare=all", "steps=4", "starts=2")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("measured") / "gemms.csv"
    path.write_text(GEMMS)
    return path


@pytest.fixture(scope="module")
def validated(file):
    return fastflow.validate(measurements=str(file), chip="a100")


@pytest.fixture(scope="module")
def calibrated(file):
    return fastflow.calibrate(measurements=str(file), chip="a100", fit="utilization,launch_overhead")


@pytest.fixture(scope="module")
def hung():
    return fastflow.sensitivity("sensitivity.strategy=fixed", tech="n7", mem="hbm3")


def test_a_card_says_the_essential_of_a_point_first(one):
    lines = said(one._repr_html_())
    time = units.show(one["time_s"][0], "s")
    assert lines[0] == f"{time} an iteration, bound by {one['bound_by'][0]}, not feasible"
    assert "lstm_lm on 512 x pathfinding (n7, hbm3, ndr_x8), strategy d512" in lines[1]
    assert f"Not feasible {one['reason'][0]}" in lines
    for title in ("Time of one iteration", "Chip", "Cost", "Placement d", "Overrides"):
        assert any(line.startswith(title.removesuffix(" d")) for line in lines), title
    assert lines[-1] == "tech=n7 mem=hbm3"
    assert any(re.match(r"dram \| 64 GB \| .* TB/s", line) for line in lines)


def test_a_point_without_a_time_says_why():
    lines = said(fastflow.evaluate("chip.tdp=1 W")._repr_html_())
    assert lines[0] == "No time can be predicted"
    assert lines[-1].startswith("dram has no power left for its work")
    assert len(lines) == 3


def test_a_grid_begins_with_the_best_and_shows_what_varies(grid):
    best = grid.sort_values("time_s").iloc[0]
    lines = said(grid._repr_html_())
    assert lines[0].startswith("24 points, 0 feasible. Best: tech n3, mem hbm3, model.batch 512")
    assert units.show(best["time_s"], "s") in lines[0]
    assert lines[1] == "Fastest points, none feasible"
    heads = (
        "point | tech | mem | model.batch | strategy | time | bound_by | energy_J | footprint_B | feasible"
    )
    assert lines[2] == heads
    assert [line.split(" | ")[0] for line in lines[3:8]] == [
        str(point) for point in grid.sort_values("time_s")["point"].head(5)
    ]
    assert any("24 of 24 points do not fit their memory" in line for line in lines)


def test_a_few_points_are_all_there_in_their_order(grid):
    some = grid[grid["mem"] == "hbm3"]
    lines = said(some._repr_html_())
    assert lines[0].startswith("12 points, 0 feasible. Best: tech n3, mem hbm3")
    assert [line.split(" | ")[0] for line in lines[2:14]] == [str(point) for point in some["point"]]
    assert any(f"; point {some['point'].iloc[0]}: " in line for line in lines)


def test_points_that_serve_show_rates_and_latencies(served):
    lines = said(served._repr_html_())
    assert lines[0].startswith("2 points, 1 feasible. Best: serve.concurrency 4")
    assert "to the first token" in lines[0]
    assert "tokens_per_s_per_device" in lines[1]
    assert any("misses serve.slo" in line or "miss serve.slo" in line for line in lines)
    card = said(served[:1]._repr_html_())
    assert units.show(served["ttft_s"][0], "s") in card[0]
    assert any(line.startswith("to the first token (ttft_s) | ") for line in card)
    assert any(line.startswith("Bound by | prefill by") for line in card)


@pytest.mark.parametrize(
    ("overrides", "swept", "text"),
    [
        ([], {}, "in the longest run"),
        (["serve.num_requests=0"], {}, "in the longest run"),
        (["serve.num_requests=9"], {}, "after 9 requests"),
        (["serve.num_requests=5", "serve.num_requests=7000"], {}, "after 7,000 requests"),
        (["serve.num_requests=6,80"], {"serve.num_requests": 80}, "after 80 requests"),
        (["serve.num_requests=0,80"], {"serve.num_requests": 0}, "in the longest run"),
        (
            ["serve.num_requests=6,80"],
            {"serve.num_requests": np.nan},
            "in the longest run",
        ),  # of frames put together
    ],
)
def test_a_point_that_is_not_stationary_says_after_how_many_requests(served, overrides, swept, text):
    point = served[:1].assign(stationary=False, **swept)
    point.attrs = served.attrs | {"fastflow.overrides": json.dumps(overrides)}
    (line,) = (line for line in said(point._repr_html_()) if line.startswith("Not stationary"))
    assert line.startswith(f"Not stationary {text}")


def test_passes_that_serve_say_what_they_have():
    prompts = fastflow.evaluate("serve=prefill", *SERVED[1:])
    assert re.match(
        r"[\d,]+/s tokens of prompts, [\d.]+ m?s to the first token", said(prompts._repr_html_())[0]
    )


def test_whatever_a_frame_lost_pandas_shows_it(grid):
    plain = pd.DataFrame(grid)
    cut = grid.drop(columns="model")
    assert cut._repr_html_() == plain.drop(columns="model")._repr_html_()
    assert grid.isna()._repr_html_() == plain.isna()._repr_html_()
    assert grid[["point", "time_s"]]._repr_html_() == plain[["point", "time_s"]]._repr_html_()
    assert grid[:0]._repr_html_() == plain[:0]._repr_html_()
    assert repr(grid) == repr(plain)
    with pd.option_context("display.notebook_repr_html", False):
        assert grid._repr_html_() is None


def test_frames_are_ordinary_in_all_else(grid):
    plain = pd.DataFrame(grid)
    plain.attrs = grid.attrs
    pd.testing.assert_frame_equal(grid, plain)
    pd.testing.assert_frame_equal(plain, grid)
    assert type(grid[grid["mem"] == "hbm3"]) is Points
    assert type(grid["time_s"]) is pd.Series
    again = pickle.loads(pickle.dumps(grid))
    assert type(again) is Points
    assert again.attrs == grid.attrs
    assert grid.groupby("tech")["time_s"].min().idxmin() == "n3"
    assert len(pd.concat([grid, grid])) == 48


def test_plot_without_arguments_draws_what_the_command_does(grid, served):
    figure = grid.plot()
    assert isinstance(figure, Figure)
    assert [axes.get_title(loc="left") for axes in figure.axes[::2]] == ["tech", "mem", "model.batch"]
    assert "Serving: 2 points" in [text.get_text() for text in served.plot().texts]
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_plot_with_arguments_is_pandas(grid):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    try:
        for axes in (
            grid.plot(x="model.batch", y="time_s"),
            grid.plot.scatter(x="energy_J", y="time_s"),
            grid[["time_s", "energy_J"]].plot(),
        ):
            assert hasattr(axes, "get_xlabel")
    finally:
        pyplot.close("all")


def test_the_figure_of_a_study_is_its_own(monkeypatch, grid):
    drawn = []

    def of(name):
        return studies.Report((), lambda frame: [], lambda frame: drawn.append(name) or Figure())

    monkeypatch.setattr(studies, "report_of", of)
    known = grid.copy()
    known.attrs["fastflow.report"] = "fig09"
    known.plot()
    known[:3].plot()  # a part of it cannot be judged
    assert drawn == ["fig09"]


def test_a_search_shows_its_best_design_beside_the_chips_own(found):
    lines = said(found._repr_html_())
    best, own = (units.show(found.best[name], "s") for name in ("objective", "baseline_objective"))
    assert lines[0].startswith(f"Best time {best}, {found.best['gain']:.2f}x better")
    assert f"time | {own} | {best} | {found.best['gain']:.2f}x" in lines
    assert any(line.startswith("core | ") and "->" in line for line in lines)
    assert "Ranking of 2 candidates" in lines
    assert len(found.plot().axes) == 2


@pytest.mark.parametrize(
    ("ranks", "gaps", "text"),
    [
        ((1, 2), (0.0, 0.5), "2 of 2 candidates within 1% of the best: hbm3, hbm2"),
        ((1, 2), (0.0, 1.5), "1 of 2 candidates within 1% of the best: hbm3"),
        ((1, 1), (0.0, 0.0), None),  # a competition each, with a best of its own
    ],
)
def test_candidates_as_good_as_the_best_are_named_within_one_competition(found, ranks, gaps, text):
    tolerance = read_ranges(found.ranking.attrs[KEY]).tolerance
    ranking = found.ranking.assign(rank=ranks, gap=[gap * tolerance for gap in gaps])
    ranking.attrs = found.ranking.attrs
    lines = said(found._replace(ranking=ranking)._repr_html_())
    assert [line for line in lines if " of the best: " in line] == ([] if text is None else [text])


def test_every_choice_of_a_search_is_read_back_from_its_history(found):
    for method, objective, pareto, compare in product(METHODS, OBJECTIVES, (None, *OBJECTIVES), COMPARE):
        options = SearchOptions(Rules(method, 2, 4, 0), objective, pareto, compare, 0.01)
        history = pd.DataFrame()
        history.attrs["fastflow.search"] = options.written
        choices = {"method": method, "objective": objective, "pareto": pareto, "compare": compare}
        numbers = {"starts": "2", "steps": "4", "seed": "0"}
        assert options_of(history) == choices | numbers


def test_a_front_is_there_on_a_click():
    found = fastflow.search("tech=n7", "pareto=energy", "steps=4", "starts=2")
    lines = said(found._repr_html_())
    assert any(line.startswith(f"Front of {len(found.front)} design") for line in lines)
    assert len(found.plot().axes) == 3


def test_a_search_without_a_chip_says_so():
    found = fastflow.search("chip.tdp=1 W", "steps=2", "starts=1")
    assert said(found._repr_html_())[0].startswith("No design has a time: ")


def test_a_validation_begins_with_its_errors(validated):
    lines = said(validated._repr_html_())
    mean, median = validated.errors.loc[0, ["mean_error", "median_error"]]
    assert lines[0] == f"Mean relative error {mean:.1%}, median {median:.1%}"
    assert lines[1] == "20 rows of gemms.csv (GEMMs) on a100"
    assert any(line.startswith("all | 20 | ") for line in lines)
    worst = validated.rows.sort_values("error").iloc[-1]
    assert any(line.startswith(f"line {worst['line']}: ") for line in lines)
    assert len(validated.plot().axes) == 1


@pytest.mark.long
def test_a_calibration_shows_scalars_and_errors(calibrated):
    lines = said(calibrated._repr_html_())
    assert lines[0].startswith("held-back fifth: mean relative error ")
    assert any(line.startswith("utilization | ") for line in lines)
    assert any(line.startswith("held back | ") for line in lines)
    figure = calibrated.plot()
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == list(
        calibrated.scalars["scalar"]
    )
    bars = [bar.get_height() for bar in figure.axes[1].patches]
    assert np.allclose(bars, [*calibrated.errors["before"], *calibrated.errors["after"]])


def test_a_sensitivity_shows_the_first_ten(hung):
    lines = said(hung._repr_html_())
    first = hung.parameters["parameter"].tolist()
    assert lines[0] == f"time_s is {units.show(hung.value, 's')}; it depends most on {first[0]}"
    rows = [line.split(" | ")[0] for line in lines]
    assert first[9] in rows
    assert first[10] not in rows
    assert len(hung.plot().axes) == 1


@pytest.mark.long
def test_a_backtest_shows_chips_by_quantities():
    found = fastflow.backtest()
    lines = said(found._repr_html_())
    assert lines[0].startswith("scaling=foundry: ")
    chips = [line for line in lines if line.startswith("a100_sxm_80 | ")]
    assert "%" in chips[0]
    assert len(found.plot().axes) == len({*zip(found.gains["before"], found.gains["after"], strict=True)})


def test_chances_are_in_percent():
    chances = fastflow.probability_better("tech=n7,n5", "mem=hbm3")
    lines = said(chances._repr_html_().replace("<style", "<div").replace("</style", "</div"))
    assert lines[0] == "Chance that the row is better than the column, in time_s"
    assert sorted(line for line in lines if line.endswith("%")) == sorted(
        f"{share:.0%}" for share in chances.to_numpy().ravel() if share == share
    )
    assert "100.0" not in chances._repr_html_()
    assert chances[:1]._repr_html_() == pd.DataFrame(chances[:1])._repr_html_()


def test_answers_are_the_tuples_that_they_were(found, validated):
    assert type(found).__name__ == "Search"
    assert isinstance(validated, Validation)
    rows, errors = validated
    assert rows is validated.rows
    assert errors is validated.errors
    assert repr(validated).startswith("Validation(rows=")
    assert type(pickle.loads(pickle.dumps(validated))) is type(validated)


def test_html_escapes_what_is_not_its_own():
    sheet = new_sheet("<b>[bold]title[/]</b>", [("<x>", False), ("&", True)])
    sheet.add_row("<script>alert(1)</script>", "[bold]1 < 2[/]")
    shown = markup.card("[bold]a[/] <i>", ["[/none] <u>", "Memory   <8 GB>", sheet], [("<more>", ["x"])])
    assert "<script" not in shown
    assert "<b>1 &lt; 2</b>" in shown
    assert said(shown) == [
        "a <i>", "[/none] <u>", "Memory | <8 GB>", "<b>title</b>", "<x> | &",
        "<script>alert(1)</script> | 1 < 2", "<more>", "x",
    ]  # fmt: skip


@pytest.mark.parametrize("sections", [(), (0,), (1, 2), (0, 1, 2)])
def test_a_line_is_under_the_names_and_under_each_section(sections):
    sheet = new_sheet("", [("name", False)])
    for row in range(4):
        sheet.add_row(f"row {row}", end_section=row in sections)
    rows = re.findall(r"<tr(.*?)>.*?</tr>", markup.card("", [sheet], []))
    lined = [place for place, style in enumerate(rows) if "border-bottom" in style]
    assert len(rows) == 5
    assert lined == [0, *(row + 1 for row in sections)]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (8.5e-4, "m^2", "850 mm²"), (1.35e-3, "m^2", "1,350 mm²"), (2.7e-14, "m^2/bit", "0.027 µm²/bit"),
        (0.0, "m^2", "0 mm²"),
    ],
)  # fmt: skip
def test_areas_are_not_written_with_a_prefix(value, unit, text):
    assert units.show(value, unit) == text


@pytest.fixture
def screen(monkeypatch):
    """What is shown below a cell: a list of whether it replaces another, and its text."""
    pytest.importorskip("IPython")
    import IPython.display as notebook

    shown = []
    for name in ("display", "update_display"):
        monkeypatch.setattr(
            notebook, name, lambda data, display_id, raw, name=name: shown.append((name, display_id, data))
        )
    return shown


def test_a_notebook_shows_a_bar_and_then_what_was_done(screen, monkeypatch, capsys):
    clock = iter([0.0, 0.0, 0.0, 1.0, 3.0, 3.1, 4.0, 5.0]).__next__
    monkeypatch.setattr(progress_module, "perf_counter", clock)
    with InNotebook() as progress:
        progress.start("<5> chips", 100, "rows", 0)
        for _ in range(4):
            progress.advance(20)
    names, ids, data = zip(*screen, strict=True)
    assert names == ("display", "update_display", "update_display")
    assert len({*ids}) == 1
    assert data[0]["text/plain"] == "<5> chips: 40 of 100 rows, 13 rows/s, 4 s left"
    assert "&lt;5&gt; chips" in data[0]["text/html"]
    assert '<progress value="80" max="100"' in data[1]["text/html"]
    assert data[2]["text/plain"] == "80 of 100 rows in 5.0 s"
    assert capsys.readouterr() == ("", "")


def test_a_bar_of_what_has_no_known_end(screen, monkeypatch):
    clock = iter([0.0, 0.0, 0.0, 3.0, 5.0]).__next__
    monkeypatch.setattr(progress_module, "perf_counter", clock)
    with InNotebook() as progress:
        progress.start("fitting", 0, "predictions")
        progress.advance(6)
    data = [one for *_, one in screen]
    assert data[0]["text/plain"] == "fitting: 6 predictions, 2 predictions/s"
    assert "<progress style" in data[0]["text/html"]
    assert data[1]["text/plain"] == "6 predictions in 5.0 s"


def test_a_notebook_says_nothing_of_a_short_run(screen, capsys):
    with InNotebook() as progress:
        progress.start("points", 10)
        progress.advance(10)
    assert screen == []
    assert capsys.readouterr() == ("", "")


def test_calls_are_heard_in_a_notebook_alone(monkeypatch, tmp_path, file, capfd):
    heard = []

    class Ear(InNotebook):
        def start(self, what, of, unit="points", there=0):
            heard.append((of, unit, there))

        def advance(self, done):
            heard.append(done)

    monkeypatch.setattr(progress_module, "InNotebook", Ear)
    fastflow.evaluate("tech=n7,n5")
    assert heard == []
    monkeypatch.setattr(calls, "ipython_shell", lambda: type("Shell", (), {"kernel": None})())
    fastflow.evaluate("tech=n7,n5")
    assert (heard[0], sum(heard[1:])) == ((2, "points", 0), 2)
    heard.clear()
    fastflow.sweep("tech=n7,n5", output=tmp_path / "out")
    assert (heard[0], sum(heard[1:])) == ((2, "points", 0), 2)
    heard.clear()
    fastflow.sweep("tech=n7,n5", output=tmp_path / "out")
    assert heard == [(2, "points", 2)]
    heard.clear()
    fastflow.validate(measurements=str(file), chip="a100")
    assert (heard[0], sum(heard[1:])) == ((20, "rows", 0), 20)
    heard.clear()
    fastflow.search("tech=n7", "steps=2", "starts=2")
    assert heard[0][1] == "steps"
    assert sum(heard[1:]) == heard[0][0]
    heard.clear()
    fastflow.sensitivity("tech=n7", "sensitivity.samples=8192")
    first, second = (place for place, one in enumerate(heard) if isinstance(one, tuple))
    assert sum(heard[first + 1 : second]) == heard[first][0]  # of every change
    assert sum(heard[second + 1 :]) == heard[second][0]  # of Sobol's
    heard.clear()
    fastflow.calibrate("chip=a100", "fit=[utilization]", measurements=str(file))
    assert heard[0] == (0, "predictions", 0)
    assert {*heard[1:]} == {1}
    assert capfd.readouterr() == ("", "")


NAMES = {"fastflow": fastflow, "ff": fastflow, "ask": fastflow.evaluate, "df": pd.DataFrame()}


@pytest.mark.parametrize(
    ("code", "begun", "has", "lacks"),
    [
        ('fastflow.evaluate("tech=n', "n", "n7", "hbm3"),
        ('fastflow.evaluate("tech=n7,n', "n", "n5", "hbm3"),
        ('ff.sweep("tech=n7", mem="hb', "hb", "hbm3", "n7"),
        ('ask(tech=["n7", "n', "n", "n5", "hbm3"),
        ('ask(tech="n7", mem=["hb', "hb", "hbm4", "n7"),
        ("fastflow.search(\n    'tech=n7',\n    'par", "par", "parallel.strategy=", "tech="),
        ('ask("chip=a100", "chip.pi', "chip.pi", "chip.pinned.core_Hz=", "chip.tdp="),
        ('ask("chip.pi', "chip.pi", None, "chip.pinned.core_Hz="),
        ("ask(te", "te", "tech=", "mem="),
        ("ask(tech='n7', chip__t", "chip__t", "chip__tdp=", "chip.tdp="),
        ('ask("+', "+", "+sweeps=", "tech="),
        ('ask("+sweeps=fig0', "fig0", "fig09", "n7"),
        ('ask(config_dir=f("(", \'a"b\'), mem="hb', "hb", "hbm3", "n7"),
        ('ask("mem=hb', "hb", "hbm3", "n7"),
        ('ask("""tech=n', "n", "n7", "hbm3"),
    ],
)
def test_arguments_go_on(code, begun, has, lacks):
    replaced, texts = continuations(code, NAMES)
    assert replaced == begun
    assert has is None or has in texts
    assert lacks not in texts
    assert all(text.startswith(begun) for text in texts)


@pytest.mark.parametrize(
    "code",
    [
        'print("tech=n', 'df.evaluate("tech=n', 'other.evaluate("tech=n', 'fastflow.predict_gemm("tech=n',
        'ask("tech=n7").plot("tech=n', 'ask("tech=n7"); tech = "n', '# ask("tech=n', "ask(tech=n",
        'ask("tech=n7"', "", "(", 'ask["tech=n', 'df.ask("tech=n', "ask(x.te",
    ],
)  # fmt: skip
def test_nothing_else_goes_on(code):
    assert continuations(code, NAMES)[1] == []


@pytest.fixture
def shell():
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    yield interactive.InteractiveShell.instance()
    interactive.InteractiveShell.clear_instance()


def test_ipython_completes_and_shows_figures(shell):
    from IPython.core.completer import provisionalcompleter

    load(shell)
    fastflow.load_ipython_extension(shell)
    assert len(shell.Completer.custom_matchers) == 1
    shell.user_ns["fastflow"] = fastflow
    shell.Completer.use_jedi = False

    def completed(code):
        with provisionalcompleter():
            return [one.text for one in shell.Completer.completions(code, len(code))]

    assert completed('x = 1\nfastflow.evaluate("tech=n1') == ["n1", "n12", "n1_4"]
    shown, _ = shell.display_formatter.format(Figure())
    assert shown["image/png"].startswith(b"\x89PNG")
    unload(shell)
    assert completed('fastflow.evaluate("tech=n1') == []


def test_a_mistake_in_ipython_is_one_line(shell, capsys):
    shell.user_ns["fastflow"] = fastflow
    shell.run_cell('fastflow.evaluate("tech=n77")')
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("InputError: tech=n77 (from the overrides) is invalid: expected one of n1, ")


def test_an_import_in_ipython_loads_the_extension(shell, monkeypatch):
    asked = []
    monkeypatch.setattr(fastflow, "load_ipython_extension", asked.append)
    fastflow._meet_ipython()
    assert asked == [shell]
    monkeypatch.delitem(sys.modules, "IPython")
    fastflow._meet_ipython()
    assert asked == [shell]


@pytest.mark.long
def test_an_evaluation_loads_nothing_to_show_it():
    code = """
import sys, fastflow
early = [name for name in ("pandas", "rich", "matplotlib", "numpy", "yaml") if name in sys.modules]
fastflow.evaluate("tech=n7")
print(early, [name for name in ("rich", "matplotlib", "IPython") if name in sys.modules])
"""
    environment = os.environ | {"PYTHONPATH": str(Path(fastflow.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[] []\n"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs_and_says_what_it_says(path, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(Path(fastflow.__file__).parent.parent))
    book = nbformat.read(path, as_version=4)
    told = texts_of(book)
    assert path.stat().st_size < 300_000
    assert not [text for text in told if re.search(r"/(tmp|work|home|root|Users)/", text)]
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [cell.outputs for cell in book.cells if cell.cell_type == "code" and errors_of(cell)] == []
    again = texts_of(book)
    assert [NUMBER.sub("#", text) for text in again] == [NUMBER.sub("#", text) for text in told]
    numbers, before = (
        np.array([float(one.replace(",", "")) for text in texts for one in NUMBER.findall(text)])
        for texts in (again, told)
    )
    assert np.allclose(numbers, before, rtol=0.05, atol=1.0)


def errors_of(cell):
    return [one for one in cell.outputs if one.output_type == "error"]


NUMBER = re.compile(r"\d[\d,]*\.?\d*")


def texts_of(book):
    """The HTML and the texts of a notebook's outputs; those of long runs aside."""
    outputs = [one for cell in book.cells if cell.cell_type == "code" for one in cell.outputs]
    data = [one.get("data", {}).get("text/html") or one.get("text") for one in outputs]
    long_run = ("designs by", " steps in ", " predictions in ")  # progress, on slow machines alone
    return [text for text in data if text and not any(one in text for one in long_run)]


def test_there_are_three_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["hbm4_or_n2", "own_chip", "own_measurements"]
