"""Pages of datasets: what they hold, and what a browser makes of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.engine.dataset.reader import find
from fastflow.reporting.html import rows
from fastflow.reporting.html.document import document, pack
from fastflow.reporting.html.kinds import page_of
from tests.support.browser import PROGRAM, Browser, browser
from tests.support.commands import report

GRID = ("tech=n12,n7,n5", "mem=hbm2,hbm3", "parallel.strategy=d512,RC-8-8-d8")


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(fastflow.sweep(*GRID, output=tmp_path_factory.mktemp("page") / "grid"))


def _header(content: bytes) -> dict[str, object]:
    raw = gzip.decompress(content)
    size = int.from_bytes(raw[:4], "little")
    header: dict[str, object] = json.loads(raw[4 : 4 + size])
    return header


def test_page_of_a_grid_has_all_points_and_their_kernels(grid: Path) -> None:
    page = page_of(find(str(grid)))
    frame = pd.read_parquet(grid)
    held = {quantity.name: quantity[3] for quantity in page.points}
    assert page.total == len(frame) == 12
    np.testing.assert_allclose(held["time_s"], frame["time_s"])
    assert held["bound_by"].tolist() == frame["bound_by"].tolist()
    assert page.details is not None
    kernels = page.details.kernels
    sums = np.add.reduceat(kernels.numbers["time_s"], kernels.offset[:-1])
    np.testing.assert_allclose(sums, frame["compute_s"], rtol=1e-9)  # no pipeline: a device runs them all
    assert page.details.areas["core"][0] > 0.0
    assert page.details.pictures[0].startswith(b"<?xml")
    assert page.headlines[0].value == f"{int(frame['feasible'].sum())} of 12"


def test_kernels_of_a_pipeline_are_those_of_the_stage_that_sets_the_pace(tmp_path: Path) -> None:
    fastflow.sweep("system.devices=16", "parallel.strategy=d4-p4,d16", output=tmp_path / "staged")
    page = page_of(find(str(tmp_path / "staged")))
    frame = pd.read_parquet(tmp_path / "staged")
    assert page.details is not None
    kernels = page.details.kernels
    sums = np.add.reduceat(kernels.numbers["time_s"], kernels.offset[:-1])
    np.testing.assert_allclose(sums, frame["compute_s"], rtol=1e-9)
    assert frame["bottleneck_stage"].isna().tolist() == [False, True]


def test_boxes_of_memory_are_the_steps_of_an_iteration(tmp_path: Path) -> None:
    given = (
        "model=llama3_8b",
        "model.layers=8",
        "model.batch=16",
        "system=dgx_h100",
        "parallel.recompute=full",
    )
    strategies = ("TP-1-d2-p4", "TP-1-d8")
    fastflow.sweep(*given, f"parallel.strategy={','.join(strategies)}", output=tmp_path / "boxes")
    page = page_of(find(str(tmp_path / "boxes")))
    assert page.details is not None
    memory = page.details.memory
    assert memory is not None
    for i, strategy in enumerate(strategies):
        steps = fastflow.explain_memory(*given, f"parallel.strategy={strategy}")
        assert memory.peak[i] == steps.attrs["peak"]
        boxes = slice(*memory.offset[i : i + 2])
        start, end, bottom, size = (values[boxes] for values in memory.numbers.values())
        for step in steps.itertuples():
            middle = (step.start_s + step.end_s) / 2.0
            there = (start <= middle) & (middle < end)
            assert size[there].sum() == pytest.approx(step.allocated_B, rel=1e-9)
            assert (bottom + size)[there].max() == pytest.approx(step.allocated_B, rel=1e-9)
            assert size[there & (memory.kind[boxes] == "activations")].sum() == pytest.approx(
                step.activation_B
            )


def test_a_point_that_comes_out_otherwise_today_has_no_kernels(grid: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    part = next(grid.glob("*.parquet"))
    table = pq.read_table(part)
    place = table.schema.get_field_index("time_s")
    longer = table["time_s"].to_numpy() * np.array([2.0] + [1.0] * 11)
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(table.set_column(place, table.schema.field(place), [longer]), other / part.name)
    page = page_of(find(str(other)))
    assert page.details is not None
    assert page.details.kernels.offset[1] == 0
    assert page.missing_note == "1 point would have another time today: without kernels."


def test_data_of_a_page_says_where_arrays_are(grid: Path) -> None:
    header = _header(pack(page_of(find(str(grid)))))
    assert header["rows"] == 12
    columns = {one["name"]: one for one in header["columns"]}  # type: ignore[attr-defined]
    assert "constant" in columns["devices"]
    assert columns["tech"]["texts"]["names"] == ["n12", "n7", "n5"]
    assert columns["time_s"]["unit"] == "s"
    assert columns["time_s"]["better"] == "less"


def test_a_page_is_one_file_that_asks_for_nothing(grid: Path) -> None:
    text = document(page_of(find(str(grid)))).decode()
    assert "default-src 'none'" in text
    assert ' src="http' not in text
    assert "<link" not in text
    assert len(text) < 5_000_000


@pytest.fixture(scope="module")
def large() -> pd.DataFrame:
    draw = np.random.default_rng(1)
    points = 8_000
    frame = pd.DataFrame(
        {
            "point": np.arange(points),
            "time_s": draw.lognormal(size=points).round(2),
            "energy_J": draw.lognormal(size=points).round(2),
            "mfu": draw.random(points).round(3),
            "tech": draw.choice(["n7", "n5", "n3"], points),
            "mem": draw.choice(["hbm2", "hbm3"], points),
            "feasible": draw.random(points) < 0.7,
        }
    )
    frame.loc[draw.random(points) < 0.05, "time_s"] = np.nan
    return frame


@pytest.mark.long
def test_drawn_points_hold_every_front_and_stand_for_all(large: pd.DataFrame) -> None:
    better = {"time_s": "less", "energy_J": "less", "mfu": "more"}
    drawn = rows.sample_points(large, better, ["tech", "mem"], "time_s")
    assert drawn.rows.size == rows.MAX_DRAWN
    assert drawn.weight is not None
    assert drawn.weight.sum() == pytest.approx(len(large))
    usable = large[large["time_s"].notna() & large["feasible"]]
    for first, second in (("time_s", "energy_J"), ("time_s", "mfu"), ("energy_J", "mfu")):
        one = usable[first] * (1 if better[first] == "less" else -1)
        two = usable[second] * (1 if better[second] == "less" else -1)
        front = {  # the values of what nothing beats, by looking at every pair
            (a, b)
            for a, b in set(zip(one, two, strict=True))
            if not ((one <= a) & (two <= b) & ((one < a) | (two < b))).any()
        }
        kept = set(zip(one.reindex(drawn.rows), two.reindex(drawn.rows), strict=True))
        assert front <= kept
    best = usable.groupby(["tech", "mem"])["time_s"].min()
    there = usable[usable.index.isin(drawn.rows)].groupby(["tech", "mem"])["time_s"].min()
    pd.testing.assert_series_equal(best, there)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["htm=x.html"], "htm=x.html (from the command line) is invalid: expected html=FILE.html"),
        (["html=x.txt"], "expected a file whose name ends in .html or .htm"),
        (["html=nowhere/x.html"], "expected a file in a folder that exists; nowhere does not"),
        (["html=x.html", "--format", "pdf"], "the figure is in the page"),
        (["html=x.html", "other"], "expected one dataset for a page, not 2"),
        (["--config-dir", "mine"], "expected nothing without html=FILE.html"),
        (["html=x.html", "--config-dir", "mine"], "--config-dir=mine (from the command line) is invalid"),
        ([f"html={'x' * 250}.html"], "expected a name of 240 letters at most"),
        ([f"html={'x' * 300}/x.html"], "expected a file in a folder that exists"),
        (["html=DATASET/x.html"], "expected a file outside of the dataset"),
    ],
)
def test_mistakes_are_one_line(
    given: list[str], said: str, grid: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert report([str(grid), *(word.replace("DATASET", str(grid)) for word in given)]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())
    assert not list(grid.glob("*.html"))


def test_only_grids_are_judged_by_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fastflow.sensitivity("model=gemm", output="moved")
    assert report(["--study", "fig09", "moved", "html=x.html"]) == 2
    assert (
        "study=fig09 (from the command line) is invalid: expected none: this dataset is no grid"
        in capsys.readouterr().err
    )
    assert report(["html=moved.HTML", "moved"]) == 0  # in any order, in capitals
    assert (tmp_path / "moved.HTML").stat().st_size > 300_000


def test_drawn_points_of_one_time(large: pd.DataFrame) -> None:
    drawn = rows.sample_points(large.assign(time_s=1.0), {"energy_J": "less"}, ["tech", "mem"], "time_s")
    assert drawn.rows.size == rows.MAX_DRAWN
    fits = large[large["feasible"]]["energy_J"]
    assert fits.min() == fits.reindex(drawn.rows).min()


def test_fronts_are_of_columns_without_a_gap(large: pd.DataFrame) -> None:
    gaps = large.assign(energy_J=large["energy_J"].where(large.index % 7 > 0))
    better = {"time_s": "less", "energy_J": "less", "mfu": "more"}
    assert rows.sample_points(gaps, better, ["tech", "mem"], "time_s").fronts == ("time_s", "mfu")


needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here: pages are not opened")


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as one:
        yield one


def _written(dataset: Path, file: Path) -> Path:
    assert report([str(dataset), f"html={file}"]) == 0
    assert file.stat().st_size < 5_000_000
    return file


def _chosen(tab: Browser) -> int:
    return int(tab.value("document.getElementById('state').textContent").split()[0].replace(",", ""))


def _box(tab: Browser, selector: str) -> tuple[float, float, float, float]:
    script = (
        f"(() => {{ const e = document.querySelector('{selector}'); e.scrollIntoView({{block: 'center'}});"
    )
    script += " const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; })()"
    left, top, right, bottom = tab.value(script)
    return left, top, right, bottom


def _pick(tab: Browser, menu: str, choice: str) -> None:
    tab.value(
        f"(() => {{ const e = document.getElementById('{menu}'); e.value = '{choice}';"
        " e.dispatchEvent(new Event('change')); })()"
    )


@pytest.mark.long
@needs_browser
def test_grid_in_a_browser(grid: Path, tab: Browser, tmp_path: Path) -> None:
    tab.open(_written(grid, tmp_path / "grid.html"))
    assert _chosen(tab) == 12
    opened = tab.value("document.getElementById('pointname').textContent")
    assert "point" in opened
    assert tab.value("document.querySelectorAll('#pointcharts svg').length") >= 4  # time to die
    assert "limited by" in tab.value("document.getElementById('pointsaid').textContent")

    left, top, right, bottom = _box(tab, "#scatter canvas")
    tab.drag((left + 85, top + 20), ((left + right) / 2, bottom - 60))
    tab.until("document.querySelectorAll('#chips button').length === 1")
    some = _chosen(tab)
    assert 0 < some < 12
    assert tab.value("document.querySelectorAll('#table tbody tr').length") == some
    tab.key("Escape")
    tab.until("document.querySelectorAll('#chips button').length === 0")
    assert _chosen(tab) == 12

    tab.value("document.querySelector('#legend button').click()")
    tab.until("document.querySelectorAll('#chips button').length === 1")
    assert _chosen(tab) < 12
    tab.value("document.querySelector('#chips button').click()")
    tab.until("document.querySelectorAll('#chips button').length === 0")

    left, top, right, bottom = _box(tab, "#mapchart svg")
    tab.click((left + 0.6 * (right - left), bottom - 15))
    tab.until("document.querySelectorAll('#chips button').length === 1")
    assert _chosen(tab) == 2  # of a cell, one a strategy
    tab.key("Escape")

    start, upper, end, _ = _box(tab, "#histchart svg")
    tab.drag((start + 100, upper + 40), ((start + end) / 2, upper + 60))
    tab.until("document.querySelectorAll('#chips button').length === 1")
    tab.key("Escape")
    drawn = "document.querySelector('#histchart [fill-opacity=\"0.12\"]').getBBox().width"
    tab.until(f"{drawn} === 0")  # what the drag drew goes with its choice

    # the chart stays where it is during a drag, and Escape works from a menu
    _, top, _, _ = _box(tab, "#scatter canvas")
    place = "document.querySelector('#scatter canvas').getBoundingClientRect().top + scrollY"
    before = tab.value(place)
    tab.press((left + 0.3 * (right - left), top + 100))
    tab.move((left + 0.5 * (right - left), top + 250))
    tab.until("document.getElementById('state').textContent.split(' ')[0] !== '12'")
    assert tab.value(place) == before
    tab.release((left + 0.5 * (right - left), top + 250))
    tab.until("document.querySelectorAll('#chips button').length === 1")
    tab.value("document.getElementById('x').focus()")
    tab.key("Escape")
    tab.until("document.querySelectorAll('#chips button').length === 0")

    # levels of the roofline, one after the other at once
    tab.value(
        "(() => { const menu = document.querySelector('#pointcharts select');"
        " for (const one of ['l2', 'l1']) { menu.value = one; menu.dispatchEvent(new Event('change')); } })()"
    )
    tab.until("document.querySelector('#pointcharts select')?.value === 'l1'")
    assert tab.value("document.querySelectorAll('#pointcharts select').length") == 1

    # the order that is asked for holds for points that are not feasible as well
    times = pd.read_parquet(grid)["time_s"]
    header = "[...document.querySelectorAll('#table th button')].find((one) => one.textContent === 'time_s')"
    tab.value(f"{header}.click()")  # the other way round
    assert tab.value(f"{header}.parentElement.getAttribute('aria-sort')") == "descending"
    first = tab.value("document.querySelector('#table tbody tr').dataset.row")
    assert times[int(first)] == times.max()

    tab.value("document.querySelectorAll('#table tbody tr')[3].click()")
    tab.until(f"document.getElementById('pointname').textContent !== {json.dumps(opened)}")
    tab.value("document.getElementById('scatter').focus()")
    before = tab.value("document.getElementById('pointname').textContent")
    tab.key("ArrowLeft")
    tab.key("ArrowLeft")
    tab.until(f"document.getElementById('pointname').textContent !== {json.dumps(before)}")

    _pick(tab, "facet", "tech")
    tab.until("document.querySelectorAll('#scatter canvas').length === 3")
    assert len(tab.picture()) > 20_000
    assert tab.problems() == []
    assert tab.requests() == []


@pytest.mark.long
@needs_browser
def test_ranges_and_cells_in_a_browser(grid: Path, tab: Browser, tmp_path: Path) -> None:
    tab.open(_written(grid, tmp_path / "grid.html"))

    def enter(**fields: str) -> None:
        for name, text in fields.items():
            tab.value(f"document.getElementById('{name}').value = '{text}'")
        tab.value("document.querySelector('#ranges button').click()")

    def chips(count: int) -> None:
        tab.until(f"document.querySelectorAll('#chips button').length === {count}")

    enter(y0="quick")
    assert tab.value("document.getElementById('y0').validationMessage").startswith("a number")
    assert _chosen(tab) == 12
    frame = pd.read_parquet(grid)
    middle = float(frame["time_s"].median())
    unit = tab.value("document.getElementById('yunit').textContent")
    enter(y0=str(middle / {"s": 1.0, "ms": 1e-3}[unit]))
    chips(1)
    assert _chosen(tab) == int((frame["time_s"] >= middle).sum())

    # a range on other axes is one more choice
    _pick(tab, "x", "tech")
    tab.until("document.getElementById('x0').disabled")
    enter(y0="", y1=str(2.0 * float(frame["time_s"].max()) / {"s": 1.0, "ms": 1e-3}[unit]))
    chips(3)  # and the button that clears all
    assert _chosen(tab) == int((frame["time_s"] >= middle).sum())
    tab.value("document.querySelector('#chips button:last-child').click()")
    chips(0)

    # cells of the map: another replaces the one, the same leaves it
    left, _, right, bottom = _box(tab, "#mapchart svg")
    places = [(left + share * (right - left), bottom - 15) for share in (0.4, 0.6, 0.6)]
    named = []
    for place, count in zip(places, (1, 1, 0), strict=True):
        tab.click(place)
        if named and count:
            tab.until(f"document.getElementById('chips').textContent !== {json.dumps(named[-1])}")
        chips(count)
        named.append(tab.value("document.getElementById('chips').textContent"))
    assert len({*named}) == 3
    assert _chosen(tab) == 12

    # the same column twice is no map, and its menus stay
    _pick(tab, "rows", "tech")
    tab.until("document.getElementById('mapchart').hidden")
    assert tab.value("document.getElementById('mapsaid').textContent") == "Choose two different columns."
    _pick(tab, "rows", "mem")
    tab.until("!document.getElementById('mapchart').hidden")

    # an end alone, ends in reverse, and one that a value has; a field that is not in use does not count
    _pick(tab, "x", "iteration_usd")
    tab.until("!document.getElementById('x0').disabled")
    cost = frame["iteration_usd"].dropna().sort_values()
    for fields, rows_left in (
        ({"x1": repr(float(cost.iloc[4]))}, 5),
        ({"x0": repr(float(cost.iloc[6])), "x1": repr(float(cost.iloc[2]))}, 5),
    ):
        enter(**{"x0": "", "x1": "", "y0": "", "y1": ""} | fields)
        tab.until(f"document.getElementById('state').textContent.startsWith('{rows_left} of')")
    enter(x0="", x1="")
    chips(0)
    tab.value("document.getElementById('x0').value = '1'")
    _pick(tab, "x", "mem")
    tab.until("document.getElementById('x0').disabled")
    enter()
    assert _chosen(tab) == 12

    # by keyboard alone
    tab.value("document.getElementById('mapchart').focus()")
    tab.key("ArrowRight")
    tab.key("Enter")
    chips(1)
    assert _chosen(tab) == 2
    tab.key("Escape")
    chips(0)
    assert tab.problems() == []


@pytest.mark.long
@needs_browser
def test_pages_of_every_kind_open_in_a_browser(tab: Browser, tmp_path: Path) -> None:
    gemms = tmp_path / "gemms.csv"
    gemms.write_text(
        "device,dtype,m,n,k,time_s\n"
        + "".join(f"a100,fp16,{m},{m},{m},{m**3 * 1e-14 + 5e-6}\n" for m in (256, 512, 1024, 2048, 4096))
    )
    made = {
        "study": fastflow.sweep("+sweeps=fig09", output=tmp_path / "study"),
        "served": fastflow.sweep("+sweeps=serving_front", output=tmp_path / "served"),
        "bands": fastflow.sweep("tech=n5,n3", "uncertainty=on", output=tmp_path / "bands"),
    }
    fastflow.search("tech=n7", "steps=10", "pareto=energy", output=tmp_path / "search")
    fastflow.validate(f"measurements={gemms}", "chip=a100", output=tmp_path / "validation")
    fastflow.sensitivity("tech=n7", output=tmp_path / "sensitivity")
    fastflow.backtest(output=tmp_path / "backtest")
    names = [*made, "search", "search-ranking", "search-front", "validation", "sensitivity", "backtest"]
    for name in names:
        page = _written(tmp_path / name, tmp_path / f"{name}.html")
        tab.open(page)
        assert _chosen(tab) > 0, name
        assert tab.value("document.querySelector('h1').textContent").endswith(f"({name})")
        assert tab.value("document.querySelectorAll('#scatter canvas').length") >= 1, name
        assert tab.problems() == [], name
        assert tab.requests() == [], name
        assert float(tab.value("document.documentElement.dataset.firstPicture")) > 0.0, name
    assert tab.value("document.querySelectorAll('#table tbody tr').length") > 0
    tab.open(tmp_path / "study.html")
    assert tab.value("document.querySelectorAll('.claims li').length") > 0

    # a server's memory is all that it holds; of 40 names on an axis no 41st is chosen
    tab.open(tmp_path / "served.html")
    point = int(tab.value("document.getElementById('pointname').textContent").split(",")[0].split()[1])
    held = pd.read_parquet(tmp_path / "served").set_index("point")["footprint_B"][point]
    said = tab.value("[...document.querySelectorAll('#pointcharts h3')].map((one) => one.textContent)")
    assert any(one.startswith(f"Memory of one device: {held / 1e9:.3g} GB of") for one in said)
    tab.open(tmp_path / "sensitivity.html")
    left, top, right, bottom = _box(tab, "#scatter canvas")
    bottom_axis = bottom - 48
    tab.drag((left + 200, top + 10), (right - 8, bottom_axis + 30))
    tab.until("document.querySelectorAll('#chips button').length === 1")
    assert 0 < _chosen(tab) <= 40
