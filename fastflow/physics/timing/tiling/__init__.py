"""The tiling search: which tiles of a GEMM stay at each level of memory (6.1, 6.2)."""
