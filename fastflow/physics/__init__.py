"""The physics: hardware, kernels of a neural network, their times, schedule, parallelism, network, cost."""
