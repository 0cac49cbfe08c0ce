"""The best strategy, layout or server of each point, in place of `auto`."""
