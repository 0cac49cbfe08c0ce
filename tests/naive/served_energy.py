"""Energy of a pool of devices that serve, by the second: passes, waits for the host, rest."""


def pool(idle, active, limit, devices, seconds, passes, host, joules):
    """Return joules; passes, host: devices' seconds in passes and in the host's time around them.

    joules: of the passes. idle, active, limit: watts of a device at rest, more while kernels run, at most.
    """
    rest = devices * seconds - passes
    if rest < 0.0:
        rest = 0.0
    of_host = min(host, rest)
    drawn = joules + idle * (rest - of_host) + (idle + 0.15 * active) * of_host
    least, most = idle * devices * seconds, limit * devices * seconds
    return least if drawn < least else most if drawn > most else drawn
