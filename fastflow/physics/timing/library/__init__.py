"""Times of GEMMs as a kernel library runs them."""
