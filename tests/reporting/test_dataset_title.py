"""Titles of figures: a dataset by its models and its folder, never by the folder alone."""

import fastflow
from fastflow.engine.dataset.reader import find
from fastflow.reporting.dataset_title import folder_name, points_title


def test_a_folder_named_g_says_what_it_holds(tmp_path):
    folder = fastflow.sweep("tech=n7,n5", "mem=hbm3", output=tmp_path / "g")
    assert points_title(find(str(folder)), "2 points") == "2 points of lstm_lm (g)"


def test_a_folder_of_its_own_is_a_day_and_a_time():
    assert folder_name("outputs/2026-11-25/02-41-07-144933") == "2026-11-25 02:41"
    assert folder_name("results/g") == "g"
