"""Datasets: folders of Parquet parts, with their schema, atomic writes and a reader."""
