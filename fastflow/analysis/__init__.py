"""Questions about predictions: validation, calibration, back-test, search, sensitivity."""
