"""Slow, obvious oracles: plain Python, one point at a time, written from the paper, and where
it leaves a choice from the rule that the module states first (docs/model.md gives the reasons).

None of them imports fastflow. Where a count falls on a border that rounding decides, tests accept
what the oracle says a hair below and a hair above it.
"""
