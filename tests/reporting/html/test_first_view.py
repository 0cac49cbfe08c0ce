"""What a page shows first: its title, how many points are feasible, and the same bytes on every run."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fastflow
from fastflow.engine.dataset.reader import find
from fastflow.reporting.html.columns import page_title
from fastflow.reporting.html.content import Page
from fastflow.reporting.html.document import pack
from fastflow.reporting.html.feasible import feasible_headline, nearest_to_feasible
from fastflow.reporting.html.kinds import page_of
from tests.support.paths import ROOT

TOO_LARGE = (
    "model=llama3_70b", "model.layers=8", "tech=n7,n5", "mem=hbm2,hbm3", "parallel.strategy=d8",
    "system.devices=8", "model.batch=8",
)  # fmt: skip
FITS = ("model=llama3_8b", "model.layers=2", "system=dgx_h100", "parallel.strategy=TP-8", "model.batch=8,16")


def frame(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame({"point": range(3), **columns})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of datasets: none of whose points is feasible, and all."""
    made = tmp_path_factory.mktemp("first")
    fastflow.sweep(*TOO_LARGE, output=made / "none")
    fastflow.sweep(*FITS, output=made / "2026-11-25" / "02-41-07-144933")
    return made


@pytest.fixture(scope="module")
def none(folder: Path) -> Page:
    return page_of(find(str(folder / "none")))


@pytest.fixture(scope="module")
def every(folder: Path) -> Page:
    return page_of(find(str(folder / "2026-11-25" / "02-41-07-144933")))


def test_a_page_of_points_none_of_which_is_feasible_says_so_and_ranks_by_memory(
    folder: Path, none: Page
) -> None:
    points = find(str(folder / "none")).read(["footprint_B", "dram_offered_B", "feasible", "reason"])
    assert not points["feasible"].any()
    nearest = int((points["footprint_B"] / points["dram_offered_B"]).to_numpy().argmin())
    first, *others = none.headlines
    assert first.value == "none of 4 points"
    least = f"point {nearest}: {points['reason'][nearest]}"
    assert first.note == f"4 need more memory than a device has; least is lacking at {least}"
    assert none.summary.endswith("; none is feasible")
    assert others
    assert all(headline.label.endswith(" (not feasible)") for headline in others)
    assert none.view.opened == nearest
    assert none.view.table.sort == "footprint_B"


def test_a_page_of_feasible_points_ranks_them_by_time(every: Page) -> None:
    assert every.headlines[0].value == "2 of 2"
    assert "feasible" not in every.summary
    assert every.view.table.sort == "time_s"
    assert not any(headline.label.endswith(" (not feasible)") for headline in every.headlines)


def test_a_page_lists_site_energy_and_carbon_beside_energy_and_cost(every: Page) -> None:
    shown = [*every.view.table.listed]
    between = shown[shown.index("energy_J") : shown.index("footprint_B")]
    assert between == [
        "energy_J", "site_J", "iteration_usd", "usd_per_million_tokens", "train_usd", "carbon_g",
        "carbon_g_per_token", "train_carbon_kg",
    ]  # fmt: skip
    better = {one.name: one.better for one in every.points}
    assert {better[name] for name in ("site_J", "carbon_g", "carbon_g_per_token")} == {"less"}
    assert ("carbon", "carbon=world") in every.provenance


def test_points_that_differ_in_their_electricity_alone_are_ranked_by_carbon(tmp_path: Path) -> None:
    point = [text for text in FITS if not text.startswith("model.batch")]
    fastflow.sweep(*point, "carbon=france,us,norway", output=tmp_path / "regions")
    page = page_of(find(str(tmp_path / "regions")))
    first, *others = page.headlines
    assert first.value == "3 of 3"
    (least,) = (one for one in others if one.label == "Least carbon")
    assert least.note == "point 2: carbon=norway"
    assert {one.label for one in others} == {"Least carbon"}
    assert page.view.x == "carbon_g"
    assert ("carbon", "carbon=france,us,norway") in page.provenance


def test_reasons_of_points_without_a_time_are_counted() -> None:
    untimed = frame(
        time_s=[np.nan, 1.0, np.nan], feasible=[False] * 3, reason=["a", "b", "c"],
        footprint_B=[np.nan, 3.0, np.nan], dram_offered_B=[2.0, 2.0, 2.0],
    )  # fmt: skip
    note = "1 need more memory than a device has; 2 have no time; least is lacking at point 1: b"
    assert feasible_headline(untimed).note == note
    late = frame(time_s=[1.0] * 3, feasible=[False] * 3, reason=["late"] * 3)
    assert feasible_headline(late).note == "3 have other reasons; point 0: late"
    assert nearest_to_feasible(late) == -1


def test_titles_say_kind_models_and_dataset(folder: Path, none: Page, every: Page) -> None:
    assert none.title == "Grid of llama3_70b (none)"
    assert every.title == "Grid of llama3_8b (2026-11-25 02:41)"
    title = page_title(find(str(folder / "none")), "Validation", "gemms.csv")
    assert title == "Validation of gemms.csv (none)"


def test_units_are_in_the_order_of_the_columns(none: Page) -> None:
    raw = gzip.decompress(pack(none))
    size = int.from_bytes(raw[:4], "little")
    units = [*json.loads(raw[4 : 4 + size])["units"]]
    own = [*dict.fromkeys(quantity.unit for quantity in none.points)]
    assert units[: len(own)] == own


@pytest.mark.long
def test_a_page_is_the_same_whatever_the_seed_of_hashes(folder: Path, tmp_path: Path) -> None:
    pages = []
    for seed in ("1", "2", "3"):
        command = [sys.executable, "-m", "fastflow.report", str(folder / "none"), "html=page.html"]
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
        pages.append((tmp_path / "page.html").read_bytes())
    assert pages[0] == pages[1] == pages[2]
