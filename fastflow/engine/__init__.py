"""Grids of points, predicted in chunks and kept as Parquet datasets."""
