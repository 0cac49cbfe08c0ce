"""Evaluating grids: chunks of points, by threads of this machine or by a cluster, into datasets."""
