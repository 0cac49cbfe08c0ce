"""One page per dataset: a single HTML file with linked charts, which needs no network and no server.

`content` says what a page holds, `kinds` makes it of a dataset of each kind, `rows` chooses the points of a
large one, `again` predicts points again for their kernels, and `document` writes the file. What the browser
runs lies in `assets`; the charts are drawn by Vega (`library`).
"""
