"""PPE, the performance prediction engine: tiles, rooflines, schedule (Section 6)."""
