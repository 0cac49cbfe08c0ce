"""Evaluation of grids in chunks of points, on threads of this machine or on a cluster."""
