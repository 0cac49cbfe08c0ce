"""The strategy space (3.3): every way to spread a model over all devices of a system."""


def every_strategy(devices, layers):
    """Return the texts of all strategies that take all devices, one way of writing each; in no order."""
    degrees = [degree for degree in range(1, devices + 1) if devices % degree == 0]
    found = []
    for stages in degrees:
        if stages > layers:
            continue
        pipeline = f"-p{stages}" if stages > 1 else ""
        for replicas in degrees:
            data = f"-d{replicas}" if replicas > 1 else ""
            if replicas * stages == devices:
                found.append(f"d{replicas}{pipeline}")
            for kp1 in degrees:
                if kp1 > 1 and kp1 * replicas * stages == devices:
                    found.append(f"CR-{kp1}{data}{pipeline}")
                found += [
                    f"RC-{kp1}-{kp2}{data}{pipeline}"
                    for kp2 in degrees
                    if kp1 * kp2 > 1 and kp1 * kp2 * replicas * stages == devices
                ]
    return found


def best_first(candidates):
    """Return the texts of candidates (text, time or None, whether it fits its memory), the best one first.

    What fits comes before what does not, then the faster one; what has no time comes last.
    """

    def worse(candidate):
        _, time, fits = candidate
        return (2, 0.0) if time is None else (0 if fits else 1, time)

    return [text for text, _, _ in sorted(candidates, key=worse)]
