"""From a command line to a dataset: composing configurations, grids, running them, storing results.

Nothing here knows physics, and nothing of the model knows what is here.
"""
