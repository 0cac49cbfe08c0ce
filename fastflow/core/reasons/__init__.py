"""Reasons: why a point is not feasible, as a code with fields, formatted last."""
