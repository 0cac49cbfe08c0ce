"""Datasets: folders of Parquet parts, what their columns are, written whole or not at all, and read back."""
