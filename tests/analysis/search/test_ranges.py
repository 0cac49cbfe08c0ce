"""What else is as good as the best design of a search: ranges of shares, and candidates."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastflow
from fastflow.analysis.search.optimizers import ranges as optimize
from fastflow.analysis.search.optimizers.design_space import Space
from fastflow.analysis.search.optimizers.ranges import TOLERANCE, with_share
from fastflow.analysis.search.ranges import WithinTolerance, read_ranges
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules
from fastflow.core.errors import InputError
from fastflow.engine.dataset.reader import find
from fastflow.reporting.html.document import document
from fastflow.reporting.html.kinds import page_of
from fastflow.reporting.terminal.equivalents import equivalent_layouts
from fastflow.reporting.terminal.ranges import range_parts, ranges_of, rows_of
from tests.naive import ranges as naive
from tests.support.checks import cases
from tests.support.commands import report

SPACE = Space(("a0", "a1", "a2", "p0", "p1"), np.array([0, 0, 0, 1, 1]))
SEARCHED = (
    "tech=n7", "mem=hbm3", "model.hidden=4096", "model.vocabulary=100000", "model.batch=2048",
    "model.devices=16", "parallel.strategy=RC-1-4-d4", "steps=6",
)  # fmt: skip

designs = st.tuples(
    st.lists(st.floats(0.01, 1.0), min_size=5, max_size=5), st.floats(0.3, 1.0), st.floats(0.3, 1.0)
).map(lambda drawn: _in_budgets(*drawn))


def _in_budgets(shares: list[float], area: float, power: float) -> list[float]:
    first, second = np.array(shares[:3]), np.array(shares[3:])
    return [*(first / first.sum() * area), *(second / second.sum() * power)]


@cases(50)
@given(design=designs, share=st.integers(0, 4), value=st.floats(0.001, 0.99))
def test_a_varied_share_leaves_the_others_what_the_slow_form_leaves(design, share, value) -> None:
    (moved,) = with_share(np.array([design]), np.array([share]), np.array([value]), SPACE)
    np.testing.assert_allclose(moved, naive.moved(design, share, value, SPACE), rtol=1e-12, atol=1e-15)
    assert moved[:3].sum() <= 1.0 + 1e-12
    assert moved[3:].sum() <= 1.0 + 1e-12


def _bound(need: list[float]):
    """An objective of which the scarcest part decides, as of a chip; a part of need 0 does not matter."""
    return lambda design: max(n / max(s, 1e-12) for n, s in zip(need, design, strict=True))


@cases(12)
@given(need=st.lists(st.sampled_from([0.0, 0.05, 0.2, 0.4]), min_size=5, max_size=5), extra=designs)
def test_ranges_are_those_of_the_slow_form(need, extra) -> None:
    """Ends are values that are within the tolerance, and near the furthest of them."""
    assume_any = need if any(need) else [0.3] * 5
    objective, best = _bound(assume_any), np.array([extra])
    value = objective(extra)

    def measure(problem, tried):
        assert (problem == 0).all()
        return np.array([objective(one) for one in tried])

    found = optimize.ranges_of(best, np.array([value]), (best, best), SPACE, 1000, 0.05, measure)
    for share in range(5):
        low, high = naive.ends(extra, share, SPACE, objective, value * 1.05)
        own = extra[share]
        assert objective(naive.moved(extra, share, found.low[0, share], SPACE)) <= value * 1.05 * (1 + 1e-9)
        assert objective(naive.moved(extra, share, found.high[0, share], SPACE)) <= value * 1.05 * (1 + 1e-9)
        assert found.low[0, share] <= own <= found.high[0, share]
        _assert_near(own, found.low[0, share], max(low, 0.002))
        _assert_near(own, found.high[0, share], min(high, 0.98))


def _assert_near(own: float, found: float, furthest: float) -> None:
    """By the logarithm of odds, a range goes at least half as far as it can, or it hardly can."""
    far = [abs(np.log(one / (1 - one)) - np.log(own / (1 - own))) for one in (found, furthest)]
    assert far[0] >= 0.5 * far[1] - 0.02


def test_of_a_short_search_few_designs_are_tried() -> None:
    tried = []

    def measure(problem, designs):
        tried.append(problem.size)
        return np.ones(problem.size)

    best = np.array([[0.2, 0.3, 0.1, 0.5, 0.2]])
    for spent, most in ((6, 12), (40, 80), (200, 256), (5000, 5 * (8 + 6))):
        tried.clear()
        optimize.ranges_of(best, np.ones(1), (best, best), SPACE, spent, 0.01, measure)
        assert 0 < sum(tried) <= most


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("ranges") / "run"
    return folder, fastflow.search(*SEARCHED, output=folder)


def test_the_ends_of_a_search_are_designs_as_good_as_the_best(searched) -> None:
    _, found = searched
    ranges = found.ranges
    assert ranges.attrs["tolerance"] == TOLERANCE
    assert (ranges["low"] <= ranges["best"]).all()
    assert (ranges["best"] <= ranges["high"]).all()
    assert (ranges["high"] > 1.1 * ranges["best"]).any()  # some share hardly matters
    history, best = found.history, found.best
    near = history[history["feasible"] & (history["objective"] <= 1.01 * best["objective"])]
    for row in ranges.itertuples():
        assert row.low <= near[row.share].min()
        assert near[row.share].max() <= row.high
    alone = ranges[ranges["high"] > near[ranges["share"]].max().to_numpy()]  # that of no design of the search
    widest = alone.loc[(alone["high"] / alone["best"]).idxmax()]
    shares = ranges["share"].tolist()
    space = Space(tuple(shares), np.unique([key.split(".")[1] for key in shares], return_inverse=True)[1])
    design = naive.moved(best[shares].tolist(), shares.index(widest["share"]), widest["high"], space)
    again = fastflow.evaluate(
        *SEARCHED[:-1], *(f"{k}={float(v)!r}" for k, v in zip(shares, design, strict=True))
    )
    assert again["time_s"][0] <= 1.01 * best["objective"] * (1 + 1e-9)


def test_ranges_are_on_the_page_and_in_the_report(searched, capsys: pytest.CaptureFixture[str]) -> None:
    folder, found = searched
    row = found.ranges[found.ranges["share"] == "chip.area.l2"].iloc[0]
    said = f"{row['best']:.1%}  ({row['low']:.1%} to {row['high']:.1%})"
    page = page_of(find(f"{folder}-ranking"))
    (listing,) = page.listings
    assert listing.title == "Shares within 1% of the best"
    assert {cells[0]: cells[1] for cells in listing.rows}["l2"] == said
    assert said in document(page).decode()
    for name in (folder, f"{folder}-ranking"):
        rows, within = ranges_of(find(str(name)), [])
        assert said in rows_of(rows[0], within)[1]
    assert report([f"{folder}-ranking"]) == 0
    assert said in capsys.readouterr().out


def test_a_tolerance_changes_no_search(searched) -> None:
    folder, found = searched
    wider = fastflow.search(*SEARCHED, "tolerance=0.1", output=folder)  # resumes: the history is the same
    pd.testing.assert_frame_equal(wider.history, found.history)
    assert (wider.ranges["low"] <= found.ranges["low"]).all()
    assert wider.ranges["high"].sum() > found.ranges["high"].sum()
    none = fastflow.search(*SEARCHED, "tolerance=0", output=folder)
    assert none.ranges.empty
    assert ranges_of(find(str(folder)), [])[0] == []
    for value in ("-1", "1", "True"):
        with pytest.raises(InputError, match=rf"tolerance={value}.* expected a number from 0 to 1"):
            fastflow.search(*SEARCHED, f"tolerance={value}")


def test_the_usual_tolerance_is_that_of_rankings_without_a_key() -> None:
    with hydra_rules():
        composer = Composer.of_library(config_name="search")
        assert composer.compose([]).config["tolerance"] == TOLERANCE


def test_a_search_that_a_single_share_improves_is_not_at_its_end() -> None:
    row = {"candidate": 0, "objective": 1.0, "chip.area.core": 0.5}
    of = {0: {"chip.area.core": (0.25, 0.75)}}
    done, early = (list(range_parts(row, WithinTolerance(0.01, of, {0: least}))) for least in (0.995, 0.9))
    assert len(done) == 1
    assert early[1:] == [
        "One share moved alone gives 10% less: the search has not converged; a larger steps= continues it"
    ]
    assert list(range_parts(row | {"candidate": 1}, WithinTolerance(0.01, of, {0: 1.0}))) == []


def test_candidates_have_a_gap_to_the_best_that_they_compete_with() -> None:
    found = fastflow.search(*SEARCHED[:-1], "tech=n7,n5", "model.layers=2,3", "steps=2").ranking
    for _, problem in found.groupby("tech"):
        expected = problem["objective"] / problem["objective"].iloc[0] - 1.0
        np.testing.assert_allclose(problem["gap"], expected, atol=1e-15)
        assert problem["gap"].iloc[0] == 0.0
    held = read_ranges(found.attrs["fastflow.ranges"])
    assert sorted(held.of) == sorted(found[found["rank"] == 1]["candidate"])
    assert json.loads(held.written)["tried"] == held.tried > 0


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"strategy": ["d8", "d4", "d2", "d1"], "time_s": [1.0, 1.005, 1.0, 2.0],
             "footprint_B": [1.0, 2.0, 1.0, 1.0], "feasible": [True] * 4},
            "2 of 3 layouts within 1% of the best: d8, d4",
        ),  # of two alike one counts
        (
            {"strategy": ["d8", "d4", "d2"], "time_s": [1.0, 1.001, 1.0], "footprint_B": [1.0, 2.0, 3.0],
             "feasible": [True, False, True], "tpot_s": [1.0, None, 1.0],
             "tokens_per_s_per_device": [100.0, 100.0, 99.5], "prefill_tokens_per_s": [1.0, 1.0, 1.0]},
            "2 of 3 layouts within 1% of the best: d8, d2",
        ),  # what is not feasible does not
        ({"strategy": ["d8"], "time_s": [1.0], "footprint_B": [1.0], "feasible": [True]}, ""),
    ],
)  # fmt: skip
def test_layouts_that_are_as_good_are_named(columns, said: str) -> None:
    assert "".join(equivalent_layouts(pa.table(columns), ["strategy"])) == said
