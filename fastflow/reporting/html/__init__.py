"""One page per dataset: a single HTML file with linked charts, without a network or a server.

`content` defines the contents of a page, `kinds` builds it for each kind of dataset, `rows` samples the
points of a large dataset, `point_details` predicts the kernels of points, and `document` writes
the file.
The scripts of the browser are in `assets`; Vega draws the charts (`vega`).
"""
