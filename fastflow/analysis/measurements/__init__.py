"""Files of measurements: read, and their rows predicted as points of the model."""
