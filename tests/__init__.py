"""Tests of fastflow. `naive/` holds slow oracles written straight from the paper's text."""
