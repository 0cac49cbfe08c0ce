"""A chip's file says how far off its rows are, before and after."""

from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from fastflow.analysis.calibration.base_choice import BaseChoice
from fastflow.analysis.calibration.fitted_chip import FittedChip, calibrated_chip_text, error_frame
from fastflow.analysis.calibration.robust_fit import FITTED, Fit
from fastflow.analysis.calibration.task import CalibrationTask


def test_errors_are_of_the_rows_that_were_fitted_and_of_those_held_back():
    """Of five rows one cannot be predicted, one is known but not drawn, and one is held back."""
    file = SimpleNamespace(measurements=SimpleNamespace(file=SimpleNamespace(path="folder/some.csv")))
    task = CalibrationTask(
        planned=[file],
        chip="a100",
        base=BaseChoice(["a100", "_self_"], {}),
        chip_overrides={},
        names=["utilization"],
        measured=np.array([1.0, 2.0, 4.0, 8.0, 5.0]),
        before=np.array([1.5, 1.0, 6.0, 10.0, np.nan]),
        held_out=np.array([False, False, False, True, False]),
        fitted=np.array([0, 1]),
        points=[],
    )
    after = np.array([1.1, 2.4, 3.2, 7.6, np.nan])
    fit = Fit(np.array([0.8]), np.array([0.01]), [FITTED])
    fitted = FittedChip(task, np.array([0.9]), fit, {"utilization": 0.8}, after)
    errors = error_frame(fitted).set_index("rows_of")
    assert errors["rows"].to_dict() == {"fitted": 3, "held back": 1}
    assert errors.loc["fitted", ["before", "after"]].tolist() == pytest.approx([0.5, 0.5 / 3])
    assert errors.loc["held back", ["before", "after"]].tolist() == pytest.approx([0.25, 0.05])
    said = yaml.safe_load(calibrated_chip_text(fitted))["source"]["utilization"]
    assert said == (
        "calibrated: some.csv, 4 rows, mean relative error 5.0% on a held-back fifth (25.0% before)"
    )
