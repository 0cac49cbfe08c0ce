"""What a meter of power reads of a kernel that repeats, a millisecond at a time."""


def readings(run_s, before_s, pause_s, every_s, mean_s, tick_s):
    """Return the readings of a run, of 1 while kernels run and 0 between runs, runs before it included."""
    count = int(run_s / every_s + 1e-9) + 1

    def runs(time):
        return time < run_s if time >= 0 else time % (before_s + pause_s) < before_s

    read = []
    for number in range(count):
        ticks = round(mean_s / tick_s)
        start = number * every_s - mean_s
        read.append(sum(runs(start + (tick + 0.5) * tick_s) for tick in range(ticks)) / ticks)
    return read
