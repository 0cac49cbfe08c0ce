"""One iteration of all kernels: micro-batches in a pipeline, the schedule, its energy (6.5)."""
