"""The tiling search: the tiles of a GEMM at each level of memory (6.1, 6.2)."""
