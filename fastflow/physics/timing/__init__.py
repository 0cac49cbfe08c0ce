"""PPE, the performance prediction engine: one launch of a kernel on a device (6.1 to 6.3)."""
