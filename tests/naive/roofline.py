"""One kernel on its device (6.1): the slowest of compute and all levels, plus the launch."""


def memory_bound(bytes_, flop, flops, bandwidths, launch):
    """Return the time of a pass that moves the same bytes through every level."""
    return max([flop / flops] + [bytes_ / bandwidth for bandwidth in bandwidths]) + launch
