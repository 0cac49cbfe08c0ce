"""Times of forward passes of a server, tabulated and interpolated."""
